"""The stored configuration is left alone only if it is the one that we would write."""

import asyncio
import base64
import copy
import time
from typing import Any

import msgspec
import pytest

from podscale.kube.client.errors import ApiError, KubeError
from podscale.kube.client.resource import MUTATING_WEBHOOKS
from podscale.kube.client.wire import encode
from podscale.serving.certificates.issuing import make_authority, make_leaf
from podscale.serving.certificates.tls import ServingTls
from tests.unit.serving.kit import ScriptedApi
from vpa.admission.registration import (
    CONFIGURATION,
    Handover,
    Registration,
    StatusLease,
    _is_same,
    keep_registered,
    register,
)

BODY: dict[str, Any] = msgspec.json.decode(
    encode(Registration(only="shop", labels=(("team", "a"),)).body(b"pem"))
)


def stored() -> dict[str, Any]:
    """Return it as an API server answers: with what it fills in."""
    found = copy.deepcopy(BODY)
    found["metadata"]["resourceVersion"] = "7"
    (hook,) = found["webhooks"]
    hook |= {"matchPolicy": "Equivalent", "objectSelector": {}, "reinvocationPolicy": "Never"}
    hook["clientConfig"]["service"]["port"] = 443
    return found


def test_what_the_api_server_fills_in_is_no_difference():
    assert _is_same(stored(), BODY)
    everywhere = msgspec.json.decode(encode(Registration().body(b"pem")))
    found = copy.deepcopy(everywhere)
    found["webhooks"][0]["namespaceSelector"] = {}
    assert _is_same(found, everywhere)


def test_labels_of_others_are_theirs():
    found = stored()
    found["metadata"]["labels"]["added"] = "x"
    assert _is_same(found, BODY)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("namespaceSelector", {}),
        ("namespaceSelector", {"matchLabels": {"a": "b"}}),
        ("sideEffects", "Unknown"),
        ("admissionReviewVersions", ["v1beta1"]),
        ("objectSelector", {"matchLabels": {"a": "b"}}),
        ("matchConditions", [{"name": "never", "expression": "false"}]),
        ("failurePolicy", "Fail"),
    ],
)
def test_a_field_that_somebody_changed_is_put_right(field: str, value: Any):
    found = stored()
    found["webhooks"][0][field] = value
    assert not _is_same(found, BODY)


def test_a_label_that_was_taken_off_is_put_back():
    found = stored()
    found["metadata"]["labels"] = None
    assert not _is_same(found, BODY)


def test_a_second_webhook_is_not_ours():
    found = stored()
    found["webhooks"].append(found["webhooks"][0])
    assert not _is_same(found, BODY)


PATH = MUTATING_WEBHOOKS.path("", CONFIGURATION)


async def test_the_one_of_the_manifests_is_filled_in_and_keeps_what_others_wrote():
    api = ScriptedApi()
    theirs = {"labels": {"helm": "x"}, "annotations": {"applied": "y"}, "resourceVersion": "1"}
    api.objects[PATH] = {"metadata": {"name": CONFIGURATION, **theirs}}
    await register(api, Registration(labels=(("team", "a"),)), b"pem")
    written = api.objects[PATH]
    assert written["metadata"]["labels"] == {"helm": "x", "team": "a"}
    assert written["metadata"]["annotations"] == {"applied": "y"}
    assert len(written["webhooks"]) == 1
    api.calls.clear()
    await register(api, Registration(labels=(("team", "a"),)), b"pem")
    assert api.calls == [("GET", PATH)]


async def test_where_it_is_missing_and_may_not_be_made_the_manifests_are_named():
    class Limited(ScriptedApi):
        def _object(self, method: str, path: str, sent: dict[str, Any]) -> Any:
            if method == "POST":
                raise ApiError.of(403, "Forbidden", "cannot create")
            return super()._object(method, path, sent)

    with pytest.raises(KubeError, match=r"vpa-webhook-config is missing.*apply the manifests"):
        await register(Limited(), Registration(), b"pem")


class Odd(ScriptedApi):
    """A connection that fails as none should."""

    fails = False

    async def request(self, method: Any, path: str, **more: Any) -> Any:
        if self.fails:
            raise RuntimeError("a defect")
        return await super().request(method, path, **more)


@pytest.mark.parametrize("where", ["hindrance", "request"])
async def test_nothing_about_the_sign_of_life_ends_the_process(where: str):
    api = Odd()
    lease = StatusLease(api, namespace="kube-system", name="vpa", holder="a", interval_s=0.01)
    asked, goes_on = 0, asyncio.Event()

    def hindrance() -> str:
        nonlocal asked
        asked += 1
        api.fails = where == "request" and asked == 1
        if where == "hindrance" and asked == 1:
            raise RuntimeError("a defect")
        if asked == 3:
            goes_on.set()
        return ""

    running = asyncio.create_task(lease.run(hindrance))
    waiting = asyncio.create_task(goes_on.wait())
    await asyncio.wait({running, waiting}, timeout=10, return_when=asyncio.FIRST_COMPLETED)
    assert not running.done()
    methods = [method for method, _ in api.calls]
    assert methods[:2] == ["GET", "POST"], "alive as soon as it can be told"
    waiting.cancel()
    running.cancel()
    await asyncio.wait({running, waiting})


@pytest.mark.looptime
async def test_another_ca_is_registered_within_a_second_and_one_that_failed_soon():
    api = ScriptedApi()
    served, now = [b"one"], time.time()
    authority = make_authority("ca", now=now, life_s=900.0)
    handover = Handover(ServingTls(make_leaf(authority, ["webhook"], now=now, life_s=900.0)))
    running = asyncio.create_task(
        keep_registered(api, Registration(), lambda: served[-1], handover)
    )

    def trusted() -> bytes:
        hook = api.objects[PATH]["webhooks"][0]
        return base64.b64decode(hook["clientConfig"]["caBundle"])

    await asyncio.sleep(0.1)
    assert trusted() == b"one"
    for at, bundle in ((0.7, b"two"), (47.3, b"three")):
        await asyncio.sleep(at)
        served.append(bundle)
        await asyncio.sleep(1.0)
        assert trusted() == bundle
    api.is_down = True
    served.append(b"four")
    await asyncio.sleep(1.0)
    api.is_down = False
    await asyncio.sleep(6.0)
    assert trusted() == b"four"
    running.cancel()


@pytest.mark.looptime
async def test_a_leaf_waits_until_the_api_server_has_heard_of_the_ca():
    now = time.time()
    first, second = (make_authority("ca", now=now, life_s=900.0) for _ in range(2))
    tls = ServingTls(make_leaf(first, ["webhook"], now=now, life_s=900.0))
    api, handover = ScriptedApi(), Handover(tls)
    tls.may_follow = handover.may_follow
    files = [first.certificate]
    registering = keep_registered(api, Registration(), lambda: files[-1], handover)
    running = asyncio.create_task(registering)
    await asyncio.sleep(3.2)
    files.append(second.certificate)
    tls.use_pair(make_leaf(second, ["webhook"], now=now, life_s=900.0))
    waited_s = 0.0
    while tls.pair is not tls.offered:
        await asyncio.sleep(0.05)
        tls.use_pair(tls.offered)
        config = api.objects[PATH]["webhooks"][0]["clientConfig"]
        if second.certificate in base64.b64decode(config["caBundle"]):
            waited_s += 0.05
    assert 0.4 < waited_s < 0.7
    running.cancel()
