"""The first page: every command block of it, and what it and operations say of metrics."""

import re
import sys

import pytest

from podscale.cli.entry import COMMANDS
from tests.docs.blocks import ROOT, Shell, blocks
from tests.tools.process import Program, wait_until
from tests.tools.reference import DOCS
from tests.tools.required import require

README = ROOT / "README.md"
PROGRAMS = {"podscale", "kubectl", "helm", "make", "python3", "pip"}
RUN_ELSEWHERE = {"demo.md", "explain.md", "providers.md"}  # each has a test of its own


@pytest.mark.needs("kubectl", "helm")
def test_every_block_of_the_first_page_runs(tmp_path):
    found = blocks(README)
    assert len(found) == 3
    make, kubectl, helm = found
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "config").symlink_to(ROOT / "config")
    kubeconfig = tmp_path / "kubeconfig"
    words = [sys.executable, "-m", "tests.kit.sandbox", "--tls", f"--kubeconfig={kubeconfig}"]
    here = {"make demo": f'make -C {ROOT} demo ARGS="--duration 15s --speed 20"'}
    with (
        Program("sandbox", words, tmp_path / "sandbox.log") as sandbox,
        Shell(tmp_path, kubeconfig, here) as shell,
    ):
        (tmp_path / "bin" / "helm").symlink_to(require("helm"))
        wait_until("a kubeconfig", kubeconfig.exists, 20.0, (sandbox,))
        told = shell.run(kubectl, timeout_s=120.0)
        assert "apiservice.apiregistration.k8s.io/v1beta1.custom.metrics.k8s.io" in told
        assert "deployment.apps/podscale-hpa" in told
        assert "kind: APIService" in shell.run(helm)
        assert re.search(r"shop: in \d+ s the load went", shell.run(make, timeout_s=120.0))
        assert shell.unused == set()


def test_no_page_has_commands_that_nobody_runs():
    """Blocks without a language are output; ``sh`` is run: here, or by the page's own test."""
    pages = {path.name for path in DOCS.glob("*.md") if blocks(path)}
    assert pages == RUN_ELSEWHERE
    for path in (README, *DOCS.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        plain = re.findall(r"^```\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        for block in plain:
            first = block.split(maxsplit=1)[0] if block.strip() else ""
            assert first not in PROGRAMS, f"{path.name}: {block}"


@pytest.mark.parametrize("page", ["operations.md", "explain.md", "nodes.md"])
def test_a_metric_that_a_page_names_exists(page):
    named = set(re.findall(r"`(podscale_[a-z_]+)`", (DOCS / page).read_text(encoding="utf-8")))
    assert named
    rooms = ("adapter", "hpa", "vpa", "podscale/serving", "podscale/feed", "podscale/nodes")
    source = "\n".join(
        path.read_text(encoding="utf-8") for room in rooms for path in (ROOT / room).rglob("*.py")
    )
    for name in named:
        short = re.sub(r"_(total|bucket|sum|count)$", "", name)
        prefix, _, rest = short.partition("_feed_")
        own = re.sub(r"^podscale_(hpa|nodes)_", "", short)
        alone = f'"{rest}"' if rest else f'"{own}"'
        assert f'"{short}"' in source or alone in source or prefix == "", name


def test_the_reference_states_the_exit_codes_of_every_command():
    reference = (DOCS / "configuration.md").read_text("utf-8")
    (table,) = re.findall(r"^\| exit code \|.*?\n\n", reference, re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"`([a-z -]+)`", table))
    assert set(COMMANDS) - named == {"completion", "config-gen"}  # which print, and end with 0
