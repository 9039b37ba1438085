"""kube-controller-manager's HPA flags as ours, and how the two take turns.

From the group HPAController of kube-controller-manager (hpa.md 5).
"""

from collections.abc import Iterator, Sequence

from podscale.migrate.documents import Object, list_at, name_of, text_at, texts_at, words_of
from podscale.migrate.outcome import MigrationOutcome, Remark
from podscale.migrate.program_flags import refusal

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


def is_one(manifest: Object) -> bool:
    """Return whether a Pod, or a workload, runs kube-controller-manager."""
    return any(
        "kube-controller-manager" in text
        for container in _containers(manifest)
        for text in (text_at(container, "image"), *texts_at(container, "command")[:1])
    )


def manifest(document: Object) -> MigrationOutcome:
    """Return what the flags of the manifest become."""
    arguments = [word for container in _containers(document) for word in words_of(container)]
    namespace, name = name_of(document)
    about = f"kube-controller-manager {'/'.join(filter(None, (namespace, name)))}"
    return flags(arguments, about)


def flags(arguments: Sequence[str], about: str = "kube-controller-manager") -> MigrationOutcome:
    """Return what kube-controller-manager's arguments become for ``podscale hpa``."""
    kept, lost, left_out = [], [], []
    chosen: list[str] = []  # the flag adds up when repeated
    for name, value in _pairs(arguments):
        if name in _SAME and (why := refusal("hpa", name, value)):
            left_out.append(Remark(about, f"{why}; it would be refused"))
        elif name in _SAME:
            kept.append(f"--{name}={value}")
        elif name in _GONE:
            lost.append(Remark(about, f"--{name}: {_GONE[name]}"))
        elif name == "controllers":
            chosen.append(value)
        elif name == "feature-gates" and "HPA" in value:
            gates = ", ".join(gate for gate in value.split(",") if gate.startswith("HPA"))
            lost.append(
                Remark(about, f"--feature-gates {gates}: gates follow --emulated-version, and on")
            )
    controllers = ",".join(chosen) or "*"
    listed = controllers.split(",")
    if _OFF not in listed and _OLD_OFF not in listed:
        listed.append(_OFF)
    return MigrationOutcome(
        read=[about],
        flags=["--mode=replace", *kept],
        left_out=left_out,
        lost=lost,
        differs=[
            Remark(about, text)
            for text in (
                (
                    "all HPAs are decided by one process from one read of Prometheus; "
                    "--concurrent-horizontal-pod-autoscaler-syncs bounds writes only"
                ),
                "recommendations and scale events survive a restart; upstream forgets them",
                "a stale, NaN or missing sample never scales down",
            )
        ],
        steps=[
            "run podscale hpa --mode=shadow first: it decides and explains, and writes nothing",
            f"then start kube-controller-manager with --controllers={','.join(listed)}",
            "and podscale hpa with the flags below. Between the two nothing scales, nothing breaks",
        ],
        back=[
            f"start kube-controller-manager with --controllers={controllers} again",
            "stop podscale hpa, or give it --mode=shadow; HPAs and their status stay as they are",
        ],
    )


def _pairs(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield names and values of flags; a value may be the word behind its flag."""
    for word, behind in zip(arguments, [*arguments[1:], ""], strict=False):  # of no words, none
        if word.startswith("-"):
            name, equals, value = word.lstrip("-").partition("=")
            # pflag takes underscores for dashes.
            yield name.replace("_", "-"), value if equals else behind


def _containers(document: Object) -> list[Object]:
    return list_at(document, "spec", "containers") or list_at(
        document, "spec", "template", "spec", "containers"
    )
