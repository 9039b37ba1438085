"""The rules file made ready to work: every pattern and template compiled.

Comes from ``adapter.rules.config``; goes to discovery (filters, labels, names) and to the
provider (queries). All problems of a file are found in one pass.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Sequence

import msgspec
import re2
from msgspec import Struct, structs
from yaml import Node

from adapter.discovery.labels import LabelProblem, ResourceLabels
from adapter.discovery.mapping import ResourceMapper
from adapter.discovery.naming import Namer
from adapter.errors import ConfigInvalid, Problem
from adapter.queries.promql import QueryTemplate
from adapter.rules import patterns
from adapter.rules.config import (
    Config,
    NameMapping,
    Parsed,
    ResourceMapping,
    ResourceRuleConfig,
    RuleConfig,
    SeriesFilter,
    read,
)
from adapter.rules.patterns import PatternTooLarge
from podscale.core import gotemplate
from podscale.core.gotemplate import TemplateConstructRefused
from podscale.core.metrics import Unavailable
from podscale.feed.http.series import Wanted
from podscale.feed.prover.confinement import Confinement
from podscale.feed.prover.tree import Matcher, NotPromql, VectorSelector, parse


class NameFilter:
    """One ``is`` or ``isNot`` pattern, searched unanchored."""

    def __init__(self, config: SeriesFilter) -> None:
        """Compile; raises ``ValueError`` unless exactly one pattern is given."""
        if config.is_ and config.is_not:
            raise ValueError(
                f"a filter has either is ({config.is_!r}) or isNot ({config.is_not!r}); "
                "write two filters to demand both"
            )
        if not config.is_ and not config.is_not:
            raise ValueError("a filter needs an is or an isNot pattern")
        self.text = config.is_ or config.is_not
        self.is_positive = bool(config.is_)
        self._pattern = patterns.compile(self.text)
        self._last: tuple[str, bool] | None = None  # most rules have one series to look at

    def keeps(self, series: str) -> bool:
        """Return whether a series of this name passes."""
        if self._last is None or self._last[0] != series:
            self._last = series, (self._pattern.search(series) is not None) is self.is_positive
        return self._last[1]


class SelectedNames:
    """The names of the series that a seriesQuery can select, as far as the query tells."""

    def __init__(self, series_query: str) -> None:
        self._matchers: Sequence[Matcher] = ()
        self.only = ""  # the one name; "": there may be several
        with contextlib.suppress(NotPromql):  # Prometheus says what is wrong with it
            tree = parse(series_query)
            if isinstance(tree, VectorSelector):
                self._matchers = [each for each in tree.matchers if each.label == "__name__"]
                equal = (each.value for each in self._matchers if each.op == "=")
                self.only = tree.name or next(equal, "")

    def has(self, series: str) -> bool:
        """Return whether a series of this name may be among them; in doubt it may."""
        try:
            # Not kept compiled: only a rule that is not listed is looked at.
            return keeps_all([matcher_filter(each) for each in self._matchers], series)
        except ValueError:  # no regular expression: Prometheus says so
            return True


def matcher_filter(matcher: Matcher) -> NameFilter:
    """Return what keeps the values that the matcher takes; raises ``ValueError`` for no regex."""
    text = matcher.value if "~" in matcher.op else re2.escape(matcher.value)
    pattern = f"^(?s:{text})$"
    is_negative = matcher.op.startswith("!")
    return NameFilter(SeriesFilter(is_not=pattern) if is_negative else SeriesFilter(is_=pattern))


def keeps_all(filters: Sequence[NameFilter], series: str) -> bool:
    return all(f.keeps(series) for f in filters)


SECTIONS = ("rules", "externalRules")  # of the file: custom and external metrics


class Rule(Struct, frozen=True):
    """One entry of ``rules`` or ``externalRules``."""

    section: str  # "rules" | "externalRules"
    index: int
    series_query: str
    filters: tuple[NameFilter, ...]  # name.matches is the last of them
    labels: ResourceLabels
    namer: Namer
    query: QueryTemplate
    fingerprint: str  # equal for rules that do the same
    selected: SelectedNames  # of series, by its seriesQuery
    source: str = ""  # of the sources file; "": by namespace, else the default
    origin: str = ""  # the object it is written in, "MetricRule shop/web"; "": the file
    confinement: Confinement | None = None  # of a namespace's own rule: all that it may read
    open_query: str = ""  # its seriesQuery as written, which rules of many namespaces may share
    refusal: Unavailable | None = None  # why it is not listed, and keeps its names from others

    @property
    def id(self) -> str:
        """``rules[3]``: how problems, metrics and log lines name this rule."""
        return self.origin or f"{self.section}[{self.index}]"

    @property
    def namespace(self) -> str:
        """The only one that has its metrics; "": every one has."""
        return "" if self.confinement is None else self.confinement.namespace

    @property
    def precedence(self) -> tuple[str, int]:
        """Of two rules with one metric the greater answers: a ClusterMetricRule before the file,
        then the later by its name or place."""
        return self.origin, self.index

    def namespace_label(self) -> str:
        """Return the label that names a series' namespace; raises ``NoLabel``."""
        if self.confinement is not None:
            return self.confinement.label
        return self.labels.label("namespaces")

    @property
    def listed_by(self) -> tuple[str, str]:
        """Source and seriesQuery: rules that share both are listed together."""
        return self.source, self.series_query

    def keeps(self, series: str) -> bool:
        """Return whether a series of this name passes the filters."""
        return keeps_all(self.filters, series)

    def exposes(self, metric: str, *series: str) -> bool:
        """Return whether the rule would list ``metric`` of the one series that its query names,
        under the one name that it gives, or of one of ``series``.
        """
        if self.selected.only:
            series = (self.selected.only,)
        elif self.namer.only is not None:
            return self.namer.only == metric
        return any(
            self.namer.name(each) == metric and self.keeps(each) and self.selected.has(each)
            for each in series
        )

    def may_expose(self, metric: str) -> bool:
        """Return whether ``metric`` could be among what the rule lists; in doubt it could."""
        is_known = self.selected.only or self.namer.only is not None
        return self.exposes(metric) if is_known else True


