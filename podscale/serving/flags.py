"""Command lines in Go's pflag notation, read against a table of flags.

The tables are data (``podscale.serving.flag_table`` holds the API server's); a part
adds its own and reads the result by name. What a flag means stands with its user.
"""

import csv
import difflib
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from msgspec import Struct

from podscale.core.times import duration

Kind = Literal["string", "bool", "int", "float", "duration", "strings", "array", "any"]
T = TypeVar("T")
Value = str | bool | int | float | tuple[str, ...]

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


class Flag(Struct, frozen=True):
    """One flag. ``duration`` values are seconds, their ``default`` too.

    ``strings`` splits at commas and adds up when repeated; ``array`` only adds up; ``any``,
    for flags without effect, takes a value or none.
    ``ignored`` is why the flag changes nothing here: shown as a warning when given.
    """

    name: str  # with * at its end: all that begin so and have no row of their own
    kind: Kind = "string"
    default: Value = ""
    help: str = ""
    shorthand: str = ""
    ignored: str = ""
    is_listed: bool = True  # in --help
    choices: tuple[str, ...] = ()  # beside the default; none: any text
    must_be: str = ""  # one of ``_RANGES``
    instead: str = ""  # of a second, other value, which is refused; "": the last one counts


_RANGES: Mapping[str, Callable[[Any], bool]] = {
    "greater than 0": lambda value: value > 0,
    "at least 1": lambda value: value >= 1,
    "between 0 and 65535": lambda value: 0 <= value <= 65535,
    "between 1 and 30": lambda value: 1 <= value <= 30,
    "between 0 and 1": lambda value: 0 <= value <= 1,
    "above 0 and at most 1": lambda value: 0 < value <= 1,
}


# Flags of ours that there were: what to do without them.
_GONE: Mapping[str, str] = {
    "autopilot-cpu": "CPU is recommended for serving-p95",
    "autopilot-memory": "memory is recommended for low-oom",
    "autopilot-method": "the learned method is used",
    "autopilot-name": "VPAs that name the recommender autopilot get Autopilot's",
    "ballast-release": "a node used less than half of its threshold is let go",
    "ballast-step": "changes of 2 % of allocatable and more are written",
    "ballast-write-interval": "a node is written at most once in a minute",
    "checkpoint-deadband": "checkpoints whose weights moved by less than 1 % wait an hour",
    "checkpoint-max-age": "checkpoints whose weights moved by less than 1 % wait an hour",
    "config-poll-interval": "files are looked at every 2s",
    "review-deadline": "a pod is let through unchanged after 2s",
    "serving-ca-lifetime": "the CA lives a year and is followed by another after two thirds",
    "taint-hysteresis": "a taint goes where usage is 10 % of the threshold below it",
    "usage-window": "usage is averaged over 5m",
}


class FlagError(ValueError):
    """The command line cannot be read; the text is pflag's, but for the reason."""


class Flags(Struct, frozen=True):
    values: Mapping[str, Value]  # every flag of the table, by its full name
    given: frozenset[str]
    arguments: tuple[str, ...]  # what is no flag
    warnings: tuple[str, ...]  # one for each ignored flag that was given

    def text(self, name: str) -> str:
        return _typed(self.values[name], str, name)

    def switch(self, name: str) -> bool:
        return _typed(self.values[name], bool, name)

    def number(self, name: str) -> int:
        return _typed(self.values[name], int, name)

    def seconds(self, name: str) -> float:
        """Return the value of a ``duration`` or ``float`` flag."""
        value = self.values[name]
        return float(_typed(value, (int, float), name))

    def listing(self, name: str) -> tuple[str, ...]:
        """Return the value of a ``strings`` or ``array`` flag."""
        return _typed(self.values[name], tuple, name)


def parse(argv: Sequence[str], table: Iterable[Flag]) -> Flags:
    """Return the flags of ``argv`` (without the program's name); raises ``FlagError``."""
    by_name = {flag.name: flag for flag in table}
    by_short = {flag.shorthand: flag for flag in by_name.values() if flag.shorthand}
    values: dict[str, Value] = {flag.name: flag.default for flag in by_name.values()}
    given: set[str] = set()
    arguments: list[str] = []
    warnings: dict[str, None] = {}
    words = list(argv)
    while words:
        word = words.pop(0)
        if word == "--":
            arguments += words
            break
        if not _is_flag(word):
            arguments.append(word)
            continue
        flag, shown, attached = _which(word, by_name, by_short)
        text = _argument(flag, shown, attached, words)
        if flag.instead and flag.name in given and text != values[flag.name]:
            raise FlagError(f"{shown} is given twice, with different values: {flag.instead}")
        values[flag.name] = _merge(flag, values[flag.name], text, shown, flag.name in given)
        given.add(flag.name)
        if flag.ignored:
            warnings[f"{shown} changes nothing: {flag.ignored}"] = None
    return Flags(values, frozenset(given), tuple(arguments), tuple(warnings))


