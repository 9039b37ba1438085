"""The demo is what a stranger sees first: it must come up, show rates, scale, and clean up."""

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.tools.required import require


async def demo(directory: Path, *words: str) -> asyncio.subprocess.Process:
    tools = {"PATH": f"{require('prometheus').parent}:{os.environ['PATH']}"}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "podscale", "demo", *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, **tools, "TMPDIR": str(directory)},
        start_new_session=True,
    )  # fmt: skip


@pytest.mark.timeout(180)
async def test_the_demo_scales_up_on_live_rates_and_ends_by_itself(tmp_path: Path) -> None:
    running = await demo(tmp_path, "--duration", "60s")
    text, _ = await running.communicate()
    shown = text.decode()
    assert running.returncode == 0, shown
    replicas = [int(found) for found in re.findall(r"replicas +(\d+) ", shown)]
    assert max(replicas) > 2, shown
    assert "MetricAboveTarget" in shown
    assert re.search(r"per pod \[\d", shown)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(90)
async def test_ctrl_c_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    running = await demo(tmp_path)
    assert running.stdout is not None
    while b"Ctrl-C" not in (line := await running.stdout.readline()):
        assert line, "the demo ended"
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    assert len(children) >= 3
    running.send_signal(signal.SIGINT)
    await running.communicate()
    assert running.returncode == 0
    assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []
    assert list(tmp_path.iterdir()) == []
