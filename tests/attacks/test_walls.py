"""What somebody with ClusterRole `edit` in one namespace may write, against all parts.

First what was tried by hand, in turn: no part ends, and in the meantime another tenant's rule, HPA
and VPA are served. Minutes later no process holds much more memory than before. Then random
objects of every kind (``generator.py``): turns of the loops are compared with those of windows
without them.
"""

import itertools
import json
import math
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from podscale.core.settings import SCHEDULE
from tests.attacks.generator import KINDS, Generator, Writer
from tests.attacks.hostile_values import Hostile
from tests.attacks.memory_stage import MIB, Attacker
from tests.attacks.test_siege import MANIFESTS, P99, ROOT, SETTLES_S, Windows, probed
from tests.attacks.walls_stage import ALICES, Walls, depth_hpa, depth_rule, walls
from tests.cluster.plane import Plane
from tests.cluster.workloads import deployment
from tests.kit.nested import expanded, managed
from tests.kit.templates import doubled
from tests.tools.process import Program

IS_SHORT = bool(os.environ.get("PODSCALE_SHORT"))
LATER_S = 20.0 if IS_SHORT else 300.0
GROWTH = 64 * MIB
LEVELS = (3_000, 9_000)  # a Kubernetes API server stores 9,995
REVIEWS = 500 if IS_SHORT else 3_000  # of each kind
HELD_S = 8.0 if IS_SHORT else 45.0  # how long the list of one rule fails
GENERATED_S = 90.0 if IS_SHORT else 1200.0
WINDOW_S = 8.0
RATE = 4.0  # objects in a second, and as many changes
FIRST = 20  # that bob is served: more than of the attacks above, since less would be no change
SEED = int(os.environ.get("PODSCALE_SEED") or random.randrange(10**9))
HEADROOM = "/apis/apps/v1/namespaces/podscale-headroom/deployments"
VPA = "components/vpa/{}.yaml"
LIMITS = {
    **MANIFESTS, "recommender": VPA.format("recommender"), "updater": VPA.format("updater"),
    "nodes": "components/nodes/nodes.yaml",
}  # fmt: skip

pytestmark = pytest.mark.timeout(LATER_S + GENERATED_S + 900)


@pytest.fixture(scope="module")
def stage(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walls]:
    with walls(plane, tmp_path_factory.mktemp("walls")) as running:
        yield running


def resident(program: Program, field: str = "VmRSS") -> int:
    """Return the bytes that a process holds, or (VmHWM) has ever held."""
    lines = Path(f"/proc/{program.pid}/status").read_text().splitlines()
    [size] = [int(line.split()[1]) for line in lines if line.startswith(f"{field}:")]
    return size * 1024


def objects_that_nest_deep(stage: Walls) -> Iterator[None]:
    """A pod, a ReplicaSet, an HPA and an Event, each of 3,000 and of 9,000 levels."""
    own = stage.alice.namespace
    names = [f"deep-{levels}" for levels in LEVELS]
    stage.measure(ALICES, 50.0)
    stage.apply(*(deployment(each, own) for each in names), depth_rule("depth", own, ALICES))
    for name, levels in zip(names, LEVELS, strict=True):
        replica_set = deployment(f"set-{levels}", own)["spec"]
        about = {"kind": "Pod", "name": name, "namespace": own}
        for folder, made in (
            ("api/v1/{}/pods", {"apiVersion": "v1", "spec": replica_set["template"]["spec"]}),
            ("apis/apps/v1/{}/replicasets", {"apiVersion": "apps/v1", "spec": replica_set}),
            ("apis/autoscaling/v2/{}/horizontalpodautoscalers", depth_hpa(name, own)),
            ("api/v1/{}/events", {"apiVersion": "v1", "involvedObject": about, "reason": "Deep"}),
        ):  # fmt: skip
            entry = managed(levels, apiVersion=str(made["apiVersion"]), fieldsType="FieldsV1")
            made["metadata"] = {"name": name, "namespace": own, "managedFields": entry}
            body = expanded(json.dumps(made).encode())
            # Python reads no such answer.
            path = "/" + folder.format(f"namespaces/{own}")
            assert stage.alice.client.request("POST", path, body).status == 201
            stored = stage.alice.client.request("GET", f"{path}/{name}").raw
            assert stored.count(b'"f:a":') >= levels - 1, "API servers store what nests so deep"
    yield
    sizes = [stage.replicas(stage.alice, each) for each in names]
    assert sizes == [1, 1], "who scales them cannot be read"


