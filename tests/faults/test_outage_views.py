"""While Prometheus hangs, every view names the same cause and the same beginning; when it is back,
nothing has shrunk by the hole that it left.

The demo is what runs everything; its Prometheus is stopped as a machine that swaps would be.
"""

import asyncio
import json
import os
import re
import signal
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_demo import children, demo, end, shown_until
from tests.tools.required import require

CAUSE = re.compile(r"Prometheus did not answer in time \(since ([0-9TZ:-]+)\)")
PODS = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/http_requests_per_second"


def read(url: str) -> str:
    """Return the body, be it that of a refusal: in an outage the metrics APIs answer 504."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - the demo's own
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()


async def podscale(*words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "podscale", *words,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await process.communicate()
    return f"exit {process.returncode}\n{out.decode()}"


@pytest.mark.timeout(240)
@pytest.mark.needs("prometheus")
async def test_every_view_says_the_same_cause_and_since_when(tmp_path: Path) -> None:
    running = await demo(tmp_path, "--scene", "worker", prometheus=require("prometheus"))
    try:
        shown = await shown_until(running, "Ctrl-C ends it.")
        page = re.findall(r"Page: (\S+?)/?\n", shown)[0]
        server = re.findall(r"--server (\S+)", shown)[0]
        await _until(lambda: podscale("explain", "vpa/worker", "-n", "jobs", "--server", server),
                     "app memory", 90)  # fmt: skip
        # The shop's HPA is put once its metric is served.
        await _until(lambda: podscale("explain", "hpa/web", "-n", "shop", "--server", server),
                     "exit 0", 90)  # fmt: skip
        (prometheus,) = children(running)
        os.kill(int(prometheus), signal.SIGSTOP)
        views = {
            "explain hpa": lambda: podscale("explain", "hpa/web", "-n", "shop", "--server", server),
            "explain vpa": lambda: podscale("explain", "vpa/worker", "-n", "jobs",
                                            "--server", server),
            "doctor": lambda: podscale("doctor", "-A", "--server", server),
            "top": lambda: podscale("top", "-A", "--once", "--server", server),
            "feed": lambda: asyncio.to_thread(read, f"{page}/api/feed"),
            "page": lambda: asyncio.to_thread(
                read, f"{page}/api/workload?id=jobs/Deployment/worker"
            ),
            "events": lambda: asyncio.to_thread(
                read, f"{server}/api/v1/namespaces/shop/events"
            ),
            "custom metrics": lambda: asyncio.to_thread(read, f"{server}{PODS}"),
            "usage": lambda: asyncio.to_thread(
                read, f"{server}/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods"
            ),
        }  # fmt: skip
        since: dict[str, Any] = {}
        for name, view in views.items():
            text = await _until(view, CAUSE, 90, never="Too many queries")
            since[name] = CAUSE.findall(text)[-1]
        assert len(set(since.values())) == 1, since
        # And they go on saying it: what waits behind the hanging queries hides nothing.
        await asyncio.sleep(15)
        for name, view in views.items():
            text = await view()
            assert "Too many queries" not in text, (name, text)
            assert CAUSE.findall(text)[-1] == since[name], name
        assert set((await vpa_reasons(page, server)).values()) == {"UsageMissing"}
        health = json.loads(await views["feed"]())
        assert health["ageS"] > 30
        assert (await views["doctor"]()).startswith("exit 1\n")
        before = await size(server)
        os.kill(int(prometheus), signal.SIGCONT)
        await _until(views["feed"], '"outage":""', 60)
        # The demo's rates are over 10 s, and what they say until then is not the load.
        for _ in range(8):
            assert await size(server) >= before
            await asyncio.sleep(1)
        await shown_until(running, "Prometheus answers again")
    finally:
        await end(running)


async def size(server: str) -> int:
    """Return how many replicas the shop is to have."""
    web = await asyncio.to_thread(read, f"{server}/apis/apps/v1/namespaces/shop/deployments/web")
    return int(json.loads(web)["spec"]["replicas"])


async def vpa_reasons(page: str, server: str) -> dict[str, str]:
    """Return the one-word reason of the worker's VPA in each view that has one."""
    listed = json.loads(await asyncio.to_thread(read, f"{page}/api/workloads"))
    (row,) = [each for each in listed["rows"] if each["id"] == "jobs/Deployment/worker"]
    path = "/apis/vpa.podscale.io/v1alpha1/namespaces/jobs/sizingdecisions/worker"
    told = json.loads(await asyncio.to_thread(read, f"{server}{path}"))
    top = await podscale("top", "-A", "--once", "--server", server)
    (line,) = [each for each in top.splitlines() if "jobs/worker" in each]
    reason = told["status"]["first_reason"]
    return {"page": row["reason"], "object": reason, "top": reason if reason in line else line}


async def _until(
    view: Any, wanted: str | re.Pattern[str], most_s: float, never: str | None = None
) -> str:
    loop = asyncio.get_running_loop()
    ends = loop.time() + most_s
    while True:
        text = await view()
        assert never is None or never not in text
        if re.search(wanted, text):
            return text
        assert loop.time() < ends, text
        await asyncio.sleep(1)
