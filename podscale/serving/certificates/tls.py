"""The listener's TLS: certificates and client CAs that change without a restart.

One context is given to the listener for good. When a client says hello, its SNI callback
hands the connection the context in force at that moment, so certificates and CAs are
swapped whole and open connections keep what they have.
"""

import os
import ssl
from collections.abc import Sequence

import structlog
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec import Struct

from podscale.core.ascii_text import ascii_lower
from podscale.serving.certificates.ciphers import offer
from podscale.serving.certificates.issuing import KeyPair


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
        self._pair = pair
        self._named: tuple[NamedPair, ...] = ()
        self._authorities: tuple[x509.Certificate, ...] = ()
        self._default = self._make(pair)
        self._by_name: dict[str, ssl.SSLContext] = {}
        self.context = self._make(pair)
        self.context.sni_callback = self._on_hello

    @property
    def pair(self) -> KeyPair:
        """The default certificate in force."""
        return self._pair

    def use_pair(self, pair: KeyPair, named: Sequence[NamedPair] = ()) -> None:
        """Serve ``pair`` from the next connection on. Raises ``TlsError``, changing nothing."""
        self._swap(pair, tuple(named), self._authorities)

    def use_authorities(self, authorities: Sequence[x509.Certificate]) -> None:
        """Let in client certificates of these CAs; none: do not ask for certificates."""
        self._swap(self._pair, self._named, tuple(authorities))

    def _swap(
        self,
        pair: KeyPair,
        named: tuple[NamedPair, ...],
        authorities: tuple[x509.Certificate, ...],
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
