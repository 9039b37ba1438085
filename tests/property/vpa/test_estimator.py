"""The estimators: one number and many come out the same, and bounds keep their order."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vpa.model.estimation import estimator
from vpa.model.estimation.estimator import (
    BOUNDS,
    MAX_AMOUNT,
    EstimatorSettings,
    Percentiles,
    humanized,
    rounded_up,
)
from vpa.model.estimation.recommendation import NodeShape, cap_to_nodes

usage = st.floats(0.0, 1e13)
confidence = st.one_of(st.just(0.0), st.floats(1e-6, 1e4))


@given(
    st.sampled_from(["cpu", "memory"]),
    usage,
    confidence,
    st.integers(0, 10**9),
    st.floats(0.0, 3.0),
)
def test_derivation_and_columns_agree(
    resource: str, value: float, known: float, minimum: int, margin: float
) -> None:
    settings = EstimatorSettings(Percentiles(), margin, 86400.0)
    for bound in BOUNDS:
        column = estimator.estimate(
            resource, bound, np.array([value]), np.array([known]), minimum, settings
        )
        assert (
            estimator.derive(resource, bound, value, known, minimum, settings).amount == column[0]
        )


@given(st.lists(usage, min_size=3, max_size=3), confidence, st.integers(0, 10**9))
def test_bounds_enclose_the_target(values: list[float], known: float, minimum: int) -> None:
    ordered = dict(zip(BOUNDS, sorted(values), strict=True))
    amounts = [
        estimator.derive(
            "memory", bound, ordered[bound], known, minimum, EstimatorSettings()
        ).amount
        for bound in BOUNDS
    ]
    # With nothing known about it a measured zero stays zero instead of becoming unbounded.
    assert amounts == sorted(amounts)
    assert all(minimum <= amount <= MAX_AMOUNT for amount in amounts)


@given(st.integers(0, MAX_AMOUNT), st.integers(1, 2**30))
def test_rounding_up_gives_the_next_multiple(amount: int, step: int) -> None:
    rounded = rounded_up(amount, step)
    assert rounded % step == 0
    assert 0 <= rounded - amount < step


@given(st.integers(0, 2**45))
def test_humanized_memory_is_within_a_hundredth_of_its_unit(size: int) -> None:
    units = {"Ti": 2**40, "Gi": 2**30, "Mi": 2**20, "Ki": 2**10}
    text = humanized(size)
    unit = units.get(text[-2:], 1)
    number = float(text[:-2]) if unit > 1 else float(text)
    assert abs(number * unit - size) <= 0.005 * unit + 1


amounts = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.fixed_dictionaries(
        {}, optional={"cpu": st.integers(0, 10**6), "memory": st.integers(0, 2**42)}
    ),
    max_size=3,
)
shapes = st.lists(
    st.builds(
        NodeShape,
        st.sampled_from(["s", "m", "l"]),
        st.integers(1, 10**6),
        st.integers(1, 2**42),
        st.integers(0, 10**4),
        st.integers(0, 2**32),
    ),
    max_size=4,
)


@given(amounts, shapes)
def test_a_capped_pod_fits_a_node_and_nothing_grows(
    pod: dict[str, dict[str, int]], nodes: list[NodeShape]
) -> None:
    caps = {(cap.container, cap.resource): cap.amount for cap in cap_to_nodes(pod, nodes)}
    after = {
        container: {name: caps.get((container, name), amount) for name, amount in listed.items()}
        for container, listed in pod.items()
    }
    for container, listed in pod.items():
        for name, amount in listed.items():
            assert after[container][name] <= amount
    if nodes:
        assert any(
            all(
                sum(listed.get(name, 0) for listed in after.values()) <= shape.available(name)
                for name in ("cpu", "memory")
            )
            for shape in nodes
        )
    else:
        assert not caps
