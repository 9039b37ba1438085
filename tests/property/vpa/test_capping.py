"""Capping: whatever LimitRanges, policies and pods say, it ends, and its promises hold."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from podscale.kube.columns.pod_set import PodView
from podscale.kube.objects.vpa import LimitRangeItem, Vpa, decode
from tests.pods import pod_of
from vpa.admission.patches.patch import BoostSettings, admission_patch
from vpa.admission.patches.resources import ResourcesUnavailable, pod_resources
from vpa.capping import LimitRanges, cap_for_pod
from vpa.model.amounts import of

cpu = st.integers(0, 64_000).map(lambda milli: f"{milli}m")
memory = st.integers(0, 2**36).map(str)
resources = st.fixed_dictionaries({}, optional={"cpu": cpu, "memory": memory})
NAMES = ("a", "b", "c")


@st.composite
def pods(draw: st.DrawFn) -> PodView:
    containers = [
        {
            "name": name,
            "resources": draw(
                st.fixed_dictionaries({}, optional={"requests": resources, "limits": resources})
            ),
        }
        for name in NAMES[: draw(st.integers(1, 3))]
    ]
    return pod_of({"spec": {"containers": containers}})


@st.composite
def vpas(draw: st.DrawFn) -> Vpa:
    policies = [
        {
            "containerName": name,
            **draw(
                st.fixed_dictionaries(
                    {},
                    optional={
                        "minAllowed": resources,
                        "maxAllowed": resources,
                        "mode": st.sampled_from(["Auto", "Off"]),
                        "controlledValues": st.sampled_from(["RequestsOnly", "RequestsAndLimits"]),
                    },
                )
            ),
        }
        for name in draw(st.lists(st.sampled_from([*NAMES, "*"]), unique=True, max_size=3))
    ]
    entries: list[dict[str, Any]] = [
        {
            "containerName": name,
            **draw(
                st.fixed_dictionaries(
                    {"target": resources},
                    optional={"lowerBound": resources, "upperBound": resources},
                )
            ),
        }
        for name in draw(st.lists(st.sampled_from([*NAMES, "ghost"]), unique=True))
    ]
    return decode(
        {
            "metadata": {"name": "web"},
            "spec": {"resourcePolicy": {"containerPolicies": policies}},
            "status": {"recommendation": {"containerRecommendations": entries}},
        },
        Vpa,
    )


@st.composite
def items(draw: st.DrawFn) -> LimitRangeItem | None:
    bounds = st.fixed_dictionaries(
        {}, optional={"min": resources, "max": resources, "default": resources}
    )
    return draw(st.none() | bounds.map(lambda item: decode(item, LimitRangeItem)))


@settings(max_examples=300, deadline=None)
@given(pods(), vpas(), items(), items())
def test_nothing_panics_and_containers_with_mode_off_are_left_alone(
    pod: PodView, vpa: Vpa, container: LimitRangeItem | None, of_pod: LimitRangeItem | None
) -> None:
    ranges = LimitRanges(container, of_pod)
    capped = cap_for_pod(vpa, pod, ranges).recommendation
    assert capped is not None
    present = {entry.name for entry in pod.template.containers}
    policies = vpa.spec.resource_policy
    assert policies is not None
    exact = {entry.container_name: entry for entry in policies.container_policies or ()}
    for entry in capped.container_recommendations or ():
        assert entry.container_name in present
        policy = exact.get(entry.container_name, exact.get("*"))
        assert policy is None or policy.mode != "Off"
        # maxAllowed comes last of the policy and RequestsOnly can only lower further.
        for name, value in (entry.target or {}).items():
            most = of(policy.max_allowed, name) if policy is not None else None
            assert most is None or most.nano == 0 or value.nano <= most.nano
    found = pod_resources(pod, vpa, ranges)
    assert not isinstance(found, ResourcesUnavailable)
    assert len(found.containers) == len(pod.template.containers)
    patch = admission_patch(pod, vpa, ranges, BoostSettings())
    if not isinstance(patch, ResourcesUnavailable):  # ``test_acceptance`` says what it is then
        assert patch[-1].path.endswith("vpaObservedContainers")


@settings(max_examples=200, deadline=None)
@given(pods(), vpas(), st.integers(1, 2**36))
def test_targets_fit_the_maximum_of_a_pod_limit_range(pod: PodView, vpa: Vpa, most: int) -> None:
    unrestricted = Vpa(vpa.metadata, type(vpa.spec)(), vpa.status)
    item = decode({"max": {"memory": str(most)}}, LimitRangeItem)
    capped = cap_for_pod(unrestricted, pod, LimitRanges(pod=item))
    found = pod_resources(pod, unrestricted, LimitRanges(pod=item))
    assert not isinstance(found, ResourcesUnavailable)
    limits = [of(entry.limits, "memory").nano for entry in found.containers]
    # A container without limit and recommendation for memory takes no part in the sum.
    if capped.recommendation is not None and all(limits):
        assert sum(limits) <= of(item.max, "memory").nano + len(limits) * 10**9
