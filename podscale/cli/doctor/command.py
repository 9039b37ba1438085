"""``podscale doctor``: why is my metric not there, and what in the rules will surprise?"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from podscale.cli.cluster import (
    EXIT_FAILED,
    ClusterChoice,
    NoCluster,
    cluster_options,
    kind_and_name,
)
from podscale.cli.doctor.options import DoctorOptions, check
from podscale.cli.inputs import EXIT_USAGE, WrongInput, called, read, seconds
from podscale.cli.output import Form, note, output_option, printable, progress, said
from podscale.cli.prometheus import prometheus_options

if TYPE_CHECKING:
    from adapter.apis.rules_api import RulesTold
    from podscale.cli.doctor.cluster import DoctorCluster
    from podscale.cli.doctor.report import DoctorReport
    from podscale.migrate.rules_source import RulesText


@click.command("doctor")
@click.argument("what", metavar="[hpa/NAME]", required=False, shell_complete=kind_and_name("hpa"))
@click.option(
    "-f",
    "--config",
    default="",
    metavar="FILE",
    help="Rules file, ConfigMap manifest or Helm values; - is stdin.",
)
@click.option(
    "--config-map",
    default="",
    metavar="NAMESPACE/NAME",
    help="Rules in a ConfigMap of the cluster. Neither: the running adapter is asked.",
)
@prometheus_options
@click.option("--timeout", default=10.0, show_default=True, help="Seconds for one query.")
@click.option("--metric", default="", help="The metric that is missing; else the whole file.")
@click.option("--api", type=click.Choice(["custom", "external"]), default="custom")
@click.option("--resource", default="pods", show_default=True, help="As kubectl names it.")
@click.option("--name", default="*", show_default=True, help="An object; *: all that --selector")
@click.option("--selector", "-l", default="", help="selects.")
@click.option("--metric-selector", default="", help="The HPA's selector on the metric.")
@click.option("--service", default="", metavar="NAMESPACE/NAME", help="The adapter's Service.")
@click.option(
    "--reader",
    default="",
    metavar="USER",
    help="Who must be allowed to read it; not given: the HPA controller.",
)
@click.option(
    "--relist-interval",
    default="",
    metavar="DURATION",
    help="The adapter's --metrics-relist-interval (or --metrics-max-age); 1m for a file.",
)
@click.option(
    "--scrape-interval",
    default="",
    metavar="DURATION",
    help="Of the targets, for RateWindow; not given: the longest of Prometheus's configuration.",
)
@click.option("--series", default="", metavar="FILE", help="Answer from a recording instead.")
@click.option("--record", default="", metavar="FILE", help="Keep what was seen, for a bug report.")
@click.option("--mask", is_flag=True, help="Record no values, label values or object names.")
@click.option("--disable-lint", multiple=True, metavar="LINT", help="Repeatable; see the docs.")
@click.option("--no-cluster", is_flag=True, help="Ask no API server.")
@cluster_options
@output_option
@click.pass_context
def command(ctx: click.Context, /, cluster: ClusterChoice, form: Form, **options: object) -> None:
    """Find out why a metric is not there, or check a whole rules file.

    \b
    podscale doctor hpa/web -n shop                 the running adapter's rules and answers
    podscale doctor hpa/web -n shop --prometheus-url URL      and each stage of their way
    podscale doctor -f rules.yaml --prometheus-url URL --metric NAME -n shop
    podscale doctor -f rules.yaml                   lints of a file

    Exit codes: 0 nothing has to change, 1 something was found or could not be asked, 2 the
    call was wrong.
    """
    from podscale.cli.doctor.cluster import ClusterFailed
    from podscale.cli.doctor.report import print_report
    from podscale.kube.client.errors import KubeError

    try:
        report = asyncio.run(_examined(cluster, DoctorOptions(**options)))
    except WrongInput as wrong:
        note(f"podscale doctor: {printable(said(wrong))}")
        ctx.exit(EXIT_USAGE)
        return
    except (ClusterFailed, KubeError, OSError) as failed:
        note(f"podscale doctor: {printable(said(failed))}")
        ctx.exit(EXIT_FAILED)
        return
    print_report(report, form)
    if not report.is_healthy:
        ctx.exit(EXIT_FAILED)


async def _examined(cluster: ClusterChoice, given: DoctorOptions) -> "DoctorReport":
    if given.series:
        return _replayed(given)
    check(given)
    try:
        async with cluster.connect("doctor") as api:
            if given.no_cluster:
                return await _run(given, cluster, None)
            from podscale.cli.doctor.cluster import DoctorCluster

            facts = DoctorCluster(api)
            await facts.learn_resources()
            return await _run(given, cluster, facts)
    except NoCluster as unconfigured:
        if given.what or not given.config:
            raise WrongInput(f"{unconfigured.message}; with --config FILE none is needed") from None
        if not given.no_cluster and cluster.is_named:
            raise WrongInput(f"{unconfigured.message}; with --no-cluster none is asked") from None
        if not given.no_cluster:
            note(f"no cluster is asked: {unconfigured.message}")
        return await _run(given, cluster, None)


async def _run(
    given: DoctorOptions, choice: ClusterChoice, facts: "DoctorCluster | None"
) -> "DoctorReport":
    from msgspec import structs

    from adapter.doctor.evidence import AskedEvidence
    from podscale.cli.doctor.cluster import READER, ClusterFailed
    from podscale.cli.doctor.hpa_metrics import of_hpa
    from podscale.cli.doctor.report import DoctorPlan
    from podscale.cli.doctor.rule_reports import has_objects as knows_objects
    from podscale.cli.doctor.run import examine
    from podscale.kube.client.errors import Forbidden

    if facts is not None and choice.names_namespace:
        await facts.find_namespace(choice.namespace)
    asked: list[AskedEvidence] = []
    notes: list[str] = []
    hpa = (given.what or "").partition("/")[2]
    if hpa and facts is not None:
        asked, notes = await of_hpa(facts, choice.namespace, hpa)
    usage = [each for each in asked if each.api == "resource"]
    asked = [each for each in asked if each.api != "resource"]
    rules: RulesText | None = None
    told: RulesTold | None = None
    has_objects = (
        facts is not None and not (given.config or given.config_map) and knows_objects(facts)
    )
    if asked or not hpa:  # of an HPA over usage alone, no rule says anything
        try:
            rules, told = await rules_of(given.config, given.config_map, facts)
        except ClusterFailed as failed:
            # Whoever may write a namespace's rules may not therefore read everybody's.
            if not has_objects or not isinstance(failed.__cause__, Forbidden):
                raise
            notes.append(f"of rules only objects are looked at: {failed}")
    if given.metric:
        if facts is None and given.api == "custom" and given.name == "*":
            raise WrongInput("without a cluster nobody knows the objects: give --name NAME")
        is_external = given.api == "external"
        resource = "" if is_external else _resource(given.resource, facts)
        about = AskedEvidence(
            given.api,
            given.metric,
            choice.namespace,
            resource,
            "" if is_external else given.name,
            given.selector,
            given.metric_selector,
        )
        if resource == "nodes" and given.metric in ("cpu", "memory"):  # metrics.k8s.io has them
            usage = [structs.replace(about, api="resource", namespace="")]
        else:
            asked = [about]
    plan = DoctorPlan(
        rules=rules,
        prometheus=given.prometheus.options(given.timeout),
        asked=asked,
        usage=usage,
        hpa=hpa,
        relist_interval_s=told.relist_interval_s
        if told and not given.relist_interval
        else seconds("--relist-interval", given.relist_interval or "1m"),
        scrape_interval_s=seconds("--scrape-interval", given.scrape_interval)
        if given.scrape_interval
        else None,
        sample_max_age_s=told.max_sample_age_s if told else 300.0,
        service=given.service or (told.service if told else ""),
        told=told,
        reader=given.reader or READER,
        namespace="" if choice.all_namespaces and not hpa else choice.namespace,
        disabled=frozenset(given.disable_lint),
        has_objects=has_objects,
    )
    report = await examine(plan, facts, progress())
    report.notes += notes
    if (
        asked
        and given.metric
        and not (report.is_healthy or choice.names_namespace or choice.all_namespaces)
    ):
        report.notes.append(f"looked in namespace {choice.namespace}; -n names another")
    _record(given, report)
    return report


def _resource(written: str, facts: "DoctorCluster | None") -> str:
    """Return ``pods`` for ``pod``: the form that rules and paths use."""
    from adapter.discovery.mapping import resolve, split
    from adapter.rules.presumed import PresumingMapper

    mapper = facts.mapper if facts is not None else PresumingMapper()
    group, resource = split(written)
    found = resolve(mapper, group, resource)
    if found is None:
        raise WrongInput(f"--resource {written}: there is no such resource")
    return found.group_resource


async def rules_of(
    config: str, config_map: str, cluster: "DoctorCluster | None"
) -> "tuple[RulesText, RulesTold | None]":
    """Return the rules, and what a running adapter told beside them if they are its."""
    from podscale.migrate.rules_source import RulesText, find, of_config_map

    if config:
        named = called(config)
        found = find(read(config, "surrogateescape"), named)
        if found.elsewhere:
            raise WrongInput(
                f"{named}: rules.existing: the rules are in the ConfigMap {found.elsewhere}: give "
                f"--config-map NAMESPACE/{found.elsewhere}"
            )
        return found, None
    if cluster is None:
        raise WrongInput("without --config the rules come from a cluster, and none is configured")
    if not config_map:
        from podscale.cli.doctor.served import running_rules

        told = await running_rules(cluster)
        return RulesText(told.config, f"{told.file} of the adapter", "running adapter"), told
    namespace, _, name = config_map.partition("/")
    rules = of_config_map(await cluster.config_map(namespace, name), f"configmap/{name}")
    if rules is None:
        raise WrongInput(f"ConfigMap {config_map} holds no rules")
    return rules, None


def _record(given: DoctorOptions, report: "DoctorReport") -> None:
    from adapter.doctor.recording import encode, masked

    if not given.record:
        return
    if report.recording is None:
        note(f"not recorded in {given.record}: only what a file's rules alone lead to is")
        return
    kept = masked(report.recording) if given.mask else report.recording
    try:
        Path(given.record).write_bytes(encode(kept) + b"\n")
    except OSError as error:
        raise WrongInput(f"--record {given.record}: cannot be written: {error.strerror}") from None
    note(f"recorded in {given.record}{' (masked)' if given.mask else ''}; the rules are in it")


def _replayed(given: DoctorOptions) -> "DoctorReport":
    from adapter.doctor.recording import RecordingInvalid, decode, replay
    from podscale.cli.doctor.report import DoctorReport

    try:
        recording = decode(read(given.series, "surrogateescape").encode(errors="surrogateescape"))
    except RecordingInvalid as error:
        raise WrongInput(f"--series {given.series}: {error}") from None
    return DoctorReport(findings=[(recording.asked, replay(recording, given.series))])