def a_rule_that_cannot_be_listed_at_the_start(stage: Walls) -> Iterator[None]:
    """The HPA part is killed, and while it starts Prometheus refuses one list."""
    own = stage.alice.namespace
    stage.measure(ALICES, 100.0)
    stage.apply(deployment("web", own), depth_rule("depth", own, ALICES), depth_hpa("web", own))
    stage.wait("alice's HPA scales", lambda: stage.replicas(stage.alice, "web") == 10)
    part = stage.programs["hpa"]
    part.kill()
    stage.lists.series = ALICES
    part.start()
    stage.hpas.wait_serving(0, 90.0)
    sizes = set()
    until = time.monotonic() + HELD_S
    while time.monotonic() < until:
        sizes.add(stage.replicas(stage.alice, "web"))
        time.sleep(0.2)
    yield
    sizes.add(stage.replicas(stage.alice, "web"))
    assert stage.lists.failures
    assert sizes == {10}, "everybody's rule of that name says 1"
    stage.lists.series = ""
    stage.measure(ALICES, 70.0)
    stage.wait("alice's HPA scales again", lambda: stage.replicas(stage.alice, "web") == 7)


def rules_that_cost_much(stage: Walls) -> Iterator[None]:
    """MetricRules whose queries, templates and patterns end, fill or freeze who reads them."""
    query = "sum(<<.Series>>{<<.LabelMatchers>>})"
    with_print = "<<with .Series>>" + "<<with print . .>>" * 28 + "<<end>>" * 29
    attacks: dict[str, tuple[dict[str, Any], set[str]]] = {
        "a": ({"metricsQuery": f"{query} # '\n{doubled(13, '+a')}# '"},
              {"TemplateConstructRefused"}),
        "b": ({"metricsQuery": f"{query} # '\n{'+a' * 3900}# '"}, {"QueryTooLarge"}),
        "c": ({"metricsQuery": '\\"' * 4000}, {"QueryNotConfined"}),
        "d": ({"metricsQuery": with_print + query}, {"TemplateConstructRefused"}),
    }  # fmt: skip
    for number in range(60):
        filters = [{"isNot": f"[^x]{{1000}}{number}-{each}"} for each in range(32)]
        attacks[f"e-{number}"] = (
            {"seriesFilters": filters}, {"PatternTooLarge", "TooManyRules"},
        )  # fmt: skip
    for name, (spec, _) in attacks.items():
        made = depth_rule(name, stage.alice.namespace, ALICES)
        made["spec"].update(spec)
        stage.alice.client.post(stage.alice.path(), made)
    for name, (_, reasons) in attacks.items():

        def is_refused(name: str = name, reasons: set[str] = reasons) -> bool:
            return stage.alice.conditions(name).get("Accepted", ("", ""))[1] in reasons

        stage.wait(f"{name} is refused", is_refused)
    yield


def reviews_of_owners_that_nobody_has(stage: Walls) -> Iterator[None]:
    """Reviews that come without a login."""
    kinds: Mapping[str, Callable[[int], dict[str, str]]] = {
        "absent": lambda n: {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"no-{n}"},
        "unknown kind": lambda n: {"apiVersion": f"g{n}/v1", "kind": f"Kind{n}", "name": "web"},
        "long name": lambda n: {"apiVersion": "apps/v1", "kind": "ReplicaSet",
                                "name": f"{n}-".ljust(200_000, "x")},
    }  # fmt: skip
    with closing(Attacker(stage.ports["admission"])) as client:
        for number in range(REVIEWS):
            for owner in kinds.values():
                body = _review(stage.bob.namespace, owner(number))
                head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                head += f"Content-Length: {len(body)}\r\n\r\n"
                assert client.send(head.encode() + body) == 200
    yield


