"""What is wrong with a VPA is found where the object enters."""

import pytest

from podscale.kube.objects.vpa import ContainerPolicy, ResourcePolicy, VpaSpec
from vpa.admission.validation import (
    INVALID,
    UNSUPPORTED,
    Options,
    validate,
    validate_annotations,
)


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("cpu-target-percentile", "0.99", None),
        ("cpu-target-percentile", "1.5", INVALID),
        ("memory-half-life", "1s", INVALID),
        ("memory-half-life", "48h", None),
        ("pod-min-memory", "-1Gi", INVALID),
        ("pod-min-memory", "64Mi", None),
        ("pod-min-cpu", "a lot", INVALID),
        ("margin-fraction", "0.3", None),
        ("cap-to-nodes", "sometimes", INVALID),
        ("cap-to-nodes", "existing", None),
        ("disruption-windows", "Mon-Fri", INVALID),
        ("disruption-windows", "Mon-Fri 22:00-05:00", None),
        ("make-room", "true", None),
        ("max-disruptions-per-day", "3", None),
        ("max-disruptions-per-day", "three", INVALID),
        ("disruptions", "2026-03-09T12:3, 2026-03-09T13:1", None),
        ("target-percentile", "0.9", UNSUPPORTED),
    ],
)
def test_annotation(name: str, value: str, kind: str | None) -> None:
    given = {f"vpa.podscale.io/{name}": value}
    if name == "cpu-target-percentile":
        given["vpa.podscale.io/cpu-upper-bound-percentile"] = "1.0"
    found = validate_annotations(given)
    assert [error.type for error in found] == ([kind] if kind is not None else [])
    for error in found:
        assert error.field == f"metadata.annotations[vpa.podscale.io/{name}]"


def test_annotations_of_others_are_none_of_our_business() -> None:
    assert validate_annotations({"example.com/x": "y"}) == []
    assert validate_annotations(None) == []


@pytest.mark.parametrize(("ratio", "types"), [("0.9999", []), ("0.999", [INVALID]), ("1", [])])
def test_a_bump_up_ratio_is_compared_in_thousandths_rounded_up(
    ratio: str, types: list[str]
) -> None:
    policy = ContainerPolicy(container_name="*", oom_bump_up_ratio=ratio)
    spec = VpaSpec(resource_policy=ResourcePolicy(container_policies=(policy,)))
    options = Options(is_create=False, in_place=False, cpu_startup_boost=False, per_vpa_config=True)
    assert [error.type for error in validate(spec, options).errors] == types
