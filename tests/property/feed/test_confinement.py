"""What a namespace's own rule answers does not depend on any other namespace's series.

Random templates, and those of somebody who wants to read on, against two real Prometheis: one
holds two namespaces and what belongs to none, the other the rule's own namespace only. Every
query that is let through answers the same on both, and names no other namespace.
"""

import asyncio
import os
import random
from collections import Counter
from functools import partial

import pytest
from msgspec.structs import replace

from podscale.feed.errors import QueryError
from podscale.feed.http.client import PrometheusClient
from podscale.feed.options import PrometheusOptions
from podscale.feed.prover.confinement import (
    Confinement,
    NotConfined,
    confined,
    confined_selector,
)
from podscale.feed.prover.proof import Widened, prove
from podscale.feed.queries.answer_rows import AnswerRows, add_own, reading
from tests.integration.prometheus import PrometheusServer
from tests.property.feed.templates import END_S, PODS, Templates, openmetrics
from tests.property.feed.test_prover import listed, near
from tests.unit.feed.prometheus import pods_plan

IS_SHORT = os.environ.get("PODSCALE_SHORT") == "1"
TEMPLATES = int(os.environ.get("PODSCALE_TEMPLATES", "400" if IS_SHORT else "6000"))
OWN, OTHER = "n1", "n2"
CONFINE = partial(confined, to=Confinement("namespace", OWN))


@pytest.fixture(scope="module")
def seed():
    return int(os.environ.get("PODSCALE_SEED", random.SystemRandom().randrange(1 << 32)))


@pytest.fixture(scope="module")
def servers(tmp_path_factory, seed):
    """Everybody's Prometheus, and one that has the own namespace's series only."""
    lines = openmetrics(seed).splitlines(keepends=True)
    own = "".join(line for line in lines if f'namespace="{OWN}"' in line or line[0] == "#")
    with (
        PrometheusServer(tmp_path_factory.mktemp("all"), openmetrics="".join(lines)) as every,
        PrometheusServer(tmp_path_factory.mktemp("own"), openmetrics=own) as alone,
    ):
        yield every, alone


@pytest.mark.timeout(900)
@pytest.mark.needs("prometheus", "promtool")
async def test_no_answer_depends_on_another_namespace(servers, seed, capsys):
    source, seen = random.Random(seed), Counter()
    lanes = asyncio.Semaphore(6)
    async with (
        PrometheusClient(PrometheusOptions(url=servers[0].url)) as every,
        PrometheusClient(PrometheusOptions(url=servers[1].url)) as alone,
        asyncio.TaskGroup() as tasks,
    ):
        for _ in range(TEMPLATES):
            await lanes.acquire()
            template, api = tempted(source), source.choice(("custom", "custom", "external"))
            trial = tasks.create_task(compare(template, api, every, alone, seen))
            trial.add_done_callback(lambda _: lanes.release())
    with capsys.disabled():
        print(f"\nseed {seed}: {TEMPLATES} templates, {dict(sorted(seen.items()))}")
    assert seen["accepted"] > TEMPLATES / 3
    assert seen["refused"] > TEMPLATES / 50
    assert seen["non-empty"] > TEMPLATES / 8
    assert seen["unbound answers more"] > TEMPLATES / 20  # the matcher is what keeps them apart


def tempted(source):
    """Return a template, often of somebody who reaches for another namespace."""
    inner = Templates(source, source.choice(("custom", "external")))()
    choice = source.random()
    if choice < 0.5:
        return inner
    return source.choice((
        f'({inner} or {{__name__=~".+",namespace="{OTHER}"}})',
        f'({inner} or a{{"namespace"="{OTHER}"}})',
        f'({inner} or a{{namespace!="{OWN}"}} offset 1m)',
        f"({inner} or sum by (pod) (a @ {END_S - 30}))",
        f'label_replace({inner}, "namespace", "{OTHER}", "", "")',
        f'label_join({inner}, "namespace", "", "job")',
        f'count_values("namespace", {inner})',
        f"({inner} * on(pod) group_left(namespace) sum by (pod, namespace) (a))",
        f"topk(scalar(sum(a)), {inner} or b)",
        f"info({inner})",
        f"max_over_time((sum(a) + {inner})[2m:30s])",
        f"quantile(scalar(min(b)), {inner})",
        f'absent(a{{namespace="{OTHER}"}}) or {inner}',
        f"{inner} # }} or a\n or vector(scalar(sum(cap)))",
        f"sum(a or {inner}) by (job)",
        f'histogram_quantile(0.9, sum by (le) (rate(h_bucket[5m]))) or {inner}',
    ))  # fmt: skip


async def compare(template, api, every, alone, seen):
    plan = replace(pods_plan("random", template, (), api), confine=CONFINE)
    names = () if api == "external" else PODS[:3]
    try:
        text = plan.text(OWN, names)
    except NotConfined:
        seen["refused"] += 1
        return
    seen["accepted"] += 1
    verdict = prove(plan)
    texts, most = [text], 0
    if isinstance(verdict, Widened):
        texts += [verdict.text((OWN,)), verdict.text((OWN,), names)]
    for each in texts:
        answers = [await answered(client, each) for client in (every, alone)]
        assert not isinstance(answers[0], QueryError) or isinstance(answers[1], QueryError), each
        if isinstance(answers[0], QueryError):
            seen["fails"] += 1
            continue
        found, own = (rows(answer, plan) for answer in answers)
        assert all(labels.get("namespace", OWN) == OWN for labels in answers[0].metrics), each
        # Sums of floats depend on the order of series, which is random in Prometheus; of equal
        # values topk takes any.
        assert "topk" in each or near(found, own, is_exact=False), (template, each)
        seen["non-empty"] += bool(found)
        most = max(most, len(found))
    unbound = await answered(every, plan.rendered(OWN, names))
    if not isinstance(unbound, QueryError):
        seen["unbound answers more"] += len(unbound.values) > most


async def answered(client, text):
    try:
        return await client.query(text, END_S, verb="POST")
    except QueryError as error:
        return error


def rows(answer, plan):
    found = AnswerRows(END_S)
    add_own(found, answer, replace(plan, api="external"))
    return listed(reading(found, replace(plan, api="external"), float("inf")))


@pytest.mark.parametrize(
    "text", ["a or b", "rate(a[5m])", "a[5m]", "a offset 5m", "a @ 5", "sum(a)", "", "a{", "1"]
)
def test_a_series_query_is_one_selector(text):
    with pytest.raises(NotConfined):
        confined_selector(text, Confinement("namespace", OWN))


def test_matchers_that_are_there_stay():
    assert (
        confined_selector('a{namespace=~"n1|n2"}', Confinement("namespace", OWN))
        == 'a{namespace=~"n1|n2",namespace="n1"}'
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("info(a)", "info is not known"),
        ('label_replace(a, "namespace", "n2", "", "")', "label_replace writes the label namespace"),
        ('label_join(a, "namespace", "-", "pod")', "label_join writes the label namespace"),
        ('count_values("namespace", a)', "count_values writes the label namespace"),
        ("sum(rate(a[5m]", "it does not parse"),
    ],
)
def test_what_cannot_be_confined_is_refused_with_the_reason(text, why):
    with pytest.raises(NotConfined, match=why):
        CONFINE(text)
