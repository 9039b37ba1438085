"""Other people's YAML as plain objects: manifests, lists of them, values files."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

import yaml
from yaml.constructor import SafeConstructor

from adapter.rules.yaml_nodes import nodes

Object = Mapping[str, object]

# An alias may stand for millions of values; ten thousand pods print about so many.
_MOST_VALUES = 5_000_000
_MOST_EXACT = 2**53
_MOST_BITS = 1024  # of a whole number: a longer one cannot be printed
# What Go's ParseBool takes, by which KEDA reads annotations and trigger metadata.
_TRUE = frozenset(["1", "t", "T", "TRUE", "true", "True"])
_FALSE = frozenset(["0", "f", "F", "FALSE", "false", "False"])


class Unreadable(ValueError):
    """The text is not what it was taken for; the text of the error says why."""


def objects(text: str, file: str = "input") -> list[Object]:
    """Return the mappings of a YAML stream, ``kind: List`` opened up; raises ``Unreadable``."""
    try:
        loaded = map(_Constructor().construct_document, nodes(text))
        left = iter(range(_MOST_VALUES))
        return [each for document in loaded for each in _opened(_as_json(document, left), file)]
    except yaml.MarkedYAMLError as error:
        spot = error.problem_mark or error.context_mark
        where = f"{file}:{spot.line + 1}:{spot.column + 1}" if spot else file
        context = f"{error.context}: " if error.context else ""
        raise Unreadable(f"{where}: not YAML: {context}{error.problem}") from None
    except RecursionError:
        raise Unreadable(f"{file}: nested too deeply, or an anchor that holds itself") from None
    except _TooMany:
        raise Unreadable(
            f"{file}: more than {_MOST_VALUES} values, aliases counted: give less at a time"
        ) from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise Unreadable(f"{file}: not YAML: {_words(error)}") from None


def constructed(node: yaml.Node) -> object:
    """Return what ``node`` stands for; raises ``yaml.YAMLError``."""
    return _as_json(_Constructor().construct_document(node), iter(range(_MOST_VALUES)))


class _TooMany(yaml.YAMLError):
    """There is more to a document than memory should hold."""


class _Constructor(SafeConstructor):
    """Reads scalars as Kubernetes does: dates are texts; what is no number has a place."""


def _scalar(loader: Any, node: yaml.ScalarNode) -> object:
    if isinstance(node.value, str) and ":" in node.value:
        return node.value  # 12:30, which YAML 1.1 takes for 750 and Go does not
    try:
        found = SafeConstructor.yaml_constructors[node.tag](loader, node)
        if isinstance(found, int) and found.bit_length() > _MOST_BITS:
            raise ValueError
        return found
    except (ValueError, LookupError):
        kind = node.tag.rpartition(":")[2]
        shown = node.value if len(node.value) <= 40 else f"{node.value[:37]}..."
        raise yaml.constructor.ConstructorError(
            None, None, f"{shown!r} is no {kind}", node.start_mark
        ) from None


def _text(loader: Any, node: yaml.ScalarNode) -> str:
    return str(loader.construct_scalar(node))


for _kind in ("bool", "int", "float"):
    _Constructor.add_constructor(f"tag:yaml.org,2002:{_kind}", _scalar)
for _kind in ("timestamp", "value", "binary"):  # value: a lone =; binary is unpacked already
    _Constructor.add_constructor(f"tag:yaml.org,2002:{_kind}", _text)


def _as_json(value: object, left: Iterator[int]) -> object:
    """Return a copy as JSON has it, with texts for keys; takes one of ``left`` per value."""
    if next(left, None) is None:
        raise _TooMany
    if isinstance(value, dict):
        return {_key(key): _as_json(each, left) for key, each in value.items()}
    if isinstance(value, list):
        return [_as_json(each, left) for each in value]
    # kubectl writes the YAML number 1.0 as 1.
    if isinstance(value, float) and value.is_integer() and abs(value) < _MOST_EXACT:
        return int(value)
    return value


def _key(key: object) -> str:
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    return str(key)


def _words(error: Exception) -> str:
    # PyYAML names the text it was given as if it were a file.
    return " ".join(str(error).replace('in "<unicode string>",', "at").split())


def at(value: object, *path: str) -> object:
    """Return the value below ``path``, ``None`` where there is nothing."""
    for key in path:
        if not is_mapping(value):
            return None
        value = value.get(key)
    return value


def text_at(value: object, *path: str) -> str:
    """Return the scalar below ``path`` as text, "" where there is none."""
    found = at(value, *path)
    if isinstance(found, bool):
        return "true" if found else "false"
    return str(found) if isinstance(found, str | int | float) else ""


def flag_at(value: object, *path: str) -> bool | None:
    """Return the scalar below ``path`` as Go's ParseBool reads it, 0 and 1 among it; ``None``: it
    is neither, or there is nothing.
    """
    text = text_at(value, *path)
    return True if text in _TRUE else False if text in _FALSE else None


def list_at(value: object, *path: str) -> list[Object]:
    """Return the mappings of the list below ``path``."""
    found = at(value, *path)
    return [each for each in found if is_mapping(each)] if isinstance(found, list) else []


def texts_at(value: object, *path: str) -> list[str]:
    """Return the texts of the list below ``path``."""
    found = at(value, *path)
    return [str(each) for each in found] if isinstance(found, list) else []


def map_at(value: object, *path: str) -> dict[str, object]:
    """Return the mapping below ``path``, empty where there is none."""
    found = at(value, *path)
    return dict(found) if is_mapping(found) else {}


def is_mapping(value: object) -> TypeGuard[Mapping[str, object]]:
    """Return whether ``value`` is a mapping as YAML and JSON make them."""
    return isinstance(value, Mapping)


def name_of(value: Object) -> tuple[str, str]:
    return text_at(value, "metadata", "namespace"), text_at(value, "metadata", "name")


def _opened(document: object, file: str) -> Iterator[Object]:
    if not is_mapping(document):
        if document is not None:
            raise Unreadable(
                f"{file}: a document that is no mapping ({type(document).__name__}): give "
                "manifests as kubectl prints them, Helm values or a rules file"
            )
        return
    items = document.get("items")
    kind = text_at(document, "kind")
    if kind.endswith("List") and isinstance(items, list):
        # Of a typed list, as kubectl get --raw prints it, the items do not say what they are.
        said = {"apiVersion": text_at(document, "apiVersion"), "kind": kind.removesuffix("List")}
        given = said if said["kind"] else {}
        yield from ({**given, **each} for each in items if is_mapping(each))
    else:
        yield document
