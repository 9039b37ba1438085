"""The webhook's certificate behind a Service: a CA in a Secret, a leaf for each replica.

The Lease's holder registers the webhook and keeps its caBundle; every replica serves.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from podscale.kube.client.api import Api
from podscale.kube.client.errors import KubeError
from podscale.kube.leadership.lease import Elector, Term
from podscale.kube.objects.cluster import ServiceName
from podscale.serving.certificates.service import keeper_behind
from podscale.serving.certificates.tls import ServingTls

_log = structlog.get_logger()


class WebhookCertificate:
    """One replica's part in it. Hand ``keeper`` to the server, then ``run``."""

    def __init__(
        self,
        api: Api,
        service: ServiceName,
        register: Callable[[bytes], Awaitable[None]],
        *,
        identity: str,
    ) -> None:
        """``register`` puts a bundle into the webhook."""
        self._register = register
        self.bundle = b""  # what we registered last; b"" where another replica does
        # Not the adapter's, which may serve behind the same Service: each knows only its own
        # caBundles, and a CA goes when all of them hold its successor.
        self.elector = Elector(
            api,
            namespace=service.namespace,
            name=f"{service.name}-webhook",
            identity=identity,
            chosen_by="--service",
        )
        self.keeper = keeper_behind(
            api,
            service,
            publish=self._publish,
            may_write=self.elector.may_write,
            purpose="webhook",
        )

    async def run(self, tls: ServingTls) -> None:
        """Take part in the election for ever; whoever wins registers at once."""

        async def lead(_term: Term) -> None:
            try:
                try:
                    await self.keeper.step(tls)
                except (KubeError, ValueError) as error:
                    # No reason to end, with what else runs here: the keeper looks again.
                    _log.warning("webhook not registered", error=str(error))
                await asyncio.Event().wait()
            finally:
                self.bundle = b""  # whoever leads next may put in another CA

        await self.elector.run(lead)

    async def _publish(self, bundle: bytes) -> bool:
        await self._register(bundle)
        if self.elector.may_write():  # the term may have ended meanwhile
            self.bundle = bundle
        return True
