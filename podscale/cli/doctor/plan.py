"""What a call of ``podscale doctor`` comes to: whether its options fit, and what is examined."""

import math
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from adapter.apis.rules_api import RulesTold
from adapter.discovery.mapping import PresumingMapper, resolve, split
from adapter.doctor.evidence import AskedEvidence, Surroundings
from adapter.doctor.lints import RULE_LINTS
from adapter.doctor.recording import RecordingInvalid, decode, encode, masked, replay
from podscale.cli.cluster import ClusterChoice, NoCluster
from podscale.cli.doctor.cluster import READER, ClusterFailed, DoctorCluster
from podscale.cli.doctor.object_lints import OBJECT_LINTS, of_hpa
from podscale.cli.doctor.report import DoctorPlan, DoctorReport
from podscale.cli.doctor.rule_reports import has_objects as knows_objects
from podscale.cli.doctor.run import examine
from podscale.cli.doctor.served import running_rules
from podscale.cli.inputs import WrongInput, called, read, seconds, write
from podscale.cli.output import note, progress
from podscale.cli.prometheus import PrometheusChoice
from podscale.core.selectors import selector
from podscale.core.showable import shown_url
from podscale.kube.client.errors import Forbidden
from podscale.kube.client.resource import CONFIG_MAPS
from podscale.migrate.documents import Unreadable
from podscale.migrate.rules_source import RulesText, find, of_config_map


class DoctorOptions(Struct, frozen=True, kw_only=True):
    what: str | None
    config: str
    config_map: str
    prometheus: PrometheusChoice
    timeout: float
    metric: str
    api: str
    resource: str
    name: str
    selector: str
    metric_selector: str
    service: str
    reader: str
    relist_interval: str
    scrape_interval: str
    series: str
    record: str
    mask: bool
    disable_lint: tuple[str, ...]
    no_cluster: bool


async def examined(cluster: ClusterChoice, given: DoctorOptions) -> DoctorReport:
    """Return what was found; raises ``WrongInput``, ``ClusterFailed`` and as ``connect``."""
    if given.series:
        return await _replayed(given)
    _check(given)
    try:
        async with cluster.connect("doctor") as api:
            if given.no_cluster:
                return await _run(given, cluster, None)
            facts = DoctorCluster(api)
            await facts.learn_resources()
            return await _run(given, cluster, facts)
    except NoCluster as unconfigured:
        if given.what or not given.config:
            raise WrongInput(f"{unconfigured.message}; with --config FILE none is needed") from None
        if not given.no_cluster and cluster.is_named:
            raise WrongInput(f"{unconfigured.message}; with --no-cluster none is asked") from None
        if not given.no_cluster:
            note(f"Cluster checks skipped: {unconfigured.message}")
        return await _run(given, cluster, None)


async def _run(
    given: DoctorOptions, choice: ClusterChoice, facts: DoctorCluster | None
) -> DoctorReport:
    if facts is not None and choice.names_namespace:
        await facts.find_namespace(choice.namespace)
    questions, notes = [], list[str]()
    hpa = (given.what or "").partition("/")[2]
    if given.metric:
        questions = [_question(given, choice.namespace, facts)]
    elif hpa and facts is not None:
        questions, notes = await of_hpa(facts, choice.namespace, hpa)
    asked = [each for each in questions if each.api != "resource"]
    rules, told, has_objects = None, None, False
    if facts is not None and not (given.config or given.config_map):
        has_objects = knows_objects(facts)
    if asked or not hpa:  # of an HPA over usage alone, no rule says anything
        try:
            rules, told = await rules_of(given.config, given.config_map, facts)
        except ClusterFailed as failed:
            # Whoever may write a namespace's rules may not therefore read everybody's.
            if not has_objects or not isinstance(failed.__cause__, Forbidden):
                raise
            notes.append(f"of rules only objects are looked at: {failed}")
    relist_s = seconds("--relist-interval", given.relist_interval or "1m")
    scrape, prometheus = given.scrape_interval, given.prometheus.options(given.timeout)
    around = Surroundings(
        shown_url(prometheus.url) if prometheus else "",
        scrape_interval_s=seconds("--scrape-interval", scrape) if scrape else None,
        relist_interval_s=relist_s,
        self_service=given.service or (told.service if told else ""),
    )
    if told is not None:
        limit_s = relist_s if given.relist_interval else told.relist_interval_s
        around = replace(around, relist_interval_s=limit_s, sample_max_age_s=told.max_sample_age_s)
    plan = DoctorPlan(
        rules=rules,
        prometheus=prometheus,
        asked=asked,
        usage=[each for each in questions if each.api == "resource"],
        hpa=hpa,
        around=around,
        told=told,
        reader=given.reader or READER,
        namespace="" if choice.all_namespaces and not hpa else choice.namespace,
        disabled=frozenset(given.disable_lint),
        has_objects=has_objects,
    )
    report = await examine(plan, facts, progress())
    report.notes += notes
    is_named = choice.names_namespace or choice.all_namespaces
    if asked and given.metric and not (report.is_healthy or is_named):
        report.notes.append(f"looked in namespace {choice.namespace}; -n names another")
    _record(given, report)
    return report


