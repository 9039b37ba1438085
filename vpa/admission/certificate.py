"""The webhook's certificate behind a Service: a CA in a Secret, a leaf for each replica.

The Lease's holder registers the webhook and keeps its caBundle; every replica serves.
"""

import asyncio
from collections.abc import Awaitable, Callable

from podscale.kube.api import Api
from podscale.kube.lease import Elector, Term
from podscale.serving.authority import times_for
from podscale.serving.certificates import service_names
from podscale.serving.flags import FlagError
from podscale.serving.keeper import CertificateKeeper
from podscale.serving.tls import ServingTls


class WebhookCertificate:
    """One replica's part in it. Hand ``keeper`` to the server, then ``run``."""

    def __init__(
        self,
        api: Api,
        service: tuple[str, str],
        register: Callable[[bytes], Awaitable[None]],
        *,
        identity: str,
        ca_lifetime_s: float,
    ) -> None:
        """``service`` is namespace and name; ``register`` puts a bundle into the webhook."""
        namespace, name = service
        self._register = register
        # Not the adapter's, which may serve behind the same Service: each knows only its own
        # caBundles, and a CA goes when all of them hold its successor.
        self.elector = Elector(api, namespace=namespace, name=f"{name}-webhook", identity=identity)
        self.keeper = CertificateKeeper(
            api,
            namespace=namespace,
            secret=f"{name}-webhook-ca",
            names=service_names(name, namespace),
            publish=self._publish,
            may_write=self.elector.may_write,
            times=times_for(ca_lifetime_s),
        )

    async def run(self, tls: ServingTls) -> None:
        """Take part in the election for ever; whoever wins registers at once."""

        async def lead(_term: Term) -> None:
            await self.keeper.step(tls)
            await asyncio.Event().wait()

        await self.elector.run(lead)

    async def _publish(self, bundle: bytes) -> bool:
        await self._register(bundle)
        return True


def service_of(text: str) -> tuple[str, str] | None:
    """Return namespace and name of ``--service``; None where there is none; raises FlagError."""
    if not text:
        return None
    namespace, slash, name = text.partition("/")
    if not namespace or not slash or not name or "/" in name:
        raise FlagError(f"--service is NAMESPACE/NAME, and {text!r} is not")
    return namespace, name
