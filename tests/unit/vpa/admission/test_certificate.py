"""Behind a Service: what fails while the webhook is registered ends nobody."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from podscale.kube.client.errors import ApiError
from podscale.kube.objects.cluster import ServiceName
from podscale.serving.certificates.tls import ServingTls
from tests.unit.serving.kit import ScriptedApi
from vpa.admission.registration import WebhookCertificate


def behind(api: ScriptedApi, register: Callable[[bytes], Awaitable[None]]) -> WebhookCertificate:
    service = ServiceName("monitoring", "webhook")
    return WebhookCertificate(api, service, register, identity="a")


@pytest.mark.parametrize("is_late", [False, True], ids=["before", "while it registers"])
async def test_what_was_registered_is_not_known_any_more_when_the_term_is_over(
    is_late: bool,
) -> None:
    registered, again, goes_on = asyncio.Event(), asyncio.Event(), asyncio.Event()
    calls: list[bytes] = []

    async def register(bundle: bytes) -> None:
        calls.append(bundle)
        registered.set()
        if len(calls) == 2:
            again.set()
            await goes_on.wait()

    certificate = behind(ScriptedApi(), register)
    tls = ServingTls(await certificate.keeper.start())
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        running = group.create_task(certificate.run(tls))
        await registered.wait()
        await asyncio.sleep(0.05)
        assert certificate.bundle == calls[0]
        if is_late:
            group.create_task(certificate.keeper.step(tls))
            await again.wait()
        running.cancel()
        await asyncio.wait({running})
        goes_on.set()
    assert not certificate.elector.may_write()
    assert certificate.bundle == b""


async def test_a_registration_that_is_refused_does_not_end_the_process() -> None:
    bundles: list[bytes] = []
    tried = asyncio.Event()

    async def refused(bundle: bytes) -> None:
        bundles.append(bundle)
        tried.set()
        if len(bundles) == 1:
            raise ApiError.of(403, "Forbidden", "mutatingwebhookconfigurations are forbidden")

    certificate = behind(ScriptedApi(), refused)
    tls = ServingTls(await certificate.keeper.start())
    running = asyncio.create_task(certificate.run(tls))
    async with asyncio.timeout(10):
        await tried.wait()
    await asyncio.sleep(0.05)
    assert not running.done()
    assert certificate.elector.may_write()
    await certificate.keeper.step(tls)  # as it looks again by itself
    assert len(bundles) == 2
    running.cancel()
    await asyncio.wait({running})
