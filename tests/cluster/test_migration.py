"""From prometheus-adapter to ours and back, as the guide says, on the real plane.

The commands are those of docs/migrate/prometheus-adapter.md. What ``kubectl get --raw``
answers before, with the original's recorded answers behind the aggregator, is what it
answers after, but for the deviations that are listed with their reasons.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import migration_stage as stage
from tests.cluster.plane import Plane
from tests.cluster.settings import PlaneSettings
from tests.conformance import adapter_world as world
from tests.conformance.adapter_cases import numbered, rows
from tests.conformance.adapter_deviations import Case, Expected, deviating
from tests.docs.blocks import ROOT, Shell, blocks
from tests.tools.process import wait_until

pytestmark = pytest.mark.timeout(240)

GUIDE = ROOT / "docs" / "migrate" / "prometheus-adapter.md"
# Group documents are the aggregator's own, and what is not below a group never passes it.
ROWS = [
    (name, row)
    for file in ("C4", "C5", "C6")
    for name, row in numbered(file)
    if re.match(r"/apis/[^/]+/(v1beta1|v1beta2)(/|$)", row[0])
]
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Ground"]:
    directory = tmp_path_factory.mktemp("migration")
    with Plane(directory, PlaneSettings(nodes=0)) as plane, stage.Servers() as servers:
        prometheus = world.part_c_prometheus()
        port, end = servers.start(prometheus.app())
        try:
            with stage.Kubelet(plane, servers, directory, f"http://127.0.0.1:{port}") as kubelet:
                yield Ground(plane, kubelet, prometheus, f"http://127.0.0.1:{port}", directory)
        finally:
            end()


class Ground:
    """The plane with the original on it."""

    def __init__(
        self,
        plane: Plane,
        kubelet: stage.Kubelet,
        prometheus: world.ScriptedPrometheus,
        url: str,
        directory: Path,
    ) -> None:
        self.plane, self.kubelet, self.prometheus = plane, kubelet, prometheus
        self.url, self.directory = url, directory
        for name in ("default", "prod", "monitoring"):
            plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        made = stage.objects()
        plane.apply(*(each for each in made if each["kind"] == "CustomResourceDefinition"))
        for plural, group in (("brands", "cheese.io"), ("kafkatopics", "kafka.strimzi.io")):
            wait_until(f"{plural} are served", lambda p=plural, g=group: self._serves(p, g), 20.0)
        wait_until("a ServiceAccount", lambda: self._has_account("default"), 20.0)
        wait_until("a ServiceAccount", lambda: self._has_account("prod"), 20.0)
        plane.apply(*(each for each in made if each["kind"] != "CustomResourceDefinition"))
        plane.apply(*stage.installation(kubelet.port))
        plane.expose(stage.NAMESPACE, stage.ACCOUNT, kubelet.port)
        self.settle()

    def _serves(self, plural: str, group: str) -> bool:
        return plural in self.plane.kubectl("api-resources", f"--api-group={group}", "-o", "name")

    def _has_account(self, namespace: str) -> bool:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        return self.plane.admin.request("GET", path).status == 200

    def settle(self) -> None:
        """Run what the Deployment rolled out, as a node would, until the aggregator sees it."""
        words = ("-n", stage.NAMESPACE, "rollout", "status", "deployment", stage.ACCOUNT)
        self.plane.kubectl(*words, "--timeout=30s")
        self.kubelet.follow()
        for group, version in stage.GROUPS:
            self.plane.wait_available(group, version, 60.0)

    def raw(self, path: str) -> Any:
        """Return what ``kubectl get --raw`` prints; an error as its text."""
        try:
            return json.loads(self.plane.kubectl("get", "--raw", path))
        except subprocess.CalledProcessError as refused:
            return str(refused.cmd).partition(": ")[2]

    def answers(self) -> dict[str, Any]:
        return {name: comparable(self.raw(row[0])) for name, row in ROWS}


def comparable(value: Any) -> Any:
    if isinstance(value, dict):
        # How wide the window behind a value is, only we say; a label is the plane's own.
        return {k: comparable(v) for k, v in value.items()
                if k not in ("windowSeconds", "window", "beta.kubernetes.io/os")
                or (isinstance(v, str) and k == "window")}  # fmt: skip
    if isinstance(value, list):
        found = [comparable(each) for each in value]
        named = [each for each in found if isinstance(each, dict) and "name" in each]
        return sorted(found, key=lambda e: e["name"]) if len(named) == len(found) > 0 else found
    if isinstance(value, str) and _TIME.fullmatch(value) and not value.startswith("2023-11-14"):
        return "<now>"
    return value


def meant(ground: Ground, row: list[Any]) -> Expected:
    """Return what we answer: the row, changed by the listed deviations."""
    objects = {each["kind"]: each["objects"] for each in rows("C1")}
    case = Case(row[0], {}, ground.prometheus, objects, "", world.part_c_config())
    expected = Expected(row[1], row[2], row[3], row[4])
    return deviating(case, expected)[0]


def test_moving_and_going_back_as_the_guide_says(
    ground: Ground, capsys: pytest.CaptureFixture[str]
) -> None:
    look, doctor, move, compare, back = blocks(GUIDE)
    replaced = {
        "http://localhost:9090": ground.url,
        "namespaces/shop/": "namespaces/default/",
    }
    with Shell(ground.directory, ground.plane.admin_kubeconfig, replaced) as shell:
        before = ground.answers()
        untouched = stage.written(ground.plane)
        assert ground.kubelet.recorded.asked > 0
        told = shell.run(compare)

        shell.run(look, codes=(1,))  # C.2 holds rules that answer nothing
        moved = (ground.directory / "moved.yaml").read_text()
        assert "# the way back:" in moved
        found = shell.run(doctor, codes=(1,))  # C.2 holds rules that deserve a word
        assert "http_requests_per_second" in found
        assert ground.kubelet.image == stage.IMAGE  # looking has changed nothing
        assert stage.written(ground.plane) == untouched

        shell.run(move)
        ground.settle()
        assert ground.kubelet.image == "podscale:latest"
        same = shell.run(compare)
        assert comparable(json.loads(same)) == comparable(json.loads(told))
        asked = ground.kubelet.recorded.asked
        after = ground.answers()
        assert ground.kubelet.recorded.asked == asked
        differ = [name for name, _ in ROWS if after[name] != before[name]]
        for name, row in ROWS:
            expected = meant(ground, row)
            found = after[name]
            if isinstance(found, str):  # kubectl shows the message only
                answer = ground.plane.admin.request("GET", row[0])
                assert answer.status == expected.status, (name, found)
                assert answer.body["message"] in found, name
                found = comparable(answer.body)
            body = expected.body
            is_same = body(found) if callable(body) else found == comparable(body)
            assert is_same, (name, found, body)
        assert stage.written(ground.plane) == untouched

        shell.run(back)
        ground.settle()
        assert ground.kubelet.image == stage.IMAGE
        assert ground.answers() == before
        assert stage.written(ground.plane) == untouched
        assert shell.unused == set()
    with capsys.disabled():
        print(
            f"\n{len(ROWS)} paths by kubectl get --raw: {len(ROWS) - len(differ)} the same before "
            f"and after, {len(differ)} as listed in deviations.yaml ({', '.join(differ)}); "
            "back: all the same"
        )
