"""Which nodes a pod could run on: those that exist, or those that a file lists.

What DaemonSets take on a node is not there for other pods. Only the largest shapes matter:
a recommendation is cut when it fits none.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import Struct

from podscale.core import quantity
from podscale.core.pod_state import PodPhase
from podscale.core.quantity import QuantityError
from podscale.kube.informer.fed_store import Change
from podscale.kube.objects.cluster import Node
from vpa.model.estimation.recommendation import NodeShape, largest
from vpa.stores import VpaStores

_FRESH_S = 600.0  # how long the share of DaemonSets is believed
_TYPE = "node.kubernetes.io/instance-type"


class _Listed(Struct, forbid_unknown_fields=True):
    # One entry of the file.
    shape: str
    allocatable: dict[str, str | int | float]
    daemonsets: dict[str, str | int | float] = {}


def read_shapes(file: Path) -> tuple[NodeShape, ...]:
    """Return the shapes of a file, YAML or JSON; raises ``ValueError`` that says what is wrong.

    An entry is ``{shape, allocatable: {cpu, memory}, daemonsets: {cpu, memory}}``; a pool
    that has no node now counts like any other. Blocking.
    """
    try:
        listed = msgspec.convert(yaml.safe_load(file.read_text()), list[_Listed])
    except (OSError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise ValueError(f"{file}: {error}") from error
    if not listed:
        raise ValueError(f"{file}: lists no shape")
    return largest([_shape(entry, file) for entry in listed])


class NodeShapes:
    """The shapes that settings name: ``off``, ``existing``, ``file``."""

    def __init__(self, stores: VpaStores, of_file: tuple[NodeShape, ...]) -> None:
        self._stores = stores
        self._of_file = of_file
        self._existing: tuple[NodeShape, ...] = ()
        self._read_at = float("-inf")
        stores.nodes.subscribe(self._changed)

    def of(self, setting: str) -> tuple[NodeShape, ...]:
        """Return the shapes to fit; none cuts nothing."""
        if setting == "existing":
            return self._existing
        return self._of_file if setting == "file" else ()

    def follow(self, now: float) -> None:
        """Look at the nodes again where they changed or were looked at long ago."""
        # A watch that is behind may lack the largest node.
        if now - self._read_at < _FRESH_S or not self._stores.nodes.is_current():
            return
        self._read_at = now
        taken = self._by_daemonsets()
        found = []
        for node in self._stores.nodes.values():
            has = node.status.allocatable or {}
            try:
                size = quantity.from_wire(has["cpu"]).milli, quantity.from_wire(has["memory"]).value
            except (KeyError, QuantityError):
                continue  # it has not told yet
            name = node.metadata.name
            kind = (node.metadata.labels or {}).get(_TYPE, name)
            found.append(NodeShape(kind, *size, *taken.get(name, (0, 0))))
        self._existing = largest(found)

    def _by_daemonsets(self) -> Mapping[str, tuple[int, int]]:
        taken: dict[str, tuple[int, int]] = {}
        for daemon_set in self._stores.workloads.by_kind["DaemonSet"].values():
            for view in self._stores.pods.owned_by(daemon_set.metadata.uid).views():
                if not view.node or view.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED):
                    continue
                cpu, memory = taken.get(view.node, (0, 0))
                for container in view.template.containers:
                    requests = container.requests_milli or {}
                    cpu += requests.get("cpu", 0)
                    memory += requests.get("memory", 0) // 1000
                taken[view.node] = cpu, memory
        return taken

    def _changed(self, change: Change[Node]) -> None:
        # Heartbeats change nodes all the time; only what they have counts.
        old, new = change.old, change.new
        if old is None or new is None or old.status.allocatable != new.status.allocatable:
            self._read_at = float("-inf")


def _shape(entry: _Listed, file: Path) -> NodeShape:
    def amounts(given: Mapping[str, Any], *, needed: bool) -> tuple[int, int]:
        unknown = set(given) - {"cpu", "memory"}
        if unknown:
            raise ValueError(f"{file}: {entry.shape}: {', '.join(sorted(unknown))} is not known")
        if needed and len(given) < 2:
            raise ValueError(f"{file}: {entry.shape}: allocatable needs cpu and memory")
        try:
            read = {name: quantity.from_wire(value) for name, value in given.items()}
        except QuantityError as error:
            raise ValueError(f"{file}: {entry.shape}: {error}") from error
        cpu, memory = read.get("cpu"), read.get("memory")
        return cpu.milli if cpu else 0, memory.value if memory else 0

    return NodeShape(
        entry.shape,
        *amounts(entry.allocatable, needed=True),
        *amounts(entry.daemonsets, needed=False),
    )
