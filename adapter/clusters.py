"""The clusters that the adapter asks: for objects, for who a user is, for what a user may.

They are one in nearly every installation, and then one connection.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from msgspec import Struct

from adapter.rights import Right
from podscale.kube.api import Api
from podscale.kube.connect import Target, connect


class Targets(Struct, frozen=True):
    """How to reach each of them."""

    objects: Target
    authentication: Target
    authorization: Target


class Reached(Struct, frozen=True):
    """Connections to them; the same one where the target is the same."""

    objects: Api
    authentication: Api
    authorization: Api

    def needs(self, rights: Iterable[Right]) -> list[tuple[Api, Sequence[Right]]]:
        """Return each connection once, with those of ``rights`` that it makes use of."""
        users = {
            "authentication.k8s.io": self.authentication,
            "authorization.k8s.io": self.authorization,
        }
        found: dict[int, tuple[Api, list[Right]]] = {}
        for right in rights:
            api = users.get(right.group, self.objects)
            found.setdefault(id(api), (api, []))[1].append(right)
        return [*found.values()]


@asynccontextmanager
async def reached(targets: Targets, *, user_agent: str) -> AsyncIterator[Reached]:
    """Open the connections; leaving the context closes them. Raises ``NotConfigured``."""
    async with AsyncExitStack() as stack:
        three = (targets.objects, targets.authentication, targets.authorization)
        apis = {
            target: await stack.enter_async_context(connect(target, user_agent=user_agent))
            for target in set(three)
        }
        yield Reached(*(apis[target] for target in three))
