"""What a PodDisruptionBudget is known to say before it is asked."""

from typing import Any

import msgspec
import pytest

from podscale.kube.client.wire import decode
from podscale.kube.columns.pods import PodStore, PodView
from podscale.kube.informer.store import Store
from podscale.kube.objects.cluster import PodDisruptionBudget
from podscale.kube.objects.pod import Pod
from tests.kit.stores import fill
from vpa.updater.cluster.pod_observer import alike_to, refusal


def budget(name: str = "all", allowed: int = 0, **more: Any) -> PodDisruptionBudget:
    spec = {"selector": more.pop("selector", {"matchLabels": {"app": "web"}})}
    status = {"disruptionsAllowed": allowed, "observedGeneration": more.pop("observed", 3)}
    metadata = {"name": name, "namespace": "shop", "uid": name, "generation": 3}
    body = {"metadata": {**metadata, "resourceVersion": "5"}, "spec": spec, "status": status}
    return decode(msgspec.json.encode(body), PodDisruptionBudget)


def pod(phase: str = "Running", ready: str = "True", name: str = "web-0", **labels: str) -> PodView:
    body = {
        "metadata": {
            "name": name, "namespace": "shop", "uid": "1", "resourceVersion": "1",
            "labels": {"app": "web", **labels},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "2",
                 "controller": True}
            ],
        },
        "spec": {"containers": [], "nodeName": "n"},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
    }  # fmt: skip
    store = PodStore()
    store.accept(decode(msgspec.json.encode(body), Pod))
    view = store.get("shop", name)
    assert view is not None
    return view


def known(*budgets: PodDisruptionBudget, is_current: bool = True) -> Store[PodDisruptionBudget]:
    store: Store[PodDisruptionBudget] = Store()
    fill(store, budgets, watched_s=600.0 if is_current else None)
    return store


@pytest.mark.parametrize(
    ("budgets", "refuses"),
    [
        pytest.param([], None, id="none"),
        pytest.param([budget()], True, id="exhausted"),
        pytest.param([budget(allowed=1)], False, id="one-more-may-go"),
        pytest.param([budget(observed=2)], False, id="an-old-status-is-not-believed"),
        pytest.param([budget(selector={"matchLabels": {"app": "db"}})], None, id="of-others"),
        pytest.param([budget(selector={})], True, id="an-empty-selector-is-every-pod"),
        pytest.param([budget(selector=None)], None, id="no-selector-is-no-pod"),
        pytest.param([budget("a", 5), budget("b", 5)], True, id="two-are-never-answered"),
    ],
)
def test_what_budgets_say(budgets: list[PodDisruptionBudget], refuses: bool | None) -> None:
    found = refusal(pod(), known(*budgets))
    assert (found.refuses if found is not None else None) == refuses


def test_pods_that_do_not_run_well_are_the_api_servers_to_judge() -> None:
    exhausted = known(budget())
    assert refusal(pod("Pending", "False"), exhausted) is None
    unready = refusal(pod(ready="False"), exhausted)
    assert unready is not None
    assert not unready.refuses


def test_a_silent_watch_says_nothing() -> None:
    assert refusal(pod(), known(budget(), is_current=False)) is None
    assert refusal(pod(), Store()) is None


def test_a_refusal_holds_for_pods_that_a_budget_cannot_tell_apart() -> None:
    unknown = known()
    assert alike_to(pod(), unknown) == alike_to(pod(name="web-1"), unknown)
    for other in (pod(ready="False"), pod(phase="Pending"), pod(track="canary")):
        assert alike_to(pod(), unknown) != alike_to(other, unknown)


def test_labels_that_no_budget_looks_at_tell_pods_apart_from_nobody() -> None:
    both = known(budget())
    assert alike_to(pod(shard="1"), both) == alike_to(pod(shard="2"), both)
    canaries = known(budget(), budget("c", selector={"matchLabels": {"track": "canary"}}))
    assert alike_to(pod(), canaries) != alike_to(pod(track="canary"), canaries)
    assert alike_to(pod(ready="False"), both) != alike_to(pod(), both)


@pytest.mark.parametrize(
    "label", ["statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"]
)
def test_labels_that_number_pods_tell_no_budget_apart(label: str) -> None:
    first, second = pod(**{label: "0"}), pod(name="web-1", **{label: "1"})
    assert alike_to(first, known()) == alike_to(second, known())
