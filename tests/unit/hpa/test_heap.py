"""Memory is given back where the C library can, and nothing breaks where it cannot."""

import subprocess
import sys

import pytest

_SCRIPT = """
import ctypes
class Library:
    def __init__(self, name):
        {body}
ctypes.CDLL = Library
from hpa import heap
heap.give_back()
"""


@pytest.mark.parametrize(
    "body",
    ["raise OSError('Dynamic loading not supported')", "pass"],
    ids=["no-library", "no-malloc_trim"],
)
def test_a_c_library_that_cannot_give_back_is_left_alone(body: str) -> None:
    script = _SCRIPT.format(body=body)
    call = [sys.executable, "-c", script]
    done = subprocess.run(call, check=False, capture_output=True, text=True)
    assert done.stderr == ""
