"""Pods in columns: what goes in comes out, and what is gone leaves nothing behind."""

import math
import tracemalloc
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from podscale.core.pod_state import PodPhase, PodReadiness
from podscale.core.selectors import selector
from podscale.kube.client.errors import ApiUnreachable, Forbidden
from podscale.kube.client.wire import decode, encode, parse_time
from podscale.kube.columns.pods import PodStore
from podscale.kube.informer.list_watch import (
    Changes,
    Kind,
    ListBegan,
    ListEnded,
    ListPage,
    WatchBroken,
)
from podscale.kube.objects.pod import Pod

FULL = {
    "metadata": {
        "name": "web-1",
        "namespace": "shop",
        "uid": "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
        "resourceVersion": "41",
        "labels": {"app": "web", "pod-template-hash": "abc"},
        "annotations": {"vpaObservedContainers": "app, proxy", "vpaOther": "x", "other": "x"},
        "creationTimestamp": "2026-11-21T10:00:00Z",
        "ownerReferences": [
            {"kind": "ReplicaSet", "name": "web-abc", "uid": "rs-1", "controller": True}
        ],
    },
    "spec": {
        "nodeName": "node-1",
        "nodeSelector": {"pool": "big"},
        "overhead": {"cpu": "10m"},
        "resources": {"requests": {"cpu": "2"}},
        "initContainers": [
            {"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": "50m"}}}
        ],
        "containers": [
            {
                "name": "app",
                "resources": {
                    "requests": {"cpu": "0.1", "memory": "128Mi"},
                    "limits": {"memory": "1Gi"},
                },
                "resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}],
            }
        ],
    },
    "status": {
        "phase": "Running",
        "qosClass": "Burstable",
        "startTime": "2026-11-21T10:00:01Z",
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T10:00:09Z"},
            {"type": "PodResizePending", "status": "True", "reason": "Deferred", "message": "full"},
        ],
        "containerStatuses": [
            {
                "name": "app",
                "ready": True,
                "restartCount": 3,
                "state": {"running": {"startedAt": "2026-11-21T10:00:05Z"}},
                "lastState": {
                    "terminated": {"reason": "OOMKilled", "finishedAt": "2026-11-21T10:00:04Z"}
                },
                "resources": {"requests": {"cpu": "200m"}},
            }
        ],
    },
}


def made(name: str, version: int = 1, **labels: str) -> Pod:
    obj = {**FULL, "metadata": {**FULL["metadata"], "name": name, "resourceVersion": str(version)}}
    if labels:
        obj["metadata"]["labels"] = labels
    return decode(encode(obj), Pod)


def store(*pods: Pod) -> PodStore:
    kept = PodStore()
    feed(kept, *(("ADDED", pod) for pod in pods))
    return kept


def feed(kept: PodStore, *events: tuple[Kind, Pod]) -> None:
    kept.apply(Changes(list(events), events[-1][1].metadata.resource_version), scope="", now=0.0)


def test_a_pod_comes_out_as_it_went_in():
    view = store(made("web-1", 41)).get("shop", "web-1")
    assert view is not None
    assert (view.namespace, view.name, view.resource_version) == ("shop", "web-1", "41")
    assert view.uid == FULL["metadata"]["uid"]
    assert view.labels == {"app": "web", "pod-template-hash": "abc"}
    assert view.annotations == {"vpaObservedContainers": "app, proxy"}
    assert view.owner is not None
    assert (view.owner.kind, view.owner.uid) == ("ReplicaSet", "rs-1")
    assert (view.node, view.phase, view.ready) == ("node-1", PodPhase.RUNNING, PodReadiness.TRUE)
    assert view.started == parse_time("2026-11-21T10:00:01Z")
    assert view.created == parse_time("2026-11-21T10:00:00Z")
    assert view.ready_since == parse_time("2026-11-21T10:00:09Z")
    assert math.isnan(view.deleted)
    (app,) = view.template.containers
    assert app.requests_milli == {"cpu": 100, "memory": 128 * 2**20 * 1000}
    assert app.limits_milli == {"memory": 2**30 * 1000}
    assert app.resize_policy == {"memory": "RestartContainer"}
    (proxy,) = view.template.init_containers
    assert proxy.is_sidecar
    assert view.template.pod_requests_milli == {"cpu": 2000}
    assert view.template.overhead_milli == {"cpu": 10}
    (state,) = view.states
    assert (state.restart_count, state.phase, state.requests_milli) == (3, "running", {"cpu": 200})
    assert state.last_terminated is not None
    assert state.last_terminated.reason == "OOMKilled"
    assert [(c.type, c.reason) for c in view.resize] == [("PodResizePending", "Deferred")]


