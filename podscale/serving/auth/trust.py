"""Whom authentication believes: the CAs of clients and of the front proxy.

They come from files named by flags and, for what no file gives, from the ConfigMap
``kube-system/extension-apiserver-authentication`` that kube-apiserver writes. Follows
``DelegatingAuthenticationOptions.ApplyTo`` (k8s.io/apiserver 1.30). OpenSSL lets a certificate in
when *any* loaded CA signed it; whether that was the front proxy's or the users' decides who may
name other people, so its chain is verified again against each pool, as Go does.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec
import structlog
from cryptography import x509
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID
from msgspec import Struct

from podscale.core.ascii_text import ascii_lower
from podscale.core.json_decoder import decode_json
from podscale.kube.client.api import Api
from podscale.kube.client.errors import KubeError
from podscale.kube.client.resource import CONFIG_MAPS
from podscale.kube.client.wire import ObjectMeta, decode
from podscale.kube.informer.list_watch import Changes, ListPage, WatchSource, happenings
from podscale.serving.certificates.tls import TlsError
from podscale.serving.flags import Flags

_CLIENT_USES = (ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE)


def parse_bundle(pem: bytes) -> tuple[x509.Certificate, ...]:
    """Return the certificates of a PEM bundle; raises ``ValueError`` when there are none."""
    return tuple(x509.load_pem_x509_certificates(pem))


def is_issued_by(
    leaf: x509.Certificate,
    intermediates: Sequence[x509.Certificate],
    authorities: Sequence[x509.Certificate],
    now: float,
) -> bool:
    """Return whether ``leaf`` chains to one of ``authorities`` for client authentication.

    As Go's ``x509.Certificate.Verify`` with ``ExtKeyUsageClientAuth``: a leaf without
    extended key usages serves any purpose, and no subject alternative name is needed.
    Algorithms are those of the web's PKI: RSA from 2048 bits, the NIST curves.
    """
    if not authorities:
        return False
    anything, either = verification.ExtensionPolicy.permit_all(), verification.Criticality.AGNOSTIC
    of_leaf = anything.may_be_present(x509.ExtendedKeyUsage, either, _names_client_auth)
    of_authority = anything.require_present(
        x509.BasicConstraints, either, _is_authority
    ).may_be_present(x509.KeyUsage, either, _may_sign)
    verifier = (
        verification.PolicyBuilder()
        .store(verification.Store(list(authorities)))
        .time(datetime.fromtimestamp(now, UTC))
        .extension_policies(ee_policy=of_leaf, ca_policy=of_authority)
        .build_client_verifier()
    )
    try:
        verifier.verify(leaf, list(intermediates))
    except verification.VerificationError:
        return False
    return True


def _names_client_auth(
    _policy: verification.Policy,
    _certificate: x509.Certificate,
    extension: x509.ExtendedKeyUsage | None,
) -> None:
    if extension is not None and not any(use in extension for use in _CLIENT_USES):
        raise ValueError("not meant for client authentication")


def _is_authority(
    _policy: verification.Policy, _certificate: x509.Certificate, extension: x509.BasicConstraints
) -> None:
    if not extension.ca:
        raise ValueError("the issuer is not a CA")


def _may_sign(
    _policy: verification.Policy, _certificate: x509.Certificate, extension: x509.KeyUsage | None
) -> None:
    if extension is not None and not extension.key_cert_sign:
        raise ValueError("the issuer may not sign certificates")


NAMESPACE = "kube-system"
NAME = "extension-apiserver-authentication"
CA_FLAGS = ("client-ca-file", "requestheader-client-ca-file")
_AGAIN_S = 5.0


class FrontProxy(Struct, frozen=True):
    """Who may say on whose behalf a request comes, and in which headers (lower case)."""

    ca: tuple[x509.Certificate, ...] = ()  # empty: nobody is a front proxy
    allowed_names: tuple[str, ...] = ()  # common names; empty: any
    username_headers: tuple[str, ...] = ("x-remote-user",)
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ("x-remote-group",)
    extra_prefixes: tuple[str, ...] = ("x-remote-extra-",)


class Trust(Struct, frozen=True):
    client_ca: tuple[x509.Certificate, ...] = ()
    proxy: FrontProxy = FrontProxy()

    @property
    def authorities(self) -> tuple[x509.Certificate, ...]:
        """Every CA whose certificates may pass the handshake."""
        return self.client_ca + self.proxy.ca


class TrustError(Exception):
    """The CAs cannot be read; the text names the source and says what to do."""


class AuthenticationConfig(Struct, frozen=True):
    """The ConfigMap, as far as it is read."""

    metadata: ObjectMeta
    data: Mapping[str, str] = {}


def read_ca_files(flags: Flags) -> Mapping[str, bytes]:
    """Return the CA bundles that flags name, by flag. Blocking; raises ``TrustError``."""
    return {flag: read_ca_file(flags, flag) for flag in CA_FLAGS}


def read_ca_file(flags: Flags, flag: str) -> bytes:
    """Return the CA bundle that ``flag`` names, b"" for none. As ``read_ca_files``."""
    path = flags.text(flag)
    if not path:
        return b""
    try:
        pem = Path(path).read_bytes()
        parse_bundle(pem)
    except (OSError, ValueError) as error:
        raise TrustError(f"--{flag}={path}: {error}") from error
    return pem


class TrustSource:
    """The current trust, kept up to date; ``listeners`` hear of every change."""

    def __init__(self, flags: Flags, files: Mapping[str, bytes]) -> None:
        """``files`` is what ``read_ca_files`` returned."""
        self._flags = flags
        self._files = files
        self._published: Mapping[str, str] = {}
        self._current = Trust()
        self._is_told = True
        self.listeners: list[Callable[[Trust], None]] = []
        self._apply()

    @property
    def current(self) -> Trust:
        return self._current

    @property
    def needs_lookup(self) -> bool:
        """Whether the ConfigMap is to be read at all."""
        if self._flags.switch("authentication-skip-lookup"):
            return False
        return not all(self._files.get(flag) for flag in CA_FLAGS)

    def use_file(self, flag: str, pem: bytes) -> None:
        """Judge by what the CA file of ``flag`` holds now.

        Called again with the same, it tells again those who could not follow the last time.
        """
        if pem != self._files.get(flag):
            self._files = {**self._files, flag: pem}
            self._apply()
        else:
            self._tell()

    async def look_up(self, api: Api) -> None:
        """Read the ConfigMap once, at start; raises ``TrustError`` unless that is tolerated."""
        try:
            response = await api.request("GET", CONFIG_MAPS.path(NAMESPACE, NAME), timeout_s=10.0)
            self._publish(decode(response.body, AuthenticationConfig).data)
        except (KubeError, TrustError, msgspec.DecodeError) as error:
            text = (
                f"cannot read ConfigMap {NAMESPACE}/{NAME}: {error}; usually a RoleBinding of "
                "extension-apiserver-authentication-reader for this ServiceAccount is missing"
            )
            if not self._flags.switch("authentication-tolerate-lookup-failure"):
                raise TrustError(text) from error
            structlog.get_logger().warning("AuthenticationLookupFailed", error=text)

    async def follow(self, api: Api) -> None:
        """Follow the ConfigMap for ever. A deleted or unreadable one keeps the last trust."""
        while True:
            try:
                await self._follow(api)
            except Exception:  # noqa: BLE001 - whatever it is, the next CA must be taken over
                structlog.get_logger().exception("AuthenticationConfigNotFollowed")
            await asyncio.sleep(_AGAIN_S)

    async def _follow(self, api: Api) -> None:
        source = WatchSource(
            CONFIG_MAPS,
            AuthenticationConfig,
            namespace=NAMESPACE,
            field_selector=f"metadata.name={NAME}",
        )
        async for happening in happenings(api, source):
            found: list[AuthenticationConfig] = []
            if isinstance(happening, ListPage):
                found = list(happening.items)
            elif isinstance(happening, Changes):
                found = [item for kind, item in happening.events if kind != "DELETED"]
            for item in found:
                if item.metadata.name != NAME:
                    continue
                try:
                    self._publish(item.data)
                except (TrustError, TlsError) as error:
                    structlog.get_logger().error("AuthenticationConfigRefused", error=str(error))

    def _publish(self, data: Mapping[str, str]) -> None:
        if data == self._published:
            return
        before, self._published = self._published, dict(data)
        try:
            self._apply()
        except TrustError:
            self._published = before
            raise

    def _apply(self) -> None:
        trust = Trust(self._client_ca(), self._proxy())
        if trust == self._current:
            return
        self._current = trust
        self._is_told = False
        if not trust.proxy.allowed_names and set(trust.proxy.ca) & set(trust.client_ca):
            # kube-apiserver 1.34 refuses to start with this.
            structlog.get_logger().warning(
                "FrontProxyNotBelieved",
                error="one CA signs users and the front proxy, and no name tells them apart: "
                "aggregated calls count as the front proxy's own; set "
                "--requestheader-allowed-names of kube-apiserver, or of this program",
            )
        self._tell()

    def _tell(self) -> None:
        if self._is_told:
            return
        for listener in self.listeners:
            listener(self._current)
        self._is_told = True

    def _client_ca(self) -> tuple[x509.Certificate, ...]:
        given = self._files.get("client-ca-file")
        return _certificates(given or self._published.get("client-ca-file", "").encode())

    def _proxy(self) -> FrontProxy:
        ca, listing = self._files.get("requestheader-client-ca-file"), self._flags.listing
        if not ca:  # then the ConfigMap has the names and headers, too, under the flags' names
            data = self._published
            ca = data.get("requestheader-client-ca-file", "").encode()
            listing = partial(_words, data)
        return FrontProxy(
            _certificates(ca),
            listing("requestheader-allowed-names"),
            _lower(listing("requestheader-username-headers")),
            _lower(listing("requestheader-uid-headers")),
            _lower(listing("requestheader-group-headers")),
            _lower(listing("requestheader-extra-headers-prefix")),
        )


def _certificates(pem: bytes) -> tuple[x509.Certificate, ...]:
    if not pem.strip():
        return ()
    try:
        return parse_bundle(pem)
    except ValueError as error:
        raise TrustError(f"a CA bundle is not PEM: {error}") from error


def _words(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    text = data.get(key, "")
    if not text:
        return ()
    try:
        return tuple(decode_json(text, list[str]))
    except msgspec.DecodeError as error:
        raise TrustError(f"{key} is not a JSON list of strings: {error}") from error


def _lower(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(ascii_lower(name.strip()) for name in names)
