"""Whether pods can be sized now: what the sign of life has to mean to the updater.

An updater that takes a webhook for alive evicts; a pod that then passes unsized was evicted
for nothing, and will be again.
"""

from collections.abc import Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

from podscale.serving.certificates.issuing import KeyPair
from vpa.stores import VpaStores


def hindrance(stores: VpaStores, pair: KeyPair, bundle: bytes, now: float) -> str:
    """Return what keeps pods from being sized, "" if nothing does.

    ``pair`` is what we serve, ``bundle`` the caBundle (PEM) that it is registered with, b""
    if nobody here knows it; ``now`` is unix seconds.
    """
    if not stores.is_synced or not stores.is_current():
        return "the watches are not current"
    if not pair.not_before <= now < pair.not_after:
        return "the serving certificate is not valid now"
    if bundle and not is_trusted(pair, bundle, now):
        return "the caBundle does not verify the serving certificate"
    return ""


def is_trusted(pair: KeyPair, bundle: bytes, now: float) -> bool:
    """Return whether a certificate of the bundle stands behind the served one."""
    try:
        chain = x509.load_pem_x509_certificates(pair.certificate)
        anchors = [each for each in x509.load_pem_x509_certificates(bundle) if _is_valid(each, now)]
    except ValueError:
        return False
    subject, rest = chain[0], chain[1:]
    for _ in chain:
        if subject in anchors or _issuer(subject, anchors) is not None:
            return True
        above = _issuer(subject, rest)
        if above is None:
            return False
        subject, rest = above, [each for each in rest if each is not above]
    return False


def _issuer(
    subject: x509.Certificate, among: Sequence[x509.Certificate]
) -> x509.Certificate | None:
    for issuer in among:
        try:
            subject.verify_directly_issued_by(issuer)
        except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
            continue
        return issuer
    return None


def _is_valid(certificate: x509.Certificate, now: float) -> bool:
    return (
        certificate.not_valid_before_utc.timestamp()
        <= now
        < certificate.not_valid_after_utc.timestamp()
    )
