"""Random pods, recommendations and policies as an API server lets them through.

Amounts come from few values, written in several ways, so that they often are equal or one apart.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

Json = Any

NAMES = ("app", "side", "x")
_MILLI = (0, 1, 2, 9, 10, 11, 99, 100, 101, 110, 250, 999, 1000, 1001, 1100, 2000, 64000)
_BYTES = (
    0, 1, 1000, 2**20 - 1, 2**20, 2**20 + 1, 10**8, 11 * 10**7, 110 * 2**20, 100 * 2**20,
    2**30 - 1, 2**30, 2**30 + 1, 10**9, 2**31, 10**12,
)  # fmt: skip
_SUFFIXES = ((2**30, "Gi"), (2**20, "Mi"), (10**9, "G"), (10**6, "M"), (1000, "k"))


def likely(random: Random, chance: float) -> bool:
    """Return True with this chance."""
    return random.random() < chance


def some(random: Random) -> tuple[str, ...]:
    """Return the names of a pod's containers; app is always there."""
    return NAMES[: random.randint(1, 3)]


def milli(random: Random) -> int:
    """Return milli-cores."""
    return random.choice(_MILLI)


def size(random: Random) -> int:
    """Return bytes."""
    return random.choice(_BYTES)


def cores(random: Random, value: int) -> str:
    """Return milli-cores as somebody would write them."""
    if value % 1000 == 0 and likely(random, 0.7):
        return str(value // 1000)
    if likely(random, 0.1):
        return random.choice((f"{value}e-3", f"{value / 1000:.3f}", f"{value}000u"))
    return f"{value}m"


def memory(random: Random, value: int) -> str:
    """Return bytes as somebody would write them."""
    for scale, suffix in _SUFFIXES:
        if value and value % scale == 0 and likely(random, 0.8):
            return f"{value // scale}{suffix}"
    if value and likely(random, 0.1):
        return random.choice((f"{value}000m", f"{value}e0", f"{value}.0"))
    return str(value)


def written(random: Random, amounts: dict[str, int]) -> dict[str, str]:
    """Return a resource list."""
    forms = {"cpu": cores, "memory": memory}
    return {name: forms[name](random, value) for name, value in amounts.items()}


def _bound(random: Random, amounts: dict[str, int]) -> Json:
    # A CRD takes whole numbers too, and leaves them so.
    found: Json = written(random, amounts)
    return {
        name: int(value) if value.isdigit() and likely(random, 0.2) else value
        for name, value in found.items()
    }


def _published(random: Random, amounts: dict[str, int]) -> Json:
    # Other recommenders may publish less than a whole unit.
    found, halves = _bound(random, amounts), {"cpu": "{}500u", "memory": "{}.5"}
    return {
        name: halves[name].format(amounts[name]) if likely(random, 0.05) else value
        for name, value in found.items()
    }


def drawn(random: Random, chance: float = 0.85) -> dict[str, int]:
    """Return milli-cores and bytes, each with this chance."""
    pairs = (("cpu", milli), ("memory", size))
    return {name: draw(random) for name, draw in pairs if likely(random, chance)}


def resources(random: Random) -> Json:
    """Return a container's ``resources``: no limit stands without a request or below it."""
    requests, limits = drawn(random), {}
    for name, request in list(requests.items()):
        if likely(random, 0.4):
            other = (milli if name == "cpu" else size)(random)
            requests[name], limits[name] = sorted((request, other))
    found = {}
    for field, amounts in (("requests", requests), ("limits", limits)):
        if amounts or likely(random, 0.1):
            found[field] = written(random, amounts)
    return found


def container(random: Random, name: str) -> Json:
    """Return a container of a pod's spec."""
    found = {"name": name, "resources": resources(random)}
    if likely(random, 0.4):
        found["resizePolicy"] = [
            {
                "resourceName": resource,
                "restartPolicy": random.choice(("NotRequired", "NotRequired", "RestartContainer")),
            }
            for resource in ("cpu", "memory")
            if likely(random, 0.8)
        ]
    return found


def container_status(random: Random, name: str) -> Json:
    """Return what the kubelet reports: older ones report no resources."""
    found = {"name": name, "restartCount": 0}
    if likely(random, 0.5):
        found["resources"] = resources(random)
    return found


def pod(random: Random, names: Sequence[str], *, name: str = "pod") -> Json:
    """Return a pod with these containers, as admission and kubelet leave it."""
    found: Json = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container(random, each) for each in names]},
        "status": {"phase": "Running"},
    }
    if likely(random, 0.5):
        found["status"]["containerStatuses"] = [
            container_status(random, each) for each in names if likely(random, 0.8)
        ]
    if likely(random, 0.3):
        found["metadata"]["annotations"] = {"vpaObservedContainers": observed(random, names)}
    return found


