"""What a controller stands on: its surroundings, and what it knows of its autoscalers. Data."""

from collections.abc import Callable

from msgspec import Struct

from hpa.cluster.foreign_controllers import ForeignControllers
from hpa.cluster.record import Catalog
from hpa.cluster.stores import HpaStores
from hpa.cluster.targets import ScaleTargets
from hpa.cluster.writer import AutoscalerWriter
from hpa.decide.settings import Settings
from hpa.history.clock import SteadyClock
from hpa.history.configmaps import HistoryConfigMaps
from hpa.history.decision_log import DecisionLog
from hpa.history.memory import HistoryMemory
from hpa.loop.forecasts import ForecastGate
from hpa.loop.observe import AutoscalerObserver
from hpa.selfmetrics import HpaMetrics
from podscale.core.metrics import MetricsProvider
from podscale.kube.client.api import Api
from podscale.kube.client.resource import HPAS, Resource
from podscale.kube.discovery import KindResources, Mapper
from podscale.kube.events import Recorder


class Options(Struct, frozen=True):
    """How the controller works; what it decides by is ``Settings``."""

    resource: Resource = HPAS
    writes: int = 50  # requests in flight; a quarter of them of one namespace
    answer_timeout_s: float = 30.0
    status_deadband: float = 0.1


class ControllerPorts(Struct, eq=False):
    """What a controller reads from and writes to."""

    api: Api  # fenced by the Lease
    stores: HpaStores
    kinds: KindResources
    provider: MetricsProvider
    mapper: Callable[[], Mapper]
    recorder: Recorder
    metrics: HpaMetrics
    traces: DecisionLog
    config_maps: HistoryConfigMaps | None  # None: no history is stored
    gate: ForecastGate | None = None  # None: nothing is forecast


class ControllerState(Struct, eq=False):
    """What a controller stands on and knows, beside the record of each autoscaler."""

    ports: ControllerPorts
    settings: Settings
    options: Options
    clock: SteadyClock
    catalog: Catalog
    foreign: ForeignControllers
    memory: HistoryMemory
    targets: ScaleTargets
    observer: AutoscalerObserver
    writer: AutoscalerWriter
