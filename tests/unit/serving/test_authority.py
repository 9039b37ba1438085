"""The CA's life: whoever trusts the published bundle can verify every leaf in use."""

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from hypothesis import given
from hypothesis import strategies as st

from podscale.serving.certificates.issuing import (
    AuthorityState,
    AuthorityTimes,
    advance,
    from_secret,
    make_leaf,
    make_self_signed,
    service_names,
    to_secret,
)

TIMES = AuthorityTimes(life_s=3000.0, overlap_s=200.0, leaf_life_s=100.0)
START = 1_700_000_000.0


def verifies(bundle: bytes, leaf: bytes) -> bool:
    certificate = x509.load_pem_x509_certificate(leaf)
    return any(signed(certificate, one) for one in x509.load_pem_x509_certificates(bundle))


def signed(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, InvalidSignature):
        return False
    return True


def test_a_new_state_has_one_authority() -> None:
    state = advance(None, TIMES, now=START, is_published=False)
    assert state.bundle == state.signer.certificate
    assert advance(state, TIMES, now=START + 10, is_published=True) is state


def test_a_successor_signs_only_after_it_was_published_long_enough() -> None:
    first = advance(None, TIMES, now=START, is_published=False)
    announced = advance(first, TIMES, now=START + 2100, is_published=True)
    assert announced.signer == first.signer
    assert announced.successor is not None
    assert advance(announced, TIMES, now=START + 2500, is_published=False) is announced
    timed = advance(announced, TIMES, now=START + 2500, is_published=True)
    assert timed.promote_at == START + 2700
    assert advance(timed, TIMES, now=START + 2699, is_published=True) is timed
    promoted = advance(timed, TIMES, now=START + 2700, is_published=True)
    assert promoted.signer == announced.successor
    assert promoted.retired == (first.signer.certificate,)
    later = advance(promoted, TIMES, now=START + 3001, is_published=True)
    assert later.retired == ()


def test_an_expired_authority_is_replaced_at_once() -> None:
    first = advance(None, TIMES, now=START, is_published=False)
    second = advance(first, TIMES, now=START + 3000, is_published=False)
    assert second.signer != first.signer
    assert second.retired == ()


@given(st.lists(st.tuples(st.floats(1, 400), st.booleans()), min_size=5, max_size=40))
def test_the_last_published_bundle_verifies_every_leaf(steps: list[tuple[float, bool]]) -> None:
    now = START
    state = advance(None, TIMES, now=now, is_published=False)
    published = state.bundle
    for wait_s, works in steps:
        now += wait_s
        if works:
            published = state.bundle
        before = state
        state = advance(state, TIMES, now=now, is_published=works)
        if before.signer.not_after <= now:
            published = state.bundle  # nothing could have overlapped: start again
        leaf = make_leaf(state.signer, ["x.y.svc"], now=now, life_s=TIMES.leaf_life_s)
        assert verifies(published, leaf.certificate)
        assert from_secret(to_secret(state)) == state


@pytest.mark.parametrize("key", ["tls.crt", "tls.key"])
def test_a_damaged_secret_is_told(key: str) -> None:
    data = to_secret(advance(None, TIMES, now=START, is_published=False))
    del data[key]
    with pytest.raises(ValueError, match="missing"):
        from_secret(data)


def test_a_secret_with_garbage_is_told() -> None:
    with pytest.raises(ValueError):
        from_secret({"tls.crt": "Z2FyYmFnZQ==", "tls.key": "Z2FyYmFnZQ=="})


def test_a_leaf_never_outlives_its_authority() -> None:
    state = advance(None, TIMES, now=START, is_published=False)
    leaf = make_leaf(state.signer, service_names("adapter", "monitoring"), now=START, life_s=1e9)
    assert leaf.not_after == state.signer.not_after
    names = leaf.leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "adapter.monitoring.svc" in names.get_values_for_type(x509.DNSName)


def test_a_self_signed_pair_brings_its_chain() -> None:
    pair = make_self_signed(now=START)
    leaf, authority = x509.load_pem_x509_certificates(pair.certificate)
    leaf.verify_directly_issued_by(authority)


def test_states_are_values() -> None:
    state = advance(None, TIMES, now=START, is_published=False)
    assert AuthorityState(state.signer) == state
