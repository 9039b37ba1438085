"""Stores that have listed and watch, without a reflector or an API server."""

import time
from collections.abc import Iterable
from typing import Any

from podscale.kube.informer.list_watch import (
    ListBegan,
    ListEnded,
    ListPage,
    WatchAlive,
    WatchBroken,
)


def fill(
    store: Any,
    items: Iterable[Any] = (),
    version: str = "1",
    *,
    scope: str = "",
    now: float | None = None,
    watched_s: float | None = 1e9,
) -> None:
    """Let ``store`` have listed exactly ``items`` at ``now`` (None: this moment) and watch since,
    and believe nothing from before.

    ``watched_s`` is how long it is believed; None: no watch stands.
    """
    at = time.monotonic() if now is None else now
    broken, page = WatchBroken("it lists again"), ListPage(list(items), version)
    steps: list[Any] = [broken, ListBegan(), page, ListEnded(version)]
    if watched_s is not None:
        steps.append(WatchAlive(version, watched_s))
    for step in steps:
        store.apply(step, scope=scope, now=at)


def take_out(store: Any, namespace: str, name: str) -> None:
    """Let an object be gone from ``store``, as a list without it does."""
    if store._version(namespace, name) is not None:
        store._remove(namespace, name)
