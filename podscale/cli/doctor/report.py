"""What the doctor is asked for, and what it found. Data."""

from collections.abc import Sequence

from msgspec import Struct

from adapter.apis.rules_api import RulesTold
from adapter.doctor.diagnosis import Diagnosis
from adapter.doctor.evidence import AskedEvidence
from adapter.doctor.lints import LintFinding
from adapter.doctor.recording import Recording
from adapter.rules.ruleset import Rule
from adapter.stages import Stage
from podscale.cli.doctor.rule_reports import RuleReport
from podscale.feed.options import PrometheusOptions
from podscale.migrate.rules_source import RulesText


class DoctorPlan(Struct, frozen=True, kw_only=True):
    """What the command line comes to."""

    rules: RulesText | None  # None: nothing that is asked for comes from rules
    prometheus: PrometheusOptions | None = None
    asked: Sequence[AskedEvidence] = ()
    relist_interval_s: float = 60.0
    scrape_interval_s: float | None = None
    sample_max_age_s: float = 300.0
    service: str = ""
    reader: str = ""
    namespace: str = ""
    told: RulesTold | None = None  # by the running adapter, where the rules are from
    disabled: frozenset[str] = frozenset()
    usage: Sequence[AskedEvidence] = ()  # of pods, which metrics.k8s.io serves and not a rule
    hpa: str = ""  # the HPA that all this is asked about; "": lints are of every one
    has_objects: bool = False  # MetricRules count beside the rules
    object_rules: Sequence[Rule] = ()  # those of them that are followed; ``examine`` finds them


class DoctorReport(Struct, kw_only=True):
    """Everything that was found."""

    findings: list[tuple[AskedEvidence, Diagnosis]] = []
    config_problem: Diagnosis | None = None
    rules: list[RuleReport] = []
    lints: list[LintFinding] = []
    notes: list[str] = []
    prometheus_requests: int = 0
    cluster_requests: int = 0
    recording: Recording | None = None

    @property
    def is_healthy(self) -> bool:
        """Return whether nothing has to change."""
        return (
            self.config_problem is None
            and all(each.is_hint for each in self.lints)
            and not any(rule.problem for rule in self.rules)
            and all(found.stage == Stage.HEALTHY for _, found in self.findings)
        )