@pytest.mark.parametrize("uid", ["", "uid-7", "3F2504E0-4F89-11D3-9A0C-0305E82C3301", "x" * 36])
def test_any_uid_comes_out_as_it_went_in(uid):
    obj = {**FULL, "metadata": {**FULL["metadata"], "uid": uid}}
    kept = store(decode(encode(obj), Pod))
    view = kept.get("shop", "web-1")
    assert view is not None
    assert view.uid == uid


def test_pods_are_placed_on_their_nodes_in_columns():
    kept = store(made("web-1"), made("web-2", 2))
    placed = kept.placed()
    assert [placed.nodes[number] for number in placed.node] == ["node-1", "node-1"]
    assert placed.templates[int(placed.template[0])].containers[0].name == "app"
    feed(kept, ("DELETED", made("web-1", 3)))
    placed = kept.placed()
    live = placed.phase == PodPhase.RUNNING
    assert live.sum() == 1  # what is left of the other looks as if it had succeeded
    (row,) = live.nonzero()[0].tolist()
    assert [view.name for view in kept.at([row])] == ["web-2"]
    feed(kept, ("DELETED", made("web-2", 4)))
    assert kept.placed().templates == {}
    assert kept.at(range(2)) == []


def test_a_bare_pod_has_no_times_and_no_condition():
    view = store(decode(b'{"metadata":{"name":"p","namespace":"n"}}', Pod)).get("n", "p")
    assert view is not None
    assert (view.phase, view.ready, view.owner, view.resource_version) == (0, 0, None, "")
    assert all(map(math.isnan, (view.started, view.created, view.ready_since, view.deleted)))


def test_a_selection_is_columns_of_the_pods_that_match():
    kept = store(
        made("web-1", 1, app="web", tier="front"),
        made("web-2", 2, app="web", tier="front"),
        made("web-3", 3, app="web", tier="back"),
        made("api-1", 4, app="api"),
    )
    chosen = kept.select("shop", selector.parse("app=web,tier!=back"))
    assert sorted(chosen.names) == ["web-1", "web-2"]
    assert chosen.phase.tolist() == [PodPhase.RUNNING] * 2
    assert len(chosen.templates) == 1
    assert list(chosen.owners) == ["rs-1"]
    assert set(chosen.template.tolist()) == set(chosen.templates)
    assert sorted(view.name for view in chosen.views()) == ["web-1", "web-2"]
    assert kept.names("shop", selector.parse("app in (api,web)")) == [
        "api-1", "web-1", "web-2", "web-3",
    ]  # fmt: skip
    assert kept.names("shop", selector.NOTHING) == []
    assert len(kept.select("elsewhere", selector.EVERYTHING)) == 0
    assert len(kept.owned_by("rs-1")) == 4


def test_a_selection_is_a_snapshot():
    kept = store(made("web-1", 1, app="web"), made("api-1", 2, app="api"))
    chosen = kept.select("shop", selector.parse("app=web"))
    feed(kept, ("MODIFIED", made("web-1", 4, app="web")))
    feed(kept, ("DELETED", made("web-1", 5, app="web")))
    assert chosen.names == ["web-1"]
    assert chosen.phase.tolist() == [PodPhase.RUNNING]
    assert list(chosen.views()) == []


