"""What the doctor finds: where a metric is lost, and what works and will surprise somebody. Pure.

What is wrong with a rule by its list of series has the same words in the doctor's report, in what
a running adapter tells, and in the status of a MetricRule.
"""

from msgspec import Struct
from msgspec.structs import replace

from adapter.discovery.listing import RuleListing
from adapter.discovery.registry import RuleState
from adapter.doctor.evidence import Need
from adapter.rules.ruleset import Rule
from adapter.stages import Finding, Stage


class LintFinding(Struct, frozen=True):
    """One thing that works and will surprise somebody."""

    lint: str
    subject: str  # "rules[3]", "hpa/web"
    reason: str
    place: str = ""  # file:line:column, where a file is to blame
    need: Need | None = None  # what is no PromQL; None: that is not what is told

    @property
    def is_hint(self) -> bool:
        """Whether it only costs: prometheus-adapter's own default rules select nearly all."""
        return self.lint == "UnboundedSeries"

    @property
    def text(self) -> str:
        """One line, as compilers print it."""
        return f"{self.place or self.subject}: {self.lint}: {self.reason}"


class Diagnosis(Struct, frozen=True):
    """The stage that is named, where it lies, what was seen and what to change."""

    stage: Stage
    seen: str
    change: str
    section: str = ""  # "rules" | "externalRules"; "": no rule is to blame
    rule: int | None = None
    place: str = ""  # file:line:column of the rule, or the object that it is written in
    promql: str = ""  # as rendered, if the way got so far
    beside: tuple[LintFinding, ...] = ()  # what does not stop a metric that is served

    def of(self, rule: Rule, promql: str = "") -> "Diagnosis":
        """Return the same as what is to blame on ``rule``."""
        index = None if rule.origin else rule.index
        return replace(self, section=rule.section, rule=index, place=rule.origin, promql=promql)


def problem_of(listing: RuleListing) -> Finding | None:
    """Return at which stage a rule loses all its series, and why; ``None``: it exposes some."""
    if listing.exposed:
        return None
    if not listing.shapes:
        return Finding(Stage.NO_SERIES, "seriesQuery finds nothing within the discovery window")
    filtered = listing.losses.get(Stage.FILTERED_OUT, 0)
    if filtered == sum(listing.losses.values()):
        names = "series name" if filtered == 1 else "series names"
        text = f"{filtered} {names} found, and none passes seriesFilters and matches"
        return Finding(Stage.FILTERED_OUT, text)
    return Finding(Stage.NO_RESOURCE_LABEL, "no label of the series maps to a resource")


def problem_of_state(state: RuleState) -> Finding | None:
    """Return what is wrong with a rule that was listed, or has failed to be."""
    if state.failure is not None:
        return Finding(state.failure.stage, state.failure.message)
    return None if state.listing is None else problem_of(state.listing)
