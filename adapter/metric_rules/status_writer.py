"""Writes the status of MetricRules: the Lease holder, and only where something changed."""

import asyncio
import time
from collections.abc import Callable

import msgspec
import structlog

from adapter.discovery.registry import MetricRegistry, RuleState
from adapter.metric_rules.objects import (
    CLUSTER_METRIC_RULES,
    METRIC_RULES,
    RuleRefusal,
    StoredMetricRule,
)
from adapter.metric_rules.status import status_of, written_status
from adapter.metric_rules.watched import WatchedMetricRules
from adapter.rules.ruleset import Rule
from podscale.core.times.rfc3339 import rfc3339
from podscale.kube.client.api import MERGE_PATCH, Api
from podscale.kube.client.errors import Forbidden, KubeError, ObjectNotFound, WriteConflict
from podscale.kube.client.wire import decode

log = structlog.get_logger(__name__)

_PAUSE_S = 1.0  # what changes within it is written together
_AFTER_FAILURE_S = 30.0


class RuleStatusWriter:
    """Looks at the rules that were listed or replaced, and writes what is new of them."""

    def __init__(
        self,
        api: Api,
        rules: WatchedMetricRules,
        state: Callable[[Rule], RuleState | None],
        lists: Callable[[str], MetricRegistry],
    ) -> None:
        """``state`` returns what is known of a rule, ``lists`` the metrics of a section."""
        self._api = api
        self._rules = rules
        self._state = state
        self._lists = lists
        self._changed: dict[str, None] = {}  # namespaces; "": ClusterMetricRules
        self._is_told = False  # that we may not write

    def note(self, namespace: str) -> None:
        """Look at the objects of a namespace again, or ("") at ClusterMetricRules."""
        self._changed[namespace] = None

    async def run(self, may_write: Callable[[], bool]) -> None:
        """Write for ever, while ``may_write``."""
        while True:
            await asyncio.sleep(_PAUSE_S)
            changed = {each: None for each in self._changed if each in self._rules.namespaces}
            self._changed = {}
            for count, namespace in enumerate(changed, 1):
                if count % 10 == 0:
                    await asyncio.sleep(0)
                if not may_write():
                    self._changed |= changed  # whoever leads next knows nothing of ours
                    break
                if not await self._write(namespace):
                    self._changed |= changed
                    await asyncio.sleep(_AFTER_FAILURE_S)
                    break

    async def _write(self, namespace: str) -> bool:
        """Write what is new in a namespace; return whether all of it could be."""
        for stored, found in list(self._rules.objects(namespace)):
            known = found if isinstance(found, RuleRefusal) else self._state(found)
            if known is None:
                self.note(namespace)  # it is being taken in
                continue
            section = found.section if isinstance(found, Rule) else "rules"
            now = rfc3339(time.time())
            status = status_of(stored, known, self._lists(section), now)
            if status != written_status(stored) and not await self._patch(stored, status):
                return False
        return True

    async def _patch(self, stored: StoredMetricRule, status: msgspec.Struct) -> bool:
        meta = stored.metadata
        resource = METRIC_RULES if meta.namespace else CLUSTER_METRIC_RULES
        metadata = {"resourceVersion": meta.resource_version}
        body = msgspec.json.encode({"metadata": metadata, "status": status})
        path = resource.path(meta.namespace, meta.name, "status")
        try:
            answer = await self._api.request("PATCH", path, body=body, content_type=MERGE_PATCH)
            self._rules.accept(decode(answer.body, StoredMetricRule))
            self._is_told = False
        except ObjectNotFound:
            return True  # deleted in the meantime
        except Forbidden as error:
            if not self._is_told:
                log.warning("the status of MetricRules is not written: no right", error=str(error))
            self._is_told = True
            return False
        except WriteConflict:
            self.note(meta.namespace)  # it has changed in the meantime, and comes again
        except KubeError as error:
            log.info("status not written", rule=stored.origin, error=str(error))
            return False
        return True
