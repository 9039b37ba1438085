"""Other people's programs as they run: their Deployments with another image.

Our image answers to the programs' names (``/adapter``, ``/recommender``, …) and takes
their arguments, so the manifest stays and only the image and the command change.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from podscale.migrate.documents import (
    Object,
    is_script,
    list_at,
    map_at,
    name_of,
    text_at,
    texts_at,
)
from podscale.migrate.outcome import MigrationOutcome, Remark
from podscale.migrate.program_flags import idle, refusal

# Part of an image's name -> launcher.
PROGRAMS: Mapping[str, str] = {
    "prometheus-adapter": "adapter",
    "vpa-recommender": "recommender",
    "vpa-updater": "updater",
    "vpa-admission-controller": "admission-controller",
}
# klog's, of which nobody misses the effect.
_LOGGING = frozenset(["vmodule", "logtostderr", "stderrthreshold", "alsologtostderr",
                      "log-flush-frequency"])  # fmt: skip

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


def workload(manifest: Object, image: str) -> MigrationOutcome:
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
        launcher = PROGRAMS[program]
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
        taken = _taken(about, arguments, launcher)
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


def values(document: Object, image: str) -> MigrationOutcome:
    """Return the values that make the chart of prometheus-adapter run our image."""
    # A registry may have a port: localhost:5000/podscale.
    path, slash, last = image.rpartition("/")
    name, _, tag = last.partition(":")
    repository = f"{path}{slash}{name}"
    existing = text_at(document, "rules", "existing")
    where = f"--config-map NAMESPACE/{existing}" if existing else "-f VALUES"
    more = "extraArguments"
    taken = _taken(f"Helm values: {more}", texts_at(document, more), "adapter")
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


def _taken(about: str, arguments: Sequence[str], program: str) -> _Taken:
    found = _Taken()
    is_refused = False
    for argument, behind in zip(arguments, [*arguments[1:], "-"], strict=False):
        name, equals, value = argument.lstrip("-").partition("=")
        name = name.replace("_", "-")  # pflag takes underscores for dashes
        if argument.startswith("-"):
            has_value = equals or not behind.startswith("-")
            why = refusal(program, name, (value if equals else behind) if has_value else None)
            is_refused = bool(why)
            if is_refused:
                found.left_out.append(Remark(about, f"{why}; it would be refused"))
            elif (no_effect := idle(program, name)) and name not in _LOGGING:
                text = f"--{name}: taken and without effect: {no_effect}"
                found.lost.append(Remark(about, text))
        if not is_refused:  # nor is the value behind one that is
            found.arguments.append(argument)
    return found


def _containers(manifest: Object) -> list[Object]:
    return list_at(manifest, "spec", "template", "spec", "containers")
