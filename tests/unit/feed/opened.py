"""A feed on a fake Prometheus at a clock of the test's, and what it answers in short."""

from podscale.feed.feed import Feed
from podscale.feed.http.client import PrometheusClient
from podscale.feed.options import FeedOptions, PrometheusOptions
from podscale.feed.plan import Reading

NOW_S = 1_700_000_000.25


class Clock:
    """Unix seconds that only the test moves."""

    def __init__(self):
        self.now_s = NOW_S

    def __call__(self):
        return self.now_s


class Opened:
    """A feed on the fake, with options of the test's choice."""

    def __init__(self, fake, clock):
        self.fake, self.clock = fake, clock
        self._stack = []

    async def __call__(self, prometheus=None, **options):
        settings = {"with_sample_timestamps": False} | options
        prometheus = {"deadline_s": 2.0} | (prometheus or {})
        client = PrometheusClient(PrometheusOptions(url=self.fake.url, **prometheus), self.clock)
        await client.__aenter__()
        feed = Feed(client, FeedOptions(**settings), self.clock)
        await feed.__aenter__()
        self._stack = [feed, client, *self._stack]
        return feed

    async def close(self):
        for opened in self._stack:
            await opened.__aexit__(None, None, None)


def served(outcome):
    assert isinstance(outcome, Reading), outcome
    return {name: float(outcome.values[row]) for name, row in outcome.objects.items()}


def queries(feed):
    """The feed's queries so far, by purpose."""
    return dict(feed.stats.queries)


async def held(event):
    await event.wait()
