"""The words of core against kubectl, which runs Kubernetes' own code without a server."""

import json
import subprocess

import pytest

from podscale.core import quantity
from podscale.core.quantity import QuantityError
from podscale.core.selectors import selector
from podscale.core.selectors.labels import since_1_36
from podscale.core.selectors.selector import SelectorError
from tests.tools.required import require

pytestmark = pytest.mark.needs("kubectl")

QUANTITIES = [
    *("0", "1", "-1", "0.5", ".5", "+", "-", ".", "m", "1000", "1000m", "1001m"),
    *("1500000u", "0.1n", "-0.1n", "999999999n", "1e4", "12e5", "1e-20", "1E", "1Ki", "1024Ki"),
    *("1.5Ki", "0.5Ki", "-1.5Gi", "0.0001Ki", "9Ei", "8Ei", "7.9Ei", "1023", "1024", "1048576"),
    *("100Mi", "1000Mi", "12345678901234567890n", "123456789.9876543210", "5e-1", "0e5", "0Ki"),
]
NOT_QUANTITIES = ["1Kii", "1e", "0x1", "1_0", "1.5.5", "1 ", "1mm", "1e1e1", "Inf"]
SELECTORS = [
    *("a=b", "a==b,c", "!a", "a in (c,b)", "a notin ()", "x in (b,,a)", "x in (,)", "in=in"),
    *("a=b c", "a in (x", "a in b", "a in (", ",a", "a,", "a!b", "!", "!a=b", "a===b", "a=(b)"),
    *("a>b", "a>5", "A/B=c", "-a=b", "a/b/c=d", "/a=b", "a/=b", "a=" + "0" * 64, "a=b/c"),
    *("0" * 64 + "=a", "a in (b/c,d/e)", "a=é"),
]


def _kubectl(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(require("kubectl")), *arguments, "--dry-run=client", "-o", "json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def test_quantities_print_as_kubectl_prints_them():
    hard = ",".join(f"x{number}={text}" for number, text in enumerate(QUANTITIES))
    done = _kubectl("create", "quota", "q", f"--hard={hard}")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)["spec"]["hard"]
    different = {
        text: (str(quantity.parse(text)), printed[f"x{number}"])
        for number, text in enumerate(QUANTITIES)
        if str(quantity.parse(text)) != printed[f"x{number}"]
    }
    assert different == {}


@pytest.mark.parametrize("text", NOT_QUANTITIES)
def test_what_kubectl_refuses_is_no_quantity(text):
    done = _kubectl("create", "quota", "q", f"--hard=cpu={text}")
    assert done.returncode != 0
    with pytest.raises(QuantityError) as refused:
        quantity.parse(text)
    assert refused.value.reason in done.stderr


@pytest.mark.parametrize("text", SELECTORS)
def test_selectors_are_read_or_refused_as_by_kubectl(text):
    done = _kubectl("create", "pdb", "p", "--min-available=1", f"--selector={text}")
    wire, message = _ours(text)
    if message:
        assert done.returncode != 0
        assert done.stderr.strip().endswith(since_1_36(message))
    else:
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["spec"]["selector"] == wire


def _ours(text: str) -> tuple[dict[str, object] | None, str]:
    try:
        return selector.to_wire(selector.parse(text)), ""
    except SelectorError as refused:
        return None, str(refused)
