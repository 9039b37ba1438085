"""The command lines of ``serve``, ``control`` and ``run``: what each part takes, what cannot be.

What the parts of a process share (the feed, the watches of VPAs, the connection) can be told
one thing only.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from adapter import flags as adapter_flags
from adapter import precheck
from adapter.clusters import Targets
from hpa import flags as hpa_flags
from podscale.cli import hpa as hpa_command
from podscale.cli.combined import Tables
from podscale.kube.connect import Target
from podscale.serving import flag_table
from podscale.serving.flags import Flags
from vpa.admission import flags as admission_flags
from vpa.recommender import flags as recommender_flags
from vpa.updater import flags as updater_flags

TABLES: Tables = {
    "adapter": adapter_flags.TABLE,
    "hpa": tuple(hpa_command.flag_table()),
    "recommender": (*adapter_flags.OWN, *adapter_flags.FEED, *recommender_flags.TABLE),
    "updater": updater_flags.TABLE,
    "admission": admission_flags.TABLE,
}
_PROBLEMS: Mapping[str, Callable[[Flags], Sequence[str]]] = {
    "adapter": adapter_flags.problems,
    "hpa": hpa_flags.problems,
    "recommender": recommender_flags.problems,
    "updater": updater_flags.problems,
    "admission": admission_flags.problems,
}
# Among the feed's flags, those that are the part's own.
_OF_EACH = frozenset({"service", "serving-ca-lifetime", "adopt"})

Flagged = Mapping[str, Flags]  # part -> its flags, in the order of TABLES


def problems(flags: Flagged) -> list[str]:
    """Return what is wrong with the flags, and with the rules file that they name."""
    first = next(iter(flags.values()))
    found = [*flag_table.problems(first)]
    found += [text for part, own in flags.items() for text in _PROBLEMS[part](own)]
    found += _differences(flags)
    if own := reader_of(flags):
        if "adapter" not in flags:
            found += adapter_flags.problems(own)
        if not found:
            found += filter(None, [precheck.problem(Path(own.text("config")))])
    return list(dict.fromkeys(found))


def reader_of(flags: Flagged) -> Flags | None:
    """Return the flags of whoever reads Prometheus first; None: nobody does."""
    for part, own in flags.items():
        reads = {
            "adapter": lambda _: True,
            "hpa": lambda own: own.text("metrics-source") == "feed",
            "recommender": recommender_flags.uses_feed,
        }.get(part)
        if reads is not None and reads(own):
            return own
    return None


def targets(flags: Flagged) -> Targets:
    """Return how to reach the cluster, and those that judge requests where they are others.

    Blocking: looks for a ServiceAccount.
    """
    objects = target(flags)
    reviews = [
        flags["adapter"].text(name) if "adapter" in flags else ""
        for name in ("authentication-kubeconfig", "authorization-kubeconfig")
    ]
    return Targets(objects, *(Target(kubeconfig=path) if path else objects for path in reviews))


def target(flags: Flagged) -> Target:
    for part, of in (("hpa", hpa_flags.target), ("adapter", adapter_flags.target)):
        if part in flags and (found := of(flags[part])) != Target():
            return found
    named = [own.text("kubeconfig") for own in flags.values() if "kubeconfig" in own.values]
    return Target(kubeconfig=next(filter(None, named), ""))


def _differences(flags: Flagged) -> list[str]:
    """Return what is one thing in this process and was told differently to two parts."""
    readers = [part for part in flags if reader_of({part: flags[part]})]
    sizing = [part for part in ("recommender", "updater") if part in flags]
    feed = [flag.name for flag in (*adapter_flags.OWN, *adapter_flags.FEED)]
    found = []
    for parts, names in (
        (readers, [name for name in feed if name not in _OF_EACH]),
        (sizing, ["vpa-object-namespace", "ignored-vpa-object-namespaces"]),
        ([part for part in flags if part != "admission"], ["kubeconfig"]),
    ):
        for name in names:
            told = {part: flags[part].values[name] for part in parts if name in flags[part].values}
            if len(set(map(str, told.values()))) > 1:
                found.append(
                    f"--{name} is one for {', '.join(told)} in this process: "
                    f"give it without a part's name"
                )
    return found
