"""The doctor at a running adapter: its rules, and what it answers for a metric.

Both go through the API server with the caller's own rights. With ``--prometheus-url`` the
rules are followed as a file's are; without it nobody here can reach the adapter's
Prometheus, and what the adapter itself says of the metric is the finding.
"""

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from adapter.apis.rules_api import RESOURCE, RIGHT, RulesTold, RuleTold
from adapter.backends.backend_router import BackendTold
from adapter.doctor.diagnosis import API_GROUPS, without_sample
from adapter.doctor.evidence import AskedEvidence, Diagnosis, LintFinding
from adapter.doctor.series_checks import listed
from adapter.stages import Stage
from podscale.cli.doctor.cluster import VERSIONS, ClusterFailed, DoctorCluster
from podscale.cli.doctor.report import RuleReport
from podscale.cli.output import count
from podscale.core.json_decoder import decode_json
from podscale.feed.http.refusals import QUERY_TIMEOUT
from podscale.kube.client import errors
from podscale.kube.client.wire import ListOf, decode
from podscale.kube.metrics_apis.bodies import ANSWERED_BY, CustomValue, NodeMetrics, PodMetrics

# Reasons of the adapter's answers that are no stage of the doctor's, by status.
_STAGES = {
    403: Stage.FORBIDDEN, 500: Stage.QUERY_INVALID, 503: Stage.PROMETHEUS_UNREACHABLE,
    504: Stage.PROMETHEUS_UNREACHABLE,
}  # fmt: skip
_CHANGES: Mapping[Stage, str] = {
    Stage.API_SERVICE_ELSEWHERE: "See kubectl get apiservice for who that is.",
    Stage.PROMETHEUS_UNREACHABLE: "See the adapter's log, and its --prometheus-url.",
    Stage.FORBIDDEN: "Act as somebody who may (--as USER).",
}


_SAMPLES = "whether each object has a sample"
# What usage needs; kubectl top does as well.
_USAGE = (
    "See kubectl get apiservice v1beta1.metrics.k8s.io: metrics-server has to serve it, or the "
    "adapter (resourceRules)."
)


def told_by(told: RuleTold) -> RuleReport:
    """Return what the running adapter says of a rule."""
    problem = told.problem
    if not problem and told.listed_s is None:
        problem = "NotListedYet: the adapter has just begun; ask again after its relist interval"
    elif not problem and not told.metrics:
        problem = (
            "NoSeries: the rule exposes no metric; "
            "--prometheus-url shows which stage loses its series"
        )
    return RuleReport(told.rule, told.metrics, (), problem)


def of_backends(backends: Sequence[BackendTold]) -> Iterator[LintFinding]:
    """Yield what keeps the adapters behind the running one from answering."""
    for each in backends:
        subject = f"external backend {each.name}" if each.url else each.name
        if each.problem:
            yield LintFinding("ExternalBackend", subject, each.problem)
        if each.shadowed:
            listed = "; ".join(each.shadowed)
            text = f"lists what others answer before it ({listed}): rename it on one side"
            yield LintFinding("ExternalBackend", subject, text)


async def running_rules(cluster: DoctorCluster) -> RulesTold:
    """Return what the running adapter says of its rules; raises ``ClusterFailed``."""
    problems: list[errors.KubeError] = []
    for place in (f"{API_GROUPS[api]}/{each}" for api in API_GROUPS for each in VERSIONS[api]):
        try:
            found = await cluster.read(f"/apis/{place}/{RESOURCE}")
            return decode_json(found.body, RulesTold)
        except errors.ObjectNotFound:
            continue
        except errors.KubeError as error:
            problems.append(error)
        except msgspec.DecodeError as error:
            raise ClusterFailed(f"the adapter's answer is not understood: {error}") from error
    for api in API_GROUPS:  # notes who answers instead, and why nobody does
        await cluster.api_services(api)
    if not problems:
        raise ClusterFailed(
            "no podscale adapter serves custom.metrics.k8s.io or external.metrics.k8s.io here: say "
            "where the rules are (--config FILE, or --config-map NAMESPACE/NAME)"
        )
    first, notes = problems[0], "".join(f"{each}. " for each in cluster.notes)
    text = (
        f"the adapter does not answer through the API server: {first}. {notes}See kubectl get "
        "apiservice v1beta1.custom.metrics.k8s.io, or give --config FILE"
    )
    if isinstance(first, errors.Forbidden):
        text = (
            f"{first}. The rules of a running adapter need: list {RESOURCE} in "
            f"custom.metrics.k8s.io, and get on nonResourceURL {RIGHT}. Or give --config FILE"
        )
    raise ClusterFailed(text) from first


