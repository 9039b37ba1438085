"""A clock of one's own (the demo's runs faster) beside watches that live in real time."""

from hpa.decide.settings import Settings
from podscale.core.metrics import Question
from podscale.kube.informer.list_watch import WatchBroken
from podscale.kube.leadership.lease import Term
from tests.unit.hpa.webs import load, web
from tests.unit.hpa.world import NS, Cluster, pod_object

SETTINGS = Settings(sync_period_s=15.0, downscale_stabilization_s=0.0)


async def test_a_look_at_a_broken_watch_shrinks_nothing_whatever_the_clock_shows() -> None:
    cluster = Cluster(settings=SETTINGS, is_steady=False)
    web(cluster, 4)
    load(cluster, 1000)
    await cluster.run_for(0.1)  # the first pass remembers the size it found
    cluster.stores.pods.apply(WatchBroken("the stream broke", None), scope="", now=0.0)

    def measured(_question: Question, _pod: str) -> int:
        if not cluster.stores.pods.is_current():  # mended while the pass waits for its metrics
            cluster.put_pods(*(pod_object("web", n) for n in range(8)))
        return 500

    cluster.provider.usage = measured
    await cluster.run_for(0.1, Term(cluster.wall()))
    trace = cluster.controller.traces.last((NS, "web"))
    assert trace is not None
    assert (trace.decided, trace.outcome.scale, cluster.scales()) == (2, "not_tried", [])
