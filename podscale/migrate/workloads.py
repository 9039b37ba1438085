"""Other people's programs as they run: their Deployments with another image.

Our image answers to the programs' names (``/adapter``, ``/recommender``, …) and takes
their arguments, so the manifest stays and only the image and the command change.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec import Struct

from adapter.flags import TABLE
from podscale.migrate.documents import (
    Object,
    is_script,
    list_at,
    map_at,
    name_of,
    text_at,
    texts_at,
)
from podscale.migrate.outcome import MigrationOutcome, RefusalOf, Remark, never

# Flags of an upstream program: why one has no effect here, empty where it means what it meant.
# Of the VPA's programs from autoscaler/vertical-pod-autoscaler (vpa.md 2.11, 3.8, 4.6).
Known = Mapping[str, str]

_EXTERNAL = "usage comes from the feed or from metrics.k8s.io (--metrics-source)"


def _names(text: str, why: str = "") -> dict[str, str]:
    return dict.fromkeys(text.split(), why)


_COMMON: Known = {
    **_names(
        "address kube-api-qps kube-api-burst kubeconfig vpa-object-namespace "
        "ignored-vpa-object-namespaces"
    ),
    **_names("profiling", "there is no profiler behind the metrics port"),
    **_names("feature-gates"),
}

# Of the two that act; the webhook has no leader.
_LEADING: Known = {
    **_COMMON,
    **_names(
        "leader-elect leader-elect-lease-duration leader-elect-renew-deadline "
        "leader-elect-retry-period leader-elect-resource-name leader-elect-resource-namespace"
    ),
    **_names("leader-elect-resource-lock", "it is always a Lease"),
}

RECOMMENDER: Known = {
    **_LEADING,
    **_names(
        "recommender-name recommender-interval update-worker-count storage checkpoints-timeout "
        "checkpoints-gc-interval memory-saver target-cpu-percentile target-memory-percentile "
        "recommendation-lower-bound-cpu-percentile recommendation-lower-bound-memory-percentile "
        "recommendation-upper-bound-cpu-percentile recommendation-upper-bound-memory-percentile "
        "recommendation-margin-fraction confidence-interval-cpu confidence-interval-memory "
        "pod-recommendation-min-cpu-millicores pod-recommendation-min-memory-mb "
        "container-recommendation-max-allowed-cpu container-recommendation-max-allowed-memory "
        "round-cpu-millicores round-memory-bytes humanize-memory "
        "cpu-integer-post-processor-enabled memory-aggregation-interval "
        "memory-aggregation-interval-count memory-histogram-decay-half-life "
        "cpu-histogram-decay-half-life oom-bump-up-ratio oom-min-bump-up-bytes"
    ),
    **_names("min-checkpoints", "upstream has deprecated it"),
    **_names(
        "prometheus-address prometheus-insecure "
        "prometheus-cadvisor-job-name prometheus-bearer-token prometheus-bearer-token-file "
        "username password history-length history-resolution history-cpu-metric "
        "history-memory-metric pod-label-prefix metric-for-pod-labels pod-namespace-label "
        "pod-name-label container-namespace-label container-pod-name-label container-name-label"
    ),
    **_names("prometheus-query-timeout", "history has a deadline per slice of time"),
    **_names(
        "use-external-metrics external-metrics-cpu-metric external-metrics-memory-metric",
        _EXTERNAL,
    ),
}

UPDATER: Known = {
    **_LEADING,
    **_names(
        "updater-interval min-replicas eviction-tolerance eviction-rate-limit "
        "eviction-rate-burst in-place-skip-disruption-budget pod-update-threshold "
        "in-recommendation-bounds-eviction-lifetime-threshold evict-after-oom-threshold "
        "use-admission-controller-status admission-controller-status-lease-name "
        "admission-controller-status-lease-namespace admission-controller-status-lease-timeout"
    ),
    **_names("concurrent-cpu-startup-boost-syncs", "boosts are taken back within the loop"),
}

ADMISSION: Known = {
    **_COMMON,
    **_names(
        "port register-webhook register-by-url webhook-address webhook-port webhook-service "
        "webhook-timeout-seconds webhook-labels webhook-failure-policy-fail client-ca-file "
        "tls-cert-file tls-private-key reload-cert min-tls-version tls-ciphers "
        "status-lease-name status-lease-namespace status-lease-update-interval "
        "max-allowed-cpu-boost"
    ),
}

# Part of an image's name -> launcher and what it says to each flag ("" is: taken).
_ADAPTER: Known = {flag.name: flag.ignored for flag in TABLE}
PROGRAMS: Mapping[str, tuple[str, Known]] = {
    "prometheus-adapter": ("adapter", _ADAPTER),
    "vpa-recommender": ("recommender", RECOMMENDER),
    "vpa-updater": ("updater", UPDATER),
    "vpa-admission-controller": ("admission-controller", ADMISSION),
}
# klog's, which every program of Kubernetes takes.
_LOGGING = frozenset(["v", "vmodule", "logtostderr", "stderrthreshold", "alsologtostderr",
                      "log-flush-frequency", "logging-format"])  # fmt: skip

# Of a manifest as kubectl gets it: the API server's own, and what controllers and kubectl add.
_SERVERS = frozenset(["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields",
                      "selfLink"])  # fmt: skip
_SERVERS_ANNOTATIONS = frozenset([
    "kubectl.kubernetes.io/last-applied-configuration", "deployment.kubernetes.io/revision",
])  # fmt: skip

_DIFFERS: Mapping[str, Sequence[str]] = {
    "adapter": (
        "values that are NaN or infinite are left out instead of served as 0 or -9.2e15",
        "items carry the time of their sample instead of the time of the request",
        "samples older than --max-sample-age (5m) are not served",
        "an answer of which a part is missing (warnings of Thanos, remote read) is an error",
        "of two rules for one name the later always answers; it was random per start",
        "a Prometheus that fails is an error, also for metrics.k8s.io; it was an empty list",
        "the rules file is read again when it changes, no restart is needed",
    ),
    "recommender": (
        "checkpoints are read and written in upstream's format (v3): recommendations go on",
        "an empty or stale measurement never shrinks a request",
        "with --storage=prometheus history has a step of 5 min (--history-resolution; it was 1 h)",
    ),
    "updater": ("an empty or stale measurement evicts no pod",),
    "admission-controller": (
        (
            "a pod that cannot be answered for in time is let through unchanged, whatever "
            "--webhook-failure-policy-fail says of the webhook itself"
        ),
    ),
}
_LIMIT = (
    "resources.limits.memory {} was set for the original; here a part takes 80 MB, 0.5 KB for each "
    "pod of the cluster, and more by its work (Sizing in docs/operations.md): raise it if that is "
    "close"
)


def program_of(manifest: Object) -> str:
    """Return the program of a Deployment or DaemonSet that we stand in for, or ""."""
    for container in _containers(manifest):
        for known in PROGRAMS:
            if known in text_at(container, "image").rpartition("/")[2]:
                return known
    return ""


def workload(manifest: Object, image: str, refusal_of: RefusalOf = never) -> MigrationOutcome:
    """Return the manifest with our image in the places of upstream's."""
    namespace, name = name_of(manifest)
    about = f"{text_at(manifest, 'kind')} {'/'.join(filter(None, (namespace, name)))}"
    for owner in list_at(manifest, "metadata", "ownerReferences"):
        if text_at(owner, "kind") == "Deployment":  # a ReplicaSet, of kubectl get all
            made_by = f"Deployment {text_at(owner, 'name')} makes it: give that one"
            return MigrationOutcome(lost=[Remark(about, made_by)])
    left_out: list[Remark] = []
    lost: list[Remark] = []
    differs: list[Remark] = []
    containers: list[Object] = []
    for container in _containers(manifest):
        program = next(
            (p for p in PROGRAMS if p in text_at(container, "image").rpartition("/")[2]), ""
        )
        if not program:
            containers.append(container)
            continue
        launcher, known = PROGRAMS[program]
        if is_script(container):
            text = (
                f"container {text_at(container, 'name')} starts {program} by a shell: write its "
                "arguments as a list under args, without the shell, and ask again"
            )
            return MigrationOutcome(read=[about], refused=[Remark(about, text)])
        # With a value behind its flag as it stands: --config /etc/adapter/config.yaml.
        arguments = [*texts_at(container, "command")[1:], *texts_at(container, "args")]
        if arguments and not arguments[0].startswith("-"):
            arguments = arguments[1:]  # the program: args of the chart begin with /adapter
        taken = _taken(about, arguments, known, partial(refusal_of, launcher))
        left_out += taken.left_out
        lost += taken.lost
        differs += [Remark(about, text) for text in _DIFFERS[launcher]]
        if limit := text_at(container, "resources", "limits", "memory"):
            differs.append(Remark(about, _LIMIT.format(limit)))
        rest = {k: v for k, v in container.items() if k not in ("image", "command", "args")}
        containers.append(
            {**rest, "image": image, "command": [f"/{launcher}"], "args": taken.arguments}
        )
    pod = {**map_at(manifest, "spec", "template", "spec"), "containers": containers}
    template = {**map_at(manifest, "spec", "template"), "spec": pod}
    where = f" -n {namespace}" if namespace else ""
    return MigrationOutcome(
        read=[about],
        manifests=[
            {
                **{k: v for k, v in manifest.items() if k != "status"},
                "metadata": _written(map_at(manifest, "metadata")),
                "spec": {**map_at(manifest, "spec"), "template": template},
            }
        ],
        left_out=left_out,
        lost=lost,
        differs=differs,
        steps=[f"kubectl apply the {about} below; nothing else of its installation changes"],
        back=[
            f"kubectl rollout undo {text_at(manifest, 'kind').lower()} {name}{where}",
        ],
    )


