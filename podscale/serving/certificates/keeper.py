"""Keeps our serving certificate: the CA in its Secret, this replica's leaf, the caBundles.

Every replica signs its own leaf; only the Lease holder advances the CA and publishes
its bundle. Nothing here ends the process: a failure is logged and tried again, while
the certificate in force goes on being served.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import structlog
from msgspec import Struct

from podscale.kube.client.api import Api
from podscale.kube.client.errors import KubeError, ObjectNotFound, WriteConflict
from podscale.kube.client.resource import SECRETS
from podscale.kube.client.wire import ObjectMeta, decode
from podscale.kube.objects.cluster import ServiceName
from podscale.serving.certificates import issuing
from podscale.serving.certificates.tls import ServingTls, TlsError
from podscale.serving.flags import FlagError

_FORMER_LOOKS = 2  # in which every other replica has come to serve the new CA's leaf

Publish = Callable[[bytes], Awaitable[bool]]


class _Secret(Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, str] | None = None


class CertificateKeeper:
    """The certificate of one replica of one Service."""

    def __init__(
        self,
        api: Api,
        *,
        namespace: str,
        secret: str,
        names: Sequence[str],
        publish: Publish,
        may_write: Callable[[], bool],
        times: issuing.AuthorityTimes = issuing.DEFAULT_TIMES,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``publish`` puts a bundle into every caBundle and says whether all hold it.

        ``may_write`` is the Lease: asked immediately before the CA advances.
        """
        self._api = api
        self._namespace = namespace
        self._secret = secret
        self._names = tuple(names)
        self._publish = publish
        self._may_write = may_write
        self._times = times
        self._wall = wall
        self._signed_by: bytes = b""
        self._leaf: issuing.KeyPair | None = None
        self._known: issuing.AuthorityState | None = None  # what clients trust, as far as we know
        self._met: bytes = b""  # a signer that nobody had announced
        self._former: tuple[bytes, int] = (b"", 0)  # bundle of before, looks that it is kept for

    async def start(self) -> issuing.KeyPair:
        """Return the first leaf, creating the Secret when there is none (any replica may).

        Raises ``KubeError`` when the Secret can neither be read nor created, and
        ``ValueError`` when it is damaged.
        """
        state, _ = await self._read()
        if state is None:
            state = await self._create(None)
        self._known = state
        return self._sign(state)

    async def run(self, tls: ServingTls) -> None:
        while True:
            try:
                await self.step(tls)
            except (KubeError, TlsError, ValueError) as error:
                structlog.get_logger().warning("ServingCertificateNotRenewed", error=str(error))
            except Exception:  # noqa: BLE001 - whatever it is, a day later it may be too late
                structlog.get_logger().exception("ServingCertificateNotRenewed")
            await asyncio.sleep(self._times.poll_s)

    async def step(self, tls: ServingTls) -> None:
        """Look once: renew the leaf, and as Lease holder publish and advance the CA.

        No certificate is served whose CA was not published before: one that somebody else
        put into the Secret is published first, and every replica waits for that a look long.
        """
        state, version = await self._read()
        if state is None:
            state = await self._create(self._known)
            version = ""
        known, signer = self._known, state.signer.certificate
        if known is not None and signer not in known.bundle:
            if self._may_write():
                self._former = (known.bundle, _FORMER_LOOKS)
                await self._publish(state.bundle + known.bundle)
            if self._met != signer:
                self._met = signer
                return
        self._known = state
        leaf = self._sign(state)
        if leaf is not tls.pair:
            tls.use_pair(leaf)
        if not version or not self._may_write():
            return
        former, looks = self._former
        self._former = (former, looks - 1) if looks else (b"", 0)
        is_published = await self._publish(state.bundle + (former if looks else b""))
        wanted = issuing.advance(state, self._times, now=self._wall(), is_published=is_published)
        if wanted is state or not self._may_write():
            return
        try:
            await self._api.request(
                "PUT",
                SECRETS.path(self._namespace, self._secret),
                body=self._encode(wanted, version),
            )
        except WriteConflict:
            return  # another replica was faster; the next look sees its work
        structlog.get_logger().info(
            "ServingAuthorityAdvanced", has_successor=wanted.successor is not None
        )
        await self._publish(wanted.bundle)

    def _sign(self, state: issuing.AuthorityState) -> issuing.KeyPair:
        now = self._wall()
        leaf = self._leaf
        if leaf is not None and self._signed_by == state.signer.certificate:
            life = leaf.not_after - leaf.not_before
            if now - leaf.not_before < life * self._times.leaf_renew_after:
                return leaf
        self._leaf = issuing.make_leaf(
            state.signer, self._names, now=now, life_s=self._times.leaf_life_s
        )
        self._signed_by = state.signer.certificate
        return self._leaf

    async def _read(self) -> tuple[issuing.AuthorityState | None, str]:
        try:
            response = await self._api.request(
                "GET", SECRETS.path(self._namespace, self._secret), timeout_s=10.0
            )
        except ObjectNotFound:
            return None, ""
        found = decode(response.body, _Secret)
        if not found.data:
            return None, found.metadata.resource_version
        return issuing.from_secret(found.data), found.metadata.resource_version

    async def _create(self, known: issuing.AuthorityState | None) -> issuing.AuthorityState:
        # A Secret that was deleted comes back as it was: clients trust that CA.
        state = known or issuing.advance(None, self._times, now=self._wall(), is_published=False)
        path = SECRETS.path(self._namespace)
        try:
            await self._api.request("POST", path, body=self._encode(state, ""), timeout_s=10.0)
        except WriteConflict:
            # Two replicas start together: the other's CA is as good as ours.
            found, _ = await self._read()
            if found is None:
                raise
            return found
        return state

    def _encode(self, state: issuing.AuthorityState, version: str) -> bytes:
        metadata = {
            "name": self._secret,
            "namespace": self._namespace,
            "labels": {"app.kubernetes.io/managed-by": "podscale"},
        }
        if version:
            metadata["resourceVersion"] = version
        return msgspec.json.encode(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "type": "kubernetes.io/tls",
                "metadata": metadata,
                "data": issuing.to_secret(state),
            }
        )


def service_of(text: str) -> ServiceName | None:
    """Return the Service that ``namespace/name`` writes, None for no text; raises FlagError."""
    if not text:
        return None
    namespace, slash, name = text.partition("/")
    if not namespace or not slash or not name or "/" in name:
        raise FlagError(f"--service is NAMESPACE/NAME, and {text!r} is not")
    return ServiceName(namespace, name)


def keeper_behind(
    api: Api,
    *services: ServiceName,
    publish: Publish,
    may_write: Callable[[], bool],
    times: issuing.AuthorityTimes = issuing.DEFAULT_TIMES,
    purpose: str = "",
) -> CertificateKeeper:
    """Return what keeps one certificate for ``services``, with its CA beside the first of them.

    ``purpose`` is part of the Secret's name: two keepers behind one Service have a CA each.
    """
    first = services[0]
    names = [name for each in services for name in issuing.service_names(each.name, each.namespace)]
    return CertificateKeeper(
        api,
        namespace=first.namespace,
        secret="-".join(filter(None, [first.name, purpose, "ca"])),
        names=tuple(dict.fromkeys(names)),
        publish=publish,
        may_write=may_write,
        times=times,
    )
