"""The values a template works on, how they are written, and which count as true.

``None`` is Go's nil and its "no value". The fields given to ``render`` are a
``TemplateFields``: Go's struct, whose unknown field is an error where a map's is no value.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from podscale.core.gotemplate.errors import TemplateExecutionError

Value = str | int | bool | None | Sequence[str] | Mapping[str, str]


class TemplateFields(Struct, frozen=True):
    """What ``.`` is at the start of a template."""

    fields: Mapping[str, Value]


Operand = Value | TemplateFields


def kind(value: Operand) -> str:
    """Return what messages call the value, ``text``, ``list``, ``map`` and so on."""
    match value:
        case None:
            return "nil"
        case bool():
            return "bool"
        case str():
            return "text"
        case int():
            return "int"
        case TemplateFields():
            return "struct"
        case Mapping():
            return "map"
    return "list"


def show(value: Operand) -> str:
    """Return the value as Go's ``%v`` writes it; raises ``TemplateExecutionError`` for the dot."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return str(value).lower()
        case str() | int():
            return str(value)
        case TemplateFields():
            raise TemplateExecutionError("rules cannot write all fields at once: name one")
        case Mapping():
            return f"map[{' '.join(f'{key}:{item}' for key, item in sorted(value.items()))}]"
    return f"[{' '.join(value)}]"


def is_true(value: Operand) -> bool:
    """Return Go's template truth: not zero, not empty, not nil; a struct always."""
    if isinstance(value, TemplateFields):
        return True
    return bool(value)


def field_of(value: Operand, name: str) -> Value:
    """Return the field or entry ``name``; absent entries of maps are None, "no value"."""
    match value:
        case None:
            return None
        case TemplateFields():
            if name not in value.fields:
                known = ", ".join(f".{each}" for each in value.fields)
                raise TemplateExecutionError(f"there is no field .{name}; there are {known}")
            return value.fields[name]
        case Mapping():
            return value.get(name)
    raise TemplateExecutionError(f"can't evaluate field {name} in type {kind(value)}")
