"""Another expectation in one place: a test that still passes has not looked there."""

import copy
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

import pytest

Path = tuple[Any, ...]


class Outcome(NamedTuple):
    """What came of the mutations of one row."""

    tried: int
    noticed: int


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the places of scalars and of empty lists and maps."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path


def mutated(value: Any, path: Path) -> Any:
    """Return a copy of ``value`` with another thing at ``path``."""
    if not path:
        return _another(value)
    made = copy.copy(value)
    made[path[0]] = mutated(value[path[0]], path[1:])
    return made


def _another(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int() | float():
            return value * 2 + 1
        case str() if value.isdecimal():
            return f"7{value}"
        case str():
            return f"{value}x" if value else "x"
        case list():
            return ["x"]
        case dict():
            return {"x": "x"}
    return "x"  # for None


def outcome(
    expected: Any, check: Callable[[Any], object], seed: str, *, most: int, until_noticed: bool
) -> Outcome:
    """Return how many of at most ``most`` mutations ``check`` notices by raising.

    ``until_noticed``: the first that is noticed is enough.
    """
    places: Sequence[Path] = list(leaves(expected))
    chosen = Random(seed).sample(places, len(places))
    tried = noticed = 0
    for place in chosen:
        if tried >= most and noticed:
            break
        tried += 1
        try:
            check(mutated(expected, place))
        except (Exception, pytest.fail.Exception):  # noqa: BLE001 - what fails has noticed
            noticed += 1
            if until_noticed:
                break
    return Outcome(tried, noticed)