def values(document: Object, image: str, refusal_of: RefusalOf = never) -> MigrationOutcome:
    """Return the values that make the chart of prometheus-adapter run our image."""
    # A registry may have a port: localhost:5000/podscale.
    path, slash, last = image.rpartition("/")
    name, _, tag = last.partition(":")
    repository = f"{path}{slash}{name}"
    existing = text_at(document, "rules", "existing")
    where = f"--config-map NAMESPACE/{existing}" if existing else "-f VALUES"
    more = "extraArguments"
    taken = _taken(
        f"Helm values: {more}",
        texts_at(document, more),
        _ADAPTER,
        partial(refusal_of, "adapter"),
    )
    # Helm takes a list as it stands in the last file.
    mended = {more: taken.arguments} if taken.left_out else {}
    return MigrationOutcome(
        read=["Helm values of prometheus-adapter"],
        manifests=[{"image": {"repository": repository, "tag": tag or "latest"}, **mended}],
        left_out=taken.left_out,
        lost=taken.lost,
        differs=[Remark("Helm values", text) for text in _DIFFERS["adapter"]],
        steps=[
            f"check the rules: podscale doctor {where}",
            "helm upgrade RELEASE CHART -f VALUES -f these-values.yaml",
        ],
        back=["helm rollback RELEASE"],
    )


