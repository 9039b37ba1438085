"""The admission policy of our own accounts: whether it is there, as readiness tells it."""

import asyncio

import pytest
from structlog.testing import capture_logs

from podscale.kube.client.errors import ApiError
from podscale.process.clusters import follow_policy, missing_policy
from podscale.serving.monitoring.health import Health
from tests.kit.api import FakeApi, Sent, ok

pytestmark = pytest.mark.looptime

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POLICY = f"{ADMISSION}/validatingadmissionpolicies/podscale-accounts-blue"
BINDING = f"{ADMISSION}/validatingadmissionpolicybindings/podscale-accounts-blue"


class Policies(FakeApi):
    """An API server with these objects; another one is a 404, or ``status``."""

    def __init__(self, *paths: str, status: int = 404) -> None:
        self.paths, self.status = set(paths), status

    async def reply(self, sent: Sent):
        if sent.path in self.paths:
            return ok({})
        raise ApiError.of(self.status, "NotFound" if self.status == 404 else "Forbidden", "said")


@pytest.mark.parametrize(("api", "said"), [
    pytest.param(Policies(POLICY, BINDING), "", id="in-force"),
    pytest.param(Policies(POLICY), "validatingadmissionpolicybindings of podscale's accounts are "
                 "missing", id="bound-to-nothing"),
    pytest.param(Policies(BINDING), "validatingadmissionpolicies of podscale's accounts are "
                 "missing", id="no-policy"),
    pytest.param(Policies(status=403), "cannot be read", id="no-right"),
])  # fmt: skip
async def test_policy_and_binding_have_to_be_there(api: Policies, said: str) -> None:
    async def read(path: str) -> object:
        return await api.request("GET", path)

    found = await missing_policy(read, "blue")
    assert said in found
    assert bool(found) is bool(said)
    assert ("roles alone" in found) is ("are missing" in said)  # what is not read is not judged
    assert "blue" not in found  # readyz is open to everybody


async def test_a_missing_policy_is_told_and_leaves_a_process_ready() -> None:
    api, health = Policies(), Health()
    with capture_logs() as logs:
        following = asyncio.create_task(follow_policy(api, "blue", health))
        await asyncio.sleep(601)
        verbose = health.report("readyz", is_verbose=True)
        assert verbose.status == 200
        assert "[+]accounts-policy ok: the validatingadmissionpolicies" in verbose.text
        api.paths |= {POLICY, BINDING}
        await asyncio.sleep(300)
        assert "[+]accounts-policy ok\n" in health.report("readyz", is_verbose=True).text
    following.cancel()
    assert [each["log_level"] for each in logs] == ["warning"]