def wrong_values(flags: Flags, table: Iterable[Flag]) -> list[str]:
    """Return which flags of the table have a value that they cannot have."""
    found = []
    for flag in table:
        value = flags.values[flag.name]
        if flag.choices and value not in (flag.default, *flag.choices):
            found.append(f"--{flag.name} must be one of {', '.join(flag.choices)}")
        if flag.must_be and not _RANGES[flag.must_be](value):
            found.append(f"--{flag.name} must be {flag.must_be}")
    return found


def row_of(name: str, rows: Mapping[str, T]) -> T | None:
    """Return the row of a flag: its own, or the one with * whose beginning it has."""
    stars = (row for key, row in rows.items() if key[-1:] == "*" and name.startswith(key[:-1]))
    return rows[name] if name in rows else next(stars, None)


def _is_flag(word: str) -> bool:
    return word.startswith("-") and word != "-"


def _which(
    word: str, by_name: Mapping[str, Flag], by_short: Mapping[str, Flag]
) -> tuple[Flag, str, str | None]:
    if word.startswith("--"):
        name, sep, attached = word[2:].partition("=")
        # Kubernetes' WordSepNormalizeFunc: underscores and dashes are the same.
        plain = name.replace("_", "-")
        flag = row_of(plain, by_name)
        if flag is None:
            if advice := _GONE.get(plain.rpartition(".")[2]):
                raise FlagError(f"--{name} is gone, leave it out: {advice}")
            near = difflib.get_close_matches(name, by_name, n=1)
            hint = f" (did you mean --{near[0]}?)" if near else ""
            raise FlagError(f"unknown flag: --{name}{hint}")
        return flag, f"--{plain}", attached if sep else None
    letter, rest = word[1], word[2:]
    flag = by_short.get(letter)
    if flag is None:
        raise FlagError(f"unknown shorthand flag: {letter!r} in {word.partition('=')[0]}")
    return flag, f"-{letter}, --{flag.name}", rest.removeprefix("=") if rest else None


def _argument(flag: Flag, shown: str, attached: str | None, words: list[str]) -> str:
    if attached is not None:
        return attached
    if flag.kind == "bool":
        return "true"
    if flag.kind == "any" and (not words or _is_flag(words[0])):
        return ""
    if not words:
        raise FlagError(f"flag needs an argument: {shown}")
    return words.pop(0)


def _merge(flag: Flag, old: Value, text: str, shown: str, is_repeated: bool) -> Value:
    try:
        value = _convert(flag.kind, text)
    except ValueError as error:
        raise FlagError(f'invalid argument "{text}" for "{shown}" flag: {error}') from None
    if isinstance(value, tuple) and is_repeated and isinstance(old, tuple):
        return old + value
    return value


def _convert(kind: Kind, text: str) -> Value:
    match kind:
        case "bool":
            if text not in _TRUE | _FALSE:
                raise ValueError("neither true nor false")
            return text in _TRUE
        case "int":
            try:
                return int(text, 0)
            except ValueError:
                raise ValueError("not a whole number") from None
        case "float":
            try:
                return float(text)
            except ValueError:
                raise ValueError("not a number") from None
        case "duration":
            try:
                return duration.parse_go(text)
            except duration.DurationError:
                raise ValueError(f"not a duration; {duration.WRITE_ONE}") from None
        case "strings":
            return tuple(next(csv.reader([text]))) if text else ()
        case "array":
            return (text,)
        case "string" | "any":
            return text


def usage(table: Iterable[Flag]) -> str:
    """Return the flags for ``--help``, by name, with their defaults; idle ones last, in short."""
    lines = []
    listed = {flag.name: flag for flag in table if flag.is_listed}  # the last counts, as parsed
    for _, flag in (ordered := sorted(listed.items())):
        if flag.ignored:
            continue
        short = f"-{flag.shorthand}, " if flag.shorthand else "    "
        about = flag.help
        if flag.kind == "bool":
            default = "" if flag.default is False else f" (default {str(flag.default).lower()})"
            lines.append(f"  {short}--{flag.name}\n          {about}{default}")
            continue
        lines.append(f"  {short}--{flag.name} {flag.kind}\n          {about}{_default(flag)}")
    idle = [f"--{name}" for name, flag in ordered if flag.ignored]
    if idle:
        text = f"Accepted for upstream's manifests, without effect: {', '.join(idle)}"
        lines += ["", *textwrap.wrap(text, 98, break_on_hyphens=False)]
    return "\n".join(lines) + "\n"


def _default(flag: Flag) -> str:
    if flag.default in ("", ()):
        return ""
    if isinstance(flag.default, tuple):
        return f" (default [{','.join(flag.default)}])"
    if flag.kind == "duration" and isinstance(flag.default, (int, float)):
        return f" (default {duration.format_go(flag.default)})"
    return f" (default {flag.default})"


def _typed(value: Value, kind: type[T] | tuple[type[T], ...], name: str) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"--{name} holds {type(value).__name__}")
    return value
