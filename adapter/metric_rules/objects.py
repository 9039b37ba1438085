"""MetricRules and ClusterMetricRules as the API server has them, and the rules they come to.

Pure. One that cannot be read, compiled or confined is a refusal with the reason; it concerns no
other.
"""

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from adapter.discovery.mapping import ResourceMapper
from adapter.errors import ConfigInvalid, RuleQueryError
from adapter.rules.config import (
    Config,
    NameMapping,
    Parsed,
    ResourceMapping,
    RuleConfig,
)
from adapter.rules.ruleset import Rule, compile_object_rule
from adapter.sources.sources_file import NamedSources
from podscale.core.goquote import quote
from podscale.core.json_decoder import JsonDecoder
from podscale.core.metrics import Unavailable
from podscale.feed.prover.confinement import (
    Confinement,
    NotConfined,
    QueryTooLarge,
    confined,
    confined_selector,
)
from podscale.kube.client.resource import Resource
from podscale.kube.client.wire import ObjectMeta

GROUP, VERSION = "metrics.podscale.io", "v1alpha1"
METRIC_RULES = Resource(GROUP, VERSION, "metricrules", "MetricRule", True, "metricrule")
CLUSTER_METRIC_RULES = Resource(
    GROUP, VERSION, "clustermetricrules", "ClusterMetricRule", False, "clustermetricrule"
)

Section = Literal["rules", "externalRules"]
# ``spec.type`` -> the section of a rules file that it is of.
TYPES: Mapping[str, Section] = {"Custom": "rules", "External": "externalRules"}


class StoredMetricRule(Struct, frozen=True):
    """A MetricRule or, without a namespace, a ClusterMetricRule."""

    metadata: ObjectMeta
    spec: Raw = Raw(b"{}")
    status: Raw = Raw(b"{}")

    def kept(self) -> "StoredMetricRule":
        """Return what is worth keeping of it; the answer that it came in is not."""
        metadata = replace(self.metadata, labels=None, annotations=None, owner_references=())
        return StoredMetricRule(metadata, self.spec.copy(), self.status.copy())

    @property
    def origin(self) -> str:
        """``MetricRule shop/web``: how messages name it."""
        meta = self.metadata
        if meta.namespace:
            return f"{METRIC_RULES.kind} {meta.namespace}/{meta.name}"
        return f"{CLUSTER_METRIC_RULES.kind} {meta.name}"


# Of one namespace: people of one must not fill the memory of everybody's processes.
MOST_RULES, MOST_PATTERNS = 50, 64 * 1024  # objects, and characters of their patterns
MOST_RENDERED = 8 * 1024  # characters of a query, but for what requests bring
MOST_MESSAGE = 1024  # characters of why an object is refused: it may quote what is written there
TOO_MANY_RULES = "TooManyRules"


class RuleRefusal(Struct, frozen=True):
    """Why an object is not worked with."""

    reason: str  # of its condition Accepted
    message: str
    holds: Rule | None = None  # answers nothing, and keeps its names from the rules behind it

    @property
    def fingerprint(self) -> str:
        """Equal for objects that are refused alike, and keep the same names."""
        return f"{self.reason}: {self.message}: {self.holds and self.holds.fingerprint}"


class _Spec(RuleConfig, frozen=True, rename="camel", kw_only=True):
    series_query: str
    metrics_query: str
    type: Literal["Custom", "External"] = "Custom"


_SPEC = JsonDecoder(_Spec)


def beyond_bounds(objects: Iterable[StoredMetricRule]) -> dict[str, RuleRefusal]:
    """Return by origin the refusals of objects that are too many, or have too many patterns, for
    their namespace. Older ones come first."""
    count: Counter[str] = Counter()
    patterns: Counter[str] = Counter()
    refusals = {}
    own = [each for each in objects if each.metadata.namespace]
    for stored in sorted(
        own, key=lambda each: (each.metadata.creation_timestamp or 0, each.origin)
    ):
        namespace = stored.metadata.namespace
        count[namespace] += 1
        size = _patterns(stored) if count[namespace] <= MOST_RULES else 0
        if count[namespace] > MOST_RULES or patterns[namespace] + size > MOST_PATTERNS:
            text = (
                f"namespace {namespace} has more than {MOST_RULES} MetricRules, or more than "
                f"{MOST_PATTERNS} characters of patterns in them: delete some, or ask for a "
                "ClusterMetricRule"
            )
            refusals[stored.origin] = RuleRefusal(TOO_MANY_RULES, text)
        else:
            patterns[namespace] += size
    return refusals


