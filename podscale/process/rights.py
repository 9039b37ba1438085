"""What a part may do in the cluster, checked at start: one warning per missing right.

Nothing here stops the start: a right may be granted later, and much works without some.
"""

from collections.abc import Sequence

import msgspec
import structlog
from msgspec import Struct

from podscale.kube.client.access_review import reviewed
from podscale.kube.client.api import Api
from podscale.kube.client.errors import KubeError

log = structlog.get_logger(__name__)


class Right(Struct, frozen=True):
    """One thing to be allowed, and what does not work without it."""

    verb: str
    group: str
    resource: str
    without: str


async def warn_of_missing(api: Api, needed: Sequence[Right]) -> list[Right]:
    """Log each missing right and return them; a server that cannot be asked is logged once."""
    missing: list[Right] = []
    for right in needed:
        attributes = {"verb": right.verb, "group": right.group, "resource": right.resource}
        try:
            verdict = await reviewed(
                api, {"resourceAttributes": attributes}, "SelfSubjectAccessReview"
            )
        except (KubeError, msgspec.DecodeError) as error:
            log.warning("rights not checked", error=str(error))
            return missing
        if not verdict.allowed:
            missing.append(right)
            resource = f"{right.resource}.{right.group}" if right.group else right.resource
            log.warning("right missing", right=f"{right.verb} {resource}", without=right.without)
    return missing
