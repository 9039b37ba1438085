"""How KEDA's triggers reach Prometheus: flags of one adapter, and entries of its sources file.

A trigger has a connection of its own: its address, its headers and its TriggerAuthentication. What
they say that has no equal here is told, never dropped in silence.
"""

from collections.abc import Iterator, Mapping, Sequence

from podscale.migrate.documents import Object, list_at, map_at, name_of, text_at
from podscale.migrate.outcome import MigrationOutcome, RemarksOn

Authentications = Mapping[tuple[str, str], Object]  # by namespace ("": cluster-wide) and name
Connection = Mapping[str, object]  # an entry of the sources file, but for its name

_FLAGS = {
    "tokenFile": "--prometheus-token-file",
    "caFile": "--prometheus-ca-file",
    "clientCertFile": "--prometheus-client-tls-cert-file",
    "clientKeyFile": "--prometheus-client-tls-key-file",
}
_FILES = dict(zip(("bearerToken", "ca", "cert", "key"), _FLAGS, strict=True))
_EQUALS = {
    "boundServiceAccountToken": "start the adapter with --prometheus-auth-incluster, or with "
    "--prometheus-token-file on a projected token of that ServiceAccount",
    "username": "write basic authentication into a kubeconfig and give it with "
    "--prometheus-auth-config",
    "customAuthHeader": "start the adapter with --prometheus-header=NAME=$(VALUE), and set VALUE "
    "in its env from the Secret {} (secretKeyRef)",
}
_EQUALS |= {"password": _EQUALS["username"], "customAuthValue": _EQUALS["customAuthHeader"]}


def authentications(manifests: Sequence[Object]) -> dict[tuple[str, str], Object]:
    """Return the TriggerAuthentications by namespace ("" for cluster-wide ones) and name."""
    found = {}
    for each in manifests:
        kind = text_at(each, "kind")
        if kind in ("TriggerAuthentication", "ClusterTriggerAuthentication"):
            namespace, name = name_of(each)
            found["" if kind.startswith("Cluster") else namespace, name] = each
    return found


def connection(
    trigger: Object, namespace: str, known: Authentications, on: RemarksOn
) -> Connection:
    """Return how a ``trigger`` in ``namespace`` reaches Prometheus; ``on`` hears what is lost."""
    metadata = map_at(trigger, "metadata")
    headers = _pairs(text_at(metadata, "customHeaders"))
    if tenant := text_at(metadata, "cortexOrgID"):
        headers["X-Scope-OrgID"] = tenant
    found: dict[str, object] = {
        "url": text_at(metadata, "serverAddress"),
        "headers": headers,
        "queryParameters": _pairs(text_at(metadata, "queryParameters")),
    }
    if not found["url"]:
        on.lose("it has no serverAddress: give --prometheus-url yourself")
    reference = map_at(trigger, "authenticationRef")
    if reference:
        found |= _credentials(reference, namespace, known, on)
    elif modes := text_at(metadata, "authModes"):
        on.lose(f"authModes {modes} without an authenticationRef: no credentials are known")
    return {key: value for key, value in found.items() if value}


def _pairs(text: str) -> dict[str, str]:
    pairs = (pair.strip().partition("=") for pair in text.split(",") if pair.strip())
    return {name: value for name, _, value in pairs}


def _credentials(
    reference: Object, namespace: str, known: Authentications, on: RemarksOn
) -> Connection:
    is_cluster = text_at(reference, "kind") == "ClusterTriggerAuthentication"
    name = text_at(reference, "name")
    manifest = known.get(("" if is_cluster else namespace, name))
    if manifest is None:
        on.lose(f"the TriggerAuthentication {name} is not in the input")
        return {}
    spec = map_at(manifest, "spec")
    identity = text_at(spec, "podIdentity", "provider")
    if identity not in ("", "none"):
        on.lose(f"podIdentity {identity} of {name}: put a signing proxy in between")
    for source in spec:
        if source not in ("secretTargetRef", "podIdentity"):
            equal = _EQUALS.get(source, "mount the credentials as files instead")
            on.lose(f"{source} of {name}: {equal}")
    found = {}
    for secret in list_at(spec, "secretTargetRef"):
        parameter, held = text_at(secret, "parameter"), text_at(secret, "name")
        if parameter in _FILES:
            where = f"/etc/prometheus-credentials/{held}"
            found[_FILES[parameter]] = f"{where}/{text_at(secret, 'key')}"
            on.differ(
                f"the Secret {held} ({parameter} of {name}) must be mounted into podscale at "
                f"{where}"
            )
        elif parameter in _EQUALS:
            on.lose(f"{parameter} of {name}: {_EQUALS[parameter].format(held)}")
        else:
            on.lose(f"{parameter} of {name} has no equal here")
    return found


def assign_sources(outcome: MigrationOutcome) -> None:
    """Replace each rule's connection by the name of a source. What an adapter of the input reads
    needs none; without one the first becomes flags instead."""
    every: list[Connection] = [{"url": url} for url in outcome.servers[:1]]
    rules = outcome.rules.get("externalRules", [])
    for i, rule in enumerate(rules):
        of = map_at(rule, "source")
        if of and of not in every:
            every.append(of)
        number = every.index(of) + 1 if of else 1
        name = {"source": f"prometheus-{number}"} if number > 1 else {}
        rules[i] = {**name, **{key: value for key, value in rule.items() if key != "source"}}
    if every and not outcome.servers:
        outcome.flags += _flags(every[0])
    if every[1:]:
        outcome.sources = [{"name": f"prometheus-{i}", **of} for i, of in enumerate(every[1:], 2)]
        outcome.flags.append("--sources=/etc/adapter/sources.yaml")
        outcome.steps.insert(0, "write the sources below into the file of --sources")


def _flags(connection: Connection) -> Iterator[str]:
    pairs = "&".join(
        "=".join(map(str, each)) for each in map_at(connection, "queryParameters").items()
    )
    if url := text_at(connection, "url"):
        yield f"--prometheus-url={url}{f'?{pairs}' if pairs else ''}"
    if pairs:
        yield "--prometheus-verb=POST"  # parameters of the URL survive with POST only
    for name, value in map_at(connection, "headers").items():
        yield f"--prometheus-header={name}={value}"
    for key, flag in _FLAGS.items():
        if path := text_at(connection, key):
            yield f"{flag}={path}"
