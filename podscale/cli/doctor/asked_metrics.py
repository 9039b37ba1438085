"""One metric that is asked about: what the rules make of it, and what a running adapter answers."""

import msgspec

from adapter.doctor.diagnosis import Diagnosis, diagnose, may_answer, reached
from adapter.doctor.evidence import AskedEvidence, Surroundings
from adapter.doctor.examine import Examiner, drive
from adapter.doctor.recording import RecordedAnswer, Recording
from adapter.rules.presumed import BUILT_IN
from adapter.stages import Stage
from podscale.cli.doctor.cluster import DoctorCluster
from podscale.cli.doctor.report import DoctorPlan, DoctorReport
from podscale.cli.doctor.served import answered
from podscale.core.showable import shown_url
from podscale.feed.http.client import PrometheusClient
from podscale.migrate.rules_source import RulesText


async def served(plan: DoctorPlan, asked: AskedEvidence, cluster: DoctorCluster) -> Diagnosis:
    """Return what the running adapter says, or that nobody comes to ask it."""
    told = plan.told
    found = await answered(cluster, asked, told.prometheus_problem if told is not None else "")
    is_bare = told is not None and not (told.rules or told.backends or plan.object_rules)
    if found.stage == Stage.NO_SERIES and is_bare:
        return msgspec.structs.replace(found, change="Write a rule for it: there is none.")
    if found.stage != Stage.HEALTHY:
        return found
    around = msgspec.structs.replace(
        Surroundings(prometheus_url=""),
        apiservices=await cluster.api_services(asked.api),
        self_service=plan.service,
        access=await cluster.access(asked, plan.reader) if plan.reader else None,
    )
    return reached(asked, around) or found


async def followed(
    plan: DoctorPlan,
    source: RulesText,
    asked: AskedEvidence,
    cluster: DoctorCluster | None,
    examiner: Examiner,
    problem: str | None,
    report: DoctorReport,
) -> Diagnosis:
    """Return what Prometheus has for the metric by the rules; the first one asked is recorded."""
    around = await _surroundings(plan, asked, cluster, problem)
    before = len(examiner.taken)
    objects = [each for each in plan.object_rules if may_answer(each, asked)]
    found = await drive(diagnose(source.text, asked, around, source.file, objects), examiner)
    if report.recording is None and not objects:  # which a recording does not hold
        report.recording = Recording(
            config=source.text,
            asked=asked,
            around=around,
            entries=[RecordedAnswer(need, given) for need, given in examiner.taken[before:]],
        )
    return found


async def served_or_followed(
    plan: DoctorPlan, asked: AskedEvidence, cluster: DoctorCluster, report: DoctorReport
) -> Diagnosis:
    """Return what the adapter says or, of objects that are meant, what Prometheus does: the
    file's rules are not known.
    """
    found = await served(plan, asked, cluster)
    meant = [
        each
        for each in plan.object_rules
        if may_answer(each, asked)
        and msgspec.structs.replace(each, filters=()).may_expose(asked.metric)
    ]
    prometheus = plan.prometheus
    if found.stage == Stage.HEALTHY or not meant or prometheus is None:
        return found
    plan = msgspec.structs.replace(plan, object_rules=meant)
    nothing = RulesText("rules: []", "no file", "no file")
    async with PrometheusClient(prometheus) as client:
        examiner = Examiner(client, plan.relist_interval_s)
        problem = await examiner.problem()
        found = await followed(plan, nothing, asked, cluster, examiner, problem, report)
        report.prometheus_requests += examiner.requests
    return found


async def _surroundings(
    plan: DoctorPlan, asked: AskedEvidence, cluster: DoctorCluster | None, problem: str | None
) -> Surroundings:
    around = Surroundings(
        prometheus_url=shown_url(plan.prometheus.url) if plan.prometheus else "",
        prometheus_error=problem,
        scrape_interval_s=plan.scrape_interval_s,
        relist_interval_s=plan.relist_interval_s,
        sample_max_age_s=plan.sample_max_age_s,
        resources=BUILT_IN,
        objects=[asked.name] if asked.name not in ("", "*") else [],
    )
    if cluster is None:
        return around
    return msgspec.structs.replace(
        around,
        resources=cluster.mapper.resources,
        objects=await cluster.object_names(asked),
        young=sorted(cluster.young),
        apiservices=await cluster.api_services(asked.api),
        self_service=plan.service,
        access=await cluster.access(asked, plan.reader) if plan.reader else None,
    )
