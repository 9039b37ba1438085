"""Other people's programs as they run, and what ours say to their arguments.

Our image answers to the programs' names (``/adapter``, ``/recommender``, …) and takes their
arguments, so a Deployment stays and only its image and command change. Of kube-controller-manager
the flags of the group HPAController become ours, and the two take turns.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence

from adapter.flags import TABLE as ADAPTER
from hpa.flags import TABLE as HPA
from podscale.migrate.documents import Object, list_at, map_at, name_of, text_at, texts_at
from podscale.migrate.outcome import MigrationOutcome, Remark, RemarksOn
from podscale.serving.flags import Flag, FlagError, parse, row_of
from vpa.admission.flags import TABLE as ADMISSION
from vpa.recommender.flags import TABLE as RECOMMENDER
from vpa.updater.flags import TABLE as UPDATER

_SHELLS = frozenset(["sh", "bash", "ash", "dash"])
_TABLES: Mapping[str, Sequence[Flag]] = {
    "adapter": ADAPTER,
    "admission-controller": ADMISSION,
    "hpa": HPA,
    "recommender": RECOMMENDER,
    "updater": UPDATER,
}
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


_PREFIX = "horizontal-pod-autoscaler-"
_SAME = frozenset([
    f"{_PREFIX}sync-period", f"{_PREFIX}downscale-stabilization", f"{_PREFIX}tolerance",
    f"{_PREFIX}cpu-initialization-period", f"{_PREFIX}initial-readiness-delay",
    "concurrent-horizontal-pod-autoscaler-syncs",
])  # fmt: skip
_GONE = {
    f"{_PREFIX}downscale-delay": "no flag of current releases; use downscale-stabilization",
    f"{_PREFIX}upscale-delay": "no flag of current releases; use behavior.scaleUp of the HPAs",
    f"{_PREFIX}upscale-forbidden-window": "a leftover without effect",
    f"{_PREFIX}use-rest-clients": "no flag of current releases; metrics APIs are always used",
}
_OFF = "-horizontal-pod-autoscaler-controller"
_OLD_OFF = "-horizontalpodautoscaling"
_CHANGES = (
    (
        "all HPAs are decided by one process from one read of Prometheus; "
        "--concurrent-horizontal-pod-autoscaler-syncs bounds writes only"
    ),
    "recommendations and scale events survive a restart; upstream forgets them",
    "a stale, NaN or missing sample never scales down",
)


def program_of(manifest: Object) -> str:
    """Return the program of a Deployment or DaemonSet that we stand in for, or ""."""
    return next(filter(None, map(_program, _containers(manifest))), "")


def _program(container: Object) -> str:
    image = text_at(container, "image").rpartition("/")[2]
    return next((program for program in PROGRAMS if program in image), "")


def workload(manifest: Object, image: str) -> MigrationOutcome:
    """Return the manifest with our image in the places of upstream's."""
    namespace, name = name_of(manifest)
    about = f"{text_at(manifest, 'kind')} {'/'.join(filter(None, (namespace, name)))}"
    for owner in list_at(manifest, "metadata", "ownerReferences"):
        if text_at(owner, "kind") == "Deployment":  # a ReplicaSet, of kubectl get all
            made_by = f"Deployment {text_at(owner, 'name')} makes it: give that one"
            return MigrationOutcome(lost=[Remark(about, made_by)])
    outcome = MigrationOutcome(read=[about])
    on = RemarksOn(about, outcome)
    containers: list[Object] = []
    for container in _containers(manifest):
        program = _program(container)
        if not program:
            containers.append(container)
            continue
        if _is_script(container):
            text = (
                f"container {text_at(container, 'name')} starts {program} by a shell: write its "
                "arguments as a list under args, without the shell, and ask again"
            )
            return MigrationOutcome(read=[about], refused=[Remark(about, text)])
        launcher = PROGRAMS[program]
        # With a value behind its flag as it stands: --config /etc/adapter/config.yaml.
        arguments = [*texts_at(container, "command")[1:], *texts_at(container, "args")]
        if arguments and not arguments[0].startswith("-"):
            arguments = arguments[1:]  # the program: args of the chart begin with /adapter
        if launcher == "adapter":
            outcome.servers = [url for name, url in _pairs(arguments) if name == "prometheus-url"]
        ours = {"command": [f"/{launcher}"], "args": _our_arguments(on, arguments, launcher)}
        for text in _DIFFERS[launcher]:
            on.differ(text)
        if limit := text_at(container, "resources", "limits", "memory"):
            on.differ(_LIMIT.format(limit))
        rest = {k: v for k, v in container.items() if k not in ("image", "command", "args")}
        containers.append({**rest, "image": image, **ours})
    pod = {**map_at(manifest, "spec", "template", "spec"), "containers": containers}
    template = {**map_at(manifest, "spec", "template"), "spec": pod}
    outcome.manifests = [
        {
            **{key: value for key, value in manifest.items() if key != "status"},
            "metadata": _written(map_at(manifest, "metadata")),
            "spec": {**map_at(manifest, "spec"), "template": template},
        }
    ]
    where = f" -n {namespace}" if namespace else ""
    outcome.steps = [f"kubectl apply the {about} below; nothing else of its installation changes"]
    outcome.back = [f"kubectl rollout undo {text_at(manifest, 'kind').lower()} {name}{where}"]
    return outcome


