"""The webhook's registration, its certificate, and the Lease that tells the updater that it lives.

Behind a Service there is a CA in a Secret and a leaf for each replica: who holds the webhook's
Lease registers it and keeps its caBundle, and every replica serves. Each gives its sign of life as
long as there is no ``hindrance`` to sizing pods; one is a certificate that the registered caBundle
does not verify (``is_trusted``), since every call of the API server would fail.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec import Struct

from podscale.core.json_decoder import decode_json
from podscale.kube.client.api import Api, Method
from podscale.kube.client.errors import Forbidden, KubeError, ObjectNotFound, WriteConflict
from podscale.kube.client.resource import LEASES, MUTATING_WEBHOOKS
from podscale.kube.client.wire import decode, encode, format_micro_time
from podscale.kube.leadership.lease import Elector, Term
from podscale.kube.objects.cluster import Lease, ServiceName
from podscale.serving.certificates.issuing import KeyPair
from podscale.serving.certificates.keeper import keeper_behind
from podscale.serving.certificates.tls import ServingTls
from vpa.stores import VpaStores

_log = structlog.get_logger()

CONFIGURATION, WEBHOOK = "vpa-webhook-config", "vpa.k8s.io"
_TIMEOUT_S = 10.0
_LOOK_S = 30.0  # at a configuration that nothing is known to have changed
_AGAIN_S = 5.0
_GLANCE_S = 0.5  # at the CA that we would register
_FILLED_IN: Mapping[str, Any] = {
    "matchPolicy": "Equivalent",
    "objectSelector": {},
    "reinvocationPolicy": "Never",
    "matchConditions": [],
}


class Registration(Struct, frozen=True):
    """How the API server reaches us, and for what."""

    url: str = ""  # instead of the Service
    service: str = "vpa-webhook"
    namespace: str = "kube-system"
    timeout_s: int = 5
    fails: bool = False  # failurePolicy Fail
    labels: tuple[tuple[str, str], ...] = ()
    only: str = ""  # namespaces: this one
    ignored: tuple[str, ...] = ()

    def body(self, bundle: bytes) -> dict[str, Any]:
        """Return the MutatingWebhookConfiguration that trusts ``bundle`` (PEM)."""
        where: dict[str, Any] = {"caBundle": bundle}
        if self.url:
            where["url"] = self.url
        else:
            # No port, as upstream: the API server calls a Service's 443.
            where["service"] = {"namespace": self.namespace, "name": self.service}
        return {
            "apiVersion": MUTATING_WEBHOOKS.api_version,
            "kind": MUTATING_WEBHOOKS.kind,
            "metadata": {"name": CONFIGURATION, "labels": dict(self.labels)},
            "webhooks": [
                {
                    "name": WEBHOOK,
                    "admissionReviewVersions": ["v1"],
                    "clientConfig": where,
                    "failurePolicy": "Fail" if self.fails else "Ignore",
                    "sideEffects": "None",
                    "timeoutSeconds": self.timeout_s,
                    "namespaceSelector": {"matchExpressions": self._namespaces()},
                    "rules": [
                        _rule("", ["v1"], "pods", ["CREATE"]),
                        _rule(
                            "autoscaling.k8s.io", ["*"], "verticalpodautoscalers",
                            ["CREATE", "UPDATE"],
                        ),
                    ],
                }
            ],
        }  # fmt: skip

    def _namespaces(self) -> list[dict[str, Any]]:
        # Upstream's empty list of ignored ones becomes one empty name and hides the other (D16).
        key = "kubernetes.io/metadata.name"
        if self.ignored:
            return [{"key": key, "operator": "NotIn", "values": list(self.ignored)}]
        if self.only:
            return [{"key": key, "operator": "In", "values": [self.only]}]
        return []


async def register(api: Api, wanted: Registration, bundle: bytes) -> None:
    """Create or correct the configuration; raises ``KubeError``.

    It is never deleted in between, as upstream does: pods created meanwhile would come
    unsized.
    """
    body = wanted.body(bundle)
    path = MUTATING_WEBHOOKS.path("", CONFIGURATION)
    for _ in range(3):
        try:
            answer = await api.request("GET", path, timeout_s=_TIMEOUT_S)
        except ObjectNotFound:
            try:
                await _send(api, "POST", MUTATING_WEBHOOKS.path(), body)
            except WriteConflict:
                continue
            except Forbidden as error:
                raise KubeError(
                    f"MutatingWebhookConfiguration {CONFIGURATION} is missing, and this account "
                    f"may change it but not create it: apply the manifests again ({error})"
                ) from error
            return
        found = decode_json(answer.body)
        if _is_same(found, decode_json(encode(body))):
            return
        # Labels and annotations of the manifests, of Helm or of others stay as they are.
        labels = {**(found["metadata"].get("labels") or {}), **body["metadata"]["labels"]}
        metadata = {**found["metadata"], "labels": labels}
        try:
            await _send(api, "PUT", path, {**body, "metadata": metadata})
        except (WriteConflict, ObjectNotFound):
            continue
        return
    raise KubeError(f"{CONFIGURATION} is written by somebody else all the time")


async def keep_registered(
    api: Api,
    wanted: Registration,
    authority: Callable[[], bytes],
    handover: "Handover",
) -> None:
    """Register, and look after it for ever: a foreign one is put right, and a deleted one where the
    account may create it.

    Another ``authority`` (PEM) is put into the caBundle at once, as ``handover`` has it.
    """
    clock = asyncio.get_running_loop().time
    trusted, registered, next_look = b"", b"", clock()
    while True:
        try:
            found = handover.bundle(await asyncio.to_thread(authority))
            # An empty CA file is one that is being written.
            if found and (found != trusted or clock() >= next_look):
                trusted, next_look = found, clock() + _LOOK_S
                await register(api, wanted, found)
                registered = found
        except (KubeError, OSError, msgspec.DecodeError) as error:
            _log.warning("webhook not registered", error=str(error), again_s=_AGAIN_S)
            next_look = clock() + _AGAIN_S
        await asyncio.sleep(_GLANCE_S)
        handover.registered = registered  # by now the API server's watch has brought it


class StatusLease(Struct):
    """The Lease ``vpa-admission-controller``: its renewTime is our sign of life."""

    api: Api
    namespace: str
    name: str
    holder: str
    interval_s: float = 10.0

    async def run(self, hindrance: Callable[[], str]) -> None:
        """Renew for ever, as long as nothing keeps us from sizing pods; "" is nothing.

        Whatever fails here ends nothing: pods are sized all the same.
        """
        told = ""
        while True:
            try:
                why = hindrance()
            except Exception as error:  # noqa: BLE001 - the process goes on
                why = f"whether pods can be sized is not known: {error!r}"
            if why and why != told:
                _log.warning("no sign of life: pods would pass unsized", reason=why)
            told = why
            if not why:
                try:
                    await self.renew()
                except (KubeError, msgspec.DecodeError) as error:
                    _log.warning("sign of life not written", error=str(error))
                except Exception:  # noqa: BLE001 - the process goes on
                    _log.exception("sign of life not written")
            await asyncio.sleep(self.interval_s)

    async def renew(self) -> None:
        """Write the time; raises ``KubeError``. Several replicas share the Lease."""
        path = LEASES.path(self.namespace, self.name)
        try:
            answer = await self.api.request("GET", path, timeout_s=_TIMEOUT_S)
        except ObjectNotFound:
            with suppress(WriteConflict):  # another replica was faster, and just as alive
                await _send(self.api, "POST", LEASES.path(self.namespace), self._body(""))
            return
        version = decode(answer.body, Lease).metadata.resource_version
        with suppress(WriteConflict):
            await _send(self.api, "PUT", path, self._body(version))

    def _body(self, version: str) -> dict[str, Any]:
        metadata = {"name": self.name, "namespace": self.namespace}
        if version:
            metadata["resourceVersion"] = version
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": metadata,
            "spec": {
                "holderIdentity": self.holder,
                "leaseDurationSeconds": 60,
                "renewTime": format_micro_time(time.time()),
            },
        }


async def _send(api: Api, method: Method, path: str, body: dict[str, Any]) -> None:
    await api.request(method, path, body=encode(body), timeout_s=_TIMEOUT_S)


def _rule(group: str, versions: list[str], resource: str, operations: list[str]) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": versions,
        "operations": operations,
        "resources": [resource],
        "scope": "*",
    }


def _is_same(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    labels = found["metadata"].get("labels") or {}
    hooks = found.get("webhooks") or []
    return (
        len(hooks) == len(wanted["webhooks"])
        # Labels that others add are theirs.
        and wanted["metadata"]["labels"].items() <= labels.items()
        and all(
            _without_defaults(hook.get(name)) == _without_defaults(value)
            for hook, ours in zip(hooks, wanted["webhooks"], strict=True)
            for name, value in ours.items()
        )
        # What the API server fills in where we write nothing.
        and all(
            hook.get(name, value) == value for hook in hooks for name, value in _FILLED_IN.items()
        )
    )


def _without_defaults(value: Any) -> Any:
    # The API server fills the port of the Service in, and may leave an empty list out.
    if not isinstance(value, dict):
        return value
    value = {key: each for key, each in value.items() if each != []}
    if "service" in value:
        service = {k: v for k, v in value["service"].items() if (k, v) != ("port", 443)}
        return {**value, "service": service}
    return value


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
            api, service, publish=self._publish, may_write=self.elector.may_write, purpose="webhook"
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


class Handover(Struct):
    """Files of a CA and of a leaf that change in any order, while every review is answered: a new
    leaf waits until the API server trusts it, and the CA of the one before stays until then."""

    tls: ServingTls
    registered: bytes = b""  # the caBundle (PEM) that the API server has, as far as written here
    announced: bytes = b""  # the last that was to be written

    def bundle(self, wanted: bytes) -> bytes:
        """Return the caBundle for a CA file that holds ``wanted``, which may be half of one."""
        served, now = self.tls.pair, time.time()
        if is_trusted(served, self.registered, now) and not is_trusted(served, wanted, now):
            held = x509.load_pem_x509_certificates(self.registered)
            pems = (each.public_bytes(Encoding.PEM) for each in held)
            wanted = b"".join([*(pem for pem in pems if is_trusted(served, pem, now)), wanted])
        self.announced = wanted
        return wanted

    def may_follow(self, served: KeyPair, offered: KeyPair) -> bool:
        """Return whether ``offered`` can be served without a review that fails because of it."""
        now = time.time()
        return served.not_after <= now or all(
            is_trusted(offered, bundle, now) or not is_trusted(served, bundle, now)
            for bundle in (self.registered, self.announced)
        )


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
