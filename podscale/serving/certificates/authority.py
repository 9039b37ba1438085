"""The life of our own CA: made, followed by a successor, replaced with overlap. Pure.

A successor is first only trusted (published in every caBundle), then signs. Whoever
verified us with the old bundle can therefore always verify us, during and after.
"""

import math
from base64 import b64decode, b64encode
from collections.abc import Mapping

from cryptography import x509
from msgspec import Struct

from podscale.serving.certificates.issuing import KeyPair, make_authority

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
    alive = tuple(pem for pem in state.retired if _not_after(pem) > now)
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


def _not_after(pem: bytes) -> float:
    return x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()
