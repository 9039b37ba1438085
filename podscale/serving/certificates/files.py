"""Serving certificates from files: those named by flags, or a pair kept in --cert-dir."""

import os
import time
from pathlib import Path

import structlog
from cryptography import x509
from cryptography.x509.oid import NameOID
from msgspec import Struct

from podscale.core.ascii_text import ascii_lower
from podscale.serving.certificates.issuing import KeyPair, make_self_signed
from podscale.serving.certificates.tls import NamedPair, TlsError
from podscale.serving.flags import Flags

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
