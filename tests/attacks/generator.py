"""Random objects of every kind that the parts watch and an account with `edit` may write.

Each is such as the API server takes in, with values as nobody writes them who means well
(``hostile_values.py``): depths, lengths, numbers and times. Pods fit onto a node with next to
nothing or not at all, and workloads of numbers without end have pods that are refused: what is
tried is us, not how much room a cluster has.
"""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from tests.attacks.hostile_values import HUGE, LARGE, TINY, Hostile, encoded
from tests.cluster.identity import Client
from tests.kit.nested import expanded
from tests.kit.templates import doubled
from vpa.admission.patches.resources import MOST_CONTAINERS
from vpa.model.estimation.annotations import PREFIX

MOST_PODS = 5  # of a workload that has any
# What makes others comes before them.
KINDS = {
    "horizontalpodautoscalers": ("autoscaling/v2", "HorizontalPodAutoscaler"),
    "verticalpodautoscalers": ("autoscaling.k8s.io/v1", "VerticalPodAutoscaler"),
    "metricrules": ("metrics.podscale.io/v1alpha1", "MetricRule"),
    "cronjobs": ("batch/v1", "CronJob"),
    "jobs": ("batch/v1", "Job"),
    "deployments": ("apps/v1", "Deployment"),
    "replicasets": ("apps/v1", "ReplicaSet"),
    "statefulsets": ("apps/v1", "StatefulSet"),
    "daemonsets": ("apps/v1", "DaemonSet"),
    "replicationcontrollers": ("v1", "ReplicationController"),
    "poddisruptionbudgets": ("policy/v1", "PodDisruptionBudget"),
    "services": ("v1", "Service"),
    "configmaps": ("v1", "ConfigMap"),
    "events": ("v1", "Event"),
    "pods": ("v1", "Pod"),
}
_REFUSED_PODS = {"priorityClassName": "nobodys"}  # there is no such class
_CLASSES = ("system-node-critical", "system-cluster-critical", "podscale-ballast")
_PATTERNS = (
    "", "^.*$", "(((((a*)*)*)*)*)*", "[^x]{1000}", "(a{1,30}){1,30}", r"\pL{50}", "a" * 1000,
    "(?i)é+", "|".join("abcdefghij" * 50), "^(.*)_depth$", "[[:alpha:]]+",
    "((((((((((x))))))))))" * 40,
)  # fmt: skip
_QUERIES = (
    "sum(<<.Series>>{<<.LabelMatchers>>})", "<<.Series>>{<<.LabelMatchers>>}",
    "sum(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>)",
    f"sum(<<.Series>>{{<<.LabelMatchers>>}}) # '{doubled(12, 'x')}'", "<<" * 4000,
    "<<range .LabelValuesByName>><<.>><<end>>", "(" * 4000 + ")" * 4000, "1" + "+1" * 4000,
    "sum(<<.Series>>{<<.LabelMatchers>>}[99999y:1ms])", "<<printf `%1000000d` 1>>",
)  # fmt: skip
_SERIES = (
    "alice_depth", '{__name__=~".+"}', '{__name__=~"alice.*|bob.*"}', 'alice_depth{a!~"(x+x+)+y"}',
    "alice_depth{" + ",".join(f'l{n}=""' for n in range(900)) + "}", "up", "{" * 4000, "é",
)  # fmt: skip
_WHOLE = ("0", "1", "1e9", "9007199254740993")  # milli-cores and bytes that a container can have
_CONTROLLED = ("RequestsOnly", "RequestsAndLimits")
_REASONS = ("Evicted", "OOMKilling", "SystemOOM", "FailedScheduling", "Preempted")


def folder(resource: str, namespace: str) -> str:
    """Return the path of the objects of a namespace."""
    version, _ = KINDS[resource]
    group = "apis" if "/" in version else "api"
    return f"/{group}/{version}/namespaces/{namespace}/{resource}"


class Drawn(Struct, frozen=True):
    """One object, as it is to be created."""

    resource: str
    name: str
    path: str  # of its collection
    body: bytes


