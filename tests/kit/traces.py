"""The load traces of production that stand packed in ``tests/traces``, in the order of names.

numpy reads a packed file by its path; ``text`` is for whoever reads CSV.
"""

import lzma
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FOLDER = Path(__file__).parent.parent / "traces"
_PACKED = ".csv.xz"


def files(source: str = "*") -> list[Path]:
    """Return the traces of ``crane``, ``nab``, ``servegen`` or ``azure-llm``, or all."""
    found = FOLDER.glob(f"{source}/*{_PACKED}")
    return sorted(found, key=lambda file: (file.parent.name, len(file.name), file.name))


def name(file: Path) -> str:
    """Return source and name: ``crane/10``."""
    return f"{file.parent.name}/{file.name.removesuffix(_PACKED)}"


def text(file: Path) -> str:
    """Return the CSV as its source wrote it."""
    return lzma.decompress(file.read_bytes()).decode()


def crane() -> dict[str, NDArray[np.float64]]:
    """Return the ten series of crane by their numbers, minute by minute."""
    return {
        name(file).removeprefix("crane/"): np.loadtxt(file, delimiter=",", skiprows=1, usecols=1)
        for file in files("crane")
    }
