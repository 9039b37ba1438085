"""All attacks together, in every other window, beside those who only want their metrics.

On the real plane with the shipped roles. Windows without attacks are the yardstick: short and
many, of the same run and the same rate, so that what the machine does to the one kind it does to
the other; all requests of a kind are pooled. Who attacks (``attackers.py``) and who asks
(``ordinary.py``) are processes of their own, and the attackers have only the CPU that is left.
"""

import bisect
import http.client
import os
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path

import pytest
import yaml
from msgspec import Struct

from podscale.core import quantity
from tests.attacks.attackers import Attackers
from tests.attacks.ordinary import CONNECTIONS, Asks, ask, asking
from tests.attacks.siege_objects import METRIC, SIZED
from tests.attacks.siege_stage import Siege, besieged
from tests.attacks.turns import told_by
from tests.cluster.identity import RefusedError
from tests.cluster.plane import Plane
from tests.tools.process import LOOPBACK, Program

SIEGE_S = 120 if os.environ.get("PODSCALE_SHORT") else 1800
WINDOW_S = 6.0
SETTLES_S = 2.0  # after the attacks: what was begun then still counts to them
ALONE_S = 6.0
P99 = 5.0  # times that of the calm windows
MANIFESTS = {
    "adapter": "base/adapter.yaml",
    "admission": "components/vpa/admission.yaml",
    "hpa": "components/hpa/hpa.yaml",
}
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(SIEGE_S + 400)


class Probed(Struct, frozen=True):
    """What a manifest grants one program."""

    memory: int  # bytes
    livez_s: float  # what the kubelet waits for an answer


def probed(manifest: str) -> Probed:
    """Return what the Deployment in a file of ``deploy/kustomize`` says."""
    text = (ROOT / "deploy/kustomize" / manifest).read_text()
    [found] = [each for each in yaml.safe_load_all(text) if each["kind"] == "Deployment"]
    [container] = found["spec"]["template"]["spec"]["containers"]
    memory = quantity.parse(container["resources"]["limits"]["memory"]).milli // 1000
    return Probed(memory, container["livenessProbe"].get("timeoutSeconds", 1.0))


class Windows:
    """Which kind of window there is at a time."""

    def __init__(self) -> None:
        self._starts = [time.monotonic()]
        self._attacks = [False]
        self.end = threading.Event()

    def turn(self, attack: bool) -> float:
        """Begin a window; when it began."""
        self._attacks.append(attack)
        self._starts.append(time.monotonic())
        return self._starts[-1]

    def counted(self, at: float) -> str:
        """Return the kind to which what was begun at ``at`` counts."""
        number = bisect.bisect_right(self._starts, at) - 1
        settles = number > 0 and at < self._starts[number] + SETTLES_S
        return "attack" if settles or self._attacks[number] else "calm"

    def turns(self, program: Program) -> "Taken":
        """Return how long turns of a program's loop took, by whole seconds of one kind."""
        taken = Taken()
        for second in told_by(program):
            kinds = {self.counted(second.start), self.counted(second.end)}
            if second.start > self._starts[0] and len(kinds) == 1:
                taken.seconds[kinds.pop()] += second.waited
        return taken


