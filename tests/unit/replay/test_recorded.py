"""What is read of a cluster, and who is shown what."""

from collections.abc import Iterator

import pytest

from podscale.cli.cluster import ClusterChoice
from podscale.cli.prometheus import PrometheusChoice
from podscale.cli.replay import run
from podscale.cli.replay.inputs import RecordedCluster, ReplayOptions
from podscale.cli.replay.run import all_replayed
from podscale.replay.inputs import ReplayError


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
