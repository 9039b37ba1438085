"""The webhook's certificate behind a Service: a CA in a Secret, a leaf for each replica.

The Lease's holder registers the webhook and keeps its caBundle; every replica serves.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

from podscale.kube.client.api import Api
from podscale.kube.client.errors import KubeError
from podscale.kube.leadership.lease import Elector, Term
from podscale.kube.objects.cluster import ServiceName
from podscale.serving.certificates.issuing import KeyPair
from podscale.serving.certificates.keeper import keeper_behind
from podscale.serving.certificates.tls import ServingTls
from vpa.stores import VpaStores

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


def hindrance(stores: VpaStores, pair: KeyPair, bundle: bytes, now: float) -> str:
    """Return what keeps pods from being sized, "" if nothing does. An updater that takes a webhook
    for alive evicts; a pod that then passes unsized was evicted for nothing, and will be again.

    ``pair`` is what we serve, ``bundle`` the caBundle (PEM) that it is registered with, b""
    if nobody here knows it; ``now`` is unix seconds.
    """
    if not stores.is_synced or not stores.is_current():
        return "the watches are not current"
    if not pair.not_before <= now < pair.not_after:
        return "the serving certificate is not valid now"
    if bundle and not is_trusted(pair, bundle, now):
        return "the caBundle does not verify the serving certificate"
    return ""


def is_trusted(pair: KeyPair, bundle: bytes, now: float) -> bool:
    """Return whether a certificate of the bundle stands behind the served one."""
    try:
        chain = x509.load_pem_x509_certificates(pair.certificate)
        anchors = [each for each in x509.load_pem_x509_certificates(bundle) if _is_valid(each, now)]
    except ValueError:
        return False
    subject, rest = chain[0], chain[1:]
    for _ in chain:
        if subject in anchors or _issuer(subject, anchors) is not None:
            return True
        above = _issuer(subject, rest)
        if above is None:
            return False
        subject, rest = above, [each for each in rest if each is not above]
    return False


def _issuer(
    subject: x509.Certificate, among: Sequence[x509.Certificate]
) -> x509.Certificate | None:
    for issuer in among:
        try:
            subject.verify_directly_issued_by(issuer)
        except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
            continue
        return issuer
    return None


def _is_valid(certificate: x509.Certificate, now: float) -> bool:
    return (
        certificate.not_valid_before_utc.timestamp()
        <= now
        < certificate.not_valid_after_utc.timestamp()
    )