class Taken:
    """How long things took in each kind of window, and what failed."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {"attack": [], "calm": []}
        self.failed: list[str] = []

    def quantile(self, window: str, q: float) -> float:
        ordered = sorted(self.seconds[window])
        return ordered[min(int(len(ordered) * q), len(ordered) - 1)]

    def told(self, what: str) -> str:
        def one(window: str) -> str:
            p50, p99, most = (self.quantile(window, q) * 1000 for q in (0.5, 0.99, 1.0))
            count = len(self.seconds[window])
            return f"{window}: {count}, p50 {p50:.1f}, p99 {p99:.1f}, most {most:.1f} ms"

        return f"{what}: {one('attack')}; {one('calm')}; {len(self.failed)} failed"


@pytest.fixture
def siege(plane: Plane, tmp_path: Path) -> Iterator[Siege]:
    with besieged(plane, tmp_path) as running:
        yield running


def asks(siege: Siege, until: float, rate: float = 0.0) -> Asks:
    """Return what an ordinary client asks for."""
    api, pods = "/apis/custom.metrics.k8s.io", f"namespaces/{siege.own}/pods"
    pod = siege.victims.tenant.others_pod
    paths = (f"{api}/v1beta1/{pods}/*/{METRIC}", f"{api}/v1beta2/{pods}/{pod}/{METRIC}")
    return Asks(siege.victims.adapter, siege.token, paths, siege.own, until, rate)


def create_pods(siege: Siege, windows: Windows, taken: Taken) -> None:
    """Create pods through API server and webhook, which keep none (a dry run), until the end."""
    path = f"/api/v1/namespaces/{siege.own}/pods?dryRun=All"
    while not windows.end.wait(0.5):
        at = time.monotonic()
        kind = windows.counted(at)
        try:
            [container] = siege.plane.admin.post(path, siege.pod)["spec"]["containers"]
            if container["resources"].get("requests") != SIZED:
                taken.failed.append(f"not sized: {container}")
        except (RefusedError, OSError) as error:
            taken.failed.append(repr(error))
        taken.seconds[kind].append(time.monotonic() - at)


def probe(port: int, limit_s: float, windows: Windows, taken: Taken) -> None:
    """Ask as the kubelet does: a connection each time, and no longer than it waits."""
    tls = ssl._create_unverified_context()  # noqa: S323 - as the kubelet
    while not windows.end.wait(0.5):
        at = time.monotonic()
        kind = windows.counted(at)
        connection = http.client.HTTPSConnection(LOOPBACK, port, timeout=limit_s, context=tls)
        try:
            connection.request("GET", "/livez")
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            taken.failed.append(f"{kind}: {error!r}")
        else:
            if status != HTTPStatus.OK:
                taken.failed.append(f"{kind}: {status}")
        finally:
            connection.close()
        took = time.monotonic() - at
        if took > limit_s:
            taken.failed.append(f"{kind}: {took:.2f} s")
        taken.seconds[kind].append(took)


def most_resident(program: Program) -> int:
    """Return the most bytes that it has ever held."""
    lines = Path(f"/proc/{program.pid}/status").read_text().splitlines()
    [most] = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
    return most * 1024


def alternate(siege: Siege, windows: Windows, attackers: Attackers, until: float) -> None:
    """Attack in every other window, until the siege is over."""
    while time.monotonic() < until:
        began = windows.turn(True)
        attackers.attack(True)
        siege.prometheus.lie(lies=True)
        time.sleep(max(began + WINDOW_S - time.monotonic(), 0.0))
        attackers.attack(False)
        siege.prometheus.lie(lies=False)
        siege.raise_siege()
        windows.turn(False)
        time.sleep(WINDOW_S + SETTLES_S)


def test_who_only_asks_notices_little_of_all_attacks_together(
    siege: Siege, capsys: pytest.CaptureFixture[str]
) -> None:
    requests, pods = Taken(), Taken()
    granted = {name: probed(file) for name, file in MANIFESTS.items()}
    lives = {name: Taken() for name in granted}
    began = siege.active()
    with asking() as process, ThreadPoolExecutor(8) as pool, Attackers(siege.victims) as attackers:
        alone = process.submit(ask, asks(siege, time.monotonic() + ALONE_S)).result()
        rate = len(alone.due) / (max(alone.due) - min(alone.due)) / 4
        until = time.monotonic() + SIEGE_S
        windows = Windows()
        asked = process.submit(ask, asks(siege, until, rate))
        others = [
            pool.submit(create_pods, siege, windows, pods),
            *(pool.submit(probe, port, granted[name].livez_s, windows, lives[name])
              for name, (_, port) in siege.programs.items()),
        ]  # fmt: skip
        try:
            alternate(siege, windows, attackers, until)
        finally:
            windows.end.set()
        for each in others:
            each.result()
        answers = asked.result()
        counts = attackers.counts()
    for due, took in zip(answers.due, answers.took, strict=True):
        requests.seconds[windows.counted(due)].append(took)
    requests.failed += answers.failed
    memory = {name: most_resident(program) for name, (program, _) in siege.programs.items()}
    ended = siege.active()
    with capsys.disabled():
        print(f"\n{rate:.0f} requests a second of {4 * rate:.0f} alone; attacks: {counts}")
        print(requests.told("requests"))
        print(pods.told("pods"))
        for name, live in lives.items():
            print(live.told(f"/livez of {name}"), f"; {memory[name] / 2**20:.0f} MiB at most")
            print(windows.turns(siege.programs[name][0]).told(f"turns of {name}"))
    assert min(counts.values()) > SIEGE_S / 4
    assert not requests.failed, requests.failed[:10]
    assert not pods.failed, pods.failed[:10]
    assert {name: live.failed for name, live in lives.items() if live.failed} == {}
    assert {name: most for name, most in memory.items() if most > granted[name].memory} == {}
    assert ended == began, "no HPA was without its metric for one pass"
    # Otherwise the attacks' backlog would be in the yardstick.
    assert requests.quantile("calm", 0.5) < CONNECTIONS / rate, "the clients do not keep up"
    assert requests.quantile("attack", 0.99) <= P99 * requests.quantile("calm", 0.99)
