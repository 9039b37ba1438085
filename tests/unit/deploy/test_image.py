"""What the image and the wheel hold; no Docker engine is needed to know."""

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.integration.deploy.rendered import ROOT

DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
ROOMS = ("podscale", "adapter", "hpa", "vpa", "config")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """The wheel as `make dist` and the Dockerfile build it."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    done = subprocess.run(
        [*command, "--directory", str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [path] = folder.glob("*.whl")
    with zipfile.ZipFile(path) as opened:
        yield opened


def pins(path: Path) -> dict[str, set[str]]:
    """Return name==version -> hashes of a lock file."""
    found: dict[str, set[str]] = {}
    for block in re.split(r"\n(?=\S)", path.read_text()):
        name = block.split(" ")[0].strip()
        if "==" in name:
            found[name] = set(re.findall(r"--hash=(sha256:[0-9a-f]{64})", block))
    return found


def test_the_image_runs_locked_packages_and_none_of_the_tests_own() -> None:
    image, everything = pins(ROOT / "deploy/requirements.lock"), pins(ROOT / "requirements.lock")
    assert 20 < len(image) < len(everything)
    for name, hashes in image.items():
        assert hashes
        assert everything[name] == hashes
    names = {name.partition("==")[0] for name in image}
    assert {"aiohttp", "numpy", "msgspec", "uvloop", "promql-parser"} <= names
    assert not names & {"pytest", "mypy", "ruff", "hypothesis", "playwright", "hatchling"}
    assert "://" not in (ROOT / "deploy/requirements.lock").read_text()


def test_the_wheel_is_built_by_the_locked_tool_that_the_tests_use() -> None:
    tools, everything = pins(ROOT / "deploy/build.lock"), pins(ROOT / "requirements.lock")
    assert any(name.startswith("hatchling==") for name in tools)
    for name, hashes in tools.items():
        assert hashes
        assert everything[name] == hashes
    assert "://" not in (ROOT / "deploy/build.lock").read_text()


def test_the_image_stands_on_bytes_and_not_on_a_name() -> None:
    froms = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert froms == ["$BASE", "$BASE"]
    [base] = re.findall(r"^ARG BASE=(.+)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"python:3\.1[123]-slim@sha256:[0-9a-f]{64}", base)


def test_the_wheel_holds_every_room_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert {name.split("/")[0] for name in inside} == set(ROOMS)
    tracked = subprocess.run(
        ["git", "ls-files", *ROOMS], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(tracked) - inside == {name for name in tracked if not (ROOT / name).exists()}
    assert not [name for name in inside if "__pycache__" in name or name.endswith(".pyc")]


@pytest.mark.parametrize(
    "name",
    [
        "config/crds/podautoscaler.yaml",
        "config/rules/default.yaml",
        "config/rbac/adapter/adapter.yaml",
        "config/apiservices/custom/apiservices.yaml",
        "config/monitoring/adapter-alerts.yaml",
        "config/monitoring/adapter-dashboard.json",
        "podscale/sandbox/server.py",
    ],
)
def test_the_wheel_carries_its_data(wheel: zipfile.ZipFile, name: str) -> None:
    assert wheel.read(name) == (ROOT / name).read_bytes()


def test_the_wheel_installs_three_programs(wheel: zipfile.ZipFile) -> None:
    [name] = [each for each in wheel.namelist() if each.endswith("/entry_points.txt")]
    parsed = ConfigParser()
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read_string(wheel.read(name).decode())
    assert dict(parsed["console_scripts"]) == {
        "podscale": "podscale.cli.entry:main",
        "kubectl-podscale": "podscale.cli.entry:main",
        "kubectl_complete-podscale": "podscale.cli.entry:complete",
    }
    [metadata] = [each for each in wheel.namelist() if each.endswith("/METADATA")]
    text = wheel.read(metadata).decode()
    assert "License-Expression: Apache-2.0" in text
    assert "Provides-Extra: demo" in text
    assert [each for each in wheel.namelist() if each.endswith("/licenses/LICENSE")]


def removed() -> list[str]:
    """Return the patterns that the Dockerfile takes out before it builds the wheel."""
    found = re.search(r"^RUN rm -rf (.+)$", DOCKERFILE, re.MULTILINE)
    assert found
    return found.group(1).split()


def test_the_image_works_without_the_sandbox_and_does_not_offer_the_demo(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    patterns = removed()
    assert "podscale/sandbox" in patterns
    kept = [
        name
        for name in wheel.namelist()
        if not any(fnmatch(name, f"{p}/*") or fnmatch(name, p) for p in patterns)
    ]
    wheel.extractall(tmp_path, kept)

    def podscale(*words: str) -> str:
        code = (
            "import sys, podscale.cli.entry as entry; "
            "print(entry.__file__, file=sys.stderr); entry.main(['podscale', *sys.argv[1:]])"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            cwd=tmp_path, capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )  # fmt: skip
        assert str(tmp_path) in done.stderr
        return done.stdout

    listed = podscale("--help")
    assert "adapter" in listed
    assert "\n  demo " not in listed
    assert "--prometheus-url" in podscale("adapter", "--help")
    assert "--mode" in podscale("hpa", "--help")
    assert "seriesQuery" in podscale("config-gen")


def test_the_image_answers_to_the_names_in_upstreams_manifests() -> None:
    from podscale.cli.entry import LAUNCHERS

    found = re.search(r"for program in ([a-z -]+); do", DOCKERFILE)
    assert found
    assert set(found.group(1).split()) == set(LAUNCHERS)


def test_the_image_runs_as_the_user_of_the_manifests() -> None:
    text = (ROOT / "deploy/kustomize/base/adapter.yaml").read_text()
    assert "USER 65532:65532" in DOCKERFILE
    assert "runAsUser: 65532" in text
