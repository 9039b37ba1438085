"""A VPA's recommendation, from what its containers have used to the content of its status.

``Usage`` goes in per container; out comes the recommendation after post-processors, policy
and node sizes, and every step that led there, which is what ``explain`` shows. A resource
that was never measured is left out (D7): the smallest amount that a pod may have is not
a measurement. A pod that would fit no node is capped as a whole: every container gives up the same
share.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, structs

from podscale.core.quantity import NANO, Quantity
from podscale.kube.objects import vpa as objects
from vpa.model.amounts import EMPTY, RESOURCES, allowed, capped, controlled_resources, units
from vpa.model.estimation import estimator
from vpa.model.estimation.estimator import BOUNDS, Bound, as_quantity

_WHOLE_CPU = ("vpa-post-processor.kubernetes.io/", "_integerCPU")  # around a container's name


class RecommenderSettings(Struct, frozen=True):
    """Flags of the recommender, or what a VPA's annotations make of them."""

    cpu: estimator.EstimatorSettings = estimator.EstimatorSettings()
    memory: estimator.EstimatorSettings = estimator.EstimatorSettings()
    min_cpu_milli: float = 25.0  # of a pod
    min_memory_mb: float = 250.0
    round_cpu_milli: int = 1
    round_memory_bytes: int = 1
    humanize_memory: bool = False
    integer_cpu: bool = False  # whether the annotation for whole cores is heeded
    max_allowed: objects.ResourceList = objects.ResourceList()  # cluster-wide

    def of(self, resource: str) -> estimator.EstimatorSettings:
        return self.cpu if resource == "cpu" else self.memory


def without_margin(settings: RecommenderSettings) -> RecommenderSettings:
    """Return the settings for usage that has its margin already."""
    return structs.replace(
        settings,
        cpu=structs.replace(settings.cpu, margin=0.0),
        memory=structs.replace(settings.memory, margin=0.0),
    )


class ResourceUsage(Struct, frozen=True):
    """What is known of one container's use of one resource."""

    percentiles: tuple[float, float, float]  # lower, target, upper bound; cores or bytes
    confidence: float


class RecommendedUsage(Struct, frozen=True):
    """What is known of one container; a resource without a sample is absent."""

    name: str
    resources: Mapping[str, ResourceUsage]


class NodeShape(Struct, frozen=True):
    """A kind of node, one that exists or one of a pool that could make it."""

    shape: str
    allocatable_cpu_milli: int
    allocatable_memory_bytes: int
    daemonsets_cpu_milli: int = 0
    daemonsets_memory_bytes: int = 0

    def available(self, resource: str) -> int:
        """Return what pods other than DaemonSets can have, milli-cores or bytes."""
        if resource == "cpu":
            return max(0, self.allocatable_cpu_milli - self.daemonsets_cpu_milli)
        return max(0, self.allocatable_memory_bytes - self.daemonsets_memory_bytes)


class NodeCap(Struct, frozen=True):
    """One container's amount that was cut, and the node that set it."""

    container: str
    resource: str
    amount: int
    node: str
    available: int  # of the node for the whole pod


class Step(Struct, frozen=True, gc=False):
    """One change on the way from the estimate to the published amount."""

    reason: str  # token of an explanation
    after: Quantity
    limit: Quantity | None = None  # the bound that did it
    node: NodeCap | None = None


class AmountTrace(Struct, frozen=True, gc=False):
    """How one published amount came about."""

    derivation: estimator.Derivation
    uncapped: Quantity  # before policy and nodes: after rounding, whole cores included
    steps: tuple[Step, ...]
    published: Quantity
    policy: str = ""  # containerName of the policy entry that applied


Traces = Mapping[tuple[str, str, Bound], AmountTrace]  # by container, resource and bound


class RecommendationTrace(Struct, frozen=True):
    """A recommendation and its derivation."""

    recommendation: objects.VpaRecommendation
    amounts: Traces
    no_samples: tuple[str, ...]  # containers that match and were never measured
    containers: int  # the minimum of the pod was divided by
    pod_minimum: Mapping[str, int] = {}  # by resource: milli-cores or bytes