async def answered(cluster: DoctorCluster, asked: AskedEvidence, outage: str = "") -> Diagnosis:
    """Return what the adapter says of ``asked``: Healthy, or the stage its answer names.

    ``outage`` is what the adapter says of its Prometheus: the cause of an answer that never comes.
    """
    try:
        answer = await cluster.read(path_of(asked))
        items = decode(answer.body, ListOf[CustomValue]).items or ()
    except errors.ApiUnreachable as error:
        text = f"The API server does not answer: {error}"
        if error.is_timeout:
            waits = f"The adapter gives no answer, as when its Prometheus hangs: {error}"
            text = outage or waits
        return _found(Stage.PROMETHEUS_UNREACHABLE, f"{text}.")
    except errors.KubeError as error:
        return _refused(error)
    except msgspec.DecodeError as error:
        return _found(
            Stage.API_SERVICE_ELSEWHERE,
            f"Who answers for {API_GROUPS[asked.api]} is no adapter: its answer is no list of "
            f"values ({error}).",
        )
    backend = answer.headers.get(ANSWERED_BY.lower(), "")
    by = f" by the external backend {backend}" if backend else ""
    if not items:
        return _found(
            Stage.OBJECT_MISMATCH,
            f"The adapter answers{by} with no item: no {asked.resource or 'series'} with "
            f"a sample match {asked.selector or asked.metric_selector or 'the request'}.",
        )
    served = f"{asked.metric} is served{by}: {count(len(items), 'item')}."
    shown = {item.described_object.name for item in items}
    if asked.resource == "namespaces":
        return _healthy(served, asked, [])
    names = await cluster.settled_names(asked, _SAMPLES)  # a metric is served all the same
    return _healthy(served, asked, [name for name in names if name not in shown])


def _healthy(seen: str, asked: AskedEvidence, silent: Sequence[str]) -> Diagnosis:
    """Return that a metric is served; ``silent``: to all but these objects."""
    if not silent:
        return Diagnosis(Stage.HEALTHY, seen, "Nothing needs to change.")
    lint = LintFinding("NoSample", "the adapter", without_sample(asked, listed(silent)))
    return Diagnosis(Stage.HEALTHY, seen, "Nothing stops it.", beside=(lint,))


async def measured(cluster: DoctorCluster, asked: AskedEvidence) -> Diagnosis:
    """Return what metrics.k8s.io says of nodes, or of the pods that an HPA takes the usage of."""
    try:
        body = (await cluster.read(path_of(asked))).body
        if asked.resource == "nodes":
            return await _of_nodes(cluster, asked, decode(body, ListOf[NodeMetrics]).items or ())
        return _of_pods(asked, decode(body, ListOf[PodMetrics]).items or ())
    except msgspec.DecodeError as error:
        text = f"The answer of metrics.k8s.io is not understood: {error}."
        return Diagnosis(Stage.QUERY_INVALID, text, _USAGE)
    except errors.KubeError as error:
        refused = _refused(error)
        change = refused.change if isinstance(error, errors.Forbidden) else _USAGE
        return replace(refused, seen=f"metrics.k8s.io: {refused.seen}", change=change)


