"""A copy of the case files with other ids and titles, and every row in another place.

``python -m tests.conformance.altered DIR`` writes it; ``PODSCALE_CASES=DIR make conformance``
must then count as many cases as without. How a case is run may depend on its shape only.
"""

import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import yaml

from tests.conformance.cases import OWN, load

# Files of prometheus-adapter whose first column is the title of a test of its own.
_TITLED = frozenset(("A2-2", "A3", "A4", "A5", "A6", "A8", "A9", "A10", "A10-2", "A11", "A12"))


def write(directory: Path, seed: int = 0) -> None:
    """Write the copy into ``directory``."""
    random = Random(seed)
    for path in sorted(OWN.glob("*.yaml")):
        (directory / path.name).write_text(_document(path, random), encoding="utf-8")
    (directory / "adapter").mkdir()
    for path in sorted((OWN / "adapter").glob("*.jsonl")):
        lines = path.read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines if line.strip()]
        random.shuffle(rows)
        text = "".join(
            json.dumps(_retitled(path.stem, number, row), ensure_ascii=False) + "\n"
            for number, row in enumerate(rows)
        )
        (directory / "adapter" / path.name).write_text(text, encoding="utf-8")


def _document(path: Path, random: Random) -> str:
    document = load(path)
    names: dict[str, str] = {}
    for key in ("counterexamples", "cases"):
        listed = document.get(key, [])
        random.shuffle(listed)
        for number, case in enumerate(listed):
            names[case["id"]] = case["id"] = f"{key[:-1]}-{number}"
        for case in listed:
            if "counterexample" in case:
                case["counterexample"] = names[case["counterexample"]]
    text: str = yaml.dump(
        document, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), allow_unicode=True
    )
    return text


def _retitled(file: str, number: int, row: Any) -> Any:
    if file in _TITLED:
        return [f"title {number}", *row[1:]]
    return {**row, "case": f"title {number}"} if file == "A7" else row


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    write(target)
