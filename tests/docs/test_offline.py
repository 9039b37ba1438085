"""The pages whose commands need no cluster: explanations from files, a provider of one's own."""

import re

import pytest

from tests.docs.blocks import ROOT, Shell, blocks
from tests.tools.reference import DOCS

PAGES = ("explain.md", "providers.md")


def python_of(page: str) -> str:
    """Return the one Python module that the page shows."""
    (found,) = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_the_page_print_what_it_says(page, tmp_path):
    found = blocks(ROOT / "docs" / page)
    assert found
    assert all(block.printed for block in found)
    if page == "providers.md":
        (tmp_path / "queues.py").write_text(python_of(page))
    with Shell(tmp_path, None, {}) as shell:
        for block in found:
            assert_printed(shell.run(block), block.printed)


def assert_printed(got: str, said: str) -> None:
    """Compare line by line; ``…`` stands for anything."""
    pattern = "\n".join(
        ".*".join(re.escape(piece) for piece in line.split("…")) for line in said.splitlines()
    )
    assert re.fullmatch(pattern, got.strip()), f"{got}\nis not what the document says:\n{said}"