def _of_pods(asked: AskedEvidence, items: Sequence[PodMetrics]) -> Diagnosis:
    about = f"{asked.metric} of container {asked.container}" if asked.container else asked.metric
    silent = []
    for pod in items:  # nothing that is added up for an HPA may be missing
        counted = [c for c in pod.containers or () if asked.container in ("", c.name)]
        if not counted or any(asked.metric not in each.usage for each in counted):
            silent.append(pod.metadata.name)
    if len(silent) < len(items):
        pods = count(len(items) - len(silent), "pod")
        return _healthy(f"{about} is served: {pods}.", asked, silent)
    seen = (
        f"metrics.k8s.io tells the {about} of none of the pods that "
        f"{asked.selector or '(everything)'} selects in namespace {asked.namespace}."
    )
    change = (
        "See whether pods of the target run (kubectl top pod), and what serves metrics.k8s.io: "
        "with this adapter, the labels that resourceRules name."
    )
    names = {each.name for pod in items for each in pod.containers or ()}
    if names and asked.container and asked.container not in names:
        seen += f" Their containers are {', '.join(sorted(names))}."
        change = "Name one of them under containerResource.container of the HPA."
    return Diagnosis(Stage.OBJECT_MISMATCH, seen, change)


async def _of_nodes(
    cluster: DoctorCluster, asked: AskedEvidence, items: Sequence[NodeMetrics]
) -> Diagnosis:
    measured = {each.metadata.name for each in items if asked.metric in each.usage}
    names = await cluster.settled_names(asked, _SAMPLES)
    if names and not measured.intersection(names):
        return Diagnosis(
            Stage.OBJECT_MISMATCH,
            f"metrics.k8s.io tells the {asked.metric} of none of these nodes: {listed(names)}.",
            "With this adapter, see whether nodeQuery of resourceRules finds nodes by their "
            "names: podscale doctor with --prometheus-url does.",
        )
    seen = f"{asked.metric} is served: {count(len(measured), 'node')}."
    return _healthy(seen, asked, [name for name in names if name not in measured])


def _refused(error: errors.KubeError) -> Diagnosis:
    if not isinstance(error, errors.ApiError):
        return _found(Stage.PROMETHEUS_UNREACHABLE, f"{error}.")
    stages = set(Stage)
    for cause in error.causes:
        if cause.reason == QUERY_TIMEOUT:
            return _found(Stage.QUERY_INVALID, error.message)
        if cause.reason in stages:
            return _found(Stage(cause.reason), cause.message or error.message)
    default = Stage.NO_SERIES if error.status == 404 else Stage.PROMETHEUS_UNREACHABLE
    return _found(_STAGES.get(error.status, default), error.message)


def _found(stage: Stage, seen: str) -> Diagnosis:
    return Diagnosis(
        stage,
        seen,
        _CHANGES.get(
            stage,
            "Give --prometheus-url (kubectl port-forward reaches it) to see the series and the "
            "query.",
        ),
    )


def path_of(asked: AskedEvidence) -> str:
    """Return the path of the request that an HPA would make."""
    metric, group = quote(asked.metric), API_GROUPS.get(asked.api, "metrics.k8s.io")
    selectors = {"labelSelector": asked.selector, "metricLabelSelector": asked.metric_selector}
    scope = f"namespaces/{quote(asked.namespace)}/" if asked.namespace else ""
    if asked.api == "resource":
        path = f"{scope}{asked.resource}"  # pods or nodes, which have no namespace
    elif asked.api == "external":
        path = f"{scope}{metric}"
        selectors = {"labelSelector": asked.metric_selector}
    elif asked.resource == "namespaces":
        path = f"{scope}metrics/{metric}"
    else:
        path = f"{scope}{quote(asked.resource)}/{quote(asked.name or '*', safe='*')}/{metric}"
    query = "&".join(f"{key}={quote(text)}" for key, text in selectors.items() if text)
    return f"/apis/{group}/v1beta1/{path}{f'?{query}' if query else ''}"
