"""``podscale top --once`` on a cluster where HPAs and VPAs are decided on."""

import asyncio
import os
import re
import sys

import pytest

from tests.integration.test_demo import demo, end, shown_until


async def once(*words: str, columns: str = "") -> tuple[int | None, str, str]:
    """Run it with its output in a pipe or, where ``columns`` are given, in a terminal."""
    terminal, output = os.openpty()
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "podscale", "top", "--once", *words,
        stdout=output if columns else asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"COLUMNS": columns or "80"},
    )  # fmt: skip
    out, error = await running.communicate()
    if columns:
        out = os.read(terminal, 65536)
    os.close(output)
    os.close(terminal)
    return running.returncode, out.decode(), error.decode()


@pytest.mark.timeout(120)
async def test_the_fleet_of_the_demo_is_a_table(tmp_path) -> None:
    running = await demo(tmp_path, "--speed", "20")
    try:
        server = re.search(r"--server (http://\S+)", await shown_until(running, "the size changes"))
        assert server
        code, table, error = await once("-A", "--server", server[1], "--sort", "load")
        narrow = await once("-A", "--server", server[1], columns="90")
        of_shop = await once("-n", "shop", "--server", server[1], "--filter", "hpa")
    finally:
        await end(running)
    assert code == 0, error
    lines = table.splitlines()
    assert lines[0].split() == ["KIND", "OBJECT", "LOAD", "TARGET", "SIZE", "REASON", "WHY"]
    found = {tuple(line.split()[:2]) for line in lines[1:]}
    assert {("hpa", "shop/web"), ("hpa", "orders/consumer"), ("vpa", "jobs/worker")} <= found
    assert re.search(r"hpa +shop/web +[\d.]+/12 \S+ +Deployment/web +\d+ of 2-10 ", table)
    assert max(map(len, table.splitlines())) > 90 >= max(map(len, narrow[1].splitlines()))
    assert [line.split()[1] for line in of_shop[1].splitlines()[1:]] == ["shop/web"]


async def test_a_cluster_that_does_not_answer_is_said(unused_tcp_port: int) -> None:
    code, table, error = await once("-A", "--server", f"http://127.0.0.1:{unused_tcp_port}")
    assert code == 1
    assert len(table.splitlines()) == 1
    assert "no connection" in error