def observed(random: Random, names: Sequence[str]) -> str:
    """Return what admission noted; anybody may have changed it."""
    if likely(random, 0.15):
        return random.choice(("", "app,side", "App", "app, ", "abcd;';", "-app", "app, app"))
    return ", ".join(each for each in names if likely(random, 0.7))


def recommended(random: Random, name: str) -> Json:
    """Return a container's entry: bounds around its target, or none of them."""
    found: Json = {"containerName": name, "target": drawn(random, 0.9)}
    lower, upper = dict(found["target"]), dict(found["target"])
    for resource in found["target"]:
        draw = milli if resource == "cpu" else size
        amounts = sorted((draw(random), draw(random), draw(random)))
        lower[resource], found["target"][resource], upper[resource] = amounts
    found["target"] = _published(random, found["target"])
    for field, amounts in (("lowerBound", lower), ("upperBound", upper)):
        if likely(random, 0.8):
            kept = {name: value for name, value in amounts.items() if likely(random, 0.95)}
            found[field] = _published(random, kept)
    return found


def recommendation(random: Random, names: Sequence[str], chance: float = 0.8) -> Json:
    """Return a recommendation for some of the containers, and for one that is gone."""
    entries = [recommended(random, each) for each in names if likely(random, chance)]
    if likely(random, 0.1):
        entries.append(recommended(random, "gone"))
    random.shuffle(entries)
    return {"containerRecommendations": entries}


def boost(random: Random) -> Json:
    """Return a ``startupBoost``."""
    cpu: Json = {"type": random.choice(("Factor", "Factor", "Quantity"))}
    if likely(random, 0.9):
        cpu["durationSeconds"] = random.choice((0, 1, 10, 60, 300))
    if likely(random, 0.05):
        del cpu["type"]
    if cpu.get("type") == "Quantity":
        cpu["quantity"] = cores(random, milli(random))
    elif likely(random, 0.95):
        cpu["factor"] = random.choice((0, 1, 2, 2, 3, 10))
    return {"cpu": cpu}


def policy(random: Random, name: str) -> Json:
    """Return one entry of ``containerPolicies``: bounds in whole bytes, none above the other."""
    found: Json = {"containerName": name}
    if likely(random, 0.3):
        found["mode"] = random.choice(("Auto", "Off"))
    if likely(random, 0.4):
        least, most = drawn(random, 0.6), drawn(random, 0.6)
        for resource in set(least) & set(most):
            least[resource], most[resource] = sorted((least[resource], most[resource]))
        found["minAllowed"], found["maxAllowed"] = _bound(random, least), _bound(random, most)
    if likely(random, 0.5):
        found["controlledValues"] = random.choice(("RequestsOnly", "RequestsAndLimits"))
    return found


def policies(random: Random, names: Sequence[str], chance: float = 0.4) -> list[Json]:
    """Return the entries for some of the containers and for all others."""
    found = [policy(random, each) for each in (*names, "*") if likely(random, chance)]
    random.shuffle(found)
    return found


def boosting(random: Random) -> list[Json]:
    """Return container policies, some with a boost of their own."""
    found = policies(random, NAMES)
    for each in found:
        if likely(random, 0.5):
            each["startupBoost"] = boost(random)
    return found


def resizing(random: Random) -> list[Json]:
    """Return what the kubelet says about a resize: its conditions are True or not there."""
    found: list[Json] = []
    if likely(random, 0.6):
        reason = random.choice(("Deferred", "Deferred", "Infeasible", "Infeasible", "", "Other"))
        found.append(_told(random, "PodResizePending", reason))
    if likely(random, 0.6):
        reason = random.choice(("", "", "", "Error", "Other"))
        found.append(_told(random, "PodResizeInProgress", reason))
    if likely(random, 0.5):
        status = random.choice(("True", "False"))
        found.append({"type": "Ready", "status": status})
    random.shuffle(found)
    return found


def _told(random: Random, kind: str, reason: str) -> Json:
    found = {"type": kind, "status": "True", "reason": reason}
    if likely(random, 0.3):
        found["message"] = "told by the kubelet"
    return found
