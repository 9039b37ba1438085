"""Completion as the shells ask for it: bash itself, kubectl's protocol, names of objects.

zsh and fish are run where they are installed; elsewhere the script they would read is checked.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.launched import Sandbox
from tests.tools.required import require

BIN = Path(sys.executable).parent
MANIFEST = {
    "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "maxReplicas": 5,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    sandbox = Sandbox(tmp_path_factory.mktemp("completion"))
    sandbox.start()
    try:
        for name in ("web", "worker", "api"):
            path = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers"
            about = {"name": name, "namespace": "shop"}
            sandbox.ask(path, "POST", {**MANIFEST, "metadata": about})
        yield {
            **os.environ,
            "KUBECONFIG": str(sandbox.kubeconfig),
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        }
    finally:
        sandbox.program.stop()


def completed(environment: dict[str, str], *words: str) -> list[str]:
    """Return what bash offers for the last of ``words``, by the function it sourced."""
    script = (
        'source <(podscale completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
        'COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; _podscale_completion podscale "$2" "$1"; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", script, "bash", "podscale", *words],
        env=environment, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return done.stdout.split()


def test_bash_completes_commands_options_and_names_of_objects(environment):
    assert completed(environment, "ex") == ["explain"]
    assert "--namespace" in completed(environment, "explain", "--n")
    assert completed(environment, "explain", "h") == ["hpa/"]
    assert completed(environment, "explain", "-n", "shop", "hpa/w") == ["hpa/web", "hpa/worker"]
    assert completed(environment, "doctor", "-n", "shop", "hpa/a") == ["hpa/api"]
    assert "shop" in completed(environment, "explain", "-n", "sh")
    assert "--prometheus-url" in completed(environment, "adapter", "--prometheus-u")


def test_a_cluster_that_does_not_answer_completes_to_nothing(environment):
    away = {**environment, "KUBECONFIG": "/nonexistent"}
    assert completed(away, "explain", "hpa/w") == []


def test_kubectl_is_answered_as_cobra_does(environment):
    def asked(*words: str) -> list[str]:
        done = subprocess.run(
            [BIN / "kubectl_complete-podscale", *words],
            env=environment, capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        return done.stdout.splitlines()

    assert asked("explain", "-n", "shop", "hpa/we") == ["hpa/web", ":4"]
    assert asked("explain", "v") == ["vpa/", ":6"]
    commands = asked("")
    assert commands[-1] == ":4"
    assert any(line.startswith("doctor\t") for line in commands)


def test_the_plugin_says_its_own_name(environment):
    done = subprocess.run(
        [BIN / "kubectl-podscale", "explain", "--help"],
        env=environment, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.startswith("Usage: kubectl podscale explain")


@pytest.mark.needs("kubectl")
def test_kubectl_finds_the_plugin(environment):
    done = subprocess.run(
        [require("kubectl"), "podscale", "explain", "hpa/web", "-n", "nowhere"],
        env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("podscale explain:"), done.stderr


@pytest.mark.parametrize(("shell", "words"), [
    ("zsh", ("#compdef podscale", "zsh_complete")), ("fish", ("fish_complete", "complete ")),
])  # fmt: skip
def test_other_shells_can_read_their_script(environment, shell, words):
    done = subprocess.run(
        [BIN / "podscale", "completion", shell],
        env=environment, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert all(word in done.stdout for word in words)
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=done.stdout, text=True, check=True, timeout=60)
