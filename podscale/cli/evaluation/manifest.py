"""YAML written by hand, as strictly as ``kubectl`` reads it: twice the same key and keys that
nobody knows are told by their place.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args, get_type_hints

import yaml
from msgspec import Struct

from podscale.kube.objects.autoscaler import AutoscalerSpec


class WrittenError(ValueError):
    """The text is not what it is taken for; ``line`` and ``column`` are 0 where not known."""

    def __init__(self, text: str, line: int = 0, column: int = 0) -> None:
        super().__init__(text)
        self.line, self.column = line, column


def plain(text: str) -> Any:
    """Return the one document of ``text``; raises ``WrittenError``."""
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        for path, line in _twice(root, ""):
            raise WrittenError(f"{path} is there twice", line, 1)
        return None if root is None else loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else ()
        words = ", ".join(part for part in (error.problem, error.context) if part)
        raise WrittenError(f"not YAML: {words}", *place) from None
    except yaml.YAMLError as error:  # a character that YAML does not allow has no mark
        words = " ".join(str(error).replace('in "<unicode string>",', "at").split())
        raise WrittenError(f"not YAML: {words}") from None
    except RecursionError:
        raise WrittenError("nested too deeply") from None
    except ValueError as error:  # a timestamp of no calendar
        if isinstance(error, WrittenError):
            raise
        raise WrittenError(f"not YAML: {error}") from None


def place(text: str, message: str) -> tuple[int, int]:
    """Return line and column of the first field that ``message`` names, or of what encloses it.

    (0, 0) where ``text`` is not YAML or the message names no field.
    """
    try:
        node = yaml.SafeLoader(text).get_single_node()
    except (yaml.YAMLError, RecursionError):
        return 0, 0
    match = _NAMED.search(message)
    named = "".join(filter(None, match.groups())) if match else ""
    if inside := _UNKNOWN_IN.search(message):
        named = f"{inside[2]}.{inside[1]}"
    found = (0, 0)
    for step in re.findall(r"[\w/-]+", named):
        below = _below(node, step)
        if below is None:
            break
        found, node = below
    return found


_NAMED = re.compile(r"at `\$\.?([^`]+)`|unknown field `?([^\s;`]+)|^([A-Za-z][\w.\[\]/-]*):")
_UNKNOWN_IN = re.compile(r"unknown field `([^`]+)` - at `\$\.?([^`]*)`")  # msgspec's


def _below(node: yaml.Node | None, step: str) -> tuple[tuple[int, int], yaml.Node] | None:
    if isinstance(node, yaml.SequenceNode) and step.isdecimal() and int(step) < len(node.value):
        value = node.value[int(step)]
        return (value.start_mark.line + 1, value.start_mark.column + 1), value
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if isinstance(key, yaml.ScalarNode) and key.value == step:
            return (key.start_mark.line + 1, key.start_mark.column + 1), value
    return None


def unknown(written: Mapping[str, Any]) -> list[str]:
    """Return the paths of keys that an HPA (v2) does not have, each with the nearest that it has.

    Metadata and status are not ours.
    """
    found = [_with_nearest(key, key, _OF_OBJECT) for key in map(str, written)
             if key not in _OF_OBJECT]  # fmt: skip
    return [*found, *_unknown(written.get("spec"), AutoscalerSpec, "spec")]


def unknown_in(written: object, kind: type[Struct]) -> list[str]:
    """Return the paths of keys that ``kind`` does not have, each with the nearest that it has."""
    return list(_unknown(written, kind, ""))


def _with_nearest(path: str, key: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(key[:100], known, n=1)
    return f"{path}; did you mean {near[0]}?" if near else path


_OF_OBJECT = ("apiVersion", "kind", "metadata", "spec", "status")


def _unknown(value: object, kind: object, path: str) -> Iterator[str]:
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _unknown(each, kind, f"{path}[{index}]")
    elif isinstance(value, Mapping) and (struct := _struct_in(kind)) is not None:
        hints = get_type_hints(struct)
        names = zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True)
        known = {written: hints[own] for written, own in names}
        for key, below in value.items():
            if key in known:
                yield from _unknown(below, known[key], f"{path}.{key}".lstrip("."))
            else:
                yield _with_nearest(f"{path}.{key}".lstrip("."), str(key), known)


def _struct_in(kind: object) -> type[Struct] | None:
    if isinstance(kind, type) and issubclass(kind, Struct):
        return kind
    return next(filter(None, map(_struct_in, get_args(kind))), None)


def _twice(node: yaml.Node | None, path: str) -> Iterator[tuple[str, int]]:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = f"{path}.{key.value}".lstrip(".")
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                yield name, key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode):
                seen.add(key.value)
            yield from _twice(value, name)
    elif isinstance(node, yaml.SequenceNode):
        for index, each in enumerate(node.value):
            yield from _twice(each, f"{path}[{index}]")