def values(document: Object, image: str, about: str = "Helm values") -> MigrationOutcome:
    """Return the values that make the chart of prometheus-adapter run our image."""
    # A registry may have a port: localhost:5000/podscale.
    path, slash, last = image.rpartition("/")
    name, _, tag = last.partition(":")
    repository = f"{path}{slash}{name}"
    existing = text_at(document, "rules", "existing")
    where = f"--config-map NAMESPACE/{existing}" if existing else "-f VALUES"
    outcome = MigrationOutcome(
        read=["Helm values of prometheus-adapter"],
        differs=[Remark(about, text) for text in _DIFFERS["adapter"]],
        steps=[
            f"check the rules: podscale doctor {where}",
            "helm upgrade RELEASE CHART -f VALUES -f these-values.yaml"
            if about == "Helm values"
            else f"add the values below to the {about}",
        ],
        back=["helm rollback RELEASE"],
        servers=[_server(map_at(document, "prometheus"))],
    )
    more = "extraArguments"
    on = RemarksOn(f"{about}: {more}", outcome)
    arguments = _our_arguments(on, texts_at(document, more), "adapter")
    # Helm takes a list as it stands in the last file.
    mended = {more: arguments} if outcome.left_out else {}
    outcome.manifests = [{"image": {"repository": repository, "tag": tag or "latest"}, **mended}]
    return outcome


def _server(prometheus: Object) -> str:
    """Return the URL that the chart makes of its values."""
    url = text_at(prometheus, "url") or "http://prometheus.default.svc"
    port = text_at(prometheus, "port") if "port" in prometheus else "9090"
    return f"{url}{port and f':{port}'}{text_at(prometheus, 'path')}"


def _written(metadata: Object) -> dict[str, object]:
    """Return what a person wrote of it: the rest would make ``kubectl apply`` a conflict."""
    written = {key: value for key, value in metadata.items() if key not in _SERVERS}
    annotations = map_at(written, "annotations")
    for key in _SERVERS_ANNOTATIONS & annotations.keys():
        del annotations[key]
    written.pop("annotations", None)
    return {**written, **({"annotations": annotations} if annotations else {})}


def _our_arguments(on: RemarksOn, arguments: Sequence[str], program: str) -> list[str]:
    """Return the arguments that our program takes; ``on`` hears of the others."""
    ours: list[str] = []
    is_refused = False
    for argument, behind in zip(arguments, [*arguments[1:], "-"], strict=False):
        if argument.startswith("-"):
            name, equals, value = argument.lstrip("-").partition("=")
            name = name.replace("_", "-")  # pflag takes underscores for dashes
            row = row_of(name, {each.name: each for each in _TABLES[program]})
            has_value = equals or not behind.startswith("-")
            if not equals:
                value = behind if has_value else ""
            # Without a value only the flag is looked at.
            why = "" if row and not has_value else _refusal(program, name, value)
            if is_refused := bool(why):
                on.outcome.left_out.append(Remark(on.about, f"{why}; it would be refused"))
            elif row and row.ignored and name not in _LOGGING:
                on.lose(f"--{name}: accepted but ignored: {row.ignored}")
        if not is_refused:  # nor is the value behind one that is
            ours.append(argument)
    return ours


