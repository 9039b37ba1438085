"""Permissions: what is asked, how often, and what a refusal says."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from podscale.serving.auth.authorization import Authorizer, Permission, ReviewFailed, denial
from podscale.serving.auth.user import User
from podscale.serving.monitoring.selfmetrics import SelfMetrics
from podscale.serving.request_info import RequestInfo, parse_target
from tests.unit.serving.kit import GROUP, ScriptedApi

HPA = User("hpa", ("system:authenticated",))
BOB = User("bob", ("system:authenticated",))


def info(path: str) -> RequestInfo:
    return parse_target("GET", path).info


PODS = info(f"/apis/{GROUP}/v1beta2/namespaces/default/pods/*/rps")
OTHER = info(f"/apis/{GROUP}/v1beta1/namespaces/prod/pods/*/latency")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def decided(authorizer: Authorizer, user: User, what: RequestInfo) -> Permission:
    found = authorizer.authorize(user, what)
    return found if isinstance(found, Permission) else await found


def only(**wanted: str) -> Any:
    def allows(spec: Mapping[str, Any]) -> bool:
        asked = spec.get("resourceAttributes") or {}
        return all(asked.get(key, "") == value for key, value in wanted.items())

    return allows


async def test_masters_and_open_paths_are_not_asked() -> None:
    authorizer = Authorizer(None, SelfMetrics(), always_allowed=("/healthz", "/open/*"))
    master = User("m", ("system:masters",))
    for user, what in [(master, PODS), (BOB, info("/healthz")), (BOB, info("/open/door"))]:
        assert authorizer.authorize(user, what) == Permission(True)
    assert not (await decided(authorizer, BOB, info("/healthz/ping"))).is_allowed


@pytest.mark.parametrize(("flag_s", "holds_s"), [(10, 10), (60, 60), (3600, 60)])
async def test_a_group_wide_permission_serves_all_of_the_group_for_a_minute_at_most(
    flag_s: float, holds_s: float
) -> None:
    api, clock = ScriptedApi(), Clock()
    authorizer = Authorizer(api, SelfMetrics(), allowed_ttl_s=flag_s, clock=clock)
    for moment in (0.0, holds_s / 2, holds_s - 0.1):
        clock.now = moment
        assert (await decided(authorizer, HPA, PODS)).is_allowed
        assert (await decided(authorizer, HPA, OTHER)).is_allowed
    assert len(api.reviews) == 1
    clock.now = holds_s
    api.allowed = lambda _: False
    assert not (await decided(authorizer, HPA, PODS)).is_allowed


async def test_without_a_cache_what_was_revoked_is_refused_at_once() -> None:
    api = ScriptedApi()
    authorizer = Authorizer(api, SelfMetrics(), allowed_ttl_s=0)
    assert (await decided(authorizer, HPA, PODS)).is_allowed
    api.allowed = lambda _: False
    assert not (await decided(authorizer, HPA, PODS)).is_allowed


async def test_a_group_wide_permission_is_for_its_verb_and_group_only() -> None:
    api = ScriptedApi()
    api.allowed = only(resource="*", verb="get", group=GROUP)
    authorizer = Authorizer(api, SelfMetrics())
    assert (await decided(authorizer, HPA, PODS)).is_allowed
    listing = info(f"/apis/{GROUP}/v1beta2/namespaces/default/pods")
    elsewhere = info("/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/x")
    for what in (listing, elsewhere, info("/metrics")):
        assert not (await decided(authorizer, HPA, what)).is_allowed, what


async def test_without_it_each_request_is_judged_by_itself() -> None:
    api = ScriptedApi()
    api.allowed = only(namespace="default", subresource="rps")
    authorizer = Authorizer(api, SelfMetrics())
    assert (await decided(authorizer, BOB, PODS)).is_allowed
    assert not (await decided(authorizer, BOB, OTHER)).is_allowed
    assert [review["resourceAttributes"]["resource"] for review in api.reviews] == [
        "*",
        "pods",
        "pods",
    ]


async def test_denials_are_forgotten_after_ten_seconds_whatever_the_flag_says() -> None:
    api, clock = ScriptedApi(), Clock()
    authorizer = Authorizer(api, SelfMetrics(), denied_ttl_s=3600, clock=clock)
    assert not (await decided(authorizer, BOB, PODS)).is_allowed
    api.allowed = lambda _: True
    clock.now = 9.9
    assert not (await decided(authorizer, BOB, PODS)).is_allowed
    clock.now = 10.0
    assert (await decided(authorizer, BOB, PODS)).is_allowed


async def test_a_thousand_at_once_are_one_review() -> None:
    api = ScriptedApi()
    api.hold = asyncio.Event()
    authorizer = Authorizer(api, SelfMetrics(), cluster_first=False)
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(decided(authorizer, HPA, PODS)) for _ in range(1000)]
        await asyncio.sleep(0)
        api.hold.set()
    assert all(task.result().is_allowed for task in waiting)
    assert len(api.reviews) == 1


async def test_the_first_to_ask_may_leave() -> None:
    api = ScriptedApi()
    api.hold = asyncio.Event()
    authorizer = Authorizer(api, SelfMetrics(), cluster_first=False)
    first = asyncio.create_task(decided(authorizer, HPA, PODS))
    await asyncio.sleep(0)
    second = asyncio.create_task(decided(authorizer, HPA, PODS))
    await asyncio.sleep(0)
    first.cancel()
    api.hold.set()
    assert (await second).is_allowed
    assert first.cancelled() or first.done()


async def test_what_no_rule_allows_is_no_opinion_and_a_denial_is_one() -> None:
    api, metrics = ScriptedApi(), SelfMetrics()
    authorizer = Authorizer(api, metrics, denied_ttl_s=0, cluster_first=False)
    counts = metrics.authorization.counts
    assert not (await decided(authorizer, BOB, PODS)).is_allowed
    assert (await decided(authorizer, HPA, PODS)).is_allowed
    assert counts == {"allowed": 1, "denied": 0, "no-opinion": 1, "error": 0}
    api.denies = True
    assert not (await decided(authorizer, BOB, PODS)).is_allowed
    assert counts == {"allowed": 1, "denied": 1, "no-opinion": 1, "error": 0}
    with pytest.raises(ReviewFailed, match="both allow and deny"):
        await decided(authorizer, HPA, OTHER)
    assert counts == {"allowed": 1, "denied": 1, "no-opinion": 1, "error": 1}


async def test_a_failed_review_is_neither_allowed_nor_remembered() -> None:
    api = ScriptedApi()
    authorizer = Authorizer(api, SelfMetrics())
    api.is_down = True
    with pytest.raises(ReviewFailed):
        await decided(authorizer, HPA, PODS)
    api.is_down = False
    assert (await decided(authorizer, HPA, PODS)).is_allowed


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            f"/apis/{GROUP}/v1beta2/namespaces/default/pods/*/rps",
            (
                f'pods.{GROUP} "*" is forbidden: User "bob" cannot get resource "pods/rps" in API '
                f'group "{GROUP}" in the namespace "default": no'
            ),
        ),
        (
            f"/apis/{GROUP}/v1beta2/nodes/*/m",
            (
                f'nodes.{GROUP} "*" is forbidden: User "bob" cannot get resource "nodes/m" in API '
                f'group "{GROUP}" at the cluster scope: no'
            ),
        ),
        (
            "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/q",
            (
                'q.external.metrics.k8s.io is forbidden: User "bob" cannot list resource "q" in '
                'API group "external.metrics.k8s.io" in the namespace "default": no'
            ),
        ),
        ("/metrics", 'forbidden: User "bob" cannot get path "/metrics": no'),
    ],
)
def test_refusals_use_kubernetes_words(path: str, text: str) -> None:
    assert denial(BOB, info(path), "no").message == text
    assert denial(BOB, info(path), "").message == text.removesuffix(": no")
