"""What is read of a cluster, and who is shown what."""

from collections.abc import AsyncIterator, Iterator

import msgspec
import numpy as np
import pytest

from podscale.cli.cluster import ClusterChoice
from podscale.cli.prometheus import PrometheusChoice
from podscale.cli.replay import run
from podscale.cli.replay.inputs import RecordedCluster, ReplayOptions, Subject
from podscale.cli.replay.run import all_replayed
from podscale.cli.replay.shown import columns_of
from podscale.replay.inputs import ReplayError
from podscale.replay.report import ReplayReport
from tests.unit.hpa.decide.handwritten import written
from tests.unit.hpa.simulate.loads import load, pods_metric, web


@pytest.mark.parametrize("spec", [{}, {"targetRef": None}, {"targetRef": {"kind": "Deployment"}}])
async def test_a_vpa_that_names_no_target_is_said_to(spec) -> None:
    cluster = RecordedCluster(ClusterChoice({}), ReplayOptions())
    plain = {"metadata": {"name": "web", "namespace": "shop"}, "spec": spec}
    with pytest.raises(ReplayError, match="VPA web has no target"):
        await cluster.usage(plain, lambda *_: None)


def test_workers_are_shown_no_credentials(monkeypatch) -> None:
    shown: list[object] = []

    def over_dask(_work: object, shared: object, _jobs: object, _address: str) -> Iterator[str]:
        shown.append(shared)
        yield from ()

    monkeypatch.setattr(run.parallel, "over_dask", over_dask)
    given = ReplayOptions(
        prometheus=PrometheusChoice(
            "https://podscale:verysecret@prometheus", ("Authorization=Bearer verysecret",)
        ),
        dask="tcp://somewhere:8786",
    )  # fmt: skip
    all_replayed(ClusterChoice({}), given)
    assert shown
    assert "verysecret" not in repr(shown)


def replayed(replicas: list[float], ready_after_s: tuple[float, ...] = ()) -> ReplayReport:
    """Replay a load that five pods serve at 80 %, of which so many were recorded."""
    spec = written({"minReplicas": 1, "metrics": [pods_metric("50")]})
    known = load([200.0] * len(replicas))
    known = msgspec.structs.replace(known, replicas=np.array(replicas))
    report = run.one_report(
        (ReplayOptions(), None), Subject([("today", spec)], known, {}, ready_after_s, [])
    )
    assert isinstance(report, ReplayReport), report
    return report


def test_a_replay_of_today_that_differs_from_what_was_recorded_is_cautioned():
    assert not [each for each in replayed([4.0] * 480).assumptions if "caution" in each]
    (caution,) = [each for each in replayed([4.0] + [1.0] * 479).assumptions if "caution" in each]
    assert "0.0% unserved and 8 pod-hours, but " in caution
    assert "correct --ready-after" in caution


def test_less_than_an_hour_of_history_is_cautioned():
    assert replayed([4.0] * 120).assumptions[0].startswith("caution: only 30m0s of history")


@pytest.mark.parametrize(("measured", "said"), [
    ((), "unserved (ready after 60 s, assumed)"), ((2.0,), "unserved (ready after 2 s, measured)"),
])  # fmt: skip
def test_the_table_head_says_how_long_a_pod_takes_and_how_that_is_known(measured, said):
    assert said in columns_of(replayed([4.0] * 480, measured))[0]


class OnePage:
    """A cluster that lists these pods."""

    def __init__(self, *pods: tuple[str, str, str]) -> None:
        self._pods = [
            {"metadata": {"name": name, "creationTimestamp": "2026-11-29T10:00:00Z"},
             "status": {"conditions": [{"type": "Ready", "status": status,
                                        "lastTransitionTime": f"2026-11-29T10:00:{second}Z"}]}}
            for name, status, second in pods
        ]  # fmt: skip

    async def listed(self, _path: str, _what: str) -> AsyncIterator[list[msgspec.Raw]]:
        yield [msgspec.Raw(msgspec.json.encode(each)) for each in self._pods]


async def test_how_long_a_pod_takes_is_measured_by_the_pods_of_the_cluster_too():
    cluster = RecordedCluster(ClusterChoice({}), ReplayOptions())
    cluster.cluster = OnePage(
        ("web-6d5f-a", "True", "02"), ("web-6d5f-b", "True", "04"), ("web-6d5f-c", "True", "03"),
        ("web-6d5f-d", "False", "30"), ("other-6d5f-a", "True", "50"),
    )  # type: ignore[assignment]  # fmt: skip
    assert await cluster._ready_after(web()) == (3.0,)
