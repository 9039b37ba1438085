"""Which VPA decides about a pod."""

from podscale.core.selectors import selector
from podscale.kube.objects.vpa import Vpa, decode
from tests.pods import pod_of
from vpa.admission.matching import Candidate, OwningController, TargetIndex, match_at_admission

WEB = OwningController("shop", "Deployment", "web")
POD = pod_of({"metadata": {"namespace": "shop", "labels": {"app": "web"}}})


def candidate(
    name: str, created: str, labels: str = "app=web", mode: str = "Recreate"
) -> Candidate:
    raw = {
        "metadata": {"name": name, "namespace": "shop", "creationTimestamp": created},
        "spec": {
            "targetRef": {"kind": "Deployment", "name": "web"},
            "updatePolicy": {"updateMode": mode},
        },
    }
    return Candidate(decode(raw, Vpa), selector.parse(labels))


def chosen(*candidates: Candidate) -> str | None:
    found = match_at_admission(POD.labels, WEB, TargetIndex(candidates))
    return found.vpa.metadata.name if found is not None else None


def test_the_oldest_matching_vpa_decides_then_the_name() -> None:
    assert (
        chosen(candidate("b", "2026-01-02T00:00:00Z"), candidate("a", "2026-01-03T00:00:00Z"))
        == "b"
    )
    assert (
        chosen(candidate("b", "2026-01-02T00:00:00Z"), candidate("a", "2026-01-02T00:00:00Z"))
        == "a"
    )


def test_an_older_vpa_of_other_pods_does_not_decide() -> None:
    other = candidate("old", "2025-01-01T00:00:00Z", labels="app=api")
    assert chosen(other, candidate("new", "2026-01-01T00:00:00Z")) == "new"


def test_mode_off_steps_back_for_a_younger_vpa() -> None:
    off = candidate("off", "2025-01-01T00:00:00Z", mode="Off")
    assert chosen(off) is None
    assert chosen(off, candidate("on", "2026-01-01T00:00:00Z")) == "on"


def test_a_target_that_is_not_resolved_matches_nothing() -> None:
    unresolved = Candidate(candidate("a", "2026-01-01T00:00:00Z").vpa, None)
    assert chosen(unresolved) is None


def test_the_index_follows_changes() -> None:
    index = TargetIndex([candidate("a", "2026-01-01T00:00:00Z")])
    moved = decode(
        {
            "metadata": {"name": "a", "namespace": "shop"},
            "spec": {"targetRef": {"kind": "Deployment", "name": "api"}},
        },
        Vpa,
    )
    index.put(Candidate(moved, selector.parse("app=api")))
    assert index.of(WEB) == ()
    assert len(index.of(OwningController("shop", "Deployment", "api"))) == 1
    index.remove("shop", "a")
    index.remove("shop", "a")
    assert index.of(OwningController("shop", "Deployment", "api")) == ()
