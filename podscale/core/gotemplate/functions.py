"""The values a template works on, the functions that it calls, and what can be wrong: as in Go.

``None`` is Go's nil and its "no value". The fields given to ``render`` are a ``TemplateFields``:
Go's struct, whose unknown field is an error where a map's is no value.

TemplateError
├── TemplateSyntaxError           it cannot be read: refused when the rules are loaded
│   └── TemplateConstructRefused  Go can read it, and rules cannot use it
└── TemplateExecutionError        it cannot be executed with these fields: fails one request
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from podscale.core.goquote import quote

LEFT = "<<"  # opens an action
_MOST_SHOWN = 40  # characters of an action in a message


class TemplateError(ValueError):
    """The template cannot be read, or cannot be executed with the given fields."""


class TemplateSyntaxError(TemplateError):
    """The text is not a template; the message quotes the action that is wrong, with its place."""

    def __init__(self, text: str, at: int, reason: str) -> None:
        """``at`` is where in ``text`` the action opens."""
        self.reason = reason
        self.opened = text.count(LEFT, 0, at)  # actions before that one
        shown, *others = text[at : at + _MOST_SHOWN + 1].split("\n", 1)
        if others or len(shown) > _MOST_SHOWN:
            shown = f"{shown[:_MOST_SHOWN]}…"
        line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
        super().__init__(f"line {line}, column {column}: {reason}: {quote(shown)}")


class TemplateConstructRefused(TemplateSyntaxError):
    """The template uses what Go has and rules cannot use."""

    def __init__(self, text: str, at: int, construct: str) -> None:
        reason = (
            f"TemplateConstructRefused: rules cannot use {construct} in templates; write it with "
            "fields, index, if, range, printf, eq and ne"
        )
        super().__init__(text, at, reason)


class TemplateExecutionError(TemplateError):
    """The template asks for a field, an index or an operation that does not exist."""


# A template writes one query. Past these bounds it is a loop or a mistake, and the
# process that renders it serves others; Go has no such bounds.
_MOST_STEPS = 10_000
_MOST_OUTPUT = 4 * 1024 * 1024
_MOST_VALUES = 64 * 1024  # characters that ``printf`` makes in one rendering

Value = str | int | bool | None | Sequence[str] | Mapping[str, str]


class TemplateFields(Struct, frozen=True):
    """What ``.`` is at the start of a template."""

    fields: Mapping[str, Value]


Operand = Value | TemplateFields


class Output:
    """The text of one rendering so far, and how much work is left to it."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self._steps, self._left, self._values = _MOST_STEPS, _MOST_OUTPUT, _MOST_VALUES

    def write(self, text: str) -> None:
        """Add ``text``; raises ``TemplateExecutionError`` when it is too much."""
        self._left -= len(text)
        if self._left < 0:
            raise TemplateExecutionError(f"writes more than {_MOST_OUTPUT} characters")
        self.written.append(text)

    def step(self) -> "Output":
        """Return itself with one step less; raises ``TemplateExecutionError`` when none is left."""
        self._steps -= 1
        if self._steps < 0:
            raise TemplateExecutionError(f"takes more than {_MOST_STEPS} steps")
        return self

    def value(self, part: str) -> str:
        """Return a part of a value; raises ``TemplateExecutionError`` when it is too much."""
        self._values -= len(part)
        if self._values < 0:
            raise TemplateExecutionError(f"makes values of more than {_MOST_VALUES} characters")
        return part


def show(value: Operand) -> str:
    """Return the value as Go writes it."""
    match value:
        case None:
            return "<no value>"
        case bool():
            return str(value).lower()
        case str() | int():
            return str(value)
        case TemplateFields():
            raise TemplateExecutionError("rules cannot write all fields at once: name one")
        case Mapping():
            return f"map[{' '.join(f'{key}:{item}' for key, item in sorted(value.items()))}]"
    return f"[{' '.join(value)}]"


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
    raise TemplateExecutionError(f"can't evaluate field {name}: only maps have fields")


def items(value: Operand) -> Sequence[tuple[Operand, Operand]]:
    """Return what ``range`` walks over: index and item, or key and item sorted by key."""
    match value:
        case None:
            return ()
        case Mapping():
            return sorted(value.items())
        case list():
            return list(enumerate(value))
    raise TemplateExecutionError("rules can range over lists and maps")


def _index(_: Output, arguments: Sequence[Operand]) -> Operand:
    item, index = arguments
    if isinstance(item, Mapping) and isinstance(index, str):
        return item.get(index, "")
    if isinstance(item, list) and isinstance(index, int) and 0 <= index < len(item):
        return str(item[index])
    raise TemplateExecutionError(f"rules index lists by numbers within, and maps by texts: {index}")


def _printf(output: Output, arguments: Sequence[Operand]) -> str:
    pattern, *values = arguments
    first, *parts = str(pattern).split("%")
    written = [first]
    for part, value in zip(parts, values, strict=True):
        if not isinstance(value, str):
            raise TemplateExecutionError("printf in rules writes texts alone")
        text = quote(value) if part[0] == "q" else value
        written.append(output.value(text + part[1:]))
    return "".join(written)


def _equal(_: Output, arguments: Sequence[Operand]) -> bool:
    one, other = arguments
    if type(one) is not type(other) or not isinstance(one, str | int):
        raise TemplateExecutionError("rules can compare texts with texts, and numbers with numbers")
    return one == other


FUNCTIONS: Mapping[str, Callable[[Output, Sequence[Operand]], Operand]] = {
    "eq": _equal,
    "index": _index,
    "ne": lambda output, arguments: not _equal(output, arguments),
    "printf": _printf,
}
