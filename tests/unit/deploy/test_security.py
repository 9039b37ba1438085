"""The tables of SECURITY.md name what there is: files, bounds with their values, and tests."""

import importlib
import re
from itertools import groupby
from pathlib import Path

import msgspec
import pytest
import yaml

ROOT = Path(__file__).parents[3]
LINES = (ROOT / "SECURITY.md").read_text().splitlines()
TABLES = [list(lines) for is_row, lines in groupby(LINES, lambda line: line[:1] == "|") if is_row]
TABLE = [line for table in TABLES for line in table]
ATTACKERS, BUDGETS = (
    [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]
    for table in TABLES
)
PATHS = sorted({path for line in TABLE for path in re.findall(r"[\w./-]+/[\w./-]+\w", line)})
BOUNDS = sorted(
    {each for line in TABLE for each in re.findall(r"`([A-Z]\w+)` in `([\w./]+)`", line)}
)
_BOUND = r"`[\w.]+` = \d+"
# "`A` = 1, `B` = 2 and `C` = 3 in `module.py`"
VALUES = sorted(
    (name, int(value), path)
    for *_, bounds, _tests in BUDGETS
    for part, path in re.findall(rf"({_BOUND}(?:(?:, | and ){_BOUND})*) in `([\w./]+\.py)`", bounds)
    for name, value in re.findall(r"`([\w.]+)` = (\d+)", part)
)
TESTS = sorted({each for line in TABLE for each in re.findall(r"`(tests/[\w./]+)::(\w+)`", line)})


def _value(name: str, path: str) -> object:
    """Return a module's constant, or the default of a field of one of its Structs."""
    found: object = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    *classes, last = name.split(".")
    for each in classes:
        found = getattr(found, each)
    if not isinstance(found, type):
        return getattr(found, last)
    return next(each.default for each in msgspec.structs.fields(found) if each.name == last)


def test_every_row_names_a_bound_and_a_test_of_it() -> None:
    assert ATTACKERS
    for who, _reaches, worst, bound, test in ATTACKERS:
        assert worst, who
        assert "/" in bound, worst
        assert test.startswith("`tests/"), worst


def test_what_others_write_has_a_budget_of_each_kind_its_bounds_and_tests() -> None:
    assert len(BUDGETS) >= 10
    for what, *budgets, bounds, tests in BUDGETS:
        assert all(budgets), what
        assert len(budgets) == 4, what
        stated = re.findall(_BOUND, bounds)
        assert len(stated) == bounds.count(" = "), what
        assert re.fullmatch(r"`tests/[\w./]+::\w+`(, `tests/[\w./]+::\w+`)*", tests), what
    assert len(VALUES) == len(re.findall(_BOUND, " ".join(row[-2] for row in BUDGETS)))


@pytest.mark.parametrize(("name", "value", "path"), VALUES)
def test_every_bound_has_the_value_that_is_stated(name: str, value: int, path: str) -> None:
    assert _value(name, path) == value


@pytest.mark.parametrize(("path", "name"), TESTS)
def test_every_test_that_is_named_exists(path: str, name: str) -> None:
    assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE)


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


def test_the_network_policy_names_whom_pods_call_but_for_the_api_server() -> None:
    folder = ROOT / "deploy/kustomize/components/network-policy"
    [policy] = yaml.safe_load_all((folder / "policies.yaml").read_text())
    unnamed = [rule["ports"] for rule in policy["spec"]["egress"] if not rule.get("to")]
    assert [[each["port"] for each in ports] for ports in unnamed] == [[443, 6443]]


@pytest.mark.parametrize(
    "path", [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")], ids=lambda path: path.name
)
def test_no_document_opens_a_path_to_everybody(path: Path) -> None:
    opened = re.findall(r"--authorization-always-allow-paths=([\w/,*.-]*)", path.read_text())
    assert opened == []
