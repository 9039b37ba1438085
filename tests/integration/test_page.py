"""``control --page``: free on the loopback, behind authentication on the part's own port."""

import json
import socket
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.integration.test_joined import Joined, joined  # noqa: F401 - a fixture
from tests.tools.process import LOOPBACK, free_port, wait_until

_UNCHECKED = ssl._create_unverified_context()  # noqa: S323 - a self-signed loopback


def fetched(url: str, token: str = "", method: str = "GET") -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, method=method, headers=headers)  # noqa: S310
    try:
        with urllib.request.urlopen(request, context=_UNCHECKED, timeout=5) as answer:  # noqa: S310
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read()
    except OSError:
        return 0, b""


def workloads(base: str, token: str = "") -> dict[str, Any]:
    status, body = fetched(f"{base}api/workloads", token)
    return dict(json.loads(body)) if status == 200 else {"rows": []}


def test_control_shows_its_decisions_to_who_may_see_them(joined: Joined) -> None:  # noqa: F811
    page, secure = free_port(), free_port()
    free = f"http://{LOOPBACK}:{page}/page/"
    behind = f"https://{LOOPBACK}:{secure}/page/"
    words = ("--page", f"--page-port={page}", f"--secure-port={secure}")
    with joined.running("control", *words) as program:

        def scaled() -> list[dict[str, Any]]:
            # The VPA's decision alone may be there first.
            return [each for each in workloads(free)["rows"] if each["hpa"] == "web"]

        joined.until("the HPA is on the page", program, lambda: scaled() != [])
        (row,) = scaled()
        assert row["id"] == "default/Deployment/web"
        assert row["most"] == 5
        assert fetched(free, method="POST")[0] == 405
        # Whoever is not known gets nothing, on no path of the page.
        for path in ("", "app.js", "api/workloads"):
            assert fetched(behind + path)[0] in (401, 403)
            assert fetched(behind + path, "not-a-token")[0] == 401
        # The administrator of the cluster may.
        token = joined.sandbox.token
        assert workloads(behind, token)["rows"][0]["id"] == row["id"]
        assert fetched(behind, token)[1] == fetched(free)[1]
        program.stop()
        assert program.exit_code == 0


def test_without_the_flag_there_is_no_page(joined: Joined) -> None:  # noqa: F811
    secure = free_port()
    with joined.running("control", f"--secure-port={secure}") as program:
        base = f"https://{LOOPBACK}:{secure}"
        token = joined.sandbox.token
        joined.until("it serves", program, lambda: fetched(f"{base}/readyz", token)[0] == 200)
        assert fetched(f"{base}/page/", token)[0] == 404


def test_a_port_that_is_taken_is_said_and_ends_it(
    joined: Joined,  # noqa: F811
    tmp_path: Path,
) -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with joined.running("control", "--page", f"--page-port={port}") as program:
            wait_until("it ends", lambda: not program.is_running, 20.0)
            assert program.exit_code == 1
            text = (tmp_path / "control.log").read_text()
            assert str(port) in text or "in use" in text
            assert "Traceback" not in text
