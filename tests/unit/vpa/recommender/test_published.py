"""What a status says of the generation, and keeps of what was published before."""

from typing import Any

from msgspec.structs import replace

from podscale.kube.objects.vpa import (
    ContainerPolicy,
    ResourcePolicy,
    Vpa,
    VpaRecommendation,
    VpaStatus,
    decode,
)
from tests.unit.vpa.model.worlds import NOW, WEB, vpa
from vpa.model.cluster import ClusterModel
from vpa.model.estimation.recommendation import (
    RecommendedUsage,
    RecommenderSettings,
    ResourceUsage,
    recommend,
)
from vpa.model.estimation.status import recommendation_wire, says_the_same
from vpa.model.recommendations import RecommendationReader
from vpa.recommender.publishing.published import status_of, with_kept

BEFORE = {
    "observedGeneration": 3,
    "recommendation": {
        "containerRecommendations": [{"containerName": "app", "target": {"cpu": "2"}}]
    },
}


def written(observed: Vpa, **more: Any) -> dict[str, Any]:
    """Return the status of a VPA that the model knows as generation 4, without any sample."""
    cluster = ClusterModel()
    known = vpa()
    known = replace(known, metadata=replace(known.metadata, generation=4))
    entry = cluster.put_vpa(known, None, NOW)
    reader = RecommendationReader(cluster)
    trace = reader.recommendation(reader.read(), WEB)
    return status_of(observed, entry, trace, NOW, pods_matched=False, unsupported=None, **more)


def published() -> Vpa:
    return replace(vpa(), status=decode(BEFORE, VpaStatus))


def test_the_generation_is_the_one_that_was_decided_about():
    # The spec may have changed again since the model took it in.
    later = published()
    later = replace(later, metadata=replace(later.metadata, generation=5))
    assert written(later)["observedGeneration"] == 4


def test_a_status_of_an_older_generation_does_not_say_the_same():
    wanted = written(published())
    same = decode(wanted, VpaStatus)
    assert says_the_same(same, wanted)
    assert not says_the_same(replace(same, observed_generation=3), wanted)


def test_silence_keeps_what_was_published_of_this_workload_and_not_of_another():
    assert written(published())["recommendation"] == BEFORE["recommendation"]
    moved = written(published(), has_moved=True)
    assert "recommendation" not in moved
    provided = next(c for c in moved["conditions"] if c["type"] == "RecommendationProvided")
    assert (provided["status"], provided["reason"]) == ("False", "NoPodsMatched")


def test_a_container_of_which_nothing_is_controlled_is_published_without_amounts():
    nothing = ContainerPolicy(container_name="app", controlled_resources=())
    policy = ResourcePolicy((nothing,))
    used = RecommendedUsage("app", {"cpu": ResourceUsage((0.1, 0.2, 0.3), 1.0)})
    trace = recommend([used], RecommenderSettings(), policy=policy)
    before = decode(BEFORE, VpaStatus).recommendation
    first = with_kept(trace, before, policy)
    assert recommendation_wire(first) == {
        "containerRecommendations": [{"containerName": "app", "target": {}}]
    }
    assert with_kept(trace, first, policy) == first
    silent = recommend([RecommendedUsage("app", {})], RecommenderSettings(), policy=policy)
    assert with_kept(silent, None, policy) == VpaRecommendation(container_recommendations=())
    assert with_kept(silent, first, policy) == first
