"""The table of SECURITY.md names what there is: files, and the bounds that stand in them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TABLE = [line for line in (ROOT / "SECURITY.md").read_text().splitlines() if line[:1] == "|"]
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TABLE[2:]]
PATHS = sorted({path for line in TABLE for path in re.findall(r"[\w./-]+/[\w./-]+\w", line)})
BOUNDS = sorted(
    {each for line in TABLE for each in re.findall(r"`([A-Z]\w+)` in `([\w./]+)`", line)}
)


def test_every_row_names_a_bound_and_a_test_of_it() -> None:
    assert ROWS
    for who, _reaches, worst, bound, test in ROWS:
        assert worst, who
        assert "/" in bound, worst
        assert test.startswith("`tests/"), worst


@pytest.mark.parametrize("path", [each for each in PATHS if each.endswith((".py", ".md"))])
def test_every_file_that_is_named_exists(path: str) -> None:
    within = [ROOT / path, ROOT / "podscale/serving" / path]
    assert any(each.is_file() for each in within)


@pytest.mark.parametrize(("name", "path"), BOUNDS)
def test_every_bound_that_is_named_stands_in_its_file(name: str, path: str) -> None:
    assert re.search(rf"^(class )?{name}\b", (ROOT / path).read_text(), re.MULTILINE)


def test_every_file_of_the_attacks_ring_is_in_the_table() -> None:
    ring = {f"tests/attacks/{each.name}" for each in (ROOT / "tests/attacks").glob("test_*.py")}
    assert ring <= set(PATHS)