def _written(metadata: Object) -> dict[str, object]:
    """Return what a person wrote of it: the rest would make ``kubectl apply`` a conflict."""
    kept = {key: value for key, value in metadata.items() if key not in _SERVERS}
    annotations = {
        key: value
        for key, value in map_at(metadata, "annotations").items()
        if key not in _SERVERS_ANNOTATIONS
    }
    return {
        key: annotations if key == "annotations" else value
        for key, value in kept.items()
        if key != "annotations" or annotations
    }


class _Taken(Struct):
    arguments: list[str] = []  # those that our program takes
    left_out: list[Remark] = []
    lost: list[Remark] = []


def _taken(
    about: str,
    arguments: Sequence[str],
    known: Known,
    refusal_of: Callable[[str, str], str],
) -> _Taken:
    found = _Taken()
    is_refused = False
    for argument, behind in zip(arguments, [*arguments[1:], "-"], strict=False):
        name, equals, value = argument.lstrip("-").partition("=")
        name = name.replace("_", "-")  # pflag takes underscores for dashes
        if argument.startswith("-"):
            why = ""
            if name not in _LOGGING and name not in known:
                why = f"--{name}: this flag is not known, and would be refused"
            elif name in known and (equals or not behind.startswith("-")):
                why = refusal_of(name, value if equals else behind)
                why = f"{why}; it would be refused" if why else ""
            is_refused = bool(why)
            if is_refused:
                found.left_out.append(Remark(about, why))
            elif known.get(name):
                text = f"--{name}: taken and without effect: {known[name]}"
                found.lost.append(Remark(about, text))
        if not is_refused:  # nor is the value behind one that is
            found.arguments.append(argument)
    return found


def _containers(manifest: Object) -> list[Object]:
    return list_at(manifest, "spec", "template", "spec", "containers")
