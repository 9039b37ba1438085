"""Everything that a process keeps by key, and what bounds it.

What clients send is a key of a ``BoundedCache`` only. Whoever adds another dict, set or
``lru_cache`` where requests pass says here what bounds it, or this test fails; so does whoever
gives a class a field that is one, or a list. Elsewhere that is asked of what an object keeps and
never removes by key: emptying it all at some size is no bound, since whoever writes the keys says
when that is.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
PRODUCTS = ("podscale", "adapter", "hpa", "vpa")
# What a request, or what it asks for, passes through.
ROOMS = ("podscale/core", "podscale/explain", "podscale/serving", "podscale/feed", "podscale/kube",
         "podscale/page", "adapter", "vpa/admission", "vpa/decisions", "vpa/scale_cache.py",
         "vpa/stores.py", "vpa/targets.py")  # fmt: skip
# Processes that end with their work.
SHORT_LIVED = ("podscale/cli", "podscale/migrate", "podscale/replay", "podscale/sandbox")
DECORATORS = ("cache", "cached_property", "lru_cache")
HOLDERS = ("Counter", "OrderedDict", "WeakKeyDictionary", "WeakValueDictionary", "defaultdict",
           "dict", "set")  # fmt: skip
# As fields of classes lists, too: their methods stand elsewhere, with whoever fills them.
FIELDS = (*HOLDERS, "deque", "list")

REMOVERS = ("pop", "popitem", "discard", "remove", "difference_update", "intersection_update")

CLUSTER = "by objects of the cluster, removed with them"
CODE = "by names in the code"
LIVE = "by what is under way, removed at its end"
RULES = "by what the rules file says, made anew when it changes"
MODES = "by modes and powers of two"
SCRATCH = "lives for one piece of work"
BOUNDED = {
    "adapter/apis/bodies.py:timestamp": "256 seconds",
    "adapter/flags.py:_File.clusters": SCRATCH,
    "adapter/flags.py:_File.contexts": SCRATCH,
    "adapter/flags.py:_File.users": SCRATCH,
    "adapter/doctor/examine.py:Examiner._known": SCRATCH,
    "adapter/doctor/examine.py:Examiner.crowded": SCRATCH,
    "adapter/doctor/examine.py:Examiner._sharing": SCRATCH,
    "adapter/backends/backend_router.py:BackendRouter._open": "by the backends file and Services",
    "adapter/backends/backend_router.py:BackendRouter._refused": CLUSTER,
    "adapter/backends/backend_router.py:BackendRouter._works": "by the backends file and Services",
    "adapter/discovery/labels.py:ResourceLabels.override_labels": "by labels that name a resource",
    "adapter/discovery/labels.py:ResourceLabels._by_resource": "by resources of the cluster",
    "adapter/discovery/labels.py:ResourceLabels._parts": "so many, of so many characters",
    "adapter/discovery/listing.py:ListingBuilder._exposed": SCRATCH,
    "adapter/discovery/listing.py:ListingBuilder._kinds": SCRATCH,
    "adapter/discovery/listing.py:ListingBuilder._losses": SCRATCH,
    "adapter/discovery/listing.py:ListingBuilder._lost": "so many series",
    "adapter/discovery/listing.py:ListingBuilder._readings": SCRATCH,
    "adapter/discovery/listing.py:ListingBuilder._shared": SCRATCH,
    "adapter/rules/patterns.py:_patterns": "weak, by patterns that a rule holds",
    "adapter/queries/plans.py:Plans._windows": "weak, by plans of a BoundedCache",
    "adapter/doctor/recording.py:_Mask._words": SCRATCH,
    "adapter/discovery/relist.py:Relister._asking": LIVE,
    "adapter/discovery/relist.py:Relister._behind": LIVE,
    "adapter/discovery/relist.py:Relister._insisting": LIVE,
    "adapter/discovery/relist.py:Relister._own": CLUSTER,
    "adapter/discovery/relist.py:Relister._unpublished": LIVE,
    "adapter/discovery/relist.py:Relister._sharing": RULES,
    "adapter/discovery/rule_scope.py:RuleScope.awaited": RULES,
    "adapter/discovery/rule_scope.py:RuleScope.leaving": RULES,
    "adapter/discovery/rule_scope.py:RuleScope.states": RULES,
    "adapter/metric_rules/status.py:RuleStatusWriter._changed": CLUSTER,
    "adapter/metric_rules/watched.py:WatchedMetricRules._found": CLUSTER,
    "adapter/metric_rules/watched.py:WatchedMetricRules._unread": CODE,
    "adapter/discovery/relist.py:Relister._slots": RULES,
    "adapter/discovery/relist.py:Relister._scopes": "by namespaces with rules of their own",
    "adapter/discovery/naming.py:Namer._groups": "by groups of a pattern of 64 KiB",
    "podscale/feed/source_routing.py:FeedBySource._probes": LIVE,
    "adapter/sources/source_router.py:SourceRouter._failed": RULES,
    "adapter/sources/source_router.py:SourceRouter._open": RULES,
    "adapter/sources/source_router.py:SourceRouter._closings": LIVE,
    "adapter/selfmetrics.py:AdapterMetrics._told": RULES,
    "adapter/queries/inquiry.py:_Aging._old": "two generations of questions",
    "adapter/queries/inquiry.py:_Aging._young": "questions that HPAs ask",
    "adapter/rules/strict_yaml.py:YamlReader._told": SCRATCH,
    "adapter/rules/strict_yaml.py:YamlReader.places": SCRATCH,
    "adapter/queries/usage.py:UsageByRules._by_pod": "weak, by snapshots of the feed",
    "adapter/apis/schemas.py:definitions": CODE,
    "adapter/apis/schemas.py:paths": CODE,
    "hpa/decide/reconcile.py:_Pass.events": SCRATCH,
    "hpa/decide/reconcile.py:_Pass.path": SCRATCH,
    "hpa/decide/selection.py:_problem": "65,536 selectors of 256 characters",
    "hpa/decide/behavior.py:recommendation": "1,000 pairs of numbers",
    "hpa/simulate/workload.py:step_s": "one number of each load",
    "podscale/core/boundedcache.py:BoundedCache._old": "what the others are bounded by",
    "podscale/core/boundedcache.py:BoundedCache._young": "what the others are bounded by",
    "podscale/core/gotemplate.py:_Parser.fields": SCRATCH,
    "podscale/core/gotemplate.py:_Parser._variables": SCRATCH,
    "podscale/core/quantity.py:format_milli": "65,536 numbers",
    "podscale/core/value_index.py:ValueIndex._found": CLUSTER,
    "podscale/core/quantity.py:parse": "16,384 texts of 128 characters; longer ones raise",
    "podscale/feed/http/credentials.py:PrometheusCredentials.headers": CODE,
    "podscale/feed/feed.py:Feed._groups": "counts its bytes, and forgets by age",
    "podscale/feed/feed.py:Feed._indexes": "by namespaces of the cluster, emptied at a relist",
    "podscale/feed/feed.py:Feed._refreshes": "removed with the groups",
    "podscale/feed/feed.py:Feed._running": LIVE,
    "podscale/feed/queries/group.py:QueryGroup._excluded": "by namespace, removed with the group",
    "podscale/feed/queries/group.py:QueryGroup._failures": "by namespace, removed with the group",
    "podscale/feed/queries/group.py:QueryGroup._memories": "by namespace, forgotten by age",
    "podscale/feed/queries/group.py:QueryGroup.layouts": "of the batches of now",
    "podscale/feed/queries/group.py:QueryGroup.snapshots": "of namespaces that are remembered",
    "podscale/feed/decoding/wire.py:WireSample.metric": SCRATCH,
    "podscale/feed/queries/answer_rows.py:AnswerRows.containers": SCRATCH,
    "podscale/feed/queries/answer_rows.py:AnswerRows.duplicated": SCRATCH,
    "podscale/feed/queries/answer_rows.py:AnswerRows.names": SCRATCH,
    "podscale/feed/queries/answer_rows.py:AnswerRows.objects": SCRATCH,
    "podscale/feed/queries/answer_rows.py:AnswerRows.times": SCRATCH,
    "podscale/feed/queries/answer_rows.py:Collector.rows": SCRATCH,
    "podscale/feed/queries/group.py:_Memory.older": "names of objects, forgotten by age",
    "podscale/feed/queries/group.py:_Memory.verified": "64 requests of a namespace",
    "podscale/feed/queries/queue.py:Queries._budgets": "by namespaces that ask in a period",
    "podscale/feed/queries/queue.py:FairSemaphore._held": LIVE,
    "podscale/feed/queries/queue.py:FairSemaphore._slow": RULES,
    "podscale/feed/queries/queue.py:FairSemaphore._waiting": LIVE,
    "podscale/feed/queries/refresh.py:Refresh._parts": SCRATCH,
    "podscale/feed/queries/refresh.py:Refresh._waiting": SCRATCH,
    "podscale/feed/http/series.py:_ShapeStore.alive": "one list; bounded by name and in all",
    "podscale/feed/http/series.py:SeriesReader._beyond": "one list; bounded by name and in all",
    "podscale/feed/http/series.py:SeriesReader.by_name": "one list; bounded by name and in all",
    "podscale/feed/http/series.py:_ShapeStore._distinct": "one list; bounded by name and in all",
    "podscale/feed/http/series.py:SeriesReader.crowded": "one list; bounded by name and in all",
    "podscale/feed/http/series.py:SplitSeriesReader.readers": "one list; by what it is asked for",
    "podscale/feed/queries/single_queries.py:_Held.readings": "by labels of rules",
    "podscale/feed/queries/single_queries.py:SingleQueries._running": LIVE,
    "podscale/feed/stats.py:FeedStats.demotions": CODE,
    "podscale/feed/stats.py:FeedStats.failures": CODE,
    "podscale/feed/stats.py:FeedStats.queries": CODE,
    "podscale/kube/columns/cohorts.py:Cohorts._by_key": CLUSTER,
    "podscale/kube/columns/cohorts.py:Cohorts._by_number": CLUSTER,
    "podscale/kube/columns/cohorts.py:Cohorts._moved": CLUSTER,
    "podscale/kube/columns/cohorts.py:_EMPTY": CODE,
    "podscale/kube/events.py:_Recent._items": "so many, the oldest goes first",
    "podscale/kube/events.py:_Similar.messages": "so many, the oldest goes first",
    "podscale/kube/discovery.py:ApiDiscovery._documents": "by API groups of the cluster",
    "podscale/kube/events.py:Recorder._waiting": LIVE,
    "podscale/kube/columns/pods.py:InternedKeys._number": CLUSTER,
    "podscale/kube/columns/metadata.py:OnDemandMetadata._watched": "idle ones are dropped",
    "podscale/kube/columns/pods.py:PodStore._annotations": CLUSTER,
    "podscale/kube/columns/pods.py:PodStore._odd_uids": CLUSTER,
    "podscale/kube/columns/pods.py:PodStore._resizes": CLUSTER,
    "podscale/kube/columns/pod_set.py:NO_ANNOTATIONS": CODE,
    "podscale/kube/columns/pod_set.py:present": "by containers of one pod",
    "podscale/kube/discovery.py:Mapper._by_kind": "by resources of the cluster",
    "podscale/kube/discovery.py:Mapper._by_name": "by resources of the cluster",
    "podscale/kube/discovery.py:Mapper._versions": "by API groups of the cluster",
    "podscale/kube/informer/freshness.py:NewestVersions._rewritten": CLUSTER,
    "podscale/kube/informer/freshness.py:NewestVersions._seen": CLUSTER,
    "podscale/kube/informer/freshness.py:FreshnessTracker._scopes": "by flags",
    "podscale/kube/columns/store.py:Rows._latest": CLUSTER,
    "podscale/kube/columns/store.py:Rows._where": CLUSTER,
    "podscale/kube/informer/store.py:Store._listed": CLUSTER,
    "podscale/kube/informer/store.py:Store._objects": CLUSTER,
    "podscale/core/json_decoder.py:_decoder": CODE,
    "podscale/core/samplecolumns.py:SampleColumns.by_name": "its own samples",
    "podscale/kube/client/wire.py:_decoder": CODE,
    "podscale/kube/client/wire.py:_fields": CODE,
    "podscale/kube/metrics_apis/provider.py:ApiProvider._silences": CODE,
    "podscale/kube/client/wire.py:read_time": "4,096 times of 64 characters; longer ones raise",
    "podscale/page/board.py:ShownWorkload.scalings": CLUSTER,
    "podscale/page/board.py:ShownWorkload.kills": CLUSTER,
    "podscale/page/board.py:WorkloadBoard._of_hpa": CLUSTER,
    "podscale/page/board.py:WorkloadBoard._of_vpa": CLUSTER,
    "podscale/nodes/headroom/keeper.py:HeadroomKeeper._held": "as many as headroom has pods",
    "podscale/nodes/room/room_maker.py:_Round.spent": SCRATCH,
    "podscale/nodes/scheduling/cluster_view.py:alike": SCRATCH,
    "podscale/nodes/scheduling/cluster_view.py:grown": SCRATCH,
    "podscale/nodes/scheduling/cluster_view.py:kept_away": SCRATCH,
    "podscale/nodes/scheduling/cluster_view.py:namespace_labels": SCRATCH,
    "podscale/nodes/scheduling/cluster_view.py:node_labels": SCRATCH,
    "podscale/nodes/scheduling/cluster_view.py:placed": SCRATCH,
    "podscale/nodes/scheduling/cluster_view.py:room": SCRATCH,
    "podscale/nodes/scheduling/volumes.py:PodClaims._claims": SCRATCH,
    "podscale/nodes/scheduling/volumes.py:PodClaims._classes": SCRATCH,
    "podscale/nodes/scheduling/volumes.py:PodClaims._volumes": SCRATCH,
    "podscale/page/board.py:WorkloadBoard._workloads": CLUSTER,
    "podscale/page/sampler.py:Sampler._acts": CLUSTER,
    "podscale/page/what_if.py:WhatIf._found": "40 workloads",
    "podscale/serving/monitoring/health.py:OverlappingRounds._began": LIVE,
    "podscale/serving/monitoring/health.py:Health._live": CODE,
    "podscale/serving/monitoring/health.py:Health._ready": CODE,
    "podscale/serving/certificates/ciphers.py:_has": CODE,
    "podscale/serving/apis/discovery.py:ServedDiscovery._documents": "by groups that are served",
    "podscale/serving/apis/discovery.py:ServedDiscovery._sorted": "by groups that are served",
    "podscale/serving/apis/discovery.py:ServedDiscovery._by_name": "by groups that are served",
    "podscale/serving/http/parser.py:_Message.headers": SCRATCH,
    "podscale/serving/http/parser.py:_Message.repeated": SCRATCH,
    "podscale/serving/http/parser.py:_kept_header": "2,048 lines of 120 characters",
    "podscale/serving/http/listener.py:ConnectionSlots._strangers": LIVE,
    "podscale/serving/http/listener.py:ConnectionSlots.connections": LIVE,
    "podscale/serving/http/listener.py:ConnectionSlots.handshakes": LIVE,
    "podscale/serving/http/request.py:_NONE": CODE,
    "podscale/serving/singleflight.py:SingleFlight._flying": LIVE,
    "podscale/serving/monitoring/selfmetrics.py:AttemptCounter.counts": CODE,
    "podscale/serving/monitoring/selfmetrics.py:RequestCounter._by_labels": "so many labels",
    "podscale/serving/monitoring/selfmetrics.py:RequestCounter._resources": "so many, so long",
    "podscale/serving/monitoring/selfmetrics.py:_Count.codes": "statuses of HTTP",
    "podscale/serving/monitoring/selfmetrics.py:_Delegated._total": CODE,
    "podscale/serving/certificates/tls.py:ServingTls._by_name": "by flags",
    "podscale/serving/auth/trust.py:TrustSource._published": CODE,
    "podscale/serving/auth/trust.py:TrustSource._files": "by flags",
    "podscale/serving/apis/negotiate.py:_dumper": CODE,
    "podscale/serving/handler_chain.py:HandlerChain._routes": CODE,
    "hpa/loop/slot.py:SlotQuestions._windows": "the namespaces of one slot; gone with it",
    "hpa/selfmetrics.py:HpaMetrics.decisions": CODE,
    "hpa/selfmetrics.py:HpaMetrics.forecasts": CODE,
    "hpa/selfmetrics.py:HpaMetrics.writes": CODE,
    "hpa/selfmetrics.py:PassTally.counts": CODE,
    "hpa/selfmetrics.py:PassTally.sums": CODE,
    "vpa/decisions/api.py:SizingApi._changed": CLUSTER,
    "podscale/explain/decision_history.py:DecisionHistory._rings": CLUSTER,
    "vpa/explain/admission.py:AdmittedPod._containers": SCRATCH,
    "vpa/explain/admission.py:AnnotationWriter._containers": SCRATCH,
    "vpa/model/cluster.py:ClusterModel.killed": "until the next checkpoint",
    "vpa/model/groups.py:ContainerGroups.rows": SCRATCH,
    "vpa/recommender/node_shapes.py:_Listed.daemonsets": SCRATCH,
    "vpa/recommender/history/checkpoints.py:Checkpoints.loaded_until": "by those read in a term",
    "vpa/recommender/history/usage_history.py:_Replay._gone": SCRATCH,
    "vpa/recommender/history/usage_history.py:_Replay._told": SCRATCH,
    "vpa/recommender/history/usage_history.py:_Replay.taken": SCRATCH,
    "vpa/recommender/history/usage_history.py:_Replay.unknown": SCRATCH,
    "vpa/recommender/part.py:decisions": "one, of the part",
    "vpa/recommender/selfmetrics.py:Quality._missing": MODES,
    "vpa/recommender/selfmetrics.py:Quality._of": CODE,
    "vpa/recommender/selfmetrics.py:_Counted._counts": MODES,
    "vpa/recommender/selfmetrics.py:_Counted._sums": MODES,
    "vpa/recommender/selfmetrics.py:QualitySamples._numbers": MODES,
    "vpa/scale_cache.py:ScaleCache._requests": LIVE,
    "vpa/stores.py:VpaStores._ranges": CLUSTER,
    "vpa/stores.py:VpaStores._read": CLUSTER,
    "vpa/stores.py:VpaStores._unreadable": CLUSTER,
    "vpa/updater/cluster/pod_observer.py:PodObserver._acted": "by pods of the last pass",
    "vpa/updater/cluster/pod_observer.py:PodObserver._refused": "by pods of the last pass",
    "vpa/updater/cluster/pod_observer.py:PodObserver._topmost": "by owners in one loop",
    "vpa/updater/decide/disruption_budget.py:DisruptionBudget._begun": SCRATCH,
    "vpa/updater/decide/disruption_budget.py:DisruptionBudget._disrupted": SCRATCH,
    "vpa/updater/decide/disruption_budget.py:DisruptionBudget._gone": SCRATCH,
    "vpa/updater/decide/disruption_budget.py:DisruptionBudget.ended": SCRATCH,
    "vpa/updater/decide/disruption_budget.py:DisruptionBudget._least": SCRATCH,
    "vpa/updater/decide/disruption_budget.py:DisruptionBudget._lost": SCRATCH,
    "vpa/updater/loop/loop.py:_Pass.seen": SCRATCH,
    "vpa/updater/loop/vpa_reconcile.py:VpaReconcile.holding": SCRATCH,
    "vpa/updater/loop/vpa_reconcile.py:VpaReconcile.known": SCRATCH,
    "vpa/updater/selfmetrics.py:ReconcileReport._done": SCRATCH,
    "vpa/updater/selfmetrics.py:UpdaterMetrics._gauges": CODE,
    "vpa/admission/matching.py:TargetIndex._by_target": CLUSTER,
    "vpa/admission/matching.py:TargetIndex._in_namespace": CLUSTER,
    "vpa/admission/matching.py:TargetIndex._targets": CLUSTER,
    "vpa/admission/part.py:AdmissionMetrics._pods": CODE,
    "vpa/model/samples/checkpoints.py:wire_time": "4,096 numbers",
    "vpa/model/histograms/matrix.py:ColumnArrays._empty": CODE,
    "podscale/kube/objects/vpa.py:_by_container": CLUSTER,
    "podscale/kube/objects/vpa.py:by_container": CLUSTER,
}


def _name(node: ast.AST) -> str:
    while isinstance(node, ast.Subscript | ast.Call):
        node = node.value if isinstance(node, ast.Subscript) else node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _cached(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if any(_name(each) in DECORATORS for each in node.decorator_list):
                yield node.name
        elif isinstance(node, ast.Call) and _name(node.func) in DECORATORS and node.args:
            yield ast.unparse(node.args[0])  # lru_cache(maxsize=…)(function)


def _held(node: ast.AST, owner: str = "") -> Iterator[str]:
    """Yield what belongs to an object, and what is empty at first and belongs to a module."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.AnnAssign | ast.Assign):
            target = child.target if isinstance(child, ast.AnnAssign) else child.targets[0]
            is_own = isinstance(target, ast.Attribute) and _name(target.value) == "self"
            is_held = (is_own or isinstance(node, ast.Module)) and _holds(child)
            is_filled = is_own and _is_filled(child)
            if is_held or is_filled or (_is_filled_later(node) and _is_field(child)):
                yield f"{owner}{_name(target)}"
        yield from _held(child, f"{child.name}." if isinstance(child, ast.ClassDef) else owner)