@pytest.mark.parametrize(("key", "count"), [
    pytest.param("vpa.example.com/{}", 1, id="nobody-reads-it"),
    pytest.param("vpaCpuStartupBoost/{}", 100, id="the-updater-reads-them"),
])  # fmt: skip
def test_annotations_of_strangers_fill_little_memory(key: str, count: int) -> None:
    kept = store(made("web"))
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(1, 301):
        pod = made(f"web-{number}", number)
        notes = {key.format(place): f"{number:05}" * (50_000 // count) for place in range(count)}
        meta = structs.replace(pod.metadata, annotations=notes)
        feed(kept, ("ADDED", structs.replace(pod, metadata=meta)))
    filled = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert filled < 12 * 2**20


def _many(count: int) -> dict[str, str]:
    return {f"example.com/{place:05}": "1" for place in range(count)}


@pytest.mark.parametrize(("field", "value"), [
    pytest.param("labels", _many(40_000), id="labels"),
    pytest.param("ownerReferences", [{"kind": "A", "name": "a", "uid": f"{place}"}
                                     for place in range(20_000)], id="owners"),
    pytest.param("containers", [{"name": f"c{place}"} for place in range(4_000)], id="containers"),
    pytest.param("containers", [{"name": "c", "resources": dict.fromkeys(("requests", "limits"),
                                                                         _many(20_000))}],
                 id="amounts"),
])  # fmt: skip
def test_a_pod_as_large_as_etcd_takes_fills_little_memory(field: str, value: object) -> None:
    raw = {**FULL, "metadata": {**FULL["metadata"]}, "spec": {**FULL["spec"], "priority": 7}}
    raw["spec" if field == "containers" else "metadata"][field] = value
    pod = decode(encode(raw), Pod)
    kept = PodStore()
    tracemalloc.start()
    feed(kept, ("ADDED", decode(encode(raw), Pod)))
    view = kept.get("shop", "web-1")
    assert view is not None
    assert (view.node, view.template.priority) == ("node-1", 7)
    del view
    filled = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert filled < 2**18
    feed(kept, ("DELETED", structs.replace(pod, metadata=structs.replace(
        pod.metadata, resource_version="42"))))  # fmt: skip
    assert not len(kept)
    assert not len(kept._templates)


def test_what_ordinary_pods_have_is_kept_whole() -> None:
    containers = [
        {"name": f"{place:02}-{'c' * 60}", "resources": {"requests": {"cpu": "1", "memory": "1Gi"},
                                                         "limits": {"memory": "2Gi"}}}
        for place in range(100)
    ]  # fmt: skip
    raw = {**FULL, "metadata": {**FULL["metadata"], "labels": _many(1000)},
           "spec": {**FULL["spec"], "containers": containers}}  # fmt: skip
    view = store(decode(encode(raw), Pod)).get("shop", "web-1")
    assert view is not None
    assert view.labels == _many(1000)
    assert len(view.template.containers) == 100


def test_annotations_that_the_updater_reads_are_kept() -> None:
    notes = {
        "vpaObservedContainers": "app, proxy",
        "vpa.podscale.io/infeasible": '{"containerRecommendations":[]}',
        **{f"vpaCpuStartupBoost/{'c' * 60}-{place:02}": '{"requests":{"cpu":"100m"}}'
           for place in range(100)},
    }  # fmt: skip
    pod = made("web")
    meta = structs.replace(pod.metadata, annotations={**notes, "vpaUpdates": "web"})
    view = store(structs.replace(pod, metadata=meta)).get("shop", "web")
    assert view is not None
    assert view.annotations == notes


def test_changed_labels_move_a_pod():
    kept = store(made("web-1", 1, app="web"), made("web-2", 2, app="web"))
    feed(kept, ("MODIFIED", made("web-1", 3, app="api")))
    assert kept.names("shop", selector.parse("app=web")) == ["web-2"]
    assert kept.names("shop", selector.parse("app=api")) == ["web-1"]


def test_what_is_gone_leaves_nothing_behind():
    kept = PodStore()
    version = 0
    for round_ in range(5):
        for index in range(200):
            version += 1
            feed(kept, ("ADDED", made(f"web-{index}", version, app=f"a{index % 7}-{round_}")))
        for index in range(200):
            version += 1
            feed(kept, ("DELETED", made(f"web-{index}", version)))
    assert len(kept) == 0
    assert len(kept._rows.cohorts) == 0
    assert not kept._rows.cohorts._by_pair
    assert not kept._rows.cohorts._by_owner
    assert (len(kept._templates), len(kept._states), len(kept._nodes)) == (0, 0, 0)
    assert not kept._annotations
    assert not kept._resizes
    assert not kept._odd_uids
    assert len(kept._rows.names) == 200


def test_a_refusal_stands_until_the_pods_have_been_listed():
    kept = PodStore()
    refusal = Forbidden(403, "Forbidden", "pods is forbidden")

    def happens(*happenings):
        for happening in happenings:
            kept.apply(happening, scope="", now=0.0)

    assert kept.refusal is None
    happens(WatchBroken("refused", refusal))
    assert (kept.refusal, kept.is_refused) == (refusal, True)
    happens(ListBegan(), WatchBroken("no answer", ApiUnreachable("gone")))
    assert (kept.refusal, kept.is_refused) == (refusal, False)  # by now nobody can say
    happens(ListBegan(), WatchBroken("refused", refusal))
    assert kept.is_refused
    happens(ListBegan(), ListPage([made("web-1", 1, app="web")], "1"), ListEnded("1"))
    assert kept.refusal is None
    happens(WatchBroken("refused", refusal))
    assert kept.refusal is None  # what is known stays known


def test_subscribers_see_both_states():
    kept = PodStore()
    seen = []
    kept.subscribe(lambda change: seen.append((change.old, change.new)))
    feed(kept, ("ADDED", made("web-1", 1, app="web")))
    feed(kept, ("MODIFIED", made("web-1", 2, app="api")))
    feed(kept, ("DELETED", made("web-1", 3, app="last")))
    assert [(o and o.labels["app"], n and n.labels["app"]) for o, n in seen] == [
        (None, "web"),
        ("web", "api"),
        # What ended it may stand in its last state only.
        ("api", "last"),
        ("last", None),
    ]


def test_a_quantity_that_is_none_spares_the_others():
    obj = {
        **FULL,
        "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1", "x": "?"}}}]},
    }
    view = store(decode(encode(obj), Pod)).get("shop", "web-1")
    assert view is not None
    assert view.template.containers[0].requests_milli == {"cpu": 1000}


