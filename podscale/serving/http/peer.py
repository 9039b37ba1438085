"""The certificate that a client presented in the TLS handshake."""

import asyncio
import ssl

from msgspec import Struct


class Peer(Struct, frozen=True):
    """The other end of a connection, as TLS saw it; nothing here is judged yet."""

    certificate: bytes | None = None  # DER; OpenSSL has chained it to one of our CAs
    chain: tuple[bytes, ...] = ()  # DER of what came with it, the certificate itself first


NOBODY = Peer()


def peer_of(transport: asyncio.BaseTransport) -> Peer:
    """Return the peer of a connection whose handshake is complete."""
    tls = transport.get_extra_info("ssl_object")
    if tls is None:
        return NOBODY
    certificate = tls.getpeercert(binary_form=True)
    if not certificate:
        return NOBODY
    return Peer(certificate, _chain(tls))


def _chain(tls: ssl.SSLObject) -> tuple[bytes, ...]:
    # Public from Python 3.13 on (bytes); before, the same call sits one layer below and
    # hands out certificate objects.
    public = getattr(tls, "get_unverified_chain", None)
    if public is not None:
        return tuple(public())
    inner = getattr(tls, "_sslobj", None)
    listed = inner.get_unverified_chain() if inner is not None else None
    return tuple(ssl.PEM_cert_to_DER_cert(one.public_bytes()) for one in listed or ())
