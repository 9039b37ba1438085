"""Every combination of some values, refused where a field is none or they are too many."""

import pytest
from msgspec import structs

from hpa.simulate.loop import RunVerdict
from podscale.replay.inputs import ReplayError
from podscale.replay.sweep import chosen, combinations, pareto, swept_field
from tests.unit.hpa.decide.handwritten import resource, written
from tests.unit.hpa.simulate.loads import pods_metric

BASE = written({"minReplicas": 1, "metrics": [pods_metric("50")]})
TWO = written({"metrics": [pods_metric("50"), resource(type="Utilization", averageUtilization=60)]})


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("target=50..90:20", ("50", "70", "90")),
        ("target=100m..300m:100m", ("100m", "200m", "300m")),
        ("minReplicas=2,4,2", ("2", "4")),
        ("target=1.5..2.5:500m", ("1500m", "2", "2500m")),
    ],
)
def test_values_are_a_range_or_a_list(text, values):
    assert swept_field(text).values == values


@pytest.mark.parametrize(
    "text", ["target", "target=", "=3", "target=9..1:1", "target=1..9:0", "target=1..x:2", "a=1,,2"]
)
def test_what_is_no_range_and_no_list_is_refused(text):
    with pytest.raises(ReplayError):
        swept_field(text)


def made(base, *texts):
    return [each.plain["spec"] for each in combinations(base, [swept_field(t) for t in texts])]


def test_every_combination_is_made_and_the_base_stays():
    found = made(BASE, "target=40,60", "scaleDown.stabilizationWindowSeconds=0,60", "maxReplicas=7")
    targets = [each["metrics"][0]["pods"]["target"]["averageValue"] for each in found]
    windows = [each["behavior"]["scaleDown"]["stabilizationWindowSeconds"] for each in found]
    assert list(zip(targets, windows, strict=True)) == [
        ("40", 0),
        ("40", 60),
        ("60", 0),
        ("60", 60),
    ]
    assert {each["maxReplicas"] for each in found} == {7}
    assert "behavior" not in BASE["spec"]
    assert BASE["spec"]["metrics"][0]["pods"]["target"]["averageValue"] == "50"


def test_of_several_metrics_one_is_named():
    (found,) = made(TWO, "metrics[1].target=70")
    assert found["metrics"][1]["resource"]["target"]["averageUtilization"] == 70
    with pytest.raises(ReplayError, match="say which"):
        made(TWO, "target=70")


@pytest.mark.parametrize(
    "text", ["metrics[9].target=1", "metrics[0]=1", "behavior.scaleUp.policies[0].value=3", "a-b=1"]
)
def test_a_place_that_is_none_is_refused(text):
    with pytest.raises(ReplayError):
        made(BASE, text)


def test_a_million_combinations_are_refused_with_their_number():
    with pytest.raises(ReplayError, match="1000000 combinations"):
        combinations(BASE, [swept_field(f"f{place}=1..100:1") for place in range(3)])
    with pytest.raises(ReplayError, match="1000000 combinations"):
        swept_field("target=1..1000000:1")


def verdict(pod_hours: float, unserved: float) -> RunVerdict:
    nothing = dict.fromkeys(RunVerdict.__struct_fields__, 0.0)
    return structs.replace(
        RunVerdict(**{**nothing, "largest": 1}), pod_hours=pod_hours, unserved=unserved
    )


def test_the_front_holds_what_no_other_beats_and_the_cheapest_that_fits_is_chosen():
    rows = [("dear", verdict(9, 0.0)), ("bad", verdict(8, 0.3)), ("middle", verdict(5, 0.1)),
            ("cheap", verdict(2, 0.5)), ("twin", verdict(5, 0.1))]  # fmt: skip
    assert pareto(rows) == ["cheap", "middle", "dear"]
    assert chosen(rows, 0.2) == "middle"
    assert chosen(rows, 0.0) == "dear"
    assert chosen(rows[1:], 0.05) is None