def _holds(assigned: ast.AnnAssign | ast.Assign) -> bool:
    value = assigned.value
    if isinstance(value, ast.Dict):
        return not value.keys
    if isinstance(assigned, ast.AnnAssign) and _name(assigned.annotation) in HOLDERS:
        return value is not None and not isinstance(value, ast.Set)
    if not isinstance(value, ast.Call):
        return False
    return _name(value) == "defaultdict" or (_name(value) in HOLDERS and not value.args)


def _is_filled(assigned: ast.AnnAssign | ast.Assign) -> bool:
    """Whether it holds something from the beginning on, to which more may come."""
    value = assigned.value
    if isinstance(assigned, ast.AnnAssign) and _name(assigned.annotation) not in HOLDERS:
        return False
    is_made = isinstance(value, ast.Call) and _name(value) in HOLDERS
    return is_made or isinstance(value, ast.Dict | ast.DictComp | ast.Set | ast.SetComp)


def _is_filled_later(node: ast.AST) -> bool:
    """Whether it is a class, and its objects are no values: those are made whole."""
    if not isinstance(node, ast.ClassDef):
        return False
    decorators = [each for each in node.decorator_list if isinstance(each, ast.Call)]
    words = [*node.keywords, *(word for each in decorators for word in each.keywords)]
    return all(each.arg != "frozen" for each in words)


