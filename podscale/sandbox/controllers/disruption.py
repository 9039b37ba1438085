"""The disruption controller: the status of every PodDisruptionBudget follows its pods."""

from podscale.sandbox.http.subresources import allowance
from podscale.sandbox.objects.follow import changes
from podscale.sandbox.objects.objects import SandboxObjects


class Disruption:
    """Counts again whenever pods or budgets of a namespace change."""

    def __init__(self, objects: SandboxObjects) -> None:
        self._objects = objects

    async def run(self) -> None:
        """Keep the statuses for ever."""
        tables = (("policy", "poddisruptionbudgets"), ("", "pods"))
        async for batch in changes(self._objects.storage, tables):
            for namespace in {change.now.key[0] for change in batch}:
                self._count(namespace)

    def _count(self, namespace: str) -> None:
        for budget in self._objects.list("poddisruptionbudgets", namespace):
            held = budget.get("status") or {}
            status = {**held, **allowance(self._objects, budget)}
            if status != held:
                name = budget["metadata"]["name"]
                new = {**budget, "status": status}
                self._objects.update("poddisruptionbudgets", namespace, name, new, "status")