def _review(namespace: str, owner: Mapping[str, str]) -> bytes:
    owners = [{**owner, "uid": "1", "controller": True}]
    metadata = {"name": "x", "namespace": namespace, "labels": {"app": "sized"}}
    pod = {"metadata": {**metadata, "ownerReferences": owners},
           "spec": {"containers": [{"name": "app", "image": "pretend"}]}}  # fmt: skip
    request = {"uid": "1", "resource": {"group": "", "version": "v1", "resource": "pods"},
               "namespace": namespace, "operation": "CREATE", "object": pod}  # fmt: skip
    kind = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}
    return json.dumps({**kind, "request": request}).encode()


def schedules_that_come_in_decades(stage: Walls) -> Iterator[None]:
    """60 HPAs of 100 entries each, whose metric asks for less than there is."""
    own = stage.alice.namespace
    entry = {"start": "0 0 * 2 1#5", "end": "0 1 * 2 1#5", "minReplicas": 2}
    made = []
    for number in range(60):
        hpa = depth_hpa(f"web-{number}", own)
        hpa["metadata"]["annotations"] = {SCHEDULE: json.dumps([entry] * 100)}
        made += [hpa, deployment(f"web-{number}", own, replicas=2)]
    stage.apply(*made)
    path = f"/apis/autoscaling/v2/namespaces/{own}/horizontalpodautoscalers"

    def is_said() -> bool:
        return all(
            ("AbleToScale", "ScheduleRefused") in {
                (each["type"], each["reason"])
                for each in item.get("status", {}).get("conditions") or ()
            }
            for item in stage.plane.admin.get(path)["items"]
        )  # fmt: skip

    stage.wait("the schedules are refused", is_said)
    yield
    deployments = f"/apis/apps/v1/namespaces/{own}/deployments"
    sizes = [each["spec"]["replicas"] for each in stage.plane.admin.get(deployments)["items"]]
    assert sizes == [2] * 60, "what is refused may be what keeps them up"