def _is_field(assigned: ast.AnnAssign | ast.Assign) -> bool:
    """Whether each object of the class gets one of its own, which whoever has it may fill."""
    if not isinstance(assigned, ast.AnnAssign) or _name(assigned.annotation) not in FIELDS:
        return False
    value = assigned.value
    if isinstance(value, ast.Call) and _name(value) == "field":
        return any(each.arg == "default_factory" for each in value.keywords)
    return value is not None


def _growing(tree: ast.Module) -> Iterator[str]:
    """Yield what objects of a class hold and its methods never remove by key or make anew."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        shrinking: set[str] = set()
        for method in node.body:
            if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                shrinking |= set(_shrinking(method))
        yield from set(_held(node, f"{node.name}.")) - {f"{node.name}.{each}" for each in shrinking}


def _shrinking(method: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for node in ast.walk(method):
        if isinstance(node, ast.Delete):
            yield from map(_name, node.targets)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in REMOVERS:
                yield _name(node.func.value)
        elif isinstance(node, ast.Assign | ast.AugAssign) and method.name != "__init__":
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                parts = target.elts if isinstance(target, ast.Tuple) else [target]
                yield from (each.attr for each in parts if isinstance(each, ast.Attribute))


def _found() -> set[str]:
    found = set()
    for product in PRODUCTS:
        for path in (ROOT / product).rglob("*.py"):
            where = str(path.relative_to(ROOT))
            tree = ast.parse(path.read_text())
            names = set(_cached(tree))
            if where.startswith(ROOMS):
                names |= set(_held(tree))
            elif not where.startswith(SHORT_LIVED):
                names |= set(_growing(tree))
            found |= {f"{where}:{name}" for name in names}
    return found


def test_whatever_is_kept_by_key_is_bounded_by_what_is_written_here() -> None:
    found = _found()
    assert found - BOUNDED.keys() == set(), "say what bounds it, or use a BoundedCache"
    assert BOUNDED.keys() - found == set(), "is no longer there"


def test_a_cache_without_a_bound_would_be_found() -> None:
    tree = ast.parse("""
