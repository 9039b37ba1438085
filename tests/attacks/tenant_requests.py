"""Requests of a tenant who wants to read another namespace's metrics, in every spelling."""

from random import Random
from urllib.parse import quote

from msgspec import Struct

_KINDS = (("", "namespace", "Namespace"), ("", "namespace", "Namespace"), ("", "pod", "Pod"),
          ("", "service", "Service"), ("apps", "deployment", "Deployment"), ("", "node", "Node"),
          ("", "persistentvolume", "PersistentVolume"), ("metrics.k8s.io", "pod", "Pod"),
          ("storage.k8s.io", "storageclass", "StorageClass"))  # fmt: skip
_SHORT = ("ns", "po", "svc", "deploy", "no", "pv", "sc", "metrics", "")
_CUSTOM = ("tenant_load", "tenant_load", "tenant_load", "tenant_raw", "unknown")
_EXTERNAL = ("tenant_queue", "tenant_queue", "tenant_raw_queue", "unknown")


class Tenant(Struct, frozen=True):
    """Whose requests they are, and what there is to read."""

    own: str
    other: str
    pods: tuple[str, ...]  # of both
    others_pod: str


def target(random: Random, tenant: Tenant) -> str:
    """Draw the target of a GET."""
    group = random.choice(("custom", "custom", "custom", "custom", "external", "resource"))
    places = (*(tenant.own,) * 20, tenant.other, tenant.other, "*", "", ".", tenant.own.upper(),
              f"{tenant.own}|{tenant.other}", f"{tenant.own}/{tenant.other}")  # fmt: skip
    place = ("namespaces", random.choice(places)) if random.random() < 0.92 else ()
    if group == "custom":
        prefix = f"/apis/custom.metrics.k8s.io/{random.choice(('v1beta1', 'v1beta2'))}"
        metric = random.choice(_CUSTOM)
        words = (*place, _kind(random), _name(random, tenant), metric)
        if random.random() < 0.15:
            words = (*place, "metrics", metric)
    elif group == "external":
        prefix = "/apis/external.metrics.k8s.io/v1beta1"
        words = (*place, random.choice(_EXTERNAL))
    else:
        prefix = "/apis/metrics.k8s.io/v1beta1"
        words = (*place, random.choice(("pods", "pods", "nodes", "Pods")))
        if random.random() < 0.4:
            words = (*words, _name(random, tenant))
    if random.random() < 0.1:
        at = random.randrange(len(words) + 1)
        extra = random.choice(("watch", "proxy", "namespaces", tenant.other, "status", "", "*"))
        words = (*words[:at], extra, *words[at:])
    safe = random.choice(("*:", "*:", "", '*:|"=,'))
    path = "".join(f"/{_written(random, word, safe)}" for word in words)
    return f"{prefix}{path}{random.choice(('', '', '', '/'))}{_query(random, tenant)}"


def _kind(random: Random) -> str:
    if random.random() < 0.08:
        return random.choice(_SHORT)
    group, singular, kind = random.choice(_KINDS)
    plural = f"{singular}{'es' if singular.endswith('s') else 's'}"
    word = random.choice((plural, plural, plural, singular, kind, plural.upper(), plural.title()))
    ends = ("", "", "", "", ".", f".{group}", f".{group[:4]}", ".v1", ".v1.", f".v1.{group}")
    return word + random.choice(ends)


def _name(random: Random, tenant: Tenant) -> str:
    breaking = f'{tenant.others_pod}"}} or tenant_load{{namespace="{tenant.other}'
    return random.choice((
        "*", "*", "*", tenant.own, tenant.other, tenant.other, *tenant.pods, "web", "node-0",
        f"{tenant.own}|{tenant.other}", f"{tenant.others_pod}|x", ".*", breaking, "..", "",
    ))  # fmt: skip


def _query(random: Random, tenant: Tenant) -> str:
    terms = (
        f"namespace={tenant.other}", f"namespace in ({tenant.own},{tenant.other})",
        f"namespace!={tenant.own}", f"pod={tenant.others_pod}", "!namespace", "namespace",
        "app=web", "a/b=c", f"metadata.namespace={tenant.other}",
        f"metadata.name={tenant.others_pod}",
    )  # fmt: skip
    keys = ("labelSelector", "metricLabelSelector", "fieldSelector", "namespace", "watch", "limit")
    chosen = random.choices(keys, k=random.choice((0, 0, 0, 1, 1, 2)))
    pairs = [f"{key}={quote(random.choice(terms))}" for key in chosen]
    return f"?{'&'.join(pairs)}" if pairs else ""


def _written(random: Random, word: str, safe: str) -> str:
    if random.random() < 0.05:
        return "".join(f"%{byte:02X}" for byte in word.encode())
    return quote(word, safe=safe).replace('"', "%22")
