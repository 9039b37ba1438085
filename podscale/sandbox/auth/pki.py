"""The sandbox's certificates: its CA and serving leaf, the front proxy's CA and leaf, and
client certificates for whoever wants to log in with one."""

import ssl
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from podscale.serving.certificates.issuing import KeyPair, make_authority, make_leaf

_LIFE_S = 7 * 86400.0
_HOSTS = ("localhost", "127.0.0.1", "kubernetes.default.svc")


class Pki:
    """Everything signed for one sandbox."""

    def __init__(self) -> None:
        now = time.time()
        self.authority = make_authority("sandbox-ca", now=now, life_s=_LIFE_S)
        self.serving = make_leaf(self.authority, _HOSTS, now=now, life_s=_LIFE_S)
        self.front_proxy_authority = make_authority("front-proxy-ca", now=now, life_s=_LIFE_S)
        self.front_proxy = client_certificate(self.front_proxy_authority, "front-proxy-client")

    def client(self, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """Return a client certificate that logs in as ``user``."""
        return client_certificate(self.authority, user, groups)

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


def client_certificate(authority: KeyPair, user: str, groups: Sequence[str] = ()) -> KeyPair:
    """Return a client certificate: the user is its common name, groups its organizations."""
    signer = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)  # noqa: S101 - made by make_authority
    key = ec.generate_private_key(ec.SECP256R1())
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(subject))
        .issuer_name(authority.leaf.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(min(now + timedelta(seconds=_LIFE_S), authority.leaf.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
            critical=False,
        )
        .sign(signer, hashes.SHA256())
    )
    return KeyPair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
