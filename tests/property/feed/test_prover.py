"""What the prover lets through gives each request its own answer, on a real Prometheus.

For random templates: if provable, the wide and the named query, read for each namespace,
equal that namespace's own query; or the reader notices (duplicates), or the widened query
fails, which is never shown.
"""

import asyncio
import math
import os
import random
from collections import Counter

import pytest

from podscale.feed.errors import QueryError
from podscale.feed.http.client import PrometheusClient
from podscale.feed.options import PrometheusOptions
from podscale.feed.prover.proof import Widened, prove
from podscale.feed.queries.answer_rows import AnswerRows, Collector, add_own, reading
from tests.integration.prometheus import PrometheusServer
from tests.property.feed.templates import END_S, NAMESPACES, PODS, Templates, openmetrics
from tests.unit.feed.prometheus import pods_plan
from tests.unit.feed.verdicts import outcome_of

IS_SHORT = os.environ.get("PODSCALE_SHORT") == "1"
TEMPLATES = int(os.environ.get("PODSCALE_TEMPLATES", "400" if IS_SHORT else "6000"))
AT_LEAST_PROVABLE = 80 if IS_SHORT else 2000
SELECTORS = ((), (), ('job="j1"',), ('job=~"j1|j2"', 'pod!="p3"'), ('namespace!="n2"',))


@pytest.fixture(scope="module")
def seed():
    return int(os.environ.get("PODSCALE_SEED", random.SystemRandom().randrange(1 << 32)))


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory, seed):
    directory = tmp_path_factory.mktemp("prometheus")
    with PrometheusServer(directory, openmetrics=openmetrics(seed)) as server:
        yield server


@pytest.mark.timeout(900)
async def test_provable_means_equal_answers(prometheus, seed, capsys):
    source, seen = random.Random(seed), Counter()
    lanes = asyncio.Semaphore(6)
    async with (
        PrometheusClient(PrometheusOptions(url=prometheus.url)) as client,
        asyncio.TaskGroup() as tasks,
    ):
        for _ in range(TEMPLATES):
            await lanes.acquire()
            trial = tasks.create_task(Trial(client, source, seen).run())
            trial.add_done_callback(lambda _: lanes.release())
    with capsys.disabled():
        print(f"\nseed {seed}: {TEMPLATES} templates, {dict(sorted(seen.items()))}")
    assert seen["provable"] >= AT_LEAST_PROVABLE
    assert seen["compared"] > seen["provable"]  # most provable ones have something to compare
    assert seen["non-empty"] > AT_LEAST_PROVABLE / 2


class Trial:
    """One template with a selector and, for each namespace, one request."""

    def __init__(self, client, source, seen):
        self.client, self.seen = client, seen
        self.api = source.choice(("custom", "custom", "external"))
        self.template = Templates(source, self.api)()
        matchers = source.choice(SELECTORS)
        self.plan = pods_plan("random", self.template, matchers, self.api)
        self.requests = {
            namespace: ()
            if self.api == "external"
            else tuple(sorted(source.sample(PODS, source.randint(1, 3))))
            for namespace in NAMESPACES
        }

    async def run(self):
        verdict = prove(self.plan)
        self.seen[outcome_of(verdict)] += 1
        if not isinstance(verdict, Widened):
            return
        self.seen["provable"] += 1
        union = tuple(sorted({name for names in self.requests.values() for name in names}))
        shapes = [()] if not verdict.is_by_name else [(), union]
        owns = {namespace: await self.own(namespace) for namespace in NAMESPACES}
        for names in shapes:
            text = verdict.text(NAMESPACES, names)
            try:
                answer = await self.client.query(text, END_S, verb="POST")
            except QueryError as error:
                if error.kind != "execution":
                    pytest.fail(f"{self.template} is widened to {text}: {error.detail}")
                self.seen["widened error"] += 1
                continue
            found = Collector(
                self.plan, END_S, NAMESPACES, carries_namespace=verdict.carries_namespace
            )
            found.add(answer)
            for namespace, own in owns.items():
                self.compare(namespace, own, found.rows[namespace], verdict, text)

    async def own(self, namespace):
        names = self.requests[namespace]
        try:
            answer = await self.client.query(self.plan.text(namespace, names), END_S, verb="POST")
        except QueryError as error:
            return error
        rows = AnswerRows(END_S)
        add_own(rows, answer, self.plan)
        return rows

    def compare(self, namespace, own, rows, verdict, text):
        context = (self.template, self.plan.matchers, namespace, self.requests[namespace], text)
        # An error of the request's own query must have been one of the widened query.
        assert not isinstance(own, QueryError), (*context, own)
        self.seen["compared"] += 1
        batch = reading(rows, self.plan, math.inf, verdict.default)
        own = reading(own, self.plan, math.inf)
        self.seen["non-empty"] += len(batch.values) > 0
        if self.api == "external":
            assert near(listed(own), listed(batch), self.is_exact), context
            return
        for name in self.requests[namespace]:
            if name in rows.duplicated:
                self.seen["duplicated"] += 1
                continue
            pair = [
                [] if r.row(name) < 0 else [((), float(r.values[r.row(name)]))]
                for r in (own, batch)
            ]
            assert near(*pair, self.is_exact), (*context, name, pair)

    @property
    def is_exact(self):
        # Prometheus's series order is random there, and float sums depend on it.
        return not (":" in self.template or "histogram_quantile" in self.template)


def listed(rows):
    pairs = zip(rows.labels, rows.values.tolist(), strict=True)
    return sorted(
        ((tuple(sorted(labels.items())), value) for labels, value in pairs),
        key=lambda pair: (pair[0], str(pair[1])),
    )


def near(one, other, is_exact):
    if len(one) != len(other):
        return False
    for (labels, value), (others, another) in zip(one, other, strict=True):
        both_nan = value != value and another != another
        tolerance = 0.0 if is_exact else 1e-9
        if labels != others or not (
            both_nan or value == another or math.isclose(value, another, rel_tol=tolerance)
        ):
            return False
    return True
