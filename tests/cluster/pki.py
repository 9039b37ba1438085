"""Certificate authorities and keys of a test plane: elliptic curves, valid for a day."""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its key as PEM files."""

    cert_file: Path
    key_file: Path


class Authority:
    """A CA that signs certificates into one directory."""

    def __init__(self, directory: Path, common_name: str) -> None:
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(common_name, ())
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        self._authority_identifier = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
            identifier
        )
        cert = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(identifier, critical=False)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.cert_pem = cert.public_bytes(serialization.Encoding.PEM)
        self.cert_file = directory / f"{common_name}.crt"
        self.cert_file.write_bytes(self.cert_pem)

    def issue(
        self,
        common_name: str,
        *,
        organizations: Sequence[str] = (),
        hosts: Sequence[str] = (),
        file_stem: str | None = None,
        is_both: bool = False,
    ) -> KeyPair:
        """Sign a client certificate, or a server's when ``hosts`` (names or IPs) are given.

        One that ``is_both`` serves ``hosts`` and is a client's too.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH]
        if is_both:
            purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = (
            _builder(_name(common_name, organizations), self._name, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(self._authority_identifier, critical=False)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        stem = file_stem or common_name.replace(":", "-").replace("/", "-")
        pair = KeyPair(self.directory / f"{stem}.crt", self.directory / f"{stem}.key")
        cert = builder.sign(self._key, hashes.SHA256())
        pair.cert_file.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
        write_key(key, pair.key_file)
        return pair


def service_account_keys(directory: Path) -> KeyPair:
    """Write the key pair that signs ServiceAccount tokens; ``cert_file`` is the public key."""
    key = ec.generate_private_key(ec.SECP256R1())
    pair = KeyPair(directory / "service-account.pub", directory / "service-account.key")
    write_key(key, pair.key_file)
    pair.cert_file.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return pair


def write_key(key: ec.EllipticCurvePrivateKey, path: Path) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        # SEC 1 ("EC PRIVATE KEY"): what kube-apiserver accepts for both TLS and tokens.
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
    )


def _name(common_name: str, organizations: Sequence[str]) -> x509.Name:
    return x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
