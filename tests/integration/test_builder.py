"""Two builders at once, and a build that fails, with the real Go."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.needs("go")
def test_two_builders_build_once_and_a_failed_build_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "tools"
    monkeypatch.setenv("PODSCALE_TOOLS", str(tools))
    source = tmp_path / "go" / "hello"
    source.mkdir(parents=True)
    (source / "go.mod").write_text("module hello\n\ngo 1.21\n")
    (source / "go.sum").touch()
    (source / "main.go").write_text("package main\nfunc main() { nonsense }\n")
    run = f"""
import tests.tools.builder as b, tests.tools.cache as c, tests.tools.programs as p
from pathlib import Path
p.GO_MODULES = Path({str(tmp_path / "go")!r})
p.MODULES = b.MODULES = (p.GoModule("hello", {{"hello": "hello"}}, 1),)
b.build(["hello"])
print(c.find("hello"))
"""
    command = [sys.executable, "-c", run]
    broken = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert broken.returncode == 1
    assert "undefined: nonsense" in broken.stderr
    assert [path.name for path in tools.iterdir()] == ["hello.lock"]

    (source / "main.go").write_text('package main\nfunc main() { println("hello") }\n')
    pipe = subprocess.PIPE
    both = [
        subprocess.Popen(command, cwd=ROOT, text=True, stdout=pipe, stderr=pipe) for _ in range(2)
    ]
    said = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert sum("built in" in errors for _, errors in said) == 1
    assert said[0][0] == said[1][0] != "None\n"