def minimum(resource: str, settings: RecommenderSettings, containers: int) -> int:
    """Return the least amount of one of ``containers`` containers, truncated."""
    fraction = 1.0 / containers
    if resource == "cpu":
        return estimator.scale(estimator.from_cores(settings.min_cpu_milli * 0.001), fraction)
    return estimator.scale(estimator.from_float(settings.min_memory_mb * 1024 * 1024), fraction)


def recommend(
    usages: Sequence[RecommendedUsage],
    settings: RecommenderSettings,
    *,
    policy: objects.ResourcePolicy | None = None,
    annotations: Mapping[str, str] | None = None,
    shapes: Sequence[NodeShape] = (),
) -> RecommendationTrace:
    """Return what to publish for the containers of one VPA, sorted by name.

    Containers with mode Off are left out before the pod's minimum is divided.
    """
    wanted = sorted(
        (usage for usage in usages if not objects.is_off(policy, usage.name)), key=lambda u: u.name
    )
    whole_core = integer_cpu_containers(annotations) if settings.integer_cpu else frozenset()
    traces: dict[tuple[str, str, Bound], AmountTrace] = {}
    uncontrolled = set()
    for usage in wanted:
        entry = objects.container_policy(policy, usage.name)
        controlled = controlled_resources(entry)
        if usage.resources and not controlled:
            uncontrolled.add(usage.name)
        for resource in RESOURCES:
            known = usage.resources.get(resource)
            if known is None or resource not in controlled:
                continue
            least = minimum(resource, settings, len(wanted))
            is_whole = resource == "cpu" and usage.name in whole_core
            found = _traces(resource, known, settings, entry, least, whole_core=is_whole)
            for bound, trace in zip(BOUNDS, found, strict=True):
                traces[usage.name, resource, bound] = trace
    for bound in BOUNDS:
        _fit_nodes(traces, bound, shapes)
    published = (_entry(usage.name, traces) for usage in wanted)
    # A container of which nothing is controlled is named without amounts, as upstream does:
    # what was asked for is provided.
    entries = tuple(
        entry
        if entry.target is not None
        else objects.ContainerRecommendation(entry.container_name, EMPTY)
        for entry in published
        if entry.target is not None or entry.container_name in uncontrolled
    )
    return RecommendationTrace(
        recommendation=objects.VpaRecommendation(entries),
        amounts=traces,
        no_samples=tuple(usage.name for usage in wanted if not usage.resources),
        containers=len(wanted),
        pod_minimum={each: minimum(each, settings, 1) for each in RESOURCES},
    )


def integer_cpu_containers(annotations: Mapping[str, str] | None) -> frozenset[str]:
    """Return the containers whose annotation asks for whole cores."""
    begin, end = _WHOLE_CPU
    return frozenset(
        key[len(begin) : -len(end)]
        for key, value in (annotations or {}).items()
        if key.startswith(begin)
        and key.endswith(end)
        and len(key) > len(begin) + len(end)
        and value == "true"
    )


