"""Nodes as arrays: sizes, thresholds and states, kept current by the store's changes."""

from collections.abc import Mapping

import numpy as np
import structlog

from podscale.core import quantity
from podscale.core.quantity import QuantityError
from podscale.core.selectors.selector import Selector
from podscale.kube.informer.fed_store import Change
from podscale.kube.informer.store import Store
from podscale.kube.objects.cluster import Node
from podscale.nodes.decide.ballast import BallastSettings, Floats, NodeStates

_log = structlog.get_logger(__name__)

# Labels, since those are what pools of nodes and node autoscalers hand down.
BALLAST_LABEL = "nodes.podscale.io/ballast"  # "off": this node has none
THRESHOLD_LABELS = ("nodes.podscale.io/cpu-threshold", "nodes.podscale.io/memory-threshold")
_LABELS = (BALLAST_LABEL, *THRESHOLD_LABELS)
_OURS = "nodes.podscale.io/"
# Taints that say that the node is about to go.
_LEAVING = frozenset({
    "ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption",
    "node.kubernetes.io/out-of-service",
})  # fmt: skip
_PRESSURES = frozenset({"MemoryPressure", "DiskPressure", "PIDPressure"})


class NodeArrays(NodeStates, frozen=True, eq=False):
    """All nodes, in the order of ``names``; sizes are (2, n), NaN where they cannot be read."""

    names: tuple[str, ...]
    places: Mapping[str, int]
    created_s: Floats  # (n,) unix time; -inf: not known
    capacity: Floats
    allocatable: Floats
    thresholds: Floats


class NodeTable:
    """What ``nodes`` holds, in arrays that are made anew when something changed."""

    def __init__(self, nodes: Store[Node], settings: BallastSettings, selector: Selector) -> None:
        self._settings = settings
        self._selector = selector
        self._rows: dict[str, tuple[float, ...]] = {}
        self._made: NodeArrays | None = None
        self._warned: set[str] = set()
        nodes.subscribe(self._changed)

    def arrays(self) -> NodeArrays:
        if self._made is None:
            names = tuple(self._rows)
            rows = np.array(list(self._rows.values()), np.float64).reshape(-1, 11)
            columns = np.ascontiguousarray(rows.T)
            is_excluded, is_pressed, is_cordoned, is_draining = columns[7:] > 0
            places = {name: place for place, name in enumerate(names)}
            self._made = NodeArrays(
                is_excluded, is_pressed, is_cordoned, is_draining, names, places,
                columns[0], columns[1:3], columns[3:5], columns[5:7],
            )  # fmt: skip
        return self._made

    def _changed(self, change: Change[Node]) -> None:
        row = None if change.new is None else self._row(change.new)
        if row == self._rows.get(change.name):
            return
        self._made = None
        if row is None:
            self._rows.pop(change.name, None)
            self._warned.discard(change.name)
        else:
            self._rows[change.name] = row

    def _row(self, node: Node) -> tuple[float, ...]:
        labels = node.metadata.labels or {}
        unknown = [label for label in labels if label.startswith(_OURS) and label not in _LABELS]
        if unknown:
            self._warn(node, unknown[0], f"not known: ours are {', '.join(_LABELS)}")
        defaults = self._settings.cpu_threshold, self._settings.memory_threshold
        cpu, memory = (
            self._threshold(node, label, default)
            for label, default in zip(THRESHOLD_LABELS, defaults, strict=True)
        )
        conditions = {each.type: each.status for each in node.status.conditions}
        created_s = node.metadata.creation_timestamp
        return (
            -np.inf if created_s is None else created_s,
            *_sizes(node.status.capacity),
            *_sizes(node.status.allocatable),
            cpu,
            memory,
            labels.get(BALLAST_LABEL) == "off" or not self._selector.matches(labels),
            conditions.get("Ready", "True") != "True"
            or any(conditions.get(each) == "True" for each in _PRESSURES),
            node.spec.unschedulable,
            node.metadata.deletion_timestamp is not None
            or any(taint.key in _LEAVING for taint in node.spec.taints),
        )

    def _threshold(self, node: Node, label: str, default: float) -> float:
        text = (node.metadata.labels or {}).get(label)
        if text is None:
            return default
        try:
            share = float(text)
        except ValueError:
            share = 0.0
        if 0 < share <= 1:
            return share
        self._warn(node, label, "no share above 0 and up to 1")
        return default

    def _warn(self, node: Node, label: str, why: str) -> None:
        name = node.metadata.name
        if name not in self._warned:
            self._warned.add(name)
            value = (node.metadata.labels or {})[label]
            _log.warning(f"label of a node not used: {why}", node=name, label=label, value=value)


def _sizes(amounts: Mapping[str, str | int | float] | None) -> tuple[float, float]:
    has = amounts or {}
    try:
        cpu, memory = (quantity.from_wire(has[name]) for name in ("cpu", "memory"))
    except (KeyError, QuantityError):
        return np.nan, np.nan
    return float(cpu.milli), float(memory.value)
