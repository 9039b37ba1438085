"""The case files: this repository's copies, or those of the directory in PODSCALE_CASES."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

HERE = Path(__file__).parent
OWN = HERE / "cases"

Case = dict[str, Any]


def path_of(name: str) -> Path:
    """Return where the file ``name`` is read from."""
    return Path(os.environ.get("PODSCALE_CASES", OWN)) / name


@cache
def document(name: str) -> dict[str, Any]:
    """Return the whole file; a directory that lacks it contributes no cases."""
    path = path_of(name)
    return load(path) if path.exists() else {"cases": []}


def load(path: Path) -> dict[str, Any]:
    """Return the document in a file of cases."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with path.open(encoding="utf-8") as file:
        return dict(yaml.load(file, Loader=loader))  # noqa: S506 - a safe loader in C


def cases(*names: str, only: Callable[[Case], bool] | None = None) -> list[Case]:
    """Return the cases of the files, in their order."""
    return [case for name in names for case in document(name)["cases"] if not only or only(case)]


def params(found: list[Case], *, with_kind: bool = False) -> list[Any]:
    """Return one pytest parameter per case; its id is the case's, ``kind:id`` if asked."""
    return [
        pytest.param(case, id=f"{case['kind']}:{case['id']}" if with_kind else case["id"])
        for case in found
    ]


@cache
def deviations(product: str) -> dict[str, str]:
    """Return rule → why we differ on purpose, for a section such as ``hpa`` or ``templates``."""
    with (HERE / "deviations.yaml").open(encoding="utf-8") as file:
        return dict((yaml.safe_load(file) or {}).get(product) or {})
