"""The first thing anybody runs must be quick, and must not load what it does not need."""

import subprocess
import sys

FOREIGN = ("numpy", "aiohttp", "pydantic", "kubernetes_asyncio", "cryptography", "rich", "yaml")


def test_help_loads_no_heavy_module():
    script = (
        "import sys\n"
        "from podscale.cli.entry import main\n"
        "try: main(['podscale', '--help'])\n"
        "except SystemExit: pass\n"
        "print('LOADED', *sorted({name.split('.')[0] for name in sys.modules}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split("LOADED")[1].split()
    assert "click" in loaded
    assert not set(FOREIGN) & set(loaded)


def test_an_unknown_command_is_one_line_and_exit_2():
    done = subprocess.run(
        [sys.executable, "-m", "podscale", "scael"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "scael" in done.stderr
    assert "Traceback" not in done.stderr
