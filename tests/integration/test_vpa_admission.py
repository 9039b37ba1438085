"""The webhook, called by the sandbox's API server over TLS, and by hand with bad input."""

import asyncio
import base64
import io
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest

from podscale.kube.informer.list_watch import WatchBroken
from podscale.serving import running
from podscale.serving.certificates.issuing import (
    make_authority,
    make_leaf,
    make_self_signed,
)
from podscale.serving.certificates.tls import self_signed
from podscale.serving.flag_table import problems as server_problems
from podscale.serving.flags import parse
from podscale.serving.monitoring.logs import Verbosity
from podscale.serving.status import StatusError
from tests.integration.vpa_stage import Stage, deployment, stage, vpa
from vpa.admission import flags, part
from vpa.admission.registration import CONFIGURATION

RECOMMENDED = {
    "recommendation": {
        "containerRecommendations": [
            {
                "containerName": "main",
                "target": {"cpu": "250m", "memory": "200Mi"},
                "lowerBound": {"cpu": "200m", "memory": "150Mi"},
                "upperBound": {"cpu": "400m", "memory": "300Mi"},
            }
        ]
    },
    "conditions": [{"type": "RecommendationProvided", "status": "True"}],
}


@pytest.fixture
async def small(tmp_path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as built:
        yield built


def recommended(small: Stage, mode: str = "Initial", **spec: Any) -> None:
    small.objects.create("verticalpodautoscalers", "default", vpa(mode, **spec))
    held = small.vpa()
    small.objects.update(
        "verticalpodautoscalers", "default", "web", {**held, "status": RECOMMENDED}, "status"
    )


@asynccontextmanager
async def admitting(small: Stage, tmp_path, *words: str) -> AsyncIterator[part.AdmissionPart]:
    given = [
        f"--kubeconfig={tmp_path}/kubeconfig",
        "--register-by-url=true",
        "--webhook-address=127.0.0.1",
        "--bind-address=127.0.0.1",
        "--address=",
        "--port=0",
        f"--cert-dir={tmp_path}/certificates",
        f"--client-ca-file={tmp_path}/absent",
        "--status-lease-update-interval=100ms",
        *words,
    ]
    async with part.admitting(parse(given, flags.TABLE), Verbosity(0), 0) as served:
        if "--register-webhook=false" not in words:
            await small.until(
                lambda: (
                    small.objects.find("mutatingwebhookconfigurations", "", CONFIGURATION)
                    is not None
                )
            )
        yield served


def resources(small: Stage) -> dict[str, Any]:
    pod = small.pods()[0]
    found: dict[str, Any] = pod["spec"]["containers"][0]["resources"]
    return found


async def post(
    served: part.AdmissionPart, body: bytes, kind: str = "application/json"
) -> tuple[int, Any]:
    headers, data = {"Content-Type": kind}, io.BytesIO(body)
    url = f"https://127.0.0.1:{served.server.port}/"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=data, headers=headers, ssl=False) as answer,
    ):
        raw = await answer.read()
        return answer.status, msgspec.json.decode(raw)


async def test_new_pods_get_the_recommendation_and_the_deployment_is_untouched(small, tmp_path):
    recommended(small)
    async with admitting(small, tmp_path):
        before = small.objects.create(
            "deployments", "default", deployment(1, limits={"cpu": "200m"})
        )
        await small.until(lambda: small.ready() == 1)
    assert resources(small) == {
        "requests": {"cpu": "250m", "memory": "200Mi"},
        "limits": {"cpu": "500m"},
    }
    annotations = small.pods()[0]["metadata"]["annotations"]
    assert annotations["vpaObservedContainers"] == "main"
    assert annotations["vpaUpdates"].startswith("Pod resources updated by web: container 0: ")
    held = small.objects.get("deployments", "default", "web")
    assert held["spec"]["template"] == before.object["spec"]["template"]


@pytest.mark.parametrize("mode", ["Initial", "Recreate", "Auto", "InPlaceOrRecreate"])
async def test_every_mode_but_off_patches(small, tmp_path, mode):
    recommended(small, mode)
    async with admitting(small, tmp_path):
        small.objects.create("deployments", "default", deployment(1))
        await small.until(lambda: small.ready() == 1)
    assert resources(small)["requests"]["cpu"] == "250m"


async def test_mode_off_and_pods_of_nobody_pass_unchanged(small, tmp_path):
    recommended(small, "Off")
    async with admitting(small, tmp_path):
        small.objects.create("deployments", "default", deployment(1))
        await small.until(lambda: small.ready() == 1)
    assert resources(small)["requests"] == {"cpu": "100m", "memory": "64Mi"}


