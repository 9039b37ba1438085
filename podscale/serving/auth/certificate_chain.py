"""Which CA a client's certificate hangs on, decided by verifying its chain again.

OpenSSL lets a certificate in when *any* loaded CA signed it; whether that was the
front proxy's CA or the one of users decides who may name other people. Go verifies
against each pool separately, and so do we.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import (
    Criticality,
    ExtensionPolicy,
    Policy,
    PolicyBuilder,
    Store,
    VerificationError,
)

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
    verifier = (
        PolicyBuilder()
        .store(Store(list(authorities)))
        .time(datetime.fromtimestamp(now, UTC))
        .extension_policies(ee_policy=_leaf_policy(), ca_policy=_authority_policy())
        .build_client_verifier()
    )
    try:
        verifier.verify(leaf, list(intermediates))
    except VerificationError:
        return False
    return True


def _leaf_policy() -> ExtensionPolicy:
    return ExtensionPolicy.permit_all().may_be_present(
        x509.ExtendedKeyUsage, Criticality.AGNOSTIC, _names_client_auth
    )


def _authority_policy() -> ExtensionPolicy:
    return (
        ExtensionPolicy.permit_all()
        .require_present(x509.BasicConstraints, Criticality.AGNOSTIC, _is_authority)
        .may_be_present(x509.KeyUsage, Criticality.AGNOSTIC, _may_sign)
    )


def _names_client_auth(
    _policy: Policy, _certificate: x509.Certificate, extension: x509.ExtendedKeyUsage | None
) -> None:
    if extension is not None and not any(use in extension for use in _CLIENT_USES):
        raise ValueError("not meant for client authentication")


def _is_authority(
    _policy: Policy, _certificate: x509.Certificate, extension: x509.BasicConstraints
) -> None:
    if not extension.ca:
        raise ValueError("the issuer is not a CA")


def _may_sign(
    _policy: Policy, _certificate: x509.Certificate, extension: x509.KeyUsage | None
) -> None:
    if extension is not None and not extension.key_cert_sign:
        raise ValueError("the issuer may not sign certificates")
