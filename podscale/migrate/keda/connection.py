"""How KEDA's triggers reach Prometheus: addresses, headers and TriggerAuthentications as flags.

A trigger has a connection of its own, an adapter has one for all its rules; where triggers
contradict each other, that is told.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from podscale.migrate.documents import Object, at, list_at, map_at, name_of, text_at
from podscale.migrate.outcome import Remark

Authentications = Mapping[tuple[str, str], Object]  # by namespace ("": cluster-wide) and name

_IDENTITIES = ("aws", "aws-eks", "azure-workload", "gcp")
_ELSEWHERE = ("env", "hashiCorpVault", "azureKeyVault", "awsSecretManager", "gcpSecretManager",
              "configMapTargetRef")  # fmt: skip
_FILES = {
    "bearerToken": "--prometheus-token-file",
    "ca": "--prometheus-ca-file",
    "cert": "--prometheus-client-tls-cert-file",
    "key": "--prometheus-client-tls-key-file",
}
_BASIC = ("username", "password")


class TriggerCredentials(Struct, frozen=True):
    """What a trigger's authentication comes to."""

    flags: Sequence[str] = ()
    lost: Sequence[str] = ()
    differs: Sequence[str] = ()


def authentications(manifests: Sequence[Object]) -> dict[tuple[str, str], Object]:
    """Return the TriggerAuthentications by namespace ("" for cluster-wide ones) and name."""
    found = {}
    for each in manifests:
        kind = text_at(each, "kind")
        if kind in ("TriggerAuthentication", "ClusterTriggerAuthentication"):
            namespace, name = name_of(each)
            found["" if kind.startswith("Cluster") else namespace, name] = each
    return found


def credentials(trigger: Object, namespace: str, known: Authentications) -> TriggerCredentials:
    """Return what the ``authenticationRef`` of a trigger in ``namespace`` becomes."""
    reference = map_at(trigger, "authenticationRef")
    if not reference:
        return TriggerCredentials()
    is_cluster = text_at(reference, "kind") == "ClusterTriggerAuthentication"
    name = text_at(reference, "name")
    found = known.get(("" if is_cluster else namespace, name))
    if found is None:
        return TriggerCredentials(lost=[f"the TriggerAuthentication {name} is not in the input"])
    flags: list[str] = []
    lost: list[str] = []
    differs: list[str] = []
    identity = text_at(found, "spec", "podIdentity", "provider")
    if identity in _IDENTITIES:
        lost.append(f"podIdentity {identity} of {name}: put a signing proxy in between")
    lost += [
        f"{source} of {name}: mount the credentials as files instead"
        for source in _ELSEWHERE
        if at(found, "spec", source)
    ]
    for secret in list_at(found, "spec", "secretTargetRef"):
        parameter, held = text_at(secret, "parameter"), text_at(secret, "name")
        if parameter in _FILES:
            where = f"/etc/prometheus-credentials/{held}"
            flags.append(f"{_FILES[parameter]}={where}/{text_at(secret, 'key')}")
            differs.append(
                f"the Secret {held} ({parameter} of {name}) must be mounted into podscale at "
                f"{where}"
            )
        elif parameter in _BASIC:
            lost.append(
                f"{parameter} of {name}: write basic authentication into a kubeconfig and give "
                "it with --prometheus-auth-config"
            )
        else:
            lost.append(f"{parameter} of {name} has no equal here")
    return TriggerCredentials(flags, lost, differs)


def contradictions(flags: Sequence[str]) -> Sequence[Remark]:
    """Return what the triggers' flags ask for that one adapter cannot have at once."""
    given: dict[str, set[str]] = {}
    for each in flags:
        name, _, value = each.partition("=")
        if name == "--prometheus-header":
            header, _, value = value.partition("=")
            name = f"{name} {header.strip().title()}"
        given.setdefault(name, set()).add(value)
    found = []
    for name, values in given.items():
        if len(values) < 2:
            continue
        shown = ", ".join(sorted(values))
        if name == "--prometheus-url":
            text = (
                f"the triggers ask {len(values)} servers ({shown}), and an adapter asks one: put "
                "one query front before them (Thanos, Mimir), or run one adapter per server"
            )
        else:
            text = (
                f"the triggers need {len(values)} values of {name} ({shown}), and an adapter has "
                "one for all its rules: run one adapter for each"
            )
        found.append(Remark("Prometheus", text))
    return found


def clashes(rules: Sequence[Mapping[str, object]]) -> Sequence[Remark]:
    """Return the external metrics that several triggers would share, by their ``rules``.

    Namespace, ScaledObject and trigger make the name; ``a/b-c`` and ``a-b/c`` make the same.
    """
    queries: dict[str, set[str]] = {}
    for each in rules:
        queries.setdefault(text_at(each, "name", "as"), set()).add(text_at(each, "metricsQuery"))
    return [
        Remark(
            f"external metric {name}",
            f"{len(found)} triggers come to this name, and the last rule would answer for all of "
            "them: give one of the triggers a name (triggers[].name), and ask again",
        )
        for name, found in queries.items()
        if len(found) > 1
    ]
