"""How often an HPA controller, in-tree or ours, has reconciled, by its own count."""

import re
import ssl
import urllib.request

from tests.cluster.plane import Plane
from tests.tools.process import LOOPBACK, Program

_COUNTED = re.compile(
    r"^horizontal_pod_autoscaler_controller_reconciliations_total\{.*\} (\S+)$", re.MULTILINE
)


def reconciles(plane: Plane, controller: Program) -> int:
    """Return the count of a controller that was started seconds ago or more.

    Costs it 10 ms of CPU; before it knows whose certificates to believe, it refuses.
    """
    flag = "--secure-port="
    port = next(word for word in controller.command if word.startswith(flag)).removeprefix(flag)
    # It signs its own certificate at start; nothing secret is sent.
    tls = ssl._create_unverified_context()  # noqa: S323
    certificate = plane.admin.identity.cert
    assert certificate is not None
    tls.load_cert_chain(certificate.cert_file, certificate.key_file)
    url = f"https://{LOOPBACK}:{port}/metrics"
    with urllib.request.urlopen(url, timeout=10.0, context=tls) as answer:
        text = answer.read().decode()
    return sum(int(float(found)) for found in _COUNTED.findall(text))
