"""The listener's TLS: certificates and client CAs that change without a restart.

One context is given to the listener for good. When a client says hello, its SNI callback
hands the connection the context in force at that moment, so certificates and CAs are
swapped whole and open connections keep what they have. Certificates come from files: those named by
flags, or a pair kept in --cert-dir.
"""

import os
import ssl
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from msgspec import Struct

from podscale.core.ascii_text import ascii_lower
from podscale.serving.certificates.ciphers import offer
from podscale.serving.certificates.issuing import KeyPair, make_self_signed
from podscale.serving.flags import Flags


class TlsError(Exception):
    """A certificate, key, cipher or version cannot be used; the text names it."""


class NamedPair(Struct, frozen=True):
    """A certificate for some server names; without names, those it holds itself."""

    pair: KeyPair
    patterns: tuple[str, ...]  # "host.example" or "*.example", lower case


class ServingTls:
    """What new connections get."""

    def __init__(self, pair: KeyPair, *, minimum: str = "", ciphers: Sequence[str] = ()) -> None:
        """Raises ``TlsError`` when the pair, the version or a cipher cannot be used."""
        offered = offer(minimum, ciphers)
        if isinstance(offered, str):
            raise TlsError(offered)
        for warning in offered.warnings:
            structlog.get_logger().warning("TlsOfferReduced", warning=warning)
        self._offer = offered
        self._pair = self.offered = pair
        self.may_follow: Callable[[KeyPair, KeyPair], bool] = lambda _served, _offered: True
        self._named: tuple[NamedPair, ...] = ()
        self._authorities: tuple[x509.Certificate, ...] = ()
        self._default = self._make(pair)
        self._by_name: dict[str, ssl.SSLContext] = {}
        self.context = self._make(pair)
        self.context.sni_callback = self._on_hello

    @property
    def pair(self) -> KeyPair:
        return self._pair

    def use_pair(self, pair: KeyPair, named: Sequence[NamedPair] = ()) -> None:
        """Serve ``pair`` from the next connection on, if it ``may_follow`` the one before: else it
        is ``offered`` until it is given again. Raises ``TlsError``, changing nothing."""
        self._make(pair)
        served = pair if self.may_follow(self._pair, pair) else self._pair
        self._swap(served, tuple(named), self._authorities)
        self.offered = pair

    def use_authorities(self, authorities: Sequence[x509.Certificate]) -> None:
        """Let in client certificates of these CAs; none: do not ask for certificates."""
        self._swap(self._pair, self._named, tuple(authorities))

    def _swap(
        self, pair: KeyPair, named: tuple[NamedPair, ...], authorities: tuple[x509.Certificate, ...]
    ) -> None:
        before = self._authorities
        self._authorities = authorities
        try:
            default = self._make(pair)
            by_name = {
                pattern: context
                for one in named
                for context in [self._make(one.pair)]
                for pattern in one.patterns
            }
        except TlsError:
            self._authorities = before
            raise
        self._pair, self._named = pair, named
        self._default, self._by_name = default, by_name
        # The mode is copied into a connection before its callback runs, so it is the
        # listener's own context that has to know whether to ask for a certificate.
        self.context.verify_mode = ssl.CERT_OPTIONAL if authorities else ssl.CERT_NONE

    def _on_hello(
        self, connection: ssl.SSLObject, name: str | None, _context: ssl.SSLContext
    ) -> None:
        connection.context = self._pick(ascii_lower(name) if name else "")

    def _pick(self, name: str) -> ssl.SSLContext:
        found = self._by_name.get(name)
        if found is None and "." in name:
            found = self._by_name.get(f"*.{name.partition('.')[2]}")
        return found or self._default

    def _make(self, pair: KeyPair) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = self._offer.minimum
        # No resumption: a resumed session would keep a client certificate whose CA is gone.
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        context.set_alpn_protocols(["http/1.1"])
        try:
            if self._offer.ciphers:
                context.set_ciphers(self._offer.ciphers)
            _load(context, pair)
        except (OSError, ValueError) as error:  # ssl.SSLError, and no file descriptor left
            raise TlsError(f"the serving certificate or its key cannot be used: {error}") from error
        if self._authorities:
            context.verify_mode = ssl.CERT_OPTIONAL
            # As Go: what is in the pool is an anchor, an intermediate CA too.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.load_verify_locations(
                cadata=b"".join(ca.public_bytes(Encoding.DER) for ca in self._authorities)
            )
        return context


def _load(context: ssl.SSLContext, pair: KeyPair) -> None:
    # The ssl module loads keys from files only. An anonymous one keeps the key off every
    # disk and works under a read-only root file system.
    descriptor = os.memfd_create("podscale-serving", os.MFD_CLOEXEC)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(pair.certificate.rstrip() + b"\n" + pair.key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


_PAIR_NAME = "apiserver"  # upstream's name in --cert-dir
_RENEW_BEFORE_S = 30 * 86400.0


class ServingFiles(Struct, frozen=True):
    """What the files say now."""

    pair: KeyPair | None  # None: no file is named
    named: tuple[NamedPair, ...] = ()


def read_files(flags: Flags) -> ServingFiles:
    """Return the certificates that flags name. Blocking; raises ``TlsError``."""
    certificate, key = flags.text("tls-cert-file"), flags.text("tls-private-key-file")
    pair = _read("tls-cert-file", certificate, key) if certificate and key else None
    return ServingFiles(pair, tuple(_named(text) for text in flags.listing("tls-sni-cert-key")))


def _named(text: str) -> NamedPair:
    # cert,key or cert,key:name,*.name as upstream's NamedCertKey.
    files, _, patterns = text.partition(":")
    certificate, comma, key = files.partition(",")
    if not comma or not certificate.strip() or not key.strip():
        raise TlsError(f"--tls-sni-cert-key={text}: expected certificate,key[:name,...]")
    pair = _read("tls-sni-cert-key", certificate.strip(), key.strip())
    listed = tuple(ascii_lower(one.strip()) for one in patterns.split(",") if one.strip())
    return NamedPair(pair, listed or _own_names(pair.leaf))


def _read(flag: str, certificate: str, key: str) -> KeyPair:
    try:
        pair = KeyPair(Path(certificate).read_bytes(), Path(key).read_bytes())
        _ = pair.leaf
    except (OSError, ValueError) as error:
        raise TlsError(f"--{flag}: cannot read {certificate} and {key}: {error}") from error
    return pair


def _own_names(leaf: x509.Certificate) -> tuple[str, ...]:
    try:
        extension = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        names = leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return tuple(ascii_lower(str(name.value)) for name in names)
    return tuple(ascii_lower(name) for name in extension.value.get_values_for_type(x509.DNSName))


def self_signed(directory: str) -> KeyPair:
    """Return the pair kept in ``directory``, made when absent or close to its end. Blocking.

    A directory that cannot be written keeps nothing: the pair then lives in memory.
    """
    certificate = Path(directory) / f"{_PAIR_NAME}.crt"
    key = Path(directory) / f"{_PAIR_NAME}.key"
    now = time.time()
    try:
        kept = KeyPair(certificate.read_bytes(), key.read_bytes())
        if kept.not_after - now > _RENEW_BEFORE_S:
            return kept
    except (OSError, ValueError):
        pass
    made = make_self_signed(now=now)
    try:
        certificate.parent.mkdir(parents=True, exist_ok=True)
        _write(key, made.key)
        _write(certificate, made.certificate)
    except OSError as error:
        structlog.get_logger().warning(
            "SelfSignedCertificateNotKept", directory=directory, error=str(error)
        )
    return made


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
