"""kubectl and podscale against the running demo, by the commands that it prints."""

import asyncio
import json
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.docs.blocks import ROOT, Shell, blocks
from tests.docs.test_offline import assert_printed
from tests.integration.test_demo import demo, end, shown_until
from tests.tools.required import require

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(120),
    pytest.mark.needs("kubectl"),
]


class Hints:
    """What the demo told to try, and how to run it."""

    def __init__(self, text: str, directory: Path) -> None:
        self.text = text.replace("\\\n", " ")  # a command may go on in the next line
        found = re.search(r"--server (http://\S+)", text)
        assert found
        self.server = found[1]
        self._environment = {
            **os.environ,
            "PATH": f"{require('kubectl').parent}:/usr/bin:/bin",
            "HOME": str(directory),
            "KUBECONFIG": str(directory / "none"),
        }
        self.directory = directory

    async def run(self, line: str, *, code: int = 0) -> str:
        words = shlex.split(line)
        if words[0].endswith("podscale"):
            words[:1] = [sys.executable, "-m", "podscale"]
        ran = await asyncio.create_subprocess_exec(
            *words,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment,
        )
        out, err = await ran.communicate()
        assert ran.returncode == code, f"{line}: {out.decode()} {err.decode()}"
        return out.decode()

    async def kubectl(self, line: str) -> str:
        return await self.run(f"kubectl --server {self.server} {line}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hints(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hints]:
    tmp_path = tmp_path_factory.mktemp("demo")
    directory = tmp_path / "tmp"
    directory.mkdir()
    running = await demo(directory, "--speed", "10")
    text = await shown_until(running, "Ctrl-C")
    # By then every scene has been decided on: the worker was killed for memory, and resized.
    text += await shown_until(running, "QuickOom")
    yield Hints(text, tmp_path)
    await end(running)


async def test_the_printed_commands_work(hints: Hints) -> None:
    lines = [line.strip() for line in hints.text.splitlines() if re.match(r"  (kubectl|/)", line)]
    assert len(lines) == 8
    printed = {line: await hints.run(line) for line in lines if " doctor " not in line}
    shown = "\n".join(f"$ {line}\n{text}" for line, text in printed.items())
    for wanted in (
        r"horizontalpodautoscaler.*/web +Deployment/web +\S+/12 \(avg\) +2 +10 +\d+",
        r"pod/web-\S+ +1/1 +Running",
        r"web-\S+ +\d+m +\d+Mi",
        r'"metricName":"http_requests_per_second"|"name":"http_requests_per_second"',
        r"NAME .*REASON|REFERENCE",
        r"shop/web → Deployment/web: \d+ replicas",
        r"hpa +shop/web +\S+/12 http_requests_per_second",
        r"(?m)^today +\d.*\nrecorded +\d.*\noracle +\d",
    ):
        assert re.search(wanted, shown), f"{wanted} in {shown}"


async def test_get_describe_top_scale_and_explain(hints: Hints) -> None:
    listed = await hints.kubectl("get deployments,hpa,vpa,pdb -A")
    assert re.search(r"orders +deployment\.apps/consumer", listed)
    assert re.search(r"jobs +verticalpodautoscaler\S*/worker +InPlaceOrRecreate", listed)
    assert re.search(r"jobs +poddisruptionbudget\.policy/worker +1 ", listed)
    told = await hints.kubectl("describe hpa web -n shop")
    assert re.search(r"ScalingActive +True +ValidMetricFound", told)
    assert "http_requests_per_second" in told
    assert "Name:" in await hints.kubectl("describe pods -n jobs")
    assert re.search(r"node-1 +\d+m +\d+% ", await hints.kubectl("top nodes"))
    assert re.search(r"worker-\S+ +\d+m +\d+Mi", await hints.kubectl("top pods -n jobs"))
    sizing = await hints.kubectl("get sizingdecisions -n jobs")
    assert re.search(r"worker +\S*worker +InPlaceOrRecreate", sizing)
    # A rescale by hand is put right by the next decisions.
    assert "scaled" in await hints.kubectl("scale deployment web -n shop --replicas=9")
    body = json.loads(
        await hints.run(f"podscale explain hpa/web -n shop --server {hints.server} -o json")
    )
    assert body["status"]["first_reason"]
    why = await hints.run(f"podscale explain hpa/consumer -n orders --server {hints.server}")
    assert "queue_messages" in why


async def test_the_blocks_of_the_page_print_what_it_says(hints: Hints) -> None:
    found = blocks(ROOT / "docs" / "demo.md")
    assert [bool(block.printed) for block in found] == [True] * 6
    there = hints.directory / "page"
    there.mkdir()

    def run() -> list[str]:
        with Shell(there, there / "none", {"http://127.0.0.1:40189": hints.server}) as shell:
            return [shell.run(block) for block in found]

    for got, block in zip(await asyncio.to_thread(run), found, strict=True):
        assert_printed(got, block.printed)


async def test_the_doctor_can_be_tried(hints: Hints) -> None:
    (line,) = (line for line in hints.text.splitlines() if " doctor " in line)
    found = await hints.run(f"{line} --metric http_requests_per_second -n shop")
    assert "http_requests_per_second" in found
