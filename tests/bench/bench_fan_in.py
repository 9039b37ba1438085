"""CPU of a request that is passed on to an adapter behind us, beside a bare aiohttp pass-through.

Both answer the same requests at the same rate by turns, over TLS, from the same Go server behind
them. Ours authenticates, authorizes, shows a token of its own and looks at the answer.
"""

import json
import socket
import sys
import tempfile
from pathlib import Path
from statistics import median

import trustme
import yaml

from tests.bench.cluster import BACKEND_ACCOUNT
from tests.bench.figures import Figures, cpu_s
from tests.bench.stage import Stage
from tests.bench.yardstick import GoServer, load
from tests.tools.process import LOOPBACK, Program, free_port, wait_until

RATE, TURNS, TURN_S = 500.0, 6, 4.0
METRIC = "s0-prometheus"
PATH = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/ns-0/{METRIC}"
SELECTOR = "?labelSelector=scaledobject.keda.sh%2Fname%3Dweb"
VALUE = {"metricName": METRIC, "metricLabels": None, "timestamp": "2026-01-31T10:00:00Z",
         "value": "4500m"}  # fmt: skip
BODY = {"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1",
        "metadata": {}, "items": [VALUE]}  # fmt: skip


def main() -> int:
    """Run it; see ``tests.bench``."""
    figures = Figures("bench-adapter, fan-in")
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        behind = directory / "behind"
        behind.mkdir()
        authority = trustme.CA()
        authority.cert_pem.write_to_path(directory / "ca.pem")
        issued = authority.issue_cert("localhost", LOOPBACK)
        issued.cert_chain_pems[0].write_to_path(behind / "tls.crt")
        issued.private_key_pem.write_to_path(behind / "tls.key")
        with GoServer(behind, json.dumps(BODY).encode()) as go:
            _compared(figures, directory, behind, go)
    return figures.finish()


def _compared(figures: Figures, directory: Path, behind: Path, go: GoServer) -> None:
    url = f"https://localhost:{go.port}"
    entry = {"name": "keda", "url": url, "caFile": str(directory / "ca.pem"), "metrics": ["s0-*"],
             "serviceAccount": BACKEND_ACCOUNT,
             "selectorLabel": "scaledobject.keda.sh/name"}  # fmt: skip
    file = directory / "backends.yaml"
    file.write_text(yaml.safe_dump({"backends": [entry]}))
    port = free_port()
    bare = Program(
        "passthrough",
        [
            sys.executable, "-m", "tests.bench.passthrough", str(port), behind / "tls.crt",
            behind / "tls.key", directory / "ca.pem", url,
        ],
        directory / "passthrough.log",
    )  # fmt: skip
    arguments = [f"--external-backends={file}"]
    with bare, Stage(directory, namespaces=1, apps=1, arguments=arguments) as stage:
        wait_until("the pass-through listens", lambda: _listens(port), 30, (bare,))
        stage.quiet()
        places = {
            bare.pid: (f"https://{LOOPBACK}:{port}", ""),
            stage.adapter.pid: (stage.url, stage.token),
        }
        spent: dict[int, list[float]] = {pid: [] for pid in places}  # a request, by turn
        for turn in range(-1, TURNS):  # the first one warms up and does not count
            for pid, (where, token) in places.items():
                before = cpu_s(pid)
                urls = [f"{where}{PATH}{SELECTOR}"]
                got = load(urls, directory, clients=4, seconds=TURN_S, rate=RATE, token=token)
                if got["failed"]:
                    raise RuntimeError(f"{got['failed']} requests failed: {got['failures'][0]}")
                if turn >= 0:
                    spent[pid].append((cpu_s(pid) - before) / got["requests"])
        # A turn in which the machine was somebody else's says little of either.
        yard, ours = (median(spent[pid]) * 1e6 for pid in places)
    figures.note(f"passed on, {RATE:g}/s: {ours:.0f} us a request, aiohttp alone {yard:.0f} us")
    figures.at_most("CPU per request passed on, ours / bare aiohttp pass-through", ours / yard, 1.5)


def _listens(port: int) -> bool:
    with socket.create_connection((LOOPBACK, port), timeout=1):
        return True


if __name__ == "__main__":
    sys.exit(main())
