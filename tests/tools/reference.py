"""Writes the reference pages: flags from the programs' own help, reasons from the case file.

``python -m tests.tools.reference`` renews them; ``tests/docs`` holds them equal.
"""

import re
from pathlib import Path

import yaml
from click.testing import CliRunner

from podscale.cli.entry import COMMANDS

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
CASES = ROOT / "tests" / "conformance" / "cases" / "explain.yaml"
PROGRAMS = (
    "serve", "control", "run", "adapter", "hpa", "recommender", "updater", "admission", "nodes",
)  # fmt: skip
_FLAG = re.compile(
    r"^ {6}(?:-\w, )?--(?P<name>\S+)(?: (?P<kind>\S+))?\n {10}(?P<help>.*?)"
    r"(?: \(default (?P<default>.*)\))?$",
    re.MULTILINE,
)
_END = Path(__file__).with_name("configuration_end.md")  # written by hand
_COMMON = {"adapter", "hpa", "recommender", "updater", "admission"}
_HEAD = "<!-- Written by `python -m tests.tools.reference`. -->\n\n"
_INTRO = """# Configuration reference

Flags are read as the originals read them: `--flag=value`, `--flag value`, `-v=4`; durations are
Go's (`1m30s`). A wrong command line ends with status 2, and says which word is wrong. The rules
file, the annotations of objects and the exit codes are described at the end.
"""


def flags_of(program: str) -> dict[str, tuple[str, str, str]]:
    """Return flag → (kind, default, meaning) of a program, from its help."""
    command = COMMANDS[program].load()
    text = CliRunner().invoke(command, ["--help"]).output
    found = {
        each["name"]: (each["kind"] or "", each["default"] or "", each["help"])
        for each in _FLAG.finditer(text)
    }
    if not found:
        raise ValueError(f"podscale {program} --help lists no flags")
    return found


def configuration() -> str:
    """Return docs/configuration.md."""
    programs = {name: flags_of(name) for name in PROGRAMS}
    ways = [programs[name] for name in sorted(_COMMON)]
    shared = {
        flag: what
        for flag, what in ways[0].items()
        if all(way.get(flag) == what for way in ways[1:])
    }
    parts = [_HEAD, _INTRO, "\n## Every program\n\n", _table(shared)]
    for name, flags in programs.items():
        own = {flag: what for flag, what in flags.items() if shared.get(flag) != what}
        parts += [f"\n## podscale {name}\n\n", _table(own)]
    return "".join((*parts, _END.read_text(encoding="utf-8")))


_HELD_BY_INTRO = """
## `held_by`

What else keeps pods from being updated, beside `BudgetExhausted` and `AdmissionNotAlive`.

"""
_HELD_BY = {
    "Anchor": "An HPA counts on the CPU of these pods (docs/coordination.md). Change: the anchor "
    "moves with it.",
    "OutsideDisruptionWindow": "The VPA allows updates at other times only. Change: the window "
    "opens.",
    "DailyBudgetExhausted": "As many pods were updated as the VPA allows for a day. Change: the "
    "day passes, or the number is raised.",
    "OutcomeUnknown": "The API server gave no answer to an update of the group, which may have "
    "been carried out. Change: the next loop finds it well.",
    "ApiServerBusy": "The API server answered 429 for itself, not for a budget. Change: it is "
    "less busy in the next loop.",
    "PodsReturnUnsized": "Evicted pods came back without the webhook's annotation. Change: the "
    "API server sends it the pods of this namespace; one pod is tried after `again_s`.",
}


# Of podscale's own decisions; those of cases/explain.yaml are Kubernetes' as well.
_OWN = {
    "ForecastAboveMetrics": "A forecast of the demand asks for more than the metrics do, under "
    "podscale.io/forecast. Change: the time that it tells of passes.",
    "AnchorMissing": "An HPA that is coordinated with a VPA finds no anchor that is of its target, "
    "and removes no pod by what pods request today. Change: the recommender writes the anchor.",
    "GapInWindow": "Prometheus, or the cluster's metrics API, did not answer for a while, and a "
    "range of the query reaches into that time, where a rate reads low: the size is not lowered by "
    "it. Change: the metrics still ask for less when the range, and a quarter of it, has passed "
    "since.",
    "ScheduleRefused": "podscale.io/schedule is refused, or an entry of it, which may be what "
    "keeps the size up: it is not lowered. Change: the annotation is corrected or removed, or the "
    "metrics ask for more.",
    "MetricQueryInvalid": "The query behind the metric is wrong: the template of its rule cannot "
    "be filled in, or Prometheus refuses the query. Change: correct metricsQuery of the rule; "
    "`podscale doctor` shows it.",
    "SmallPodsRemain": "Of an HPA that is coordinated with a VPA some pods have grown and some "
    "have not, or some use CPU that leave or are not ready: as many stay as carry all of the load "
    "where all are small. Change: the updater has resized all of them, and those that leave have.",
    "UsageMissing": "No usage is read, so what a VPA recommends stands as it is. Change: usage is "
    "read again.",
    "ScheduledMinimumReached": "A schedule raises minReplicas for now, and the metrics ask for "
    "less. Change: the schedule ends, or podscale.io/schedule asks for less.",
}


def reasons() -> str:
    """Return docs/reasons.md."""
    known = yaml.safe_load(CASES.read_text(encoding="utf-8"))["reasons"]
    title = "# Reasons\n\nThe tokens that explanations, events, metrics and tests share.\n\n"
    more = _HELD_BY_INTRO + _meanings("held_by", _HELD_BY)
    return _HEAD + title + _meanings("reason", known | _OWN) + more


def _meanings(name: str, known: dict[str, str]) -> str:
    rows = [f"| {name} | what it means | what would have to change |", "|---|---|---|"]
    for token, text in known.items():
        meaning, _, change = text.partition(" Change: ")
        rows.append(f"| `{token}` | {_cell(meaning)} | {_cell(change)} |")
    return "\n".join(rows) + "\n"


def pages() -> dict[Path, str]:
    """Return every generated page: where it lies and what it holds."""
    return {DOCS / "configuration.md": configuration(), DOCS / "reasons.md": reasons()}


def _table(flags: dict[str, tuple[str, str, str]]) -> str:
    rows = ["| flag | default | meaning |", "|---|---|---|"]
    for name, (kind, default, text) in flags.items():
        shown = f"`--{name}`" + (f" {kind}" if kind else "")
        rows.append(f"| {shown} | {f'`{default}`' if default else ''} | {_cell(text)} |")
    return "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
