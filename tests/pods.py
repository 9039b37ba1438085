"""Pods of the VPA's tests, as a watch would show them."""

from collections.abc import Mapping
from typing import Any

import msgspec

from podscale.kube.client.wire import decode
from podscale.kube.columns.pods import PodView, view_of
from podscale.kube.objects.pod import Pod


def pod_of(written: Mapping[str, Any]) -> PodView:
    """Return a pod from JSON that may leave out what no decision reads."""
    meta = written.get("metadata") or {}
    owners = [{"uid": "", **owner} for owner in meta.get("ownerReferences") or ()]
    whole = {**written, "metadata": {**meta, "ownerReferences": owners}}
    return view_of(decode(msgspec.json.encode(whole), Pod))
