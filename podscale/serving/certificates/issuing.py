"""Making certificates: a CA, leaves signed by it, and the self-signed one of --cert-dir."""

import ipaddress
import socket
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

# Clocks differ: what we sign is already valid for somebody who lags a little.
_YEAR_S = 365 * 86400.0
_BACKDATED = timedelta(minutes=5)


class KeyPair(Struct, frozen=True):
    """A certificate (first of its chain) and its private key, both PEM."""

    certificate: bytes
    key: bytes

    @property
    def leaf(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.certificate)

    @property
    def not_before(self) -> float:
        """Unix seconds."""
        return self.leaf.not_valid_before_utc.timestamp()

    @property
    def not_after(self) -> float:
        """Unix seconds."""
        return self.leaf.not_valid_after_utc.timestamp()


def make_authority(common_name: str, *, now: float, life_s: float) -> KeyPair:
    """Return a new self-signed CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(common_name)
    builder = (
        _builder(name, name, key.public_key(), now, now + life_s)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(is_authority=True), critical=True)
    )
    return KeyPair(_pem(builder.sign(key, hashes.SHA256())), _key_pem(key))


def make_leaf(authority: KeyPair, names: Sequence[str], *, now: float, life_s: float) -> KeyPair:
    """Return a serving certificate for ``names`` that does not outlive its CA."""
    extensions = (
        (_usage(is_authority=False), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (_alternatives(names), False),
    )
    return _signed(authority, _name(names[0]), extensions, now=now, life_s=life_s)


def make_client(
    authority: KeyPair, user: str, groups: Sequence[str] = (), *, now: float, life_s: float
) -> KeyPair:
    """Return a client certificate: the user is its common name, groups its organizations."""
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
    extensions = ((x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), False),)
    return _signed(authority, x509.Name(subject), extensions, now=now, life_s=life_s)


def _signed(
    authority: KeyPair,
    subject: x509.Name,
    extensions: Iterable[tuple[x509.ExtensionType, bool]],
    *,
    now: float,
    life_s: float,
) -> KeyPair:
    signer = serialization.load_pem_private_key(authority.key, None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise TypeError("the CA's key is not an elliptic curve key")
    key = ec.generate_private_key(ec.SECP256R1())
    until = min(now + life_s, authority.not_after)
    builder = _builder(subject, authority.leaf.subject, key.public_key(), now, until)
    for extension, is_critical in (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        *extensions,
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False),
    ):
        builder = builder.add_extension(extension, critical=is_critical)
    return KeyPair(_pem(builder.sign(signer, hashes.SHA256())), _key_pem(key))


def make_self_signed(*, now: float) -> KeyPair:
    """Return a certificate for this host that signs itself, for a year, with its CA behind it.

    As upstream's ``GenerateSelfSignedCertKey``: localhost, 127.0.0.1, the host's name.
    """
    authority = make_authority(f"localhost-ca@{int(now)}", now=now, life_s=_YEAR_S)
    names = ["localhost", "127.0.0.1", socket.gethostname()]
    leaf = make_leaf(authority, names, now=now, life_s=_YEAR_S)
    return KeyPair(leaf.certificate + authority.certificate, leaf.key)


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """Return the names under which a Service is reached; the aggregator uses the first."""
    return (
        f"{service}.{namespace}.svc",
        f"{service}.{namespace}.svc.cluster.local",
        f"{service}.{namespace}",
        service,
        "localhost",
        "127.0.0.1",
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: float,
    until: float,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(now, UTC) - _BACKDATED)
        .not_valid_after(datetime.fromtimestamp(until, UTC))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    # X.520 bounds a common name at 64 characters; the alternatives carry the whole.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])


def _alternatives(names: Sequence[str]) -> x509.SubjectAlternativeName:
    found: list[x509.GeneralName] = []
    for name in dict.fromkeys(names):
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return x509.SubjectAlternativeName(found)


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
