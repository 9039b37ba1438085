"""Turns of one VPA over pods of a real store, with an API server that answers as it is told."""

import asyncio
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from podscale.core.disruptions import DisruptionPace
from podscale.kube.client.eviction import DisruptionOutcome
from podscale.kube.client.wire import decode
from podscale.kube.columns.pods import PodStore, PodView
from podscale.kube.informer.store import Store
from podscale.kube.objects.cluster import PodDisruptionBudget
from podscale.kube.objects.pod import Pod as KubePod
from podscale.kube.objects.scale import Workload
from podscale.kube.objects.vpa import Vpa
from tests.unit.vpa.updater.worlds import NOW, OLD, RS, SETTINGS, vpa
from vpa.capping import LimitRanges
from vpa.model.samples.membership import VpaKey
from vpa.updater.cluster.pod_observer import PodObserver
from vpa.updater.decide.decision import LoopView
from vpa.updater.decide.disruption_budget import EvictionRate, OwnerSize, TokenBucket, budget_for
from vpa.updater.decide.priority import UpdaterSettings
from vpa.updater.flags import Options
from vpa.updater.loop.memory import PodDecisions, ResizedReturns
from vpa.updater.loop.vpa_reconcile import DisruptionTools, VpaReconcile
from vpa.updater.selfmetrics import ReconcileReport, Tally, UpdaterMetrics

KEY = VpaKey("shop", "web")
FREE = EvictionRate(None, 0)


class CountedPods(PodStore):
    """A store that counts the looks at single pods."""

    looks = 0

    def get(self, namespace: str, name: str) -> PodView | None:
        self.looks += 1
        return super().get(namespace, name)


class Crowd:
    """A ReplicaSet's pods, a VPA that would evict them all, and what is asked for."""

    def __init__(
        self, count: int, *, settings: UpdaterSettings = SETTINGS, of_vpa: Vpa | None = None
    ) -> None:
        self.count, self.settings = count, settings
        self.vpa = of_vpa or vpa("Recreate")
        self.pods = CountedPods()
        self.budgets: Store[PodDisruptionBudget] = Store()
        self.asked: Counter[str] = Counter()
        self.answer: Callable[[PodView], DisruptionOutcome] = lambda _pod: DisruptionOutcome("done")
        self.decisions = PodDecisions()
        size = {"metadata": {"name": RS.name, "namespace": "shop"}, "spec": {"replicas": count}}
        workload = decode(msgspec.json.encode(size), Workload)
        stores: Any = SimpleNamespace(
            pods=self.pods,
            budgets=self.budgets,
            nodes=Store(),
            ranges=lambda _namespace: LimitRanges(),
            is_current=lambda: True,
            vpa=lambda _key: self.vpa,
            workloads=SimpleNamespace(find=lambda *_where: workload),
        )
        actor: Any = self
        spending: Any = None  # no daily budget
        self.tools = DisruptionTools(
            stores,
            PodObserver(stores),
            actor,
            spending,
            self.decisions,
            ResizedReturns(),
            Options(lease="", settings=settings),
            UpdaterMetrics(CollectorRegistry()),
            TokenBucket(FREE),
            TokenBucket(FREE),
        )

    def put(
        self,
        name: str,
        *,
        node: str = "n",
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        resize: str = "",
        cpu: str = "100m",
        of_pod: dict[str, str] | None = None,
    ) -> PodView:
        """Let the watch show a pod."""
        conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": OLD}]
        if resize:
            conditions.append({"type": "PodResizePending", "status": "True", "reason": resize})
        owner = {"apiVersion": "apps/v1", "kind": RS.kind, "name": RS.name, "uid": "rs"}
        requests = {"cpu": cpu, "memory": "512Mi"}
        body = {
            "metadata": {
                "name": name, "namespace": "shop", "uid": f"uid-{name}", "resourceVersion": "1",
                "labels": {"app": "web", **(labels or {})}, "annotations": annotations,
                "ownerReferences": [{**owner, "controller": True}],
            },
            "spec": {
                "nodeName": node,
                "containers": [{"name": "app", "resources": {"requests": requests}}],
                "resources": {"requests": of_pod or {}},
            },
            "status": {
                "phase": "Running" if node else "Pending", "startTime": OLD if node else None,
                "conditions": conditions if node else [],
            },
        }  # fmt: skip
        self.pods.accept(decode(msgspec.json.encode(body), KubePod))
        return self.see(name)

    def see(self, name: str) -> PodView:
        """Return a pod as the store has it."""
        view = PodStore.get(self.pods, "shop", name)
        assert view is not None
        return view

    async def turn(self, live: list[PodView], unscheduled: list[PodView] | None = None) -> None:
        """Give the VPA one turn."""
        turn = VpaReconcile(
            self.tools,
            KEY,
            self.vpa,
            [],
            budget_for(live, self.vpa, {RS: OwnerSize(self.count)}, self.settings),
            DisruptionPace(),
            LoopView(NOW, None),
            deadline=asyncio.get_running_loop().time() + 1e6,
            wall=lambda: NOW,
            report=ReconcileReport(Tally(), KEY, ("1", "Recreate")),
            updates=True,
        )
        await turn.run(live, unscheduled or [])

    def reasons(self) -> set[str]:
        """Return the first reasons of what was last decided."""
        return {each.decision.reasons[0] for each in self.decisions.everything()}

    async def evict(self, pod: PodView, _vpa: Vpa) -> DisruptionOutcome:
        """Answer as the API server does."""
        self.asked["evict"] += 1
        return self.answer(pod)

    async def resize(
        self, pod: PodView, *_more: Any, only_unmark: bool = False, **_kind: Any
    ) -> DisruptionOutcome:
        """Answer as the API server does."""
        self.asked["unmark" if only_unmark else "resize"] += 1
        return self.answer(pod)
