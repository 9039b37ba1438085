"""The linter of class names finds what it is there for."""

from pathlib import Path

from tests.names import twice


def test_a_public_name_of_two_classes_is_told_with_its_places(tmp_path: Path) -> None:
    (tmp_path / "hpa").mkdir()
    (tmp_path / "vpa").mkdir()
    (tmp_path / "hpa" / "one.py").write_text("class Lease: ...\nclass Options: ...\n")
    (tmp_path / "vpa" / "two.py").write_text(
        "class Lease: ...\nclass _Own: ...\nclass Options: ...\n"
    )
    assert twice(tmp_path) == {"Lease": ["hpa/one.py:1", "vpa/two.py:1"]}


def test_private_names_and_options_may_repeat(tmp_path: Path) -> None:
    for room in ("adapter", "vpa"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "one.py").write_text("class _Own: ...\nclass Options: ...\n")
    assert twice(tmp_path) == {}
