"""What others are promised while the HPA's replicas are in bad weather: DESIGN.md's 4, 6 and 7.

Each of these uses what the product is made of, over the same API server; what must never be is
added to the judge's findings.
"""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Raw

from adapter.doctor.lints import sound_rules
from adapter.rules.followed_file import FollowedFile
from adapter.rules.ruleset import RuleSet
from podscale.kube.client.wire import decode, encode
from podscale.kube.objects.vpa import StoredVpa
from podscale.serving.auth.authorization import Authorizer, Permission, ReviewFailed
from podscale.serving.auth.user import User
from podscale.serving.monitoring.selfmetrics import SelfMetrics
from podscale.serving.request_info import parse_target
from tests.faults.hpa_weather import NS
from tests.faults.watched_weather import WatchedLine, WatchedWeather
from tests.unit.adapter.world import MAPPER
from tests.unit.vpa.test_stores import NoKinds
from tests.unit.vpa.test_unread_controllers import VPA, Counted
from vpa.admission.patches.patch import BoostSettings
from vpa.admission.validation import VpaGates
from vpa.admission.webhook import ReviewedResource, ReviewRequest, Webhook, reviewed
from vpa.stores import VpaStores

ALICE, OTHER = "alice", "bank"  # who may read metrics of NS, and where she may not
_EVERY_S = 2.0
_KEPT_S = 10.0  # a permission that was granted
_DEADLINE_S = 2.0  # of a review
_SLACK_S = 0.1
_RULE = """\
- seriesQuery: {name}
  resources: {{template: <<.Resource>>}}
  name: {{as: load_{name}}}
  metricsQuery: 'sum(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)'
"""


class Reader:
    """Promise 7: nobody reads a metric that RBAC does not let them read, nor for longer."""

    def __init__(self, weather: WatchedWeather) -> None:
        self._weather = weather
        self._now = asyncio.get_running_loop().time
        line = WatchedLine(weather, "adapter")
        self._authorizer = Authorizer(
            line, SelfMetrics(), allowed_ttl_s=_KEPT_S, denied_ttl_s=_KEPT_S, clock=self._now
        )
        self._until = float("inf")  # when her right was taken
        self.allowed = 0
        weather.readers.add((ALICE, NS))

    def take_right(self) -> None:
        """Let her read no longer."""
        self._weather.readers.clear()
        self._until = self._now()

    async def run(self) -> None:
        """Ask again and again."""
        while True:
            for namespace in (NS, OTHER):
                await self._ask(namespace)
            await asyncio.sleep(_EVERY_S)

    async def _ask(self, namespace: str) -> None:
        path = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{namespace}/pods/*/load"
        found = self._authorizer.authorize(User(ALICE), parse_target("GET", path).info)
        try:
            permission = found if isinstance(found, Permission) else await found
        except ReviewFailed:
            return
        late_s = self._now() - self._until
        self.allowed += permission.is_allowed
        if permission.is_allowed and (namespace == OTHER or late_s > _KEPT_S + _SLACK_S):
            self._weather.judge.found.append(
                f"t={self._now():.2f} {ALICE} reads {namespace}, {late_s:.0f} s after she may"
            )


class NewPods:
    """Promise 4: the webhook blocks no pod, whatever becomes of what it asks for its owner."""

    def __init__(self, weather: WatchedWeather) -> None:
        self._weather = weather
        line = WatchedLine(weather, "admission")
        self._stores = VpaStores(line, NoKinds(), needs_pods=False)
        self._webhook = Webhook(
            self._stores, Counted().admitted, boost=BoostSettings(), gates=VpaGates(),
            deadline_s=_DEADLINE_S,
        )  # fmt: skip
        self._stores.vpas.accept(decode(VPA, StoredVpa))
        self.created = 0

    async def run(self) -> None:
        """Create a pod again and again, each of an owner that nobody has seen."""
        now = asyncio.get_running_loop().time
        while True:
            self.created += 1
            owner = {"kind": "ReplicaSet", "name": f"web-{self.created}", "uid": "u",
                     "apiVersion": "apps/v1", "controller": True}  # fmt: skip
            pod = {"metadata": {"name": "new", "ownerReferences": [owner]},
                   "spec": {"containers": [{"name": "app"}]}}  # fmt: skip
            asked = ReviewRequest("1", ReviewedResource("", "pods"), NS, "CREATE", Raw(encode(pod)))
            began = now()
            answer = reviewed(asked, await self._webhook._answer(asked))
            if not answer["response"]["allowed"] or now() - began > _DEADLINE_S + _SLACK_S:
                self._weather.judge.found.append(
                    f"t={now():.2f} a pod waited for {now() - began:.1f} s: {answer}"
                )
            await asyncio.sleep(_EVERY_S)

    async def stop(self) -> None:
        """End what is asked for in the background."""
        await self._stores.workloads.scales.stop()


class RulesFile:
    """Promise 6: a rules file that does not read well leaves in force what was."""

    def __init__(self, weather: WatchedWeather, path: Path, names: Sequence[str]) -> None:
        self._weather, self._path, self._names = weather, path, names
        self.unruled: frozenset[str] = frozenset()  # metrics of which no rule is in force
        path.write_text(_rules(names))
        self._file = FollowedFile(
            path, lambda text, file: sound_rules(text, file, MAPPER), self._take,
            lambda _problem: None, what="rules", when_empty="rules: []",
        )  # fmt: skip

    async def start(self) -> None:
        """Read it for the first time."""
        await self._take(await self._file.first())

    async def become(self, what: str) -> None:
        """Write it ``whole`` or ``short`` of a rule, or what has to be refused: then look."""
        before = self.unruled
        text = {
            "whole": _rules(self._names), "short": _rules(self._names[1:]),
            "broken": _rules(self._names) + "- metricQuery: x\n", "empty": "", "gone": None,
        }[what]  # fmt: skip
        if text is None:
            await asyncio.to_thread(self._path.unlink)
        else:
            # Another inode each time, as a mounted ConfigMap: times may be the same.
            fresh = self._path.with_suffix(".new")
            await asyncio.to_thread(fresh.write_text, text)
            await asyncio.to_thread(fresh.replace, self._path)
        for _ in range(2):
            await self._file.look()
        is_refused = what in ("broken", "empty", "gone")
        if bool(self._file.problem) != is_refused or (is_refused and self.unruled != before):
            self._weather.judge.found.append(
                f"a {what} rules file: {self._file.problem!r}, without rules are {self.unruled}"
            )

    async def _take(self, rules: RuleSet) -> None:
        absent = set(self._names) - {each.series_query for each in rules.custom}
        self.unruled = frozenset(f"{kind}-{name}" for kind in ("load", "queue") for name in absent)


def _rules(names: Iterable[str]) -> str:
    return "rules:\n" + "".join(_RULE.format(name=name) for name in names)