async def test_the_lease_is_a_sign_of_life(small, tmp_path):
    async with admitting(small, tmp_path):
        await small.until(
            lambda: (
                small.objects.find("leases", "kube-system", "vpa-admission-controller") is not None
            )
        )
        first = small.objects.get("leases", "kube-system", "vpa-admission-controller")
        await small.until(
            lambda: (
                small.objects.get("leases", "kube-system", "vpa-admission-controller")["spec"]
                != first["spec"]
            )
        )


@pytest.mark.parametrize("what", ["watch", "certificate"])
async def test_a_webhook_that_could_not_size_a_pod_shows_no_sign_of_life(small, tmp_path, what):
    def renewed() -> Any:
        found = small.objects.find("leases", "kube-system", "vpa-admission-controller")
        return found and found["spec"]["renewTime"]

    # As --cert-dir will have it; the CA stays the one of the file.
    kept = self_signed(f"{tmp_path}/certificates")
    (tmp_path / "ca.pem").write_bytes(kept.certificate)
    async with admitting(small, tmp_path, f"--client-ca-file={tmp_path}/ca.pem") as served:
        await small.until(lambda: renewed() is not None)
        if what == "watch":
            replica_sets = served.stores.workloads.by_kind["ReplicaSet"]
            replica_sets.apply(WatchBroken("silent"), scope="", now=time.monotonic())
            replica_sets.apply = lambda *_args, **_more: None
        else:
            # Whoever watches the files may swap it; the caBundle is the one of before.
            served.server.tls.may_follow = lambda _served, _offered: True
            served.server.tls.use_pair(make_self_signed(now=time.time()))
        await asyncio.sleep(0.3)
        last = renewed()
        await asyncio.sleep(0.5)
        assert renewed() == last


async def test_a_second_start_corrects_the_registration_without_a_gap(small, tmp_path):
    async with admitting(small, tmp_path):
        first = small.objects.get("mutatingwebhookconfigurations", "", CONFIGURATION)
    async with admitting(small, tmp_path, "--webhook-timeout-seconds=5"):
        await small.until(
            lambda: (
                small.objects.get("mutatingwebhookconfigurations", "", CONFIGURATION)["webhooks"][
                    0
                ]["timeoutSeconds"]
                == 5
            )
        )
        second = small.objects.get("mutatingwebhookconfigurations", "", CONFIGURATION)
    assert first["metadata"]["uid"] == second["metadata"]["uid"]
    assert second["webhooks"][0]["failurePolicy"] == "Ignore"


async def test_a_wrong_vpa_is_refused_by_field_and_a_bare_one_gets_its_default(small, tmp_path):
    wrong = vpa("Recreate", updatePolicy={"minReplicas": -1})
    async with admitting(small, tmp_path):
        with pytest.raises(StatusError) as refused:
            await small.cluster.server.create("verticalpodautoscalers", "default", wrong, "me")
        assert "spec.updatePolicy.minReplicas" in str(refused.value)
        await small.cluster.server.create("verticalpodautoscalers", "default", vpa(), "me")
    assert small.vpa()["spec"]["updatePolicy"] == {"updateMode": "Recreate"}