def _refusal(program: str, flag: str, value: str) -> str:
    """Return why a program of ours refuses a flag or its value, "" where it does not."""
    try:
        parse([f"--{flag}={value}"], _TABLES[program])
    except FlagError as error:
        return str(error)
    return ""


def is_controller_manager(manifest: Object) -> bool:
    return any(
        "kube-controller-manager" in text
        for container in _of_pod(manifest)
        for text in (text_at(container, "image"), *texts_at(container, "command")[:1])
    )


def controller_manager(manifest: Object) -> MigrationOutcome:
    """Return what the flags of kube-controller-manager's manifest become for ``podscale hpa``."""
    about = f"kube-controller-manager {'/'.join(filter(None, name_of(manifest)))}"
    outcome = MigrationOutcome(read=[about], flags=["--mode=replace"])
    on = RemarksOn(about, outcome)
    chosen: list[str] = []  # the flag adds up when repeated
    for name, value in _pairs([w for each in _of_pod(manifest) for w in _words_of(each)]):
        if name in _SAME and (why := _refusal("hpa", name, value)):
            outcome.left_out.append(Remark(about, f"{why}; it would be refused"))
        elif name in _SAME:
            outcome.flags.append(f"--{name}={value}")
        elif name in _GONE:
            on.lose(f"--{name}: {_GONE[name]}")
        elif name == "controllers":
            chosen.append(value)
        elif name == "feature-gates" and "HPA" in value:
            gates = ", ".join(gate for gate in value.split(",") if gate.startswith("HPA"))
            on.lose(f"--feature-gates {gates}: set by --emulated-version; on by default")
    controllers = ",".join(chosen) or "*"
    listed = controllers.split(",")
    if _OFF not in listed and _OLD_OFF not in listed:
        listed.append(_OFF)
    for text in _CHANGES:
        on.differ(text)
    outcome.steps = [
        "run podscale hpa --mode=shadow first: it decides and explains, and writes nothing",
        f"then start kube-controller-manager with --controllers={','.join(listed)}",
        "and podscale hpa with the flags below. Between the two nothing scales, nothing breaks",
    ]
    outcome.back = [
        f"start kube-controller-manager with --controllers={controllers} again",
        "stop podscale hpa, or give it --mode=shadow; HPAs and their status stay as they are",
    ]
    return outcome


def _pairs(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield names and values of flags; a value may be the word behind its flag."""
    for word, behind in zip(arguments, [*arguments[1:], ""], strict=False):  # of no words, none
        if word.startswith("-"):
            name, equals, value = word.lstrip("-").partition("=")
            # pflag takes underscores for dashes.
            yield name.replace("_", "-"), value if equals else behind


def _words_of(container: Object) -> list[str]:
    """Return the command line of a container: what its command and args come to.

    A shell's script is taken apart, as ``sh -c "exec kube-controller-manager --v=2 2>&1"``.
    """
    words = [*texts_at(container, "command"), *texts_at(container, "args")]
    if not _is_script(container):
        return words
    try:
        return [part for word in words for part in shlex.split(word)]
    except ValueError:  # a quotation that does not end
        return [part for word in words for part in word.split()]


def _is_script(container: Object) -> bool:
    words = [*texts_at(container, "command"), *texts_at(container, "args")]
    return bool(words) and words[0].rpartition("/")[2] in _SHELLS


def _containers(workload: Object) -> list[Object]:
    return list_at(workload, "spec", "template", "spec", "containers")


def _of_pod(manifest: Object) -> list[Object]:
    return list_at(manifest, "spec", "containers") or _containers(manifest)