class Generator:
    """Draws objects of a namespace; the same seed draws the same."""

    def __init__(self, namespace: str, seed: int) -> None:
        self._namespace = namespace
        self._draw = Hostile(seed)
        self._numbers = itertools.count()
        self._kind = ("", "")
        self._workloads: list[tuple[dict[str, str], bool]] = []  # and whether they have pods
        self._specs: Mapping[str, Callable[[str], dict[str, Any]]] = {
            "pods": self._single,
            "services": self._service,
            "events": self._event,
            "configmaps": lambda _: {"data": {self._draw.word(): self._draw.text()}},
            "replicationcontrollers": self._replication_controller,
            "deployments": self._scaled,
            "replicasets": self._scaled,
            "statefulsets": lambda name: self._scaled(name, serviceName=name),
            "daemonsets": self._daemon_set,
            "jobs": lambda _: {"spec": self._job()},
            "cronjobs": self._cron_job,
            "horizontalpodautoscalers": self._hpa,
            "verticalpodautoscalers": self._vpa,
            "metricrules": self._rule,
            "poddisruptionbudgets": self._budget,
        }

    def drawn(self) -> Drawn:
        """Return the next object; the kinds come in turn."""
        number = next(self._numbers)
        resource = tuple(KINDS)[number % len(KINDS)]
        version, kind = self._kind = KINDS[resource]
        name = f"g{number}-{self._draw.word(40)}"
        made = {
            "apiVersion": version, "kind": kind,
            **self._specs[resource](name),
            "metadata": {**self._draw.metadata(version, app=name),
                         "name": name, "namespace": self._namespace},
        }  # fmt: skip
        if resource == "configmaps":
            made["metadata"]["labels"]["podscale.io/history"] = "hpa"
        if resource == "verticalpodautoscalers" and self._draw.random() < 0.7:
            # The webhook refuses what cannot be read of these.
            made["metadata"] |= {"annotations": {
                key: text for key, text in made["metadata"].get("annotations", {}).items()
                if not key.startswith(PREFIX)
            }}  # fmt: skip
        path = folder(resource, self._namespace)
        return Drawn(resource, name, path, expanded(encoded(made)))

    def change(self) -> bytes:
        """Return a merge patch of what every object has."""
        draw = self._draw
        return encoded({"metadata": {"annotations": draw.annotations(), "labels": draw.labels()}})

    def _maybe(self, **fields: Callable[[], Any]) -> dict[str, Any]:
        return {name: make() for name, make in fields.items() if self._draw.random() < 0.3}

    def _pod(self, **more: Any) -> dict[str, Any]:
        draw = self._draw
        # kube-scheduler adds requests in 64 bits, and what is beyond would fit anywhere.
        is_gated = draw.random() < 0.3
        amounts = (*TINY, *(HUGE if is_gated else LARGE))
        gates = {"schedulingGates": [{"name": f"x.io/{draw.word()}"}]} if is_gated else {}
        fields = self._maybe(
            initContainers=lambda: [
                self._container(f"i{n}", amounts) for n in range(draw.count(30))
            ],
            nodeSelector=lambda: draw.labels(20),
            tolerations=lambda: [
                {"key": draw.key(), "operator": "Exists"} for _ in range(draw.count(50))
            ],
            priorityClassName=lambda: draw.choice(_CLASSES),
            schedulerName=draw.word,
            volumes=lambda: [
                {"name": f"v{n}", "persistentVolumeClaim": {"claimName": draw.word()}}
                for n in range(draw.count(30))
            ],
            affinity=self._affinity,
            topologySpreadConstraints=lambda: [
                {"maxSkew": draw.number(1), "topologyKey": draw.key(),
                 "whenUnsatisfiable": "DoNotSchedule", "labelSelector": draw.selector()}
            ],
        )  # fmt: skip
        names = ("app", *map("c{}".format, range(draw.count(60))))
        own = [self._container(name, amounts) for name in names]
        return {"containers": own, "terminationGracePeriodSeconds": 0, **gates, **fields, **more}

    def _container(self, name: str, amounts: Sequence[str]) -> dict[str, Any]:
        draw = self._draw
        requests = {"cpu": draw.choice(amounts), "memory": draw.choice(amounts)}
        return {
            "name": name, "image": "pretend",
            **self._maybe(
                resources=lambda: {"requests": requests},
                env=lambda: [{"name": draw.word(), "value": draw.text(2000)}],
                args=lambda: [draw.text(2000)],
            ),
        }  # fmt: skip

    def _affinity(self) -> dict[str, Any]:
        draw = self._draw
        terms = [
            {"topologyKey": draw.key(), "labelSelector": draw.selector(),
             "namespaceSelector": draw.selector()}
            for _ in range(draw.count(10))
        ]  # fmt: skip
        kind = draw.choice(("podAffinity", "podAntiAffinity"))
        return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}

    def _template(self, name: str, *, has_pods: bool, **more: Any) -> dict[str, Any]:
        refused = {} if has_pods else _REFUSED_PODS
        metadata = {"labels": {"app": name}, "annotations": self._draw.annotations()}
        return {"metadata": metadata, "spec": self._pod(**more, **refused)}

    def _size(self) -> tuple[int, bool]:
        # How many, and whether the pods may come to be. kube-controller-manager has 8 bytes for
        # each replica that a StatefulSet asks for.
        is_small = self._kind[1] == "StatefulSet" or self._draw.random() < 0.5
        return (self._draw.randrange(MOST_PODS) if is_small else self._draw.number(), is_small)

    def _single(self, _: str) -> dict[str, Any]:
        return {
            "spec": self._pod(**self._maybe(activeDeadlineSeconds=lambda: self._draw.number(1)))
        }

    def _scaled(self, name: str, **more: Any) -> dict[str, Any]:
        replicas, has_pods = self._size()
        reference = {"apiVersion": self._kind[0], "kind": self._kind[1], "name": name}
        self._workloads = [*self._workloads[-20:], (reference, has_pods)]
        template = self._template(name, has_pods=has_pods)
        selector = self._draw.selector(app=name)
        return {"spec": {"replicas": replicas, "selector": selector, "template": template, **more}}

    def _replication_controller(self, name: str) -> dict[str, Any]:
        made = self._scaled(name)
        made["spec"]["selector"] = {"app": name}
        return made

    def _daemon_set(self, name: str) -> dict[str, Any]:
        made = self._scaled(name)
        del made["spec"]["replicas"]
        return made

    def _job(self) -> dict[str, Any]:
        count, has_pods = self._size()
        template = self._template("job", has_pods=has_pods, restartPolicy="Never")
        limits = self._maybe(
            activeDeadlineSeconds=lambda: self._draw.number(1),
            ttlSecondsAfterFinished=self._draw.number,
            backoffLimit=self._draw.number,
        )
        return {"parallelism": count, "template": template, **limits}

    def _cron_job(self, _: str) -> dict[str, Any]:
        schedule = self._draw.choice(("0 0 29 2 *", "*/1 * * * *", "@yearly", "59 23 31 12 6"))
        return {"spec": {"schedule": schedule, "timeZone": "Etc/UTC",
                         "jobTemplate": {"spec": self._job()}}}  # fmt: skip

    def _target(self) -> tuple[dict[str, str], bool]:
        draw = self._draw
        if self._workloads and draw.random() < 0.7:
            return draw.choice(self._workloads)
        version, kind = draw.choice(("apps/v1", f"{draw.word()}.io/v1")), draw.word().capitalize()
        return {"apiVersion": version, "kind": f"K{kind}", "name": draw.word(50_000)}, False

    def _hpa(self, _: str) -> dict[str, Any]:
        draw = self._draw
        target, has_pods = self._target()
        least = draw.number(1, MOST_PODS if has_pods else 2**31 - 2)
        most = MOST_PODS if has_pods else draw.number(least)
        behavior = {
            each: {"stabilizationWindowSeconds": draw.number(0, 3600), "policies": [
                {"type": draw.choice(("Pods", "Percent")), "value": draw.number(1),
                 "periodSeconds": draw.number(1, 1800)} for _ in range(draw.count(200))
            ]} for each in ("scaleUp", "scaleDown")
        }  # fmt: skip
        return {"spec": {
            "scaleTargetRef": target, "minReplicas": least, "maxReplicas": most,
            "metrics": [self._metric() for _ in range(draw.count(300))],
            **self._maybe(behavior=lambda: behavior),
        }}  # fmt: skip

    def _metric(self) -> dict[str, Any]:
        draw = self._draw
        name = draw.choice(("queue_depth", "alice_depth", "everybodys_depth", draw.word(10_000)))
        metric = {"name": name, **self._maybe(selector=draw.selector)}
        target = {"type": "AverageValue", "averageValue": draw.choice((*TINY[1:], *HUGE))}
        shares = {"type": "Utilization", "averageUtilization": draw.number(1)}
        about = {"apiVersion": "v1", "kind": draw.choice(("Service", "Namespace", "Node")),
                 "name": draw.word(253)}  # fmt: skip
        resource = draw.choice(("cpu", "memory"))
        return draw.choice((
            {"type": "External", "external": {"metric": metric, "target": target}},
            {"type": "Pods", "pods": {"metric": metric, "target": target}},
            {"type": "Object", "object": {
                "metric": metric, "target": target, "describedObject": about}},
            {"type": "Resource", "resource": {"name": resource, "target": shares}},
            {"type": "ContainerResource", "containerResource": {
                "name": resource, "container": draw.word(), "target": shares}},
        ))  # fmt: skip

    def _vpa(self, _: str) -> dict[str, Any]:
        draw = self._draw
        target, _has_pods = self._target()
        is_read = draw.random() < 0.7  # the webhook lets longer ones pass unread
        count = draw.count(MOST_CONTAINERS) if is_read else MOST_CONTAINERS + draw.count(200)
        amounts = _WHOLE if is_read else (*TINY, *HUGE)
        policies = [
            {"containerName": draw.choice(("*", "app", f"c{number}", draw.text(10_000) or "x")),
             draw.choice(("minAllowed", "maxAllowed")): {
                 "cpu": draw.choice(amounts), "memory": draw.choice(amounts), draw.key(): "1"},
             **self._maybe(controlledValues=lambda: draw.choice(_CONTROLLED)),
             } for number in range(count)
        ]  # fmt: skip
        mode = draw.choice(("Off", "Initial", "Recreate", "InPlaceOrRecreate"))
        return {"spec": {
            "targetRef": target, "updatePolicy": {"updateMode": mode},
            "resourcePolicy": {"containerPolicies": policies},
        }}  # fmt: skip

    def _rule(self, _: str) -> dict[str, Any]:
        draw = self._draw
        is_external = draw.random() < 0.5
        return {"spec": {
            "type": "External" if is_external else "Custom",
            "seriesQuery": draw.choice(_SERIES), "metricsQuery": draw.choice(_QUERIES),
            "resources": {"template": draw.choice(("<<.Resource>>", "<<.Resource>>" + "x" * 200))},
            **self._maybe(
                seriesFilters=lambda: [
                    {draw.choice(("is", "isNot")): draw.choice(_PATTERNS[1:])}
                    for _ in range(draw.count(32))
                ],
                name=lambda: {"matches": draw.choice(_PATTERNS), "as": draw.choice(
                    ("queue_depth", "$1", "${1}" * 60, draw.word(250)))},
                source=lambda: draw.word(253),
            ),
        }}  # fmt: skip

    def _event(self, name: str) -> dict[str, Any]:
        draw = self._draw
        about = {"kind": draw.choice(("Pod", "HorizontalPodAutoscaler", draw.text(10_000))),
                 "name": draw.choice((name, draw.text(10_000))), "namespace": self._namespace,
                 "fieldPath": draw.text(1000)}  # fmt: skip
        return {
            "involvedObject": about, "reason": draw.choice((*_REASONS, draw.text(10_000))),
            "message": draw.text(), "count": draw.number(), "type": "Warning",
            "firstTimestamp": draw.moment(), "lastTimestamp": draw.moment(),
            "source": {"component": draw.text(1000), "host": draw.text(1000)},
        }  # fmt: skip

    def _budget(self, name: str) -> dict[str, Any]:
        draw = self._draw
        least = draw.choice((draw.number(), "0%", "100%", "33%"))
        return {"spec": {draw.choice(("minAvailable", "maxUnavailable")): least,
                         "selector": draw.selector(app=name)}}  # fmt: skip

    def _service(self, _: str) -> dict[str, Any]:
        draw = self._draw
        ports = [{"name": f"p{number}", "port": number + 1} for number in range(draw.count(500))]
        return {"spec": {"ports": ports, "clusterIP": "None", "selector": draw.labels()}}