def test_a_change_of_any_pod_shows_in_its_namespace_alone():
    kept = store(made("web-1", 1))
    seen = [kept.changed("shop")]
    feed(kept, ("MODIFIED", made("web-1", 2)))
    seen.append(kept.changed("shop"))
    feed(kept, ("ADDED", made("web-2", 3)))
    seen.append(kept.changed("shop"))
    feed(kept, ("MODIFIED", made("web-2", 4, app="other")))
    seen.append(kept.changed("shop"))
    feed(kept, ("DELETED", made("web-1", 5)))
    seen.append(kept.changed("shop"))
    feed(kept, ("DELETED", made("web-2", 6)))
    seen.append(kept.changed("shop"))
    feed(kept, ("ADDED", made("web-1", 7)))
    seen.append(kept.changed("shop"))
    assert len(set(seen)) == len(seen)
    feed(kept, ("MODIFIED", made("web-1", 7)))  # nothing new
    assert kept.changed("shop") == seen[-1]
    assert kept.changed("elsewhere") == 0


SELECTORS = [selector.parse(text) for text in ("app=web", "app in (web,db)", "tier", "app!=db", "")]
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["ADDED", "MODIFIED", "MODIFIED", "DELETED"]),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(
            [{"app": "web"}, {"app": "db"}, {"app": "web", "tier": "x"}, {"app": "other"}]
        ),
    ),
    max_size=25,
)


@given(EVENTS)
def test_a_version_stays_exactly_as_long_as_the_pods_that_match(events):
    kept = PodStore()
    versions = {each: kept.unchanged("shop", partial(_same, each), None) for each in SELECTORS}
    states = {each: _state(kept, each) for each in SELECTORS}
    for number, (kind, name, labels) in enumerate(events, 1):
        if kind == "DELETED" and kept.get("shop", name) is None:
            continue
        feed(kept, (kind, made(name, number, **labels)))
        for each in SELECTORS:
            before, after = (
                versions[each],
                kept.unchanged("shop", partial(_same, each), versions[each]),
            )
            state = _state(kept, each)
            if state != states[each]:
                assert after is not before
            versions[each], states[each] = after, state
            assert kept.unchanged("shop", partial(_same, each), after) is after
            assert kept.names_at(after) == kept.names("shop", each)


def test_a_change_of_other_pods_leaves_the_version():
    kept = store(made("web-1", 1, app="web"), made("db-1", 2, app="db"))
    version = kept.unchanged("shop", lambda: SELECTORS[0], None)
    feed(kept, ("MODIFIED", made("db-1", 3, app="db")))
    assert kept.unchanged("shop", lambda: SELECTORS[0], version) is version
    feed(kept, ("ADDED", made("other", 4, app="other")))  # another cohort: searched for again
    assert kept.unchanged("shop", lambda: SELECTORS[0], version) is version
    feed(kept, ("DELETED", made("other", 5, app="other")))
    assert kept.unchanged("shop", lambda: SELECTORS[0], version) is version
    feed(kept, ("MODIFIED", made("web-1", 6, app="web")))
    assert kept.unchanged("shop", lambda: SELECTORS[0], version) is not version


def _same(value):
    return value


def _state(kept, selector):
    return sorted(
        (name, kept.get("shop", name).resource_version) for name in kept.names("shop", selector)
    )


def test_a_version_does_not_depend_on_the_order_in_which_indexes_find():
    kept = store(made("a", 1, app="web"), made("b", 2, app="db"))
    either = selector.parse("app in (web,db)")
    version = kept.unchanged("shop", lambda: either, None)
    # With a third kind of pods the index of labels is the smaller one, and has another order.
    feed(kept, ("ADDED", made("c", 3, app="other")))
    assert kept.unchanged("shop", lambda: either, version) is version