def whole_cores(cpu: Quantity) -> Quantity:
    """Return CPU rounded up to a core."""
    return Quantity(-(-cpu.nano // NANO) * NANO, cpu.format)


def _traces(
    resource: str,
    known: ResourceUsage,
    settings: RecommenderSettings,
    policy: objects.ContainerPolicy | None,
    least: int,
    *,
    whole_core: bool,
) -> Iterator[AmountTrace]:
    # Of the three bounds of one resource of one container.
    step = settings.round_cpu_milli if resource == "cpu" else settings.round_memory_bytes
    humanize = settings.humanize_memory and resource == "memory"
    parameters, bounds = settings.of(resource), allowed(policy, settings.max_allowed)
    name = policy.container_name if policy is not None else ""
    for bound, usage in zip(BOUNDS, known.percentiles, strict=True):
        derivation = estimator.derive(resource, bound, usage, known.confidence, least, parameters)
        estimated = as_quantity(resource, derivation.amount, step=step, humanize=humanize)
        estimated = estimator.whole(estimated) if humanize else estimated
        steps: list[Step] = []
        uncapped = estimated
        if whole_core:
            uncapped = whole_cores(estimated)
            if uncapped != estimated:
                steps.append(Step("CpuRoundedToCore", uncapped))
        value, caps = capped(resource, uncapped, bounds)
        steps += [Step(cap.reason, cap.limit, limit=cap.limit) for cap in caps]
        yield AmountTrace(derivation, uncapped, tuple(steps), value, name)


def _fit_nodes(
    traces: dict[tuple[str, str, Bound], AmountTrace], bound: Bound, shapes: Sequence[NodeShape]
) -> None:
    # Per pod: what all containers together may have, for one bound.
    if not shapes:
        return
    pod: dict[str, dict[str, int]] = {}
    for (container, resource, of_bound), trace in traces.items():
        if of_bound == bound:
            pod.setdefault(container, {})[resource] = units(resource, trace.published)
    for cap in cap_to_nodes(pod, shapes):
        key = (cap.container, cap.resource, bound)
        trace = traces[key]
        after = as_quantity(cap.resource, cap.amount)
        step = Step("NodeSize", after, node=cap)
        traces[key] = structs.replace(trace, steps=(*trace.steps, step), published=after)


def _entry(container: str, traces: Traces) -> objects.ContainerRecommendation:
    lists: dict[Bound, objects.ResourceList] = {}
    uncapped = objects.ResourceList()
    for bound in BOUNDS:
        for resource in RESOURCES:
            trace = traces.get((container, resource, bound))
            if trace is None:
                continue
            lists.setdefault(bound, objects.ResourceList())[resource] = trace.published
            if bound == "target":
                uncapped[resource] = trace.uncapped
    return objects.ContainerRecommendation(
        container_name=container,
        target=lists.get("target"),
        lower_bound=lists.get("lowerBound"),
        upper_bound=lists.get("upperBound"),
        uncapped_target=uncapped or None,
    )


def cap_to_nodes(
    pod: Mapping[str, Mapping[str, int]], shapes: Sequence[NodeShape]
) -> list[NodeCap]:
    """Return what has to shrink so that the pod fits the shape that takes most of it.

    ``pod`` is amounts by resource by container. Nothing is returned for a pod that fits
    some shape, nor without shapes: an unknown node cuts nothing.
    """
    if not shapes:
        return []
    sums = {
        resource: sum(amounts.get(resource, 0) for amounts in pod.values())
        for resource in RESOURCES
    }

    def share(shape: NodeShape) -> tuple[float, ...]:
        # How much of each resource the shape can give, the scarcest first.
        parts = (
            min(1.0, shape.available(name) / wanted) for name, wanted in sums.items() if wanted
        )
        return (*sorted(parts), float(shape.available("cpu")), float(shape.available("memory")))

    best = max(shapes, key=share)
    caps = []
    for resource, wanted in sums.items():
        available = best.available(resource)
        if wanted <= available:
            continue
        for container, amounts in pod.items():
            amount = amounts.get(resource)
            if amount:
                cut = amount * available // wanted
                caps.append(NodeCap(container, resource, cut, best.shape, available))
    return caps


def largest(shapes: Iterable[NodeShape]) -> tuple[NodeShape, ...]:
    """Return the shapes that no other one is at least as large as, in both resources.

    A pod that fits any of ``shapes`` fits one of these; of equal ones the first counts.
    """
    by_size = sorted(shapes, key=lambda s: (-s.available("cpu"), -s.available("memory")))
    found: list[NodeShape] = []
    most = -1
    for shape in by_size:
        if shape.available("memory") > most:
            found.append(shape)
            most = shape.available("memory")
    return tuple(found)
