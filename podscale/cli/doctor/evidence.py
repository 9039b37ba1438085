"""The one way to what is known of a metric: by a running adapter, and by Prometheus."""

from msgspec.structs import replace

from adapter.doctor.diagnosis import diagnose, may_answer, reached
from adapter.doctor.evidence import AskedEvidence, Surroundings
from adapter.doctor.examine import Examiner, drive
from adapter.doctor.findings import Diagnosis
from adapter.doctor.recording import RecordedAnswer, Recording
from adapter.rules.presumed import BUILT_IN
from adapter.stages import Stage
from podscale.cli.doctor.cluster import DoctorCluster
from podscale.cli.doctor.report import DoctorPlan
from podscale.cli.doctor.served import answered
from podscale.core.showable import shown_url
from podscale.migrate.rules_source import RulesText


class MetricEvidence:
    """Diagnoses metrics; whoever cannot be asked is ``None``."""

    def __init__(
        self,
        plan: DoctorPlan,
        cluster: DoctorCluster | None,
        examiner: Examiner | None,
        *,
        problem: str | None = None,
        has_others: bool = False,
    ) -> None:
        """``problem`` is what is wrong with Prometheus itself; ``has_others``: the adapter goes by
        rules that ``examiner`` does not follow.
        """
        self._plan = plan
        self._cluster = cluster
        self._examiner = examiner
        self._problem = problem
        self._asks_adapter = has_others or examiner is None
        self.recording: Recording | None = None  # of the first metric that rules alone explain

    async def find(self, asked: AskedEvidence) -> Diagnosis | None:
        """Return what is known of a metric; ``None`` where nobody can be asked."""
        found, plan = None, self._plan
        is_running = plan.told is not None or plan.rules is None
        if self._cluster is not None and is_running and self._asks_adapter:
            found = await self._served(asked, self._cluster)
        if self._examiner is None or (found is not None and found.stage == Stage.HEALTHY):
            return found
        return await self._followed(asked, self._examiner) or found

    async def _served(self, asked: AskedEvidence, cluster: DoctorCluster) -> Diagnosis:
        plan, told = self._plan, self._plan.told
        found = await answered(cluster, asked, told.prometheus_problem if told is not None else "")
        is_bare = told is not None and not (told.rules or told.backends or plan.object_rules)
        if found.stage == Stage.NO_SERIES and is_bare:
            return replace(found, change="Write a rule for it: there is none.")
        if found.stage != Stage.HEALTHY:
            return found
        return reached(asked, await self._reader(Surroundings(""), asked, cluster)) or found

    async def _followed(self, asked: AskedEvidence, examiner: Examiner) -> Diagnosis | None:
        source = self._plan.rules
        objects = [each for each in self._plan.object_rules if may_answer(each, asked)]
        if source is None:  # nobody may read the rules: objects explain what they are meant for
            source = RulesText("rules: []", "no file", "no file")
            objects = [
                each for each in objects if replace(each, filters=()).may_expose(asked.metric)
            ]
            if not objects:
                return None
        around = await self._surroundings(asked)
        before = len(examiner.taken)
        found = await drive(diagnose(source.text, asked, around, source.file, objects), examiner)
        if self.recording is None and not objects:  # which a recording does not hold
            entries = [RecordedAnswer(need, given) for need, given in examiner.taken[before:]]
            self.recording = Recording(
                config=source.text, asked=asked, around=around, entries=entries
            )
        return found

    async def _surroundings(self, asked: AskedEvidence) -> Surroundings:
        plan, cluster = self._plan, self._cluster
        around = Surroundings(
            prometheus_url=shown_url(plan.prometheus.url) if plan.prometheus else "",
            prometheus_error=self._problem,
            scrape_interval_s=plan.scrape_interval_s,
            relist_interval_s=plan.relist_interval_s,
            sample_max_age_s=plan.sample_max_age_s,
            resources=BUILT_IN,
            objects=[asked.name] if asked.name not in ("", "*") else [],
        )
        if cluster is None:
            return around
        around = replace(
            around,
            resources=cluster.mapper.resources,
            objects=await cluster.object_names(asked),
            young=sorted(cluster.young),
        )
        return await self._reader(around, asked, cluster)

    async def _reader(
        self, around: Surroundings, asked: AskedEvidence, cluster: DoctorCluster
    ) -> Surroundings:
        """Return ``around`` with what stands between the metric and its reader."""
        plan = self._plan
        return replace(
            around,
            apiservices=await cluster.api_services(asked.api),
            self_service=plan.service,
            access=await cluster.access(asked, plan.reader) if plan.reader else None,
        )
