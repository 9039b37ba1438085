"""What a new leader knows before its first pass: checkpoints, or history from Prometheus.

It begins only when that has been read: to recommend from a minute of samples, or to write
checkpoints over those that could not be read, would take away what was learned.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import msgspec
import structlog

from podscale.feed.errors import QueryError
from podscale.kube.client.errors import KubeError
from podscale.kube.objects.scale import CronJob, ReplicationController, Workload
from podscale.kube.objects.vpa import VpaCondition
from vpa.model.cluster import ClusterModel
from vpa.model.estimation.status import history_condition
from vpa.model.groups import VpaEntry
from vpa.recommender.flags import Options
from vpa.recommender.history.checkpoints import Checkpoints
from vpa.recommender.history.usage_history import Labels, UsageHistory, load
from vpa.stores import VpaStores
from vpa.targets import Workloads

# Kubernetes' random parts have no vowels, so that a word of a name is not taken for one.
_RANDOM = re.compile(r"(?P<owner>.+)-[bcdfghjklmnpqrstvwxz2456789]{5}")
_HASH = re.compile(r"(?P<owner>.+)-[bcdfghjklmnpqrstvwxz2456789]{1,10}")
_MINUTES = re.compile(r"(?P<owner>.+)-[0-9]+")


def owners_labels(workloads: Workloads, namespace: str, pod: str) -> Mapping[str, str] | None:
    """Return labels that a pod of this name had, which may be gone; None if no controller fits.

    Controllers name their pods after themselves, and ReplicaSets are kept for a while. The
    selector's labels are those that a VPA of the controller selects by.
    """
    direct = _RANDOM.fullmatch(pod)
    tries = []
    if direct:
        owner = direct["owner"]
        tries += [(kind, owner) for kind in ("ReplicaSet", "DaemonSet", "Job")]
        tries.append(("ReplicationController", owner))
        for kind, pattern in (("Deployment", _HASH), ("CronJob", _MINUTES)):
            above = pattern.fullmatch(owner)
            tries += [(kind, above["owner"])] if above else []
    numbered = _MINUTES.fullmatch(pod)
    if numbered:
        tries.append(("StatefulSet", numbered["owner"]))
    for kind, name in tries:
        found = workloads.find(namespace, kind, name)
        labels = _labels(found) if found is not None else None
        if labels:
            return labels
    return None


def _labels(found: Workload | ReplicationController | CronJob) -> Mapping[str, str] | None:
    if isinstance(found, CronJob):
        return found.spec.job_template.spec.template.metadata.labels
    if isinstance(found, ReplicationController):
        return found.spec.selector
    selector = found.spec.selector
    return selector.match_labels if selector is not None else None


_log = structlog.get_logger()

FindPast = Callable[[], UsageHistory]  # raises ValueError for rules that cannot be asked
FIRST_PAUSE_S, MOST_PAUSE_S = 1.0, 60.0


async def from_checkpoints(checkpoints: Checkpoints, cluster: ClusterModel, now: float) -> int:
    """Load all checkpoints, however long it takes until they can be listed."""
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            loaded = await checkpoints.load(cluster, now)
            break
        except (KubeError, msgspec.DecodeError) as error:
            _log.warning("checkpoints not readable yet", error=str(error))
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, MOST_PAUSE_S)
    if loaded:
        _log.info("checkpoints loaded", count=loaded)
    return loaded


async def from_prometheus(
    find: FindPast,
    cluster: ClusterModel,
    stores: VpaStores,
    options: Options,
    now: float,
    progress: Callable[[float], None],
) -> VpaCondition | None:
    """Load history into a model that has its pods and VPAs; return what went wrong.

    After a failure the model holds a part of it and is of no use.
    """
    labels = _labels_of(cluster, stores, only_wanted=options.memory_saver)
    try:
        loaded = await load(find(), options.history, cluster, now, labels, progress)
    except QueryError as error:
        _log.warning("history not readable yet", error=str(error), said=error.detail)
        return history_condition(error.failure.reason, error.failure.message)
    except ValueError as error:
        _log.warning("history cannot be asked for", error=str(error))
        return history_condition("QueryInvalid", str(error))
    if not loaded.containers and _is_known_otherwise(cluster):
        text = (
            "Prometheus has no sample of any container, although there are recommendations "
            "for pods that run: what it answers is not their history. It is asked again; see "
            "that its queries find containers, or start with --storage=checkpoint"
        )
        _log.warning("history is empty", unknown=loaded.unknown)
        return history_condition("HistoryEmpty", text)
    _log.info("history loaded", containers=loaded.containers, samples=loaded.samples,
              unknown=loaded.unknown)  # fmt: skip
    return None


def _is_known_otherwise(cluster: ClusterModel) -> bool:
    # A VPA without pods may well have no history: those of a new cluster, or at rest.
    published = {key: entry.vpa.status.recommendation for key, entry in cluster.vpas.items()}
    return any(
        found is not None and found.container_recommendations and cluster.runs(key)
        for key, found in published.items()
    )


def told(cluster: ClusterModel, entry: VpaEntry) -> VpaCondition:
    """Return what history told of one VPA."""
    spans = cluster.aggregates.cpu_span, cluster.aggregates.memory_span
    parts = []
    for container in entry.containers():
        columns = entry.group(container)
        hours = max(float(span.samples[columns].sum()) for span in spans) / 60.0
        if hours:
            first = min(float(span.first[columns].min()) for span in spans)
            since = datetime.fromtimestamp(first, UTC).strftime("%Y-%m-%dT%H:%MZ")
            parts.append(f"{container}: {hours:.1f} container hours since {since}")
    text = "; ".join(parts) or "no sample of any container"
    return history_condition("HistoryLoaded", f"read from Prometheus: {text}")


def _labels_of(
    cluster: ClusterModel, stores: VpaStores, *, only_wanted: bool
) -> Callable[[str, str], Labels | None]:
    def labels(namespace: str, pod: str) -> Labels | None:
        view = stores.pods.get(namespace, pod)
        found = view.labels if view is not None else owners_labels(stores.workloads, namespace, pod)
        if found is None or (only_wanted and not cluster.matches(namespace, found)):
            return None
        return found

    return labels
