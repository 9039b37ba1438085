"""The sandbox's API server with what tests put before its requests: RBAC and faults."""

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from podscale.core.goquote import quote
from podscale.sandbox.auth import OpenGate, Request
from podscale.sandbox.server import SandboxServer
from podscale.serving import status
from podscale.serving.auth.user import User
from podscale.serving.status import StatusError
from tests.kit.apiserver import faults, rbac
from tests.kit.apiserver.faults import Faults


class FaultySandbox(SandboxServer):
    """Enforces RBAC where it is told to; ``faults`` sets the weather."""

    def __init__(self, *, enforce_rbac: bool = False, **options: Any) -> None:
        self.enforce_rbac = enforce_rbac  # SubjectAccessReviews answer accordingly
        super().__init__(gate=_Gate(self), **options)
        self.faults = Faults(self.cut_watches, self.compact)

    def compact(self) -> None:
        """Forget all history: watches and list pages from before get 410."""
        for _, table in self.storage.tables():
            table.forget(len(table.log))


class _Gate(OpenGate):
    def __init__(self, server: FaultySandbox) -> None:
        self._server = server

    async def answer(self, request: web.BaseRequest) -> web.Response | None:
        return await self._server.faults.change(request) if request.path == faults.PATH else None

    async def admit(self, asked: Request) -> None:
        await self._server.faults.suffer(asked)
        if self._server.enforce_rbac:
            self._authorize(asked)

    def is_allowed(self, user: User, attributes: Mapping[str, Any]) -> tuple[bool, str]:
        if not self._server.enforce_rbac:
            return super().is_allowed(user, attributes)
        return rbac.is_allowed(self._server.objects, user, attributes)

    def is_mute(self, asked: Request) -> bool:
        return self._server.faults.is_mute(asked)

    def _authorize(self, asked: Request) -> None:
        target = asked.target
        attributes: dict[str, Any] = {"verb": asked.verb, "path": target.path}
        if target.is_resource:
            attributes = {
                "verb": asked.verb,
                "group": target.group,
                "resource": target.resource,
                "subresource": target.subresource,
                "namespace": target.namespace,
                "name": target.name,
            }
        if rbac.is_allowed(self._server.objects, asked.user, attributes)[0]:
            return
        sentence = rbac.refusal(asked.user, attributes)
        if not target.is_resource:
            raise StatusError(status.forbidden(f"forbidden: {sentence}"))
        named = f"{asked.resource} {quote(target.name)}" if target.name else asked.resource
        message = f"{named} is forbidden: {sentence}"
        raise StatusError(
            status.forbidden(
                message, name=target.name, group=target.group, resource=target.resource
            )
        )
