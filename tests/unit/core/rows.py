"""Rows recorded from the original programs, one JSON list a line."""

import json
from pathlib import Path
from typing import Any

_CASES = Path(__file__).parents[2] / "conformance" / "cases" / "adapter"


def rows(name: str) -> list[list[Any]]:
    """Return the rows of one case file, in order."""
    return [json.loads(line) for line in (_CASES / f"{name}.jsonl").read_text().splitlines()]
