"""Lines are counted as the budgets say, and a capability that passes its budget is named."""

import subprocess
from pathlib import Path

import pytest

from tests.tools import budgets
from tests.tools.budgets import Lines

TEXT = '''"""What it is.

More.
"""

import os
from a import (
    b,
)


def f():  # why
    """Return it."""
    # why not
    x = """one
    two"""

    return [1,
            2]  # fmt: skip
'''


def test_docstrings_comments_and_blanks_are_no_code():
    lines = Lines()
    lines.add(TEXT, is_module=True)
    assert lines == Lines(phys=19, code=9, modules=1, imports=4, unformatted=1)


@pytest.mark.parametrize(("path", "name"), [
    ("hpa/decide/reconcile.py", "HPA decide"),
    ("hpa/part.py", "HPA shell"),
    ("podscale/feed/prover/proof.py", "prover"),
    ("adapter/doctor/lints.py", "doctor"),
    ("podscale/__main__.py", "process, core"),
])  # fmt: skip
def test_the_longest_beginning_says_whose_a_file_is(path, name):
    assert budgets.capability(path) == name


def test_a_file_that_nobody_has_is_an_error():
    with pytest.raises(KeyError, match=r"new/room\.py: name its capability"):
        budgets.capability("new/room.py")


def test_what_passes_its_budget_or_has_none_is_named():
    found = {"a": Lines(phys=10), "b": Lines(phys=11), "c": Lines(phys=1)}
    document = (
        f"# A\n{budgets.BEGIN}{budgets.table(found, {'a': 10, 'b': 10, 'c': 2})}{budgets.END}"
    )
    allowed = budgets.budgets(document)
    assert allowed == {"a": 10, "b": 10, "c": 2}
    (problem,) = budgets.beyond(found, allowed)
    assert problem.startswith("b: 11 lines, and its budget is 10")
    assert budgets.beyond({"d": Lines(phys=1)}, allowed) == [
        "d: has no budget in docs/architecture.md"
    ]


def test_only_what_git_knows_and_no_test_is_counted(tmp_path: Path):
    for name in ("hpa/part.py", "hpa/__init__.py", "tests/test_part.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    (tmp_path / "hpa/scratch.py").write_text("x = 1\n")
    assert budgets.count(tmp_path)["HPA shell"] == Lines(phys=2, code=2, modules=1)


def test_every_capability_has_a_budget():
    document = budgets.DOCUMENT.read_text(encoding="utf-8")
    assert set(budgets.budgets(document)) == set(budgets.CAPABILITIES)
