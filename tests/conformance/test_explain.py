"""Which reason an explanation names first, what it says beside it, and what it never says."""

import importlib

import pytest

from tests.conformance.cases import Case, cases, document, params

ALL = cases("explain.yaml")


@pytest.mark.parametrize("case", params(ALL, with_kind=True))
def test_case(case: Case) -> None:
    product = case["kind"].split("-")[0]
    importlib.import_module(f"tests.conformance.explain_{product}").check(case)


@pytest.mark.parametrize("case", params(ALL, with_kind=True))
def test_reasons_are_of_the_closed_set(case: Case) -> None:
    expected = case["expected"]
    named = {expected["first_reason"], *expected.get("also", []), *expected.get("never", [])}
    assert named <= set(document("explain.yaml")["reasons"])
