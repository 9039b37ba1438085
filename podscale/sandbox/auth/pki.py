"""The sandbox's certificates: its CA and serving leaf, the front proxy's CA and leaf, and
client certificates for whoever wants to log in with one."""

import ssl
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from podscale.serving.certificates.issuing import KeyPair, make_authority, make_client, make_leaf

_LIFE_S = 7 * 86400.0
_HOSTS = ("localhost", "127.0.0.1", "kubernetes.default.svc")


class Pki:
    """Everything signed for one sandbox."""

    def __init__(self) -> None:
        now = time.time()
        self.authority = make_authority("sandbox-ca", now=now, life_s=_LIFE_S)
        self.serving = make_leaf(self.authority, _HOSTS, now=now, life_s=_LIFE_S)
        self.front_proxy_authority = make_authority("front-proxy-ca", now=now, life_s=_LIFE_S)
        self.front_proxy = make_client(
            self.front_proxy_authority, "front-proxy-client", now=now, life_s=_LIFE_S
        )

    def client(self, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """Return a client certificate that logs in as ``user``."""
        return make_client(self.authority, user, groups, now=time.time(), life_s=_LIFE_S)

    def server_context(self) -> ssl.SSLContext:
        """Return the context of the server: client certificates are asked for, not required."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        with files(self.serving) as (certificate, key):
            context.load_cert_chain(certificate, key)
        context.load_verify_locations(cadata=self.authority.certificate.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def proxy_context(self, ca_bundle: bytes | None) -> ssl.SSLContext:
        """Return the context towards an extension server; None does not verify it."""
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
        if ca_bundle is None:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(cadata=ca_bundle.decode())
        with files(self.front_proxy) as (certificate, key):
            context.load_cert_chain(certificate, key)
        return context


@contextmanager
def files(pair: KeyPair) -> Iterator[tuple[str, str]]:
    """Lend a pair as files: the ssl module reads nothing else."""
    with tempfile.TemporaryDirectory() as directory:
        certificate, key = Path(directory, "tls.crt"), Path(directory, "tls.key")
        certificate.write_bytes(pair.certificate)
        key.write_bytes(pair.key)
        yield str(certificate), str(key)