from functools import lru_cache
import functools
_known: dict[str, int] = {}
LIMITS = {"a": 1}
@functools.lru_cache(maxsize=None)
def parse(text): ...
kept = lru_cache(maxsize=8)(parse)
class Texts:
    def __init__(self):
        self._seen = set()
        self._by_text = defaultdict(list)
        self._by_scope = {"": 1}
        self._names = {name for name in names}
        self._codes: Mapping[str, int] = {"a": 1}
        local = {}
""")
    assert set(_cached(tree)) == {"parse"}
    texts = {f"Texts.{each}" for each in ("_seen", "_by_text", "_by_scope", "_names")}
    assert set(_held(tree)) == {"_known", *texts}


def test_what_is_emptied_all_at_once_counts_as_growing() -> None:
    tree = ast.parse("""
class Pods:
    def __init__(self):
        self._known, self._left = {}, 0
        self._all = {}
        self._by_uid = {}
        self._seen = set()
        self._now = {}
        self._shared: dict[str, dict[str, int]] = {}
    def note(self, pod):
        if len(self._all) > 20_000:
            self._all.clear()
        self._all[pod.name] = pod
    def forget(self, pod):
        del self._by_uid[pod.uid]
        self._seen.discard(pod.uid)
        del self._shared[pod.namespace][pod.name]
        self._now, pods = {}, 1
""")
    assert set(_growing(tree)) == {"Pods._all"}


def test_fields_of_structs_and_dataclasses_are_found_and_constants_are_not() -> None:
    tree = ast.parse("""
class Value(Struct, frozen=True):
    wire: dict[str, str] = {}
@dataclass(frozen=True)
class Other:
    wire: dict[str, str] = field(default_factory=dict)
class Budget(Struct):
    namespace: str
    most: int = 5
    labels: Mapping[str, str] = {}
    wire: dict[str, str] = field(name="wire")
    waiting: dict[int, float] = field(default_factory=dict)
    called: set[int] = msgspec.field(default_factory=set)
    lines: list[str] = []
    spent: Counter[str] = field(default_factory=Counter)
    older: dict[str, float] = field(default_factory=dict)
    def forget(self, name):
        local: dict[str, int] = {}
        self.older.pop(name)
""")
    fields = {f"Budget.{each}" for each in ("waiting", "called", "lines", "spent", "older")}
    assert set(_held(tree)) == fields
    assert set(_growing(tree)) == fields - {"Budget.older"}