def _patterns(stored: StoredMetricRule) -> int:
    try:
        spec = _SPEC.decode(stored.spec)
    except msgspec.DecodeError:
        return 0
    filters = sum(len(each.is_) + len(each.is_not) for each in spec.series_filters)
    return filters + len(spec.name.matches) + len(spec.resources.template)


def compiled(
    stored: StoredMetricRule,
    mapper: ResourceMapper,
    sources: NamedSources,
    beyond: RuleRefusal | None = None,
) -> Rule | RuleRefusal:
    """Return the rule of an object, or why there is none; ``beyond`` of ``beyond_bounds``."""
    try:
        spec = _SPEC.decode(stored.spec)
    except msgspec.DecodeError as error:
        return RuleRefusal("Invalid", f"spec: {error}"[:MOST_MESSAGE])
    found = beyond or _compiled(stored, spec, mapper, sources)
    if isinstance(found, RuleRefusal):
        found = replace(found, message=found.message[:MOST_MESSAGE])
        return replace(found, holds=_holding(stored, spec, mapper, found))
    return found


def _compiled(
    stored: StoredMetricRule, spec: _Spec, mapper: ResourceMapper, sources: NamedSources
) -> Rule | RuleRefusal:
    try:
        parsed = Parsed(Config(), {}, stored.origin)
        rule = compile_object_rule(TYPES[spec.type], spec, parsed, mapper)
        namespace = stored.metadata.namespace
        if not namespace:
            if not spec.source or spec.source in sources.access:
                return replace(rule, source=spec.source)
            text = f"the sources file has no source {spec.source!r}"
            return RuleRefusal("SourceNotAllowed", text)
        source, confinement = sources.for_own_rule(spec.source, namespace)
        if confinement is None:
            text = (
                f"the source {source!r} is not open to rules of namespace {namespace}: who runs "
                "podscale lists it under the source's namespaces in the sources file"
            )
            return RuleRefusal("SourceNotAllowed", text)
        return _own_rule(rule, source, confinement)
    except ConfigInvalid as invalid:
        reason = next((p.bound for p in invalid.problems if p.bound), "Invalid")
        return RuleRefusal(reason, "; ".join(p.describe("") for p in invalid.problems))


def _holding(
    stored: StoredMetricRule, spec: _Spec, mapper: ResourceMapper, refusal: RuleRefusal
) -> Rule | None:
    """Return what keeps the names of a refused object: those that it could have, or, where only
    its patterns say which those are, every name of its namespace. It may have been accepted before:
    by another release, by another spec, or while discovery knew its resources."""
    namespace = stored.metadata.namespace
    is_plain = spec.name == NameMapping()
    bare = RuleConfig(spec.series_query if is_plain else "{}", metrics_query="x")
    named = replace(spec, metrics_query="x", resources=ResourceMapping())
    whole: list[RuleConfig] = [] if refusal.reason == TOO_MANY_RULES else [named]
    for each in (*whole, *([bare] if is_plain or namespace else [])):
        with contextlib.suppress(ConfigInvalid):
            rule = compile_object_rule(
                TYPES[spec.type], each, Parsed(Config(), {}, stored.origin), mapper
            )
            return replace(
                rule,
                fingerprint=f"{rule.fingerprint}:{refusal.reason}",
                confinement=Confinement("", namespace) if namespace else None,
                refusal=Unavailable(refusal.reason, refusal.message),
            )
    return None


def _own_rule(rule: Rule, source: str, confinement: Confinement) -> Rule | RuleRefusal:
    try:
        series_query = confined_selector(rule.series_query, confinement)
    except NotConfined as error:
        return RuleRefusal(error.reason, f"spec.seriesQuery: {error}")
    try:
        # The names are not known yet: what a request's query comes to is confined again.
        label = confinement.label
        matcher = f"{label}={quote(confinement.namespace)}"
        values = {label: confinement.namespace}
        text = rule.query.render("x", matcher, values, (label,))
        if len(text) > MOST_RENDERED:
            raise QueryTooLarge(f"it renders to more than {MOST_RENDERED} characters")
        confined(text, confinement)
    except RuleQueryError as error:
        return RuleRefusal("Invalid", f"spec.metricsQuery: {error}")
    except NotConfined as error:
        return RuleRefusal(error.reason, f"spec.metricsQuery: {error}")
    mark = f"{rule.fingerprint}:{source}:{confinement.label}"
    return replace(
        rule,
        series_query=series_query,
        open_query=rule.series_query,
        source=source,
        confinement=confinement,
        fingerprint=mark,
    )
