"""Asking the API server what somebody may do."""

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import Struct

from podscale.core.json_decoder import decode_json
from podscale.kube.client.api import Api

_PATH = "/apis/authorization.k8s.io/v1"


class AccessVerdict(Struct, frozen=True):
    """The status of a review."""

    allowed: bool = False
    reason: str = ""


class _Answer(Struct, frozen=True):
    status: AccessVerdict = AccessVerdict()


async def reviewed(
    api: Api,
    spec: Mapping[str, object],
    kind: Literal["SubjectAccessReview", "SelfSubjectAccessReview"] = "SubjectAccessReview",
) -> AccessVerdict:
    """Return the verdict on ``spec``; raises ``KubeError`` or ``msgspec.DecodeError``."""
    review = {"kind": kind, "apiVersion": "authorization.k8s.io/v1", "spec": spec}
    path = f"{_PATH}/{kind.lower()}s"
    answer = await api.request("POST", path, body=msgspec.json.encode(review))
    return decode_json(answer.body, _Answer).status
