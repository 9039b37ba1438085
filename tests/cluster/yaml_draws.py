"""Random rules files as somebody might write them: YAML 1.1 in all its forms, some of it wrong."""

from collections.abc import Sequence
from random import Random

_KEYS = {
    "": ("rules", "externalRules", "resourceRules"),
    "rule": ("seriesQuery", "seriesFilters", "resources", "name", "metricsQuery"),
    "filter": ("is", "isNot"),
    "resources": ("template", "overrides", "namespaced"),
    "target": ("group", "resource"),
    "name": ("matches", "as"),
    "resourceRules": ("cpu", "memory", "window"),
    "resourceRule": ("containerQuery", "nodeQuery", "resources", "containerLabel"),
}
_BELOW = {
    "rules": "[rule]", "externalRules": "[rule]", "resourceRules": "resourceRules",
    "seriesFilters": "[filter]", "resources": "resources", "name": "name", "overrides": "{target}",
    "cpu": "resourceRule", "memory": "resourceRule", "namespaced": "flag", "window": "window",
}  # fmt: skip
_TEXTS = (
    "abc", "5", "1.5", "-1", "true", "yes", "null", "~", "0o7", "017", "0x1f", "1e3", ".inf",
    "1_000", "2001-01-01", "12:30:45", '"quoted"', "'it''s'", '"\\u00e9\\n"', "a b", "a: b",
    "a #b", "#b", "'#b'", "!!str 5", "!!int 5", "!!null x", "!x y", "'{a=\"b\"}'", "{a}", "[a]",
    "{}", "[]", "*a", "&a x", "|", "", " ", "日", "<<.Series>>",
    "'<<.Series>>{<<.LabelMatchers>>}'", "=", "<<", "a\tb", "%x", "@x", "`x`", "y", "n", "on",
    "!!binary aGk=", "!!float 1", "!!int x", "!!bool x", "!!binary x", "!!float 1e3",
    "!!float -.5", "!!int 0o14", "!!bool y", "!!int 1:30", '!!binary "aG\\nk="', "!!float .inf",
    "!!int 0b1_0", "!!float 5", "!!int 1.5", "!!bool Yes", "!!null ''", "? a", "- a",
)  # fmt: skip
_FLAGS = (
    "true", "false", "yes", "no", "on", "Off", "y", "N", "TRUE", "tRue", "1", "0", '"true"',
    "null", "", "!!bool yes", "!!bool x", "~", "!!str true",
)  # fmt: skip
_WINDOWS = (
    "5m", "1h", "1m30s", "5", "0", '"5m"', "-5m", "1.5h", "5 m", "1d", "2w", "1y", "100ms",
    "null", "", "5m5m", "1s1m", "!!str 5m", "[5m]", "99999999999y", "1h0m",
)  # fmt: skip


class Files:
    """A file's text, grown from one random source.

    With merges no key and no text is wrong, no mapping null and none merges itself: what is
    wrong in a value that another replaces is told there, and not here.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._has_merges = random.random() < 0.3
        self._anchors: dict[str, list[str]] = {}

    def text(self) -> str:
        """Return a file, or what somebody took for one."""
        body = self._mapping("", 0)
        head = self._random.choice(("", "", "", "---\n", "# rules\n", "%YAML 1.1\n---\n", "\n"))
        tail = self._random.choice(("", "", "", "\n---\na: b\n", "\n...\n", "\n# end\n"))
        return head + body + tail

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _mapping(self, shape: str, indent: int) -> str:
        keys = [each for each in _KEYS[shape] if self._chance(0.6)]
        wrong = 0.0 if self._has_merges else 0.02
        if keys and self._chance(wrong):
            keys.append(self._random.choice(keys))
        if self._chance(wrong):
            keys.append(self._random.choice(("foo", "SeriesQuery", "5", "null", "'is'")))
        self._random.shuffle(keys)
        if not keys:
            return " " * indent + self._empty(("{}", "null", "~"))
        lines = [self._pair(key, indent) for key in keys]
        if shape in self._anchors and self._chance(0.4):
            lines.insert(self._random.randrange(len(lines) + 1), " " * indent + self._merge(shape))
        return "\n".join(lines)

    def _merge(self, shape: str) -> str:
        of = [f"*{each}" for each in self._random.choices(self._anchors[shape], k=2)]
        return self._random.choice((f"<<: {of[0]}", f"<<: [{', '.join(of)}]"))

    def _anchored(self, shape: str, indent: int) -> tuple[str, str]:
        """Return an anchor, if the mapping gets one, and the mapping."""
        number = sum(map(len, self._anchors.values()))
        body = self._mapping(shape, indent)
        if not self._has_merges or not self._chance(0.4):
            return "", body
        self._anchors.setdefault(shape, []).append(f"{shape}{number}")
        return f" &{shape}{number}", body

    def _pair(self, key: str, indent: int) -> str:
        written = self._random.choice((key, key, key, key, f'"{key}"', f"'{key}'"))
        return f"{' ' * indent}{written}:{self._value(_BELOW.get(key, 'text'), indent)}"

    def _value(self, shape: str, indent: int) -> str:
        if self._chance(0.0 if self._has_merges else 0.03):
            return " " + self._random.choice(_TEXTS)
        match shape:
            case "text":
                return self._scalar(_TEXTS, indent)
            case "flag":
                return " " + self._random.choice(_FLAGS)
            case "window":
                return " " + self._random.choice(_WINDOWS)
            case "[rule]" | "[filter]":
                return self._list(shape[1:-1], indent)
            case "{target}":
                return self._free(indent)
        return "\n".join(self._anchored(shape, indent + 2))

    def _scalar(self, texts: tuple[str, ...], indent: int) -> str:
        if self._chance(0.15):
            style = self._random.choice(("|", ">", "|-", ">-", "|+", "|2"))
            line = " " * (indent + 2) + self._random.choice(("sum(<<.Series>>)", "a: b", "x  y"))
            more = self._random.choice(("", "\n", "\n" + line, "\n\n" + line))
            return f" {style}\n{line}{more}"
        if self._chance(0.5):
            return " " + self._random.choice(("'a'", "plain", '"b"', "sum(x) by (y)", "5"))
        written = self._random.choice(texts)
        return " a" if self._has_merges and written[:1] in tuple("[{*&?-!@`%|") else f" {written}"

    def _list(self, shape: str, indent: int) -> str:
        count = self._random.choice((0, 1, 1, 2))
        if not count:
            return self._empty((" []", "", " null"))
        dash = " " * (indent + self._random.choice((0, 2)))
        items = []
        for _ in range(count):
            anchor, body = self._anchored(shape, len(dash) + 2)
            items.append(f"{dash}-{anchor}\n{body}" if anchor else f"{dash}- {body.lstrip()}")
        return "\n" + "\n".join(items)

    def _free(self, indent: int) -> str:
        names = self._random.sample(("ns", "pod", "5", "true", "null", "'a b'", "x.y"), 2)
        if self._chance(0.3):
            return " {a: {resource: pod}, b: {group: apps, resource: deployment}}"
        inside = [
            f"{' ' * (indent + 2)}{name}:{self._value('target', indent + 2)}"
            for name in names[: self._random.randrange(3)]
        ]
        return "\n" + "\n".join(inside) if inside else self._empty((" {}", ""))

    def _empty(self, ways: Sequence[str]) -> str:
        """Return one of the ways to write nothing; the first is no null."""
        return ways[0] if self._has_merges else self._random.choice(ways)
