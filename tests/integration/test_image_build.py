"""The Dockerfile's RUN lines, each by hand in a clean directory.

No test machine has a Docker engine, so what an image of its own would give is put in place by
paths: what stands at the root of the image stands below a folder, and another Python than the
image's runs it.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
IGNORED = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().split()
PLACES = ("/tools", "/opt/podscale", "/dist")


def instructions(stage: str) -> Iterator[tuple[str, str]]:
    """Yield the instructions of a stage: the word, and what follows it."""
    lines = re.sub(r"^#.*\n", "", stage, flags=re.MULTILINE).replace("\\\n", "")
    for line in lines.splitlines():
        if line.strip():
            word, _, rest = line.partition(" ")
            yield word, rest


def is_sent(path: str) -> bool:
    """Return whether the build may copy ``path``, as .dockerignore says."""
    taken = [line[1:] for line in IGNORED if line.startswith("!")]
    return any(path == each or path.startswith(f"{each}/") for each in taken)


def test_every_line_runs_and_what_comes_out_starts(tmp_path: Path) -> None:
    _, first, last = re.split(r"^FROM .*$", DOCKERFILE, flags=re.MULTILINE)
    source = tmp_path / "src"
    source.mkdir()
    python = tmp_path / "bin"  # the base image's
    subprocess.run([sys.executable, "-m", "venv", str(python.parent / "base")], check=True)
    python.symlink_to(tmp_path / "base" / "bin")

    def run(command: str) -> None:
        for place in PLACES:
            command = re.sub(rf"(?<![\w/.]){place}\b", str(tmp_path) + place, command)
        command = command.replace(" /$program", f" {tmp_path}/$program")
        done = subprocess.run(
            ["/bin/sh", "-ec", command], cwd=source, capture_output=True, text=True, check=False,
            env={"PATH": f"{python}:{os.defpath}", "HOME": str(tmp_path), **PIP},
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"

    for word, rest in instructions(first):
        if word == "COPY":
            *names, target = rest.split()
            for name in names:
                assert is_sent(name), f".dockerignore keeps {name} out"
                copy(ROOT / name, source / target, into=len(names) > 1 or target.endswith("/"))
        elif word == "RUN":
            run(rest)
    assert not list((tmp_path / "opt/podscale").glob("lib/*/site-packages/pip"))
    for word, rest in instructions(last):
        if word == "RUN" and "ensurepip" not in rest:  # that one is the image's own Python
            run(rest)
    done = subprocess.run(
        [str(tmp_path / "config-gen"), "--help"],
        capture_output=True, text=True, check=True, env={"PATH": os.defpath},
    )  # fmt: skip
    assert "prometheus" in done.stdout.lower()
    started = [str(tmp_path / "opt/podscale/bin/podscale"), "adapter", "--help"]
    shown = subprocess.run(started, capture_output=True, text=True, check=True, env={"PATH": ""})
    assert "--prometheus-url" in shown.stdout


# Where packages come from is the machine's own setting.
PIP = {
    name: value
    for name, value in os.environ.items()
    if name.startswith("PIP_") or name.lower().endswith("_proxy") or "CERT" in name
}


def copy(source: Path, target: Path, *, into: bool) -> None:
    if into:
        target = target / source.name
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


def test_pip_leaves_the_base_images_own_python_too(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "base")], check=True)
    last = re.split(r"^FROM .*$", DOCKERFILE, flags=re.MULTILINE)[-1]
    [line] = [rest for word, rest in instructions(last) if word == "RUN" and "ensurepip" in rest]
    removal, _, ensurepip = line.partition("&&")
    subprocess.run(
        ["/bin/sh", "-ec", removal],
        cwd=tmp_path, check=True, env={"PATH": str(tmp_path / "base/bin")},
    )  # fmt: skip
    assert not list((tmp_path / "base").glob("lib/*/site-packages/pip"))
    # The bundled copy is taken from a stand-in: a venv shares it with the machine's Python.
    stand_in = tmp_path / "lib" / "ensurepip"
    stand_in.mkdir(parents=True)
    (stand_in / "__init__.py").touch()
    subprocess.run(
        ["/bin/sh", "-ec", ensurepip],
        cwd=tmp_path, check=True,
        env={"PATH": str(tmp_path / "base/bin"), "PYTHONPATH": str(tmp_path / "lib")},
    )  # fmt: skip
    assert not stand_in.exists()
