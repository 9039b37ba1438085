"""The watches that recommender and updater of one process share."""

from podscale.process.part import Shared
from podscale.serving.flags import Flags
from vpa import flags as flags_
from vpa.stores import VpaStores

PARTS = ("recommender", "updater")


def stores_of(flags: Flags, shared: Shared) -> tuple[VpaStores, bool]:
    """Return the watches of VPAs, and whether the part that asks is the one to run them."""
    for name in PARTS:
        stores = getattr(shared.parts.get(name), "stores", None)
        if isinstance(stores, VpaStores):
            return stores, False
    made = VpaStores(
        shared.api,
        shared.discovery,
        namespaces=flags_.namespaces(flags),
        ignored=flags.listing("ignored-vpa-object-namespaces"),
        pods=shared.pods,
        feeds_pods=False,
        needs_nodes=True,
        needs_budgets="updater" in shared.names or not shared.is_launcher,
    )
    return made, True