def headroom_for_pods_that_never_come(stage: Walls) -> Iterator[None]:
    """A quota of 5 pods, and two HPAs that ask for as many as there are numbers."""
    own = stage.alice.namespace
    most = 2**31 - 1
    quotas = f"/api/v1/namespaces/{own}/resourcequotas"
    stage.plane.admin.post(quotas, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5"}}})
    bare = deployment("bare", own)
    bare["spec"]["template"]["spec"]["containers"][0]["resources"] = {}
    small = deployment("small", own, requests={"cpu": "10m", "memory": "16Mi"})
    hpas = (depth_hpa(each, own, most=most) for each in ("bare", "small"))
    stage.measure(ALICES, 1e12)
    stage.apply(depth_rule("depth", own, ALICES), bare, small, *hpas)
    # They double every 15 s, and have ever as many before them.
    stage.wait("more are asked for than the quota lets in", lambda: all(
        stage.replicas(stage.alice, each) > 5 for each in ("bare", "small")
    ))  # fmt: skip
    yield
    held: dict[str, int] = {}
    for each in stage.plane.admin.get(HEADROOM)["items"]:
        requests = each["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
        held[requests["cpu"]] = held.get(requests["cpu"], 0) + each["spec"]["replicas"]
    assert held.get("10m", 0) <= 5, "no more than the quota lets in"
    assert sum(held.values()) <= 50, held
    stage.plane.admin.delete(f"{quotas}/q")


ATTACKS = (
    objects_that_nest_deep, a_rule_that_cannot_be_listed_at_the_start, rules_that_cost_much,
    reviews_of_owners_that_nobody_has, schedules_that_come_in_decades,
    headroom_for_pods_that_never_come,
)  # fmt: skip


def test_who_edits_one_namespace_ends_no_part_and_keeps_nobody_waiting(
    stage: Walls, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.serve_bob(0)
    pids = {name: each.pid for name, each in stage.programs.items()}
    before = {name: resident(each) for name, each in stage.programs.items()}
    for number, attack in enumerate(ATTACKS, 1):
        began = time.monotonic()
        steps = attack(stage)
        next(steps)
        attacked = time.monotonic()
        stage.serve_bob(number)
        served = time.monotonic()
        assert next(steps, None) is None
        stage.clear()
        with capsys.disabled():
            print(f"\n{number}. {attack.__name__}: {attacked - began:.1f} s, bob's rule, HPA and "
                  f"VPA served within {served - attacked:.1f} s", end="")  # fmt: skip
    time.sleep(LATER_S)
    stage.serve_bob(len(ATTACKS) + 1)
    after = {name: resident(each) for name, each in stage.programs.items()}
    most = {name: resident(each, "VmHWM") for name, each in stage.programs.items()}
    with capsys.disabled():
        print()
        for name, size in before.items():
            print(f"{name}: {size / MIB:.0f} MiB before, {after[name] / MIB:.0f} MiB "
                  f"{LATER_S:.0f} s later, {most[name] / MIB:.0f} MiB at most")  # fmt: skip
    ended = {name for name, each in stage.programs.items() if each.pid != pids[name]}
    assert ended == {"hpa"}, "only what the test has killed"
    assert {name: size - before[name] for name, size in after.items()
            if size - before[name] > GROWTH} == {}  # fmt: skip
    limits = {name: probed(manifest).memory for name, manifest in LIMITS.items()}
    assert {name: size for name, size in most.items() if size > limits[name]} == {}


def watched() -> set[tuple[str, str]]:
    """Return group and resource of all that a role of ours watches."""
    return {
        (group, resource)
        for path in (ROOT / "config/rbac").glob("**/*.yaml")
        for role in yaml.safe_load_all(path.read_text())
        for rule in role.get("rules") or ()
        if "watch" in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def writable(stage: Walls) -> set[tuple[str, str]]:
    """Return group and resource of all that alice may create."""
    review = {"kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1",
              "spec": {"namespace": stage.alice.namespace}}  # fmt: skip
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    return {
        (group, resource)
        for rule in stage.alice.client.post(path, review)["status"]["resourceRules"]
        if "create" in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_random_objects_end_no_part_and_take_no_long_turn_of_a_loop(
    stage: Walls, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = {(version.rpartition("/")[0], resource) for resource, (version, _) in KINDS.items()}
    assert watched() & writable(stage) <= drawn
    writer = Writer(stage.alice.client, Generator(stage.alice.namespace, SEED), RATE)
    values = Hostile(SEED)
    pids = {name: each.pid for name, each in stage.programs.items()}
    stage.serve_bob(FIRST)
    windows, began = Windows(), time.monotonic()
    slowest = 0.0
    with capsys.disabled():
        print(f"\nPODSCALE_SEED={SEED}", end="", flush=True)
    for number in itertools.count(FIRST + 1, 2):
        at = windows.turn(True)
        if at > began + GENERATED_S:
            break
        stage.measure(ALICES, values.choice((0.0, -1.0, 1e308, math.inf, math.nan)))
        with writer.writing():
            stage.serve_bob(number)
            slowest = max(slowest, time.monotonic() - at)
            time.sleep(max(at + WINDOW_S - time.monotonic(), 0.0))
        stage.clear()
        at = windows.turn(False) + SETTLES_S
        time.sleep(SETTLES_S)
        stage.serve_bob(number + 1)
        time.sleep(max(at + WINDOW_S - time.monotonic(), 0.0))
    turns = {name: windows.turns(program) for name, program in stage.programs.items()}
    most = {name: resident(each, "VmHWM") for name, each in stage.programs.items()}
    with capsys.disabled():
        print(f"; bob is served within {slowest:.1f} s")
        for what in sorted(writer.accepted.keys() | writer.refused.keys()):
            print(f"{what}: {writer.accepted[what]} accepted, {writer.refused[what]} refused: "
                  f"{writer.reasons.get(what, '')[:300]}")  # fmt: skip
        for name, taken in turns.items():
            print(f"{taken.told(name)}, {most[name] / MIB:.0f} MiB at most")
    assert {name: each.pid for name, each in stage.programs.items()} == pids
    assert [what for what in KINDS if writer.accepted[what] < writer.refused[what]] == []
    limits = {name: probed(manifest).memory for name, manifest in LIMITS.items()}
    assert {name: size for name, size in most.items() if size > limits[name]} == {}
    p99 = {name: (taken.quantile("attack", 0.99), taken.quantile("calm", 0.99))
           for name, taken in turns.items()}  # fmt: skip
    assert {name: both for name, both in p99.items() if both[0] > P99 * both[1]} == {}