@pytest.mark.parametrize("order", [("ca", "crt", "key"), ("key", "crt", "ca")], ids=" ".join)
async def test_no_invalid_vpa_passes_while_a_ca_and_its_leaf_are_swapped(
    small, tmp_path, monkeypatch, order
):
    monkeypatch.setattr(running, "_LOOK_AT_FILES_S", 2.0)
    wrong = vpa("Recreate", updatePolicy={"minReplicas": -1})

    def issued(name: str) -> dict[str, bytes]:
        authority = make_authority(name, now=time.time(), life_s=3600)
        leaf = make_leaf(authority, ["127.0.0.1"], now=time.time(), life_s=3600)
        return {"ca": authority.certificate, "crt": leaf.certificate, "key": leaf.key}

    def trusted() -> bytes:
        config = small.objects.get("mutatingwebhookconfigurations", "", CONFIGURATION)
        return base64.b64decode(config["webhooks"][0]["clientConfig"]["caBundle"])

    async def refused(seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with pytest.raises(StatusError, match="minReplicas"):
                await small.cluster.server.create("verticalpodautoscalers", "default", wrong, "me")
            small.cluster.server._extensions._contexts.clear()  # and with it every connection
            await asyncio.sleep(0.02)

    files = {name: tmp_path / name for name in order}
    for name, content in issued("one").items():
        files[name].write_bytes(content)
    words = (f"--client-ca-file={files['ca']}", f"--tls-cert-file={files['crt']}",
             f"--tls-private-key={files['key']}")  # fmt: skip
    async with admitting(small, tmp_path, *words) as served:
        await refused(1.0)
        two = issued("two")
        for name in order:
            files[name].write_bytes(two[name])
            await refused(2.5)
        await refused(1.0)
        assert served.server.tls.pair.certificate == two["crt"]
        assert trusted() == two["ca"]


async def test_garbage_is_answered_and_never_blocks(small, tmp_path):
    async with admitting(small, tmp_path) as served:
        assert (await post(served, b"{"))[0] == 400
        assert (await post(served, b"[]"))[0] == 400
        assert (await post(served, b"{}", "text/plain"))[0] == 415
        assert (await post(served, b" " * (6 * 1024 * 1024)))[0] == 413
        large = b'{"apiVersion": "v9"}' + b" " * (4 * 1024 * 1024)  # is read: it may be a review
        assert (await post(served, large))[0] == 400
        unknown = {"apiVersion": "admission.k8s.io/v9", "kind": "AdmissionReview", "request": {}}
        assert (await post(served, msgspec.json.encode(unknown)))[0] == 400
        for odd in ({"spec": {"containers": 7}}, {}, {"spec": None}, {"metadata": []}):
            request = {
                "uid": "1",
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "namespace": "default",
                "operation": "CREATE",
                "object": odd,
            }
            review = {**unknown, "apiVersion": "admission.k8s.io/v1", "request": request}
            code, answer = await post(served, msgspec.json.encode(review))
            assert (code, answer["response"]["allowed"]) == (200, True)
            assert "patch" not in answer["response"]


async def test_behind_a_service_replicas_share_a_ca_and_the_lease_holder_publishes_it(
    small, tmp_path
):
    secret, lease = ("podscale", "web-webhook-ca"), ("podscale", "web-webhook")
    small.objects.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "podscale"}})

    def configured() -> dict[str, Any] | None:
        return small.objects.find("mutatingwebhookconfigurations", "", CONFIGURATION)

    words = [
        f"--kubeconfig={tmp_path}/kubeconfig", "--service=podscale/web", "--webhook-port=8000",
        "--bind-address=127.0.0.1", "--address=", "--port=0",
    ]  # fmt: skip
    parsed = parse(words, flags.TABLE)
    assert flags.problems(parsed) == []
    async with (
        part.admitting(parsed, Verbosity(0), 0) as one,
        part.admitting(parsed, Verbosity(0), 0) as two,
    ):
        await small.until(lambda: configured() is not None)
        hook = configured()["webhooks"][0]
        service = hook["clientConfig"]["service"]
        assert service == {"namespace": "podscale", "name": "web"}
        authority = base64.b64decode(hook["clientConfig"]["caBundle"])
        held = small.objects.get("secrets", *secret)["data"]
        assert any(base64.b64decode(value) == authority for value in held.values())
        assert small.objects.get("leases", *lease)["spec"]["holderIdentity"]
        trusting = ssl.create_default_context(cadata=authority.decode())
        for served in (one, two):
            # Each replica has a leaf of its own, and both stand for the Service.
            _, writer = await asyncio.open_connection(
                "127.0.0.1", served.server.port, ssl=trusting, server_hostname="web.podscale.svc"
            )
            writer.close()
        assert one.server.tls.pair.certificate != two.server.tls.pair.certificate


async def test_a_review_past_its_deadline_is_let_through_unchanged(small, tmp_path):
    recommended(small)
    async with admitting(small, tmp_path) as served:

        async def never(*_: object, **__: object) -> None:
            await asyncio.Event().wait()

        served.stores.workloads.topmost = never
        small.objects.create("deployments", "default", deployment(1))
        await small.until(lambda: small.ready() == 1)
    assert resources(small)["requests"] == {"cpu": "100m", "memory": "64Mi"}


async def test_upstreams_default_command_line_is_one_that_can_run():
    # Upstream's names of the certificate's flags are not the API server's.
    assert flags.problems(parse([], flags.TABLE)) == []
    words = flags.serving(parse(["--register-by-url", "--port=8000"], flags.TABLE))
    assert list(server_problems(words)) == []
