"""The demo is what a stranger sees first: it must come up, show rates, size, and clean up."""

import asyncio
import fcntl
import os
import pty
import re
import signal
import sys
import termios
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.tools.required import require

_LEAST_CHILDREN = 1  # Prometheus


async def demo(
    directory: Path,
    *words: str,
    prometheus: Path | None = None,
    more: Mapping[str, str] | None = None,
    **streams: int,
) -> asyncio.subprocess.Process:
    """Start it with this Prometheus on PATH, or with none anywhere."""
    nowhere = directory.parent / f"{directory.name}-empty"
    nowhere.mkdir(exist_ok=True)
    path = str(prometheus.parent if prometheus else nowhere)
    environment = {
        **os.environ,
        "PATH": f"{path}:/usr/bin:/bin",
        "PODSCALE_TOOLS": str(nowhere),
        "TMPDIR": str(directory),
        **(more or {}),
    }
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "podscale", "demo", *words,
        **{"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.STDOUT, **streams},
        env=environment,
        start_new_session=True,
    )  # fmt: skip


async def shown_until(running: asyncio.subprocess.Process, wanted: str | re.Pattern[str]) -> str:
    """What it says up to the line that holds ``wanted``; a pattern is looked for line by line."""
    assert running.stdout is not None
    text = ""
    while not (
        wanted in " ".join(text.split()) if isinstance(wanted, str) else wanted.search(text)
    ):
        line = (await running.stdout.readline()).decode()
        assert line, f"the demo ended: {text}"
        text += line
    return text


async def end(running: asyncio.subprocess.Process, number: int = signal.SIGINT) -> str:
    running.send_signal(number)
    text, _ = await running.communicate()
    return text.decode() if text else ""


def children(running: asyncio.subprocess.Process) -> list[str]:
    return Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()


def alive(pids: list[str]) -> list[str]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def until_gone(pid: int) -> None:
    # A zombie of somebody else's is gone as well.
    state = Path(f"/proc/{pid}/stat")
    if state.exists():
        assert state.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.timeout(180)
@pytest.mark.needs("prometheus")
async def test_the_first_scene_scales_up_on_a_real_prometheus_and_tells_why(
    tmp_path: Path,
) -> None:
    running = await demo(tmp_path, prometheus=require("prometheus"))
    shown = await shown_until(running, "per pod [")
    assert re.search(r"Prometheus: http://127\.0\.0\.1:\d+ \(/.*prometheus\)", shown)
    policy = r"(a policy \(2 pods in 15 s\)[^(]*)?"
    reason = r"\((MetricAboveTarget|ScaleUpRateLimited)"
    why = rf" shop .*http_requests[^(]*\(target 12\)[^(]*{policy}{reason}"
    shown = await shown_until(running, re.compile(why))
    shown += await end(running)
    assert running.returncode == 0, shown
    sizes = [int(found) for found in re.findall(r" shop .*replicas +(\d+) ", shown)]
    assert max(sizes) > 2, shown
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(120)
async def test_twenty_times_as_fast_all_five_stories_come_to_their_ends(tmp_path: Path) -> None:
    running = await demo(tmp_path, "--duration", "22s", "--speed", "20")
    text, _ = await running.communicate()
    shown = text.decode()
    assert running.returncode == 0, shown
    assert "stand-in" in shown
    followed = r"replicas followed between 2 and (\d+), up (.+) and down (.+); now"
    shop = re.search(followed, shown)
    assert shop, shown
    assert int(shop[1]) >= 6
    assert {shop[2], shop[3]}.isdisjoint({"never", "once"})
    resized = re.search(r"memory request was resized from 256 to (\d+) MiB", shown)
    assert resized, shown
    assert int(resized[1]) > 300
    queue = re.search(r"replicas went to zero (.+) and came back (.+), at most", shown)
    assert queue, shown
    assert "never" not in queue.groups()
    both = re.search(r"both: replicas went between 2 and (\d+), and the CPU request (.+)\.", shown)
    assert both, shown
    assert int(both[1]) >= 6
    assert both[2] == "stayed 100m", "what the VPA would have of one pod is another size"
    nodes = re.search(r"nodes: ballast of the fullest held up to ([\d.]+) cores; now", shown)
    assert nodes, shown
    assert float(nodes[1]) > 10, "usage of 12 of 16 cores leaves pods less than one"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(90)
async def test_no_query_of_the_demos_feed_is_refused_by_the_stand_in(tmp_path: Path) -> None:
    running = await demo(tmp_path, "--speed", "10")
    shown = await shown_until(running, "per pod [")
    page = re.search(r"Page: (http://\S+)", shown)
    assert page, shown
    async with aiohttp.ClientSession() as session:
        feed: dict[str, Any] = {}
        while not feed.get("queriesPerS"):
            await asyncio.sleep(0.2)
            feed = await (await session.get(f"{page[1]}api/feed")).json()
    await end(running)
    assert feed["failuresPerS"] == 0, feed
    assert feed["failingRules"] == 0, feed


@pytest.mark.timeout(90)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.needs("prometheus")
async def test_a_signal_leaves_no_process_and_no_file(tmp_path: Path, number: int) -> None:
    running = await demo(tmp_path, prometheus=require("prometheus"))
    await shown_until(running, "Ctrl-C")
    started = children(running)
    assert len(started) >= _LEAST_CHILDREN
    await end(running, number)
    assert running.returncode == 0
    assert alive(started) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(120)
