"""Public class names of the product: each is there once (``Options`` apart).

``python -m tests.names`` is one of the linters: a name that two rooms share says in neither what
it is.
"""

import ast
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROOMS = ("podscale", "adapter", "hpa", "vpa")
SHARED = frozenset({"Options"})


def twice(root: Path = ROOT) -> dict[str, list[str]]:
    """Return the public names that more than one class has, with where each stands."""
    found: dict[str, list[str]] = defaultdict(list)
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(f"{path.relative_to(root)}:{node.lineno}")
    return {
        name: places
        for name, places in sorted(found.items())
        if len(places) > 1 and name not in SHARED
    }


def main() -> int:
    """Print what is there twice; return 1 where anything is."""
    found = twice()
    for name, places in found.items():
        print(f"class {name}: {', '.join(places)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
