"""Eviction of one pod through the API server, which asks the PodDisruptionBudgets."""

from typing import Literal

from msgspec import Struct

from podscale.kube.client import errors
from podscale.kube.client.api import Api
from podscale.kube.client.resource import PODS
from podscale.kube.client.wire import encode

_TIMEOUT_S = 10.0
_BUDGET = "DisruptionBudget"  # the cause of an eviction's 429; flow control names none
# A 500 that says no, always: the only one after which nothing can have happened.
_SEVERAL = "more than one PodDisruptionBudget"


class DisruptionOutcome(Struct, frozen=True):
    """What became of an eviction, or of a resize, which alone has the last three outcomes.

    unknown: no answer came, so it may have happened; failed: it did not, and may another time;
    busy: the API server did not look at it.
    """

    outcome: Literal[
        "done", "gone", "pdb", "busy", "failed", "unknown", "refused", "node-capacity", "nothing"
    ]
    message: str = ""


async def evict(
    api: Api, namespace: str, name: str, uid: str, *, dry_run: bool = False
) -> DisruptionOutcome:
    """Evict the pod with this UID; ``dry_run`` only asks. Raises ``NotLeading``."""
    options: dict[str, object] = {
        # A pod of the same name (StatefulSet) that replaced it is not meant.
        "preconditions": {"uid": uid}
    }
    if dry_run:
        options["dryRun"] = ["All"]
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": options,
    }
    path = PODS.path(namespace, name, "eviction")
    try:
        await api.request("POST", path, body=encode(body), timeout_s=_TIMEOUT_S)
    except (errors.ObjectNotFound, errors.WriteConflict) as error:
        # A conflict: another one has the name.
        return DisruptionOutcome("gone", error.message)
    except errors.TooManyRequests as refused:
        is_budget = any(cause.reason == _BUDGET for cause in refused.causes)
        return DisruptionOutcome("pdb" if is_budget else "busy", refused.message)
    except errors.KubeError as error:
        if isinstance(error, errors.ServerFailed) and _SEVERAL in error.message:
            return DisruptionOutcome("pdb", error.message)
        return DisruptionOutcome("unknown" if may_have_happened(error) else "failed", str(error))
    return DisruptionOutcome("done")


def may_have_happened(error: errors.KubeError) -> bool:
    """Return whether a write may have happened although it failed so."""
    # A refused connection is no answer as well: what went out before it broke is not known.
    # Nor is any 5xx: 500 is what the API server says when etcd falls silent after the commit.
    return isinstance(error, errors.ApiUnreachable | errors.ServerFailed)