class ResourceRule(Struct, frozen=True):
    """Where CPU, or memory, comes from."""

    id: str  # "resourceRules.cpu"
    fingerprint: str
    labels: ResourceLabels
    container_label: str
    containers: QueryTemplate
    nodes: QueryTemplate
    source: str = ""


class ResourceRules(Struct, frozen=True):
    """``resourceRules``."""

    cpu: ResourceRule
    memory: ResourceRule
    window_s: float


class RuleSet(Struct, frozen=True):
    config: Config
    custom: tuple[Rule, ...] = ()
    external: tuple[Rule, ...] = ()
    resource: ResourceRules | None = None

    @classmethod
    def empty(cls) -> "RuleSet":
        """Return the rules of an empty file."""
        return cls(Config())


def wanted_by(rules: Iterable[Rule]) -> Wanted:
    """Return what tells whether a label says, to one of ``rules``, which object a series is of."""
    mappings = list({rule.labels.mark: rule.labels for rule in rules}.values())
    return lambda label: any(each.maps(label) for each in mappings)


def read_rules(
    text: str | Node, file: str, mapper: ResourceMapper, sources: frozenset[str] | None = None
) -> tuple[Parsed, RuleSet]:
    """Return a file's rules; raises ``ConfigInvalid`` with every problem of keys, patterns,
    templates, resources and sources together.
    """
    parsed, problems = read(text, file)
    try:
        rules = compile_rules(parsed, mapper, sources)
    except ConfigInvalid as invalid:
        raise ConfigInvalid([*problems, *invalid.problems], file) from None
    if problems:
        raise ConfigInvalid(problems, file)
    return parsed, rules


def compile_rules(
    parsed: Parsed, mapper: ResourceMapper, sources: frozenset[str] | None = None
) -> RuleSet:
    """Return the compiled rules; raises ``ConfigInvalid`` with every problem. ``sources`` are
    the names that a rule may choose; None: any."""
    compiler = _Compiler(parsed, mapper, sources)
    config = parsed.config
    custom = compiler.rules("rules", config.rules)
    external = compiler.rules("externalRules", config.external_rules)
    resource = None
    if config.resource_rules is not None:
        cpu = compiler.resource_rule("resourceRules.cpu", config.resource_rules.cpu)
        memory = compiler.resource_rule("resourceRules.memory", config.resource_rules.memory)
        if cpu is not None and memory is not None:
            resource = ResourceRules(cpu, memory, config.resource_rules.window_s)
    if compiler.problems:
        raise ConfigInvalid(compiler.problems, parsed.file)
    return RuleSet(config, tuple(custom), tuple(external), resource)