@pytest.mark.parametrize("after_s", [0.3, 0.8, 1.2, 1.6])
@pytest.mark.needs("prometheus")
async def test_ctrl_c_while_starting_leaves_no_file(tmp_path: Path, after_s: float) -> None:
    running = await demo(tmp_path, prometheus=require("prometheus"))
    await asyncio.sleep(after_s)
    shown = await end(running)
    assert "Traceback" not in shown
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(90)
@pytest.mark.needs("prometheus")
async def test_a_killed_prometheus_comes_back(tmp_path: Path) -> None:
    running = await demo(tmp_path, prometheus=require("prometheus"))
    await shown_until(running, "per pod [")
    (first,) = children(running)
    os.kill(int(first), signal.SIGKILL)
    await shown_until(running, "Prometheus has ended and is started again")
    await shown_until(running, "per pod [")
    (second,) = children(running)
    assert second != first
    await end(running)
    assert alive([second]) == []


@pytest.mark.timeout(90)
@pytest.mark.needs("prometheus")
async def test_what_a_killed_demo_left_is_cleaned_by_the_next(tmp_path: Path) -> None:
    dead = await demo(tmp_path, prometheus=require("prometheus"))
    await shown_until(dead, "Ctrl-C")
    (prometheus,) = children(dead)
    dead.kill()
    await dead.communicate()
    assert alive([prometheus]) == [prometheus]
    (left,) = tmp_path.iterdir()
    living = await demo(tmp_path)
    await shown_until(living, "Ctrl-C")
    assert not left.exists()
    until_gone(int(prometheus))
    # And a second one at the same time leaves the first alone.
    (own,) = tmp_path.iterdir()
    second = await demo(tmp_path, "--duration", "12s", "--speed", "10")
    text, _ = await second.communicate()
    assert second.returncode == 0, text.decode()
    assert own.exists()
    with (own / "lock").open() as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    await end(living)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("#!/bin/sh\necho nothing works >&2\nexit 3\n", "status 3: nothing works"),
        ("no program at all", "does not run here"),
    ],
    ids=["ends", "is no program"],
)
async def test_a_broken_prometheus_is_replaced_by_the_stand_in(
    tmp_path: Path, script: str, said: str
) -> None:
    broken = tmp_path / "bin" / "prometheus"
    broken.parent.mkdir()
    broken.write_text(script)
    broken.chmod(0o755)
    directory = tmp_path / "tmp"
    directory.mkdir()
    running = await demo(directory, prometheus=broken)
    shown = await shown_until(running, "Ctrl-C")
    assert said in shown
    assert "stand-in, the prometheus found does not run" in shown
    await shown_until(running, "per pod [")
    await end(running)


@pytest.mark.timeout(60)
async def test_a_read_only_home_is_no_hindrance(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o555)
    directory = tmp_path / "tmp"
    directory.mkdir()
    running = await demo(directory, more={"HOME": str(home), "XDG_CACHE_HOME": ""})
    await shown_until(running, "Ctrl-C")
    await end(running)
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--duration", "5"], "write one like 30s, 2m"),
        (["--duration", "soon"], "write one like 30s, 2m"),
        (["--duration", "-3s"], "longer than 0s"),
        (["--speed", "0"], "between 0.1 and 60"),
        (["--scene", "theatre"], "shop"),
    ],
)
async def test_a_wrong_word_is_answered_with_the_right_one(
    tmp_path: Path, words: list[str], said: str
) -> None:
    running = await demo(tmp_path, *words)
    text, _ = await running.communicate()
    assert running.returncode == 2
    assert said in text.decode()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(90)
async def test_a_terminal_shows_the_scene_until_the_time_is_over(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, 80))
    running = await demo(
        tmp_path, "--duration", "8s", "--speed", "10", "--scene", "worker",
        stdin=theirs, stdout=theirs, stderr=theirs, more={"TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    raw = await asyncio.to_thread(_read_all, ours)
    await running.wait()
    assert running.returncode == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", raw)
    assert plain.index("Try it from another terminal:") < plain.index("jobs/worker: a leaking")
    assert plain.index("jobs/worker: a leaking") < plain.index("shop: in ")


@pytest.mark.timeout(120)
async def test_keys_of_a_terminal_change_the_scene_and_end_it(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (16, 80))
    before = termios.tcgetattr(theirs)
    running = await demo(
        tmp_path, "--speed", "10", stdin=theirs, stdout=theirs, stderr=theirs,
        more={"TERM": "xterm"},
    )  # fmt: skip
    try:
        for wanted, key in (
            ("shop/web", b"2"),
            ("jobs/worker", b"3"),
            ("orders/consumer", b"?"),
            ("Ctrl-C ends the demo", b"q"),
        ):
            await asyncio.to_thread(_read_until, ours, wanted)
            os.write(ours, key)
        rest = await asyncio.to_thread(_read_until, ours, "shop: in ")
        assert "Traceback" not in rest
        async with asyncio.timeout(30):
            await running.wait()
        assert running.returncode == 0
        assert termios.tcgetattr(theirs) == before
    finally:
        if running.returncode is None:
            running.kill()
        os.close(theirs)
        os.close(ours)
    assert list(tmp_path.iterdir()) == []


def _read_until(terminal: int, wanted: str) -> str:
    found = ""
    while wanted not in " ".join(found.split()):
        found += re.sub(
            r"\x1b\[[0-9;?]*[A-Za-z]", " ", os.read(terminal, 65536).decode(errors="replace")
        )
    return found


def _read_all(terminal: int) -> str:
    found = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        found += part
    os.close(terminal)
    return found.decode(errors="replace")
