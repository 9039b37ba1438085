"""Other people's YAML as plain objects: manifests, lists of them, values files."""

from collections.abc import Iterator, Mapping
from typing import TypeGuard

import yaml

Object = Mapping[str, object]


class Unreadable(ValueError):
    """The text is not what it was taken for; the text of the error says why."""


def objects(text: str, file: str = "input") -> list[Object]:
    """Return the mappings of a YAML stream, ``kind: List`` opened up; raises ``Unreadable``."""
    try:
        return [each for document in yaml.safe_load_all(text) for each in _opened(document, file)]
    except yaml.MarkedYAMLError as error:
        spot = error.problem_mark or error.context_mark
        where = f"{file}:{spot.line + 1}:{spot.column + 1}" if spot else file
        context = f"{error.context}: " if error.context else ""
        raise Unreadable(f"{where}: not YAML: {context}{error.problem}") from None
    except RecursionError:
        raise Unreadable(f"{file}: nested too deeply") from None
    except yaml.YAMLError as error:
        raise Unreadable(f"{file}: not YAML: {_words(error)}") from None


def _words(error: yaml.YAMLError) -> str:
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
    """Return namespace and name."""
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
    if text_at(document, "kind").endswith("List") and isinstance(items, list):
        yield from (each for each in items if is_mapping(each))
    else:
        yield document