def compile_object_rule(
    section: str, config: RuleConfig, parsed: Parsed, mapper: ResourceMapper
) -> Rule:
    """Return the rule of an object, whose name ``parsed.file`` is; raises ``ConfigInvalid``."""
    compiler = _Compiler(parsed, mapper, None)
    rule = compiler.rule("spec", section, 0, config)
    if rule is None or compiler.problems:
        raise ConfigInvalid(compiler.problems, parsed.file)
    return structs.replace(rule, origin=parsed.file)


class _Compiler:
    def __init__(
        self, parsed: Parsed, mapper: ResourceMapper, sources: frozenset[str] | None
    ) -> None:
        self.problems: list[Problem] = []
        self._sources = sources
        self._parsed = parsed
        self._mapper = mapper

    def rules(self, section: str, configs: Sequence[RuleConfig]) -> list[Rule]:
        compiled = (
            self.rule(f"{section}[{i}]", section, i, config) for i, config in enumerate(configs)
        )
        return [rule for rule in compiled if rule is not None]

    def rule(self, path: str, section: str, index: int, config: RuleConfig) -> Rule | None:
        self._source(path, config.source)
        filters = self._filters(path, config)
        namer = self._namer(path, config.name)
        labels = self._labels(path, config.resources)
        query = self._query(
            f"{path}.metricsQuery", config.metrics_query, labels, config.resources.namespaced
        )
        if namer is None or labels is None or query is None:
            return None
        return Rule(
            section, index, config.series_query, tuple(filters), labels, namer, query,
            _fingerprint(config), SelectedNames(config.series_query), config.source,
        )  # fmt: skip

    def _filters(self, path: str, config: RuleConfig) -> list[NameFilter]:
        compiled = []
        for i, each in enumerate(config.series_filters):
            try:
                compiled.append(NameFilter(each))
            except ValueError as error:
                self._refuse(f"{path}.seriesFilters[{i}]", error)
        if config.name.matches:
            # The namer refuses a bad pattern, at the same place.
            with contextlib.suppress(ValueError):
                compiled.append(NameFilter(SeriesFilter(is_=config.name.matches)))
        return compiled

    def _namer(self, path: str, name: NameMapping) -> Namer | None:
        try:
            return Namer(name.matches, name.as_)
        except ValueError as error:
            self._refuse(f"{path}.name.matches", error)
            return None

    def _labels(self, path: str, config: ResourceMapping) -> ResourceLabels | None:
        try:
            return ResourceLabels(config, self._mapper)
        except LabelProblem as problem:
            self._refuse(f"{path}.resources.{problem.field}", problem)
            return None

    def _query(
        self, path: str, text: str, labels: ResourceLabels | None, is_namespaced: bool
    ) -> QueryTemplate | None:
        try:
            if labels is None:  # refused already; the template is read for its own problems
                gotemplate.parse(text)
                return None
            return QueryTemplate(text, labels, is_namespaced=is_namespaced)
        except gotemplate.TemplateSyntaxError as error:
            place = self._parsed.problem_within(path, str(error), gotemplate.LEFT, error.opened)
            self.problems.append(structs.replace(place, bound=_bound(error)))
            return None

    def _source(self, path: str, name: str) -> None:
        if name and self._sources is not None and name not in self._sources:
            there = ", ".join(sorted(self._sources)) or "none (give --sources)"
            self._refuse(f"{path}.source", ValueError(f"there is no source {name!r}: {there}"))

    def resource_rule(self, path: str, config: ResourceRuleConfig) -> ResourceRule | None:
        self._source(path, config.source)
        labels = self._labels(path, config.resources)
        containers = self._query(f"{path}.containerQuery", config.container_query, labels, True)
        nodes = self._query(f"{path}.nodeQuery", config.node_query, labels, True)
        if labels is None or containers is None or nodes is None:
            return None
        mark = _fingerprint(config)
        return ResourceRule(
            path, mark, labels, config.container_label, containers, nodes, config.source
        )

    def _refuse(self, path: str, error: ValueError) -> None:
        problem = self._parsed.problem(path, str(error))
        self.problems.append(structs.replace(problem, bound=_bound(error)))


def _bound(error: BaseException | None) -> str:
    """Return the reason where a bound of ours is passed, that of what caused the error, too."""
    if error is None or isinstance(error, TemplateConstructRefused | PatternTooLarge):
        return "" if error is None else type(error).__name__
    return _bound(error.__cause__)


def _fingerprint(config: RuleConfig | ResourceRuleConfig) -> str:
    return hashlib.sha256(msgspec.json.encode(config)).hexdigest()[:16]
