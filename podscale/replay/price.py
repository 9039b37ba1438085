"""What a pod costs an hour, from a price list. Pure."""

from msgspec import Struct

from hpa.simulate.workload import Plant

_GIB_MILLI = 1000 * 2**30


class PriceList(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Prices of an hour; YAML: ``{currency: EUR, coreHour: 0.04, gibHour: 0.005}``."""

    currency: str = ""
    core_hour: float = 0.0
    gib_hour: float = 0.0
    pod_hour: float = 0.0

    def of_pod_hour(self, plant: Plant) -> float:
        """Return what one pod costs by what it requests."""
        cores = plant.request_milli("cpu", "") / 1000.0
        gib = plant.request_milli("memory", "") / _GIB_MILLI
        return cores * self.core_hour + gib * self.gib_hour + self.pod_hour
