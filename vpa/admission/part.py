"""The admission webhook: watches, HTTPS, registration, sign of life.

It has a connection, watches and a port of its own in every process: pods wait for it.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from msgspec import Struct, structs
from prometheus_client import CollectorRegistry, Counter, Histogram

from podscale.kube.client.api import Api, user_agent
from podscale.kube.client.connect import connect
from podscale.kube.discovery import ApiDiscovery
from podscale.kube.leadership.leading import identity, own_namespace
from podscale.process.clusters import discover
from podscale.process.compose import monitored
from podscale.process.part import ApartKind
from podscale.serving.apis.api import Route
from podscale.serving.certificates.keeper import service_of
from podscale.serving.flags import Flags
from podscale.serving.monitoring.health import Health, HealthVerdict
from podscale.serving.monitoring.logs import Verbosity
from podscale.serving.monitoring.selfmetrics import SelfMetrics
from podscale.serving.running import Clusters, RunningServer, running
from vpa import flags as common_flags
from vpa.admission import flags as flags_
from vpa.admission import registration
from vpa.admission.webhook import MOST_BODY, Webhook
from vpa.stores import VpaStores

_log = structlog.get_logger()

PREFIX = "vpa_admission_controller_"
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_DRAIN_S = 5.0


class AdmissionMetrics:
    """What the webhook says about itself, under upstream's names."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._pods = Counter(
            PREFIX + "admission_pods", "Pods by whether a VPA applied.", ("applied",),
            registry=registry,
        )  # fmt: skip
        self._seconds = Histogram(
            PREFIX + "admission_latency_seconds", "Time of one review.", ("status", "resource"),
            buckets=_SECONDS, registry=registry,
        )  # fmt: skip

    def admitted(self, resource: str, outcome: str, seconds: float) -> None:
        # Only what we registered for: other names come from whoever calls us.
        kind = {"pods": "Pod", "verticalpodautoscalers": "VPA"}.get(resource, "unknown")
        self._seconds.labels(outcome, kind).observe(seconds)
        if kind == "Pod":
            self._pods.labels(str(outcome == "applied").lower()).inc()


class AdmissionPart(Struct):
    """A running webhook, with its registration and its sign of life."""

    flags: Flags
    api: Api
    namespace: str
    server: RunningServer
    stores: VpaStores
    webhook: Webhook
    certificate: registration.WebhookCertificate | None
    handover: registration.Handover

    async def stop(self) -> None:
        """Finish what is in flight."""
        await self.server.drain(grace_s=_DRAIN_S)

    async def keep_registered(self) -> None:
        """Register the webhook, and look after it: from then on pods wait for our answers.

        Where the VPA's CRDs are missing this waits for them, and nothing else does.
        """
        await self.stores.wait_synced()
        _log.info("admitting", port=self.server.port)
        if self.certificate is not None:
            await self.certificate.run(self.server.tls)
        elif self.flags.switch("register-webhook"):
            wanted = flags_.registration(self.flags, self.namespace)
            if wanted.url and not self.flags.text("webhook-port"):
                wanted = structs.replace(wanted, url=f"{wanted.url}:{self.server.port}")
            self.server.tls.may_follow = self.handover.may_follow
            await registration.keep_registered(self.api, wanted, self._authority, self.handover)

    async def show_life(self) -> None:
        """Renew the Lease that the updater looks at, as long as pods can be sized."""
        lease = registration.StatusLease(
            self.api,
            namespace=self.flags.text("status-lease-namespace") or self.namespace,
            name=self.flags.text("status-lease-name"),
            holder=identity(),
            interval_s=self.flags.seconds("status-lease-update-interval"),
        )
        await lease.run(self._hindrance)

    def _authority(self) -> bytes:
        # A self-signed certificate is its own authority.
        return flags_.authority(self.flags) or self.server.tls.offered.certificate

    def _hindrance(self) -> str:
        behind = self.certificate
        bundle = self.handover.announced if behind is None else behind.bundle
        return registration.hindrance(self.stores, self.server.tls.pair, bundle, time.time())


@asynccontextmanager
async def admitting(
    flags: Flags, verbosity: Verbosity, port: int | None = None
) -> AsyncIterator[AdmissionPart]:
    """Run the webhook while the block runs; ``port`` 0 means any free one."""
    metrics, health = SelfMetrics(), Health()
    async with (
        connect(common_flags.target(flags), user_agent=user_agent("admission")) as api,
        asyncio.TaskGroup() as group,
    ):
        discovery = ApiDiscovery(api)
        await discover(discovery)
        stores = VpaStores(
            api,
            discovery,
            namespaces=common_flags.namespaces(flags),
            ignored=flags.listing("ignored-vpa-object-namespaces"),
            needs_pods=False,
        )
        webhook = Webhook(
            stores,
            AdmissionMetrics(metrics.registry).admitted,
            boost=flags_.boost(flags),
            gates=flags_.gates(flags),
        )
        health.add_readiness(
            "vpas-synced",
            lambda: (
                HealthVerdict()
                if stores.is_synced
                else HealthVerdict(False, "VPAs are not listed yet")
            ),
        )
        namespace = await asyncio.to_thread(own_namespace, "kube-system")
        served = await asyncio.to_thread(flags_.serving, flags)
        certificate = _certificate(flags, api, namespace)
        works = (discovery.run(), stores.run())
        tasks = [group.create_task(work) for work in works]
        try:
            async with (
                monitored(flags.text("address"), metrics.registry, health),
                running(
                    served,
                    clusters=Clusters(),
                    routes=[
                        Route(
                            "/",
                            webhook.handle,
                            methods=("POST",),
                            is_public=True,
                            body_limit=MOST_BODY,
                        )
                    ],
                    health=health,
                    metrics=metrics,
                    verbosity=verbosity,
                    keeper=certificate.keeper if certificate is not None else None,
                    port=port,
                ) as server,
            ):
                handover = registration.Handover(server.tls)
                part = AdmissionPart(
                    flags, api, namespace, server, stores, webhook, certificate, handover
                )
                tasks += [
                    group.create_task(work) for work in (part.keep_registered(), part.show_life())
                ]
                yield part
        finally:
            for task in tasks:
                task.cancel()


KIND = ApartKind(name="admission", table=flags_.TABLE, problems=flags_.problems, open=admitting)


def _certificate(flags: Flags, api: Api, namespace: str) -> registration.WebhookCertificate | None:
    service = service_of(flags.text("service"))
    if service is None or not flags.switch("register-webhook"):
        return None
    wanted = flags_.registration(flags, namespace)

    async def put(bundle: bytes) -> None:
        await registration.register(api, wanted, bundle)

    return registration.WebhookCertificate(api, service, put, identity=identity())
