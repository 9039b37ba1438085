"""Behind a Service: what fails while the webhook is registered ends nobody."""

import asyncio

from podscale.kube.errors import ApiError
from podscale.serving.service import ServiceName
from podscale.serving.tls import ServingTls
from tests.unit.serving.kit import ScriptedApi
from vpa.admission.certificate import WebhookCertificate


async def test_a_registration_that_is_refused_does_not_end_the_process() -> None:
    bundles: list[bytes] = []
    tried = asyncio.Event()

    async def refused(bundle: bytes) -> None:
        bundles.append(bundle)
        tried.set()
        if len(bundles) == 1:
            raise ApiError.of(403, "Forbidden", "mutatingwebhookconfigurations are forbidden")

    service = ServiceName("monitoring", "webhook")
    certificate = WebhookCertificate(
        ScriptedApi(), service, refused, identity="a", ca_lifetime_s=3600.0
    )
    tls = ServingTls(await certificate.keeper.start())
    running = asyncio.create_task(certificate.run(tls))
    async with asyncio.timeout(10):
        await tried.wait()
    await asyncio.sleep(0.05)
    assert not running.done()
    assert certificate.elector.is_leader
    await certificate.keeper.step(tls)  # as it looks again by itself
    assert len(bundles) == 2
    running.cancel()
    await asyncio.wait({running})