class Writer:
    """Writes what is drawn, so many objects in a second, from a thread of its own."""

    def __init__(self, client: Client, generator: Generator, rate: float) -> None:
        self._client, self._generator, self._rate = client, generator, rate
        self.accepted: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.reasons: dict[str, str] = {}  # of the last that was refused, by resource

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write for as long as the block."""
        ends = threading.Event()
        thread = threading.Thread(target=self._write, args=(ends,))
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()

    def _write(self, ends: threading.Event) -> None:
        due = time.monotonic()
        while not ends.wait(max(due - time.monotonic(), 0.0)):
            drawn = self._generator.drawn()
            if self._sent(drawn.resource, "POST", drawn.path, drawn.body):
                change = self._generator.change()
                self._sent(
                    f"{drawn.resource} changed", "PATCH", f"{drawn.path}/{drawn.name}", change
                )
            due = max(due + 1.0 / self._rate, time.monotonic() - 1.0)

    def _sent(self, what: str, method: str, path: str, body: bytes) -> bool:
        kind = "merge-patch+json" if method == "PATCH" else "json"
        headers = {"Content-Type": f"application/{kind}"}
        try:
            answer = self._client.request(method, path, body, headers)
            status, said = answer.status, answer.raw[:500].decode(errors="replace")
        except OSError as error:
            status, said = 599, repr(error)
        if status < 400:
            self.accepted[what] += 1
            return True
        self.refused[what] += 1
        self.reasons[what] = f"{status} {said}"
        return False
