"""The rules file as data.

What comes in is the text of prometheus-adapter's ``--config``; what goes out are frozen
structs that mirror it field by field, plus the place of every field. Nothing is compiled
or looked up here: that is ``adapter.rules.ruleset``.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import Struct, field
from msgspec.structs import replace
from yaml import MappingNode, Node, ScalarNode

from adapter.errors import ConfigInvalid, Problem
from adapter.rules.strict_yaml import YamlReader
from adapter.rules.yaml_nodes import is_text, root
from podscale.core.times import duration

_SECTIONS = ("rules", "externalRules", "resourceRules")


def _window(text: str) -> float:
    try:
        return duration.parse_prometheus(text)
    except duration.DurationError as error:
        raise ValueError(error.advice) from None


class SeriesFilter(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Exactly one of the two is set in a valid file; both are RE2, searched unanchored."""

    is_: str = field(default="", name="is")
    is_not: str = ""


class GroupResource(Struct, frozen=True, omit_defaults=True):
    """A resource as written in an override: any case, singular or plural, partial group."""

    resource: str = ""
    group: str = ""


class ResourceMapping(Struct, frozen=True, omit_defaults=True):
    """How the labels of a series name Kubernetes objects."""

    template: str = ""
    overrides: Mapping[str, GroupResource] = {}  # label -> resource, in the file's order
    namespaced: bool = True  # external rules only: add the namespace matcher


class NameMapping(Struct, frozen=True):
    """How the metric is called: RE2 search and Go Expand."""

    matches: str = ""
    as_: str = field(default="", name="as")


class RuleConfig(Struct, frozen=True, rename="camel"):
    """One entry of ``rules`` or ``externalRules``."""

    series_query: str = ""
    series_filters: tuple[SeriesFilter, ...] = ()
    resources: ResourceMapping = ResourceMapping()
    name: NameMapping = NameMapping()
    metrics_query: str = ""
    source: str = ""  # of the sources file; ours, not upstream's


class ResourceRuleConfig(Struct, frozen=True, rename="camel"):
    """``resourceRules.cpu`` or ``.memory``."""

    container_query: str = ""
    node_query: str = ""
    resources: ResourceMapping = ResourceMapping()
    container_label: str = ""
    source: str = ""


class ResourceRulesConfig(Struct, frozen=True):
    """``resourceRules``; present but partly empty fails at request time, as upstream."""

    cpu: ResourceRuleConfig = ResourceRuleConfig()
    memory: ResourceRuleConfig = ResourceRuleConfig()
    window_s: Annotated[float, _window] = field(default=0.0, name="window")


class Config(Struct, frozen=True, rename="camel"):
    rules: tuple[RuleConfig, ...] = ()
    external_rules: tuple[RuleConfig, ...] = ()
    resource_rules: ResourceRulesConfig | None = None


class Parsed(Struct, frozen=True):
    """A file that reads well, and where each of its fields stands."""

    config: Config
    places: Mapping[str, tuple[int, int]]  # "rules[0].name.as" -> line, column
    file: str = "rules file"
    text: str = ""

    def problem(self, path: str, message: str) -> Problem:
        """Return the problem at ``path``, or at the nearest enclosing field that is written."""
        at = path
        while at and at not in self.places:
            at = at[: max(at.rfind("."), at.rfind("["), 0)]
        line, column = self.places.get(at, (0, 0))
        return Problem(path, message, line, column)

    def problem_within(self, path: str, message: str, mark: str, before: int) -> Problem:
        """Return the problem at a ``mark`` in the value of ``path``, behind ``before`` others.

        Where the value is written so that this is not found, at its beginning.
        """
        found = self.problem(path, message)
        if path not in self.places:
            return found
        lines = self.text.splitlines(keepends=True)
        begin = (found.line, found.column)
        end = min((each for each in self.places.values() if each > begin), default=None)
        value = self.text[_offset(lines, begin) : _offset(lines, end) if end else None]
        *parts, _last = value.split(mark)
        if before >= len(parts):
            return found
        above = mark.join(parts[: before + 1]).split("\n")
        column = len(above[-1]) + (1 if above[1:] else found.column)
        return replace(found, line=found.line + len(above) - 1, column=column)

    def place(self, path: str) -> str:
        """Return ``file:line:column`` of ``path`` or what encloses it, else the file."""
        spot = self.problem(path, "")
        return f"{self.file}:{spot.line}:{spot.column}" if spot.line else self.file


def _offset(lines: Sequence[str], place: tuple[int, int]) -> int:
    return sum(map(len, lines[: place[0] - 1])) + place[1] - 1


def parse(text: str | Node, file: str = "rules file") -> Parsed:
    """Return the rules that ``text`` writes; raises ``ConfigInvalid`` with every problem."""
    parsed, problems = read(text, file)
    if problems:
        raise ConfigInvalid(problems, file)
    return parsed


def read(text: str | Node, file: str = "rules file") -> tuple[Parsed, list[Problem]]:
    """Return what can be read of ``text``, and what is wrong with it.

    A node is a rules file inside another file, where its places are.
    """
    reader = YamlReader()
    document = reader.document(text) if isinstance(text, str) else text
    config = Config()
    if document is not None and (_is_config_map(document) or _is_values(document)):
        what = "this is a ConfigMap, and its data holds no rules file (config.yaml: |)"
        if key := _rules_key(document):
            what = (
                f"this is a ConfigMap, not a rules file: give the value of its data.{key} "
                "(podscale doctor -f and podscale migrate take the ConfigMap as it is)"
            )
        if _is_values(document):
            what = "these are a chart's values, not a rules file: podscale migrate writes the rules"
        reader.problems.append(Problem("", what, document.start_mark.line + 1, 1))
    elif document is not None:
        config = reader.struct(Config, [document], "")
    written = text if isinstance(text, str) else ""
    return Parsed(config, reader.places, file, written), list(reader.problems)


def _is_config_map(document: Node) -> bool:
    return isinstance(document, MappingNode) and any(
        key.value == "kind" and value.value == "ConfigMap" for key, value in document.value
    )


def _is_values(document: Node) -> bool:
    return isinstance(document, MappingNode) and any(
        key.value in ("rules", "prometheus") and isinstance(value, MappingNode)
        for key, value in document.value
    )


def _rules_key(config_map: Node) -> str:
    """Return the key of the data under which rules are written, "" where there are none."""
    texts = {
        key.value: value.value
        for name, data in config_map.value
        if name.value == "data" and isinstance(data, MappingNode)
        for key, value in data.value
        if isinstance(key, ScalarNode) and isinstance(value, ScalarNode) and is_text(value)
    }
    if "config.yaml" in texts:
        return "config.yaml"
    return next((key for key in sorted(texts) if _is_rules(texts[key])), "")


def _is_rules(text: str) -> bool:
    found = root(text)
    return isinstance(found, MappingNode) and any(key.value in _SECTIONS for key, _ in found.value)