def _question(given: DoctorOptions, namespace: str, facts: DoctorCluster | None) -> AskedEvidence:
    api, resource, name = given.api, "", ""
    if api == "custom":
        if facts is None and given.name == "*":
            raise WrongInput("without a cluster nobody knows the objects: give --name NAME")
        name = given.name
        mapper = facts.mapper if facts is not None else PresumingMapper()
        served = resolve(mapper, *split(given.resource))
        if served is None:
            raise WrongInput(f"--resource {given.resource}: there is no such resource")
        resource = served.group_resource  # ``pods`` for ``pod``: as rules and paths have it
        if resource == "nodes" and given.metric in ("cpu", "memory"):  # metrics.k8s.io has them
            api, namespace = "resource", ""
    selectors = given.selector, given.metric_selector
    return AskedEvidence(api, given.metric, namespace, resource, name, *selectors)


async def rules_of(
    config: str, config_map: str, cluster: DoctorCluster | None
) -> tuple[RulesText, RulesTold | None]:
    """Return the rules, and what a running adapter told beside them if they are its."""
    if config:
        named = called(config)
        try:
            found = find(read(config, "surrogateescape"), named)
        except Unreadable as error:
            raise WrongInput(str(error)) from None
        if found.elsewhere:
            raise WrongInput(
                f"{named}: rules.existing: the rules are in the ConfigMap {found.elsewhere}: give "
                f"--config-map NAMESPACE/{found.elsewhere}"
            )
        return found, None
    if cluster is None:
        raise WrongInput("without --config the rules come from a cluster, and none is configured")
    if not config_map:
        told = await running_rules(cluster)
        return RulesText(told.config, f"{told.file} of the adapter", "running adapter"), told
    namespace, _, name = config_map.partition("/")
    written = await cluster.get(CONFIG_MAPS.path(namespace, name), dict[str, Any])
    rules = of_config_map(written, f"configmap/{name}")
    if rules is None:
        raise WrongInput(f"ConfigMap {config_map} holds no rules")
    return rules, None


def _record(given: DoctorOptions, report: DoctorReport) -> None:
    if not given.record:
        return
    if report.recording is None:
        note(f"not recorded in {given.record}: only what a file's rules alone lead to is")
        return
    recording = masked(report.recording) if given.mask else report.recording
    write(given.record, f"{encode(recording).decode()}\n")
    note(f"recorded in {given.record}{' (masked)' if given.mask else ''}; the rules are in it")


async def _replayed(given: DoctorOptions) -> DoctorReport:
    try:
        recording = decode(read(given.series, "surrogateescape").encode(errors="surrogateescape"))
    except RecordingInvalid as error:
        raise WrongInput(f"--series {given.series}: {error}") from None
    return DoctorReport(findings=[(recording.asked, await replay(recording, given.series))])


def _check(given: DoctorOptions) -> None:
    """Raise ``WrongInput`` for options that nothing can be done with."""
    known = {**RULE_LINTS, **OBJECT_LINTS}
    if unknown := [each for each in given.disable_lint if each not in known]:
        raise WrongInput(f"--disable-lint {unknown[0]}: the lints are {', '.join(known)}")
    if given.config and given.config_map:
        raise WrongInput(
            "say where the rules are once: --config FILE or --config-map NAMESPACE/NAME"
        )
    if given.no_cluster and not given.config:
        raise WrongInput("without a cluster the rules come from a file: give --config FILE")
    if "/" not in given.config_map and given.config_map:
        raise WrongInput(f"--config-map {given.config_map}: say NAMESPACE/NAME")
    if given.what and (given.metric or not given.what.lower().startswith("hpa/")):
        raise WrongInput(f"say hpa/NAME, or --metric with an object; got {given.what!r}")
    if given.what and not given.what.partition("/")[2]:
        raise WrongInput(f"{given.what}: say which, hpa/NAME")
    if given.what and given.no_cluster:
        raise WrongInput("an HPA is read from a cluster: leave --no-cluster out, or give --metric")
    has_file = given.config or given.config_map
    if (given.metric or given.what) and has_file and not given.prometheus.url:
        raise WrongInput("--prometheus-url is needed to follow a metric (or --series FILE)")
    if given.record and not (given.metric or given.what):
        raise WrongInput("--record keeps the examination of one metric: give --metric")
    if not (math.isfinite(given.timeout) and given.timeout > 0):
        raise WrongInput(f"--timeout {given.timeout:g}: give more than 0 seconds")
    for header in given.prometheus.headers:
        if "=" not in header:
            raise WrongInput(f"--prometheus-header {header}: write NAME=VALUE")
    for flag, text in (("selector", given.selector), ("metric-selector", given.metric_selector)):
        try:
            selector.parse(text)
        except selector.SelectorError as error:
            raise WrongInput(f"--{flag} {text}: {error}") from None
