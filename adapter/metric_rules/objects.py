"""MetricRules and ClusterMetricRules as the API server has them, and the rules they come to.

Pure. One that cannot be read, compiled or confined is a refusal with the reason; it concerns no
other.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from adapter.discovery.mapping import ResourceMapper
from adapter.errors import ConfigInvalid, RuleQueryError
from adapter.queries.matchers import equals
from adapter.rules.config import (
    Config,
    GroupResource,
    NameMapping,
    Parsed,
    ResourceMapping,
    RuleConfig,
    SeriesFilter,
)
from adapter.rules.ruleset import Rule, compile_object_rule
from adapter.sources.sources_file import NamedSources
from podscale.core.json_decoder import JsonDecoder
from podscale.feed.prover.confinement import (
    Confinement,
    NotConfined,
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


class RuleRefusal(Struct, frozen=True):
    """Why an object is not worked with."""

    reason: str  # of its condition Accepted
    message: str


class _Filter(Struct, frozen=True, rename="camel"):
    is_: str = msgspec.field(default="", name="is")
    is_not: str = ""


class _Resources(Struct, frozen=True):
    template: str = ""
    overrides: dict[str, GroupResource] = {}
    namespaced: bool = True


class _Name(Struct, frozen=True):
    matches: str = ""
    as_: str = msgspec.field(default="", name="as")


class _Spec(Struct, frozen=True, rename="camel"):
    series_query: str
    metrics_query: str
    type: Literal["Custom", "External"] = "Custom"
    series_filters: tuple[_Filter, ...] = ()
    resources: _Resources = _Resources()
    name: _Name = _Name()
    source: str = ""


_SPEC = JsonDecoder(_Spec)


def compiled(
    stored: StoredMetricRule, mapper: ResourceMapper, sources: NamedSources
) -> Rule | RuleRefusal:
    """Return the rule of an object, or why there is none."""
    try:
        spec = _SPEC.decode(stored.spec)
        rule = compile_object_rule(
            TYPES[spec.type], _config(spec), Parsed(Config(), {}, stored.origin), mapper
        )
        namespace = stored.metadata.namespace
        if not namespace:
            return _cluster_rule(rule, spec.source, sources)
        source, confinement = sources.for_own_rule(spec.source, namespace)
        if confinement is None:
            text = (
                f"the source {source!r} is not open to rules of namespace {namespace}: who runs "
                "podscale lists it under the source's namespaces in the sources file"
            )
            return RuleRefusal("SourceNotAllowed", text)
        return _own_rule(rule, source, confinement)
    except msgspec.DecodeError as error:
        return RuleRefusal("Invalid", f"spec: {error}")
    except ConfigInvalid as invalid:
        return RuleRefusal("Invalid", "; ".join(p.describe("") for p in invalid.problems))


def _cluster_rule(rule: Rule, source: str, sources: NamedSources) -> Rule | RuleRefusal:
    if source and source not in sources.access:
        return RuleRefusal("SourceNotAllowed", f"the sources file has no source {source!r}")
    return replace(rule, source=source)


def _own_rule(rule: Rule, source: str, confinement: Confinement) -> Rule | RuleRefusal:
    try:
        series_query = confined_selector(rule.series_query, confinement)
    except NotConfined as error:
        return RuleRefusal("QueryNotConfined", f"spec.seriesQuery: {error}")
    try:
        # The names are not known yet: what a request's query comes to is confined again.
        label = confinement.label
        matcher = str(equals(label, confinement.namespace))
        values = {label: confinement.namespace}
        confined(rule.query.render("x", matcher, values, (label,)), confinement)
    except RuleQueryError as error:
        return RuleRefusal("Invalid", f"spec.metricsQuery: {error}")
    except NotConfined as error:
        return RuleRefusal("QueryNotConfined", f"spec.metricsQuery: {error}")
    mark = f"{rule.fingerprint}:{source}:{confinement.label}"
    return replace(
        rule,
        series_query=series_query,
        open_query=rule.series_query,
        source=source,
        confinement=confinement,
        fingerprint=mark,
    )


def _config(spec: _Spec) -> RuleConfig:
    resources = spec.resources
    return RuleConfig(
        spec.series_query,
        tuple(SeriesFilter(each.is_, each.is_not) for each in spec.series_filters),
        ResourceMapping(resources.template, resources.overrides, resources.namespaced),
        NameMapping(spec.name.matches, spec.name.as_),
        spec.metrics_query,
        spec.source,
    )
