"""Making certificates: a CA, leaves signed by it, and the self-signed one of --cert-dir.

Our own CA is made, followed by a successor and replaced with overlap: a successor is first only
trusted (published in every caBundle), then signs. Whoever verified us with the old bundle can
therefore always verify us, during and after.
"""

import ipaddress
import math
import socket
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
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
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: float, until: float
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
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


_NAME = "podscale-serving-ca"


class AuthorityTimes(Struct, frozen=True):
    """The clockwork of rotation, in seconds."""

    life_s: float = 365 * 86400.0
    successor_after: float = 2 / 3  # share of the life after which a successor is made
    overlap_s: float = 600.0  # from the published successor to its first signature
    leaf_life_s: float = 7 * 86400.0
    leaf_renew_after: float = 1 / 2
    poll_s: float = 30.0  # how often replicas look at the Secret


DEFAULT_TIMES = AuthorityTimes()


class AuthorityState(Struct, frozen=True):
    """What the Secret holds."""

    signer: KeyPair
    successor: KeyPair | None = None
    promote_at: float | None = None  # unix seconds; None: the successor is not published yet
    retired: tuple[bytes, ...] = ()  # PEM certificates that may still have leaves in use

    @property
    def bundle(self) -> bytes:
        """What clients have to trust, signer first; the bytes are the same on every replica."""
        pems = [self.signer.certificate]
        if self.successor is not None:
            pems.append(self.successor.certificate)
        return b"".join((*pems, *self.retired))


def advance(
    state: AuthorityState | None, times: AuthorityTimes, *, now: float, is_published: bool
) -> AuthorityState:
    """Return the state that should be stored now; the same object when nothing is due.

    ``is_published`` says that every caBundle holds ``state.bundle``.
    """
    if state is None or state.signer.not_after <= now:
        # Nothing is left to overlap with: an expired CA verifies nobody.
        return AuthorityState(make_authority(_NAME, now=now, life_s=times.life_s))
    alive = tuple(pem for pem in state.retired if KeyPair(pem, b"").not_after > now)
    if alive != state.retired:
        return AuthorityState(state.signer, state.successor, state.promote_at, alive)
    if state.successor is None:
        age, life = now - state.signer.not_before, state.signer.not_after - state.signer.not_before
        if age < life * times.successor_after:
            return state
        successor = make_authority(_NAME, now=now, life_s=times.life_s)
        return AuthorityState(state.signer, successor, None, state.retired)
    if state.promote_at is None:
        if not is_published:
            return state
        promote_at = math.ceil(now + times.overlap_s)  # whole: it is stored as text
        return AuthorityState(state.signer, state.successor, promote_at, state.retired)
    if now < state.promote_at:
        return state
    return AuthorityState(state.successor, None, None, (state.signer.certificate, *state.retired))


def to_secret(state: AuthorityState) -> dict[str, str]:
    """Return the Secret's ``data``: the usual three keys, and the successor's."""
    data = {
        "tls.crt": state.signer.certificate,
        "tls.key": state.signer.key,
        "ca.crt": state.bundle,
        "retired.crt": b"".join(state.retired),
    }
    if state.successor is not None:
        data["successor.crt"] = state.successor.certificate
        data["successor.key"] = state.successor.key
    if state.promote_at is not None:
        data["promote-at"] = f"{state.promote_at:.0f}".encode()
    return {key: b64encode(value).decode() for key, value in data.items()}


def from_secret(data: Mapping[str, str]) -> AuthorityState:
    """Return the state in a Secret's ``data``; raises ``ValueError`` when it is damaged."""
    raw = {key: b64decode(value, validate=True) for key, value in data.items()}
    if not raw.get("tls.crt") or not raw.get("tls.key"):
        raise ValueError("tls.crt or tls.key is missing")
    signer = KeyPair(raw["tls.crt"], raw["tls.key"])
    _ = signer.leaf  # raises ValueError for what is no certificate
    successor = None
    if raw.get("successor.crt") and raw.get("successor.key"):
        successor = KeyPair(raw["successor.crt"], raw["successor.key"])
        _ = successor.leaf
    promote_at = float(raw["promote-at"]) if raw.get("promote-at") else None
    return AuthorityState(signer, successor, promote_at, _split(raw.get("retired.crt", b"")))


def _split(pem: bytes) -> tuple[bytes, ...]:
    end = b"-----END CERTIFICATE-----\n"
    return tuple(part + end for part in pem.split(end) if part.strip())
