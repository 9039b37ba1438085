"""1,000 HPAs on the real API server: Kubernetes' own controller, ours, and theirs once more, on
the same objects. On a shared machine the same work takes up to twice the CPU time from one minute
to the next: the mean of all periods of theirs, as many just before ours as just after, is compared
with the mean of all of ours, and each period is printed.

The in-tree controller gets its metrics through prometheus-adapter, as users have it, and every
process counts: controller, adapter, API server, etcd, Prometheus, for each reconcile that was
made. What it costs behind our adapter is printed too. Each acts as it is deployed: theirs with the
certificate of its kubeconfig, the others with their account's token and its roles.
``PODSCALE_BENCH_PLANE_HPAS``: another number.
"""

import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from tests.bench.bench_hpa import PERIOD_S, RULES
from tests.bench.figures import Figures, resident_mb
from tests.bench.hpa_cluster import is_restless
from tests.bench.periods import Period, above, line, mean, measure
from tests.bench.plane_stage import PlaneStage
from tests.bench.reconciles import reconciles
from tests.cluster.hpa_stack import ACCOUNT, NAMESPACE, grant
from tests.cluster.plane import Plane
from tests.tools.process import LOOPBACK, Program, free_port, wait_until

# At first it handles all HPAs in one dense burst a period. From the fourth period on they are
# spread over half of it and, with the same requests, cost 1.1 to 1.55 times as much.
THEIR_WARM_S = 4 * PERIOD_S
THEIR_PERIODS = 6  # on each side of ours
NOTED_PERIODS = 3  # of what no goal depends on
IDLE_PERIODS = 4  # a tenth of what ours costs is the difference between two idle periods
SETTLE_S = 2 * PERIOD_S  # an API server has much to do once objects or APIServices change
OURS_WARM_S = 6 * PERIOD_S  # until what is written in a first minute only is over
OUR_PERIODS = 20  # five minutes: in that time every status and every Event is due once
TUNED = (
    "--kube-api-qps=1000",
    "--kube-api-burst=2000",
    "--concurrent-horizontal-pod-autoscaler-syncs=50",
)


def versions(plane: Plane) -> dict[str, str]:
    """Return the resourceVersion of every HPA."""
    listed = plane.admin.get("/apis/autoscaling/v2/horizontalpodautoscalers")["items"]
    return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in listed}


def main() -> int:
    count = int(os.environ.get("PODSCALE_BENCH_PLANE_HPAS", "1000"))
    figures = Figures("hpa on the real API server")
    with (
        tempfile.TemporaryDirectory() as scratch,
        PlaneStage(Path(scratch), figures, count) as stage,
    ):
        idle = _idle(stage)
        _in_tree(stage, (), NOTED_PERIODS, idle)
        before_ms = _in_tree(stage, TUNED, THEIR_PERIODS, idle)
        idle = _idle(stage)  # anew: it is a larger part of what ours costs
        ours_ms = _ours(stage, idle)
        after_ms = _in_tree(stage, TUNED, THEIR_PERIODS, idle)
        behind_ours_ms = _in_tree(stage, TUNED, NOTED_PERIODS, idle, is_upstream=False)
        figures.at_least(
            "times less CPU of controller, adapter, API server, etcd and Prometheus a reconcile",
            fmean((before_ms, after_ms)) / ours_ms, 16.0,
            f"({before_ms:.2f} and {after_ms:.2f} ms before and after, against {ours_ms:.3f})",
        )  # fmt: skip
        figures.note(f"  behind our adapter: {behind_ours_ms / ours_ms:.2f} times")
    return figures.finish()


def _idle(stage: PlaneStage) -> dict[str, float]:
    time.sleep(SETTLE_S)
    idle = mean(measure(stage.servers, IDLE_PERIODS, PERIOD_S))
    stage.figures.note(f"idle: {line(idle)}")
    return idle


def _in_tree(
    stage: PlaneStage,
    flags: Sequence[str],
    number: int,
    idle: Mapping[str, float],
    *,
    is_upstream: bool = True,
) -> float:
    """Return the CPU in ms per reconcile of ``number`` periods with the in-tree controller."""
    with (
        stage.adapter(is_upstream=is_upstream) as stack,
        stage.plane.in_tree_hpa(PERIOD_S, *flags) as controller,
    ):
        time.sleep(THEIR_WARM_S)
        pids = {"controller": controller.pid, "adapter": stack.replicas[0].pid, **stage.servers}
        before = reconciles(stage.plane, controller)
        periods = measure(pids, number, PERIOD_S)
        made = (reconciles(stage.plane, controller) - before) / stage.count / number
        memory = resident_mb(controller.pid)
    name = f"in-tree, {' '.join(flags) or 'its default flags'}, "
    name += "prometheus-adapter" if is_upstream else "our adapter"
    if flags:
        assert 0.5 <= made <= 1.05, "the peer does not keep its period: this tells nothing"
    return _per_reconcile(stage, name, periods, idle, made, memory)


def _ours(stage: PlaneStage, idle: Mapping[str, float]) -> float:
    """Return the CPU in ms per reconcile with ours."""
    plane, directory = stage.plane, stage.directory
    grant(plane)
    rules = directory / "hpa-rules.yaml"
    rules.write_text(RULES)
    kubeconfig = plane.kubeconfig_for(NAMESPACE, ACCOUNT)
    port = free_port()
    command: Sequence[str] = [
        sys.executable, "-m", "podscale", "hpa",
        f"--config={rules}", f"--prometheus-url={stage.prometheus.url}",
        f"--kubeconfig={kubeconfig}", f"--lister-kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}",
        f"--secure-port={port}", f"--bind-address={LOOPBACK}", f"--cert-dir={directory}/hpa",
        "--metrics-relist-interval=1m", "--metrics-max-age=5m",
        "--leader-elect=false",  # as the plane's controller manager
    ]  # fmt: skip
    with Program("hpa", command, directory / "hpa.log") as program:
        untouched = versions(plane)
        wait_until(
            "ours wrote statuses of its own",
            lambda: _touched(plane, untouched) >= stage.count * 0.03, 120, (program,),
        )  # fmt: skip
        # The foreign controller's traces expire, caches fill, every status is written once.
        time.sleep(OURS_WARM_S)
        untouched, before = versions(plane), reconciles(plane, program)
        periods = measure({"controller": program.pid, **stage.servers}, OUR_PERIODS, PERIOD_S)
        made = (reconciles(plane, program) - before) / stage.count / OUR_PERIODS
        reached = _touched(plane, untouched)
        memory = resident_mb(program.pid)
    stage.figures.note(f"statuses of {reached} HPAs written in {OUR_PERIODS} periods of ours")
    restless = sum(1 for index in range(stage.count) if is_restless(index))
    assert reached >= restless, "ours does not act: this run tells nothing"
    return _per_reconcile(stage, "podscale hpa", periods, idle, made, memory)


def _touched(plane: Plane, before: Mapping[str, str]) -> int:
    return sum(before[name] != version for name, version in versions(plane).items())


def _per_reconcile(
    stage: PlaneStage,
    name: str,
    periods: Sequence[Period],
    idle: Mapping[str, float],
    made: float,
    memory_mb: float,
) -> float:
    """Return the CPU in ms of one of the ``made`` reconciles per HPA and period, and print it."""
    each = [sum(above(idle, one.used).values()) / stage.count * 1e3 for one in periods]
    note = stage.figures.note
    used = line(above(idle, mean(periods)))
    note(f"{name}: {made:.2f} reconciles per HPA and period; {used}; {memory_mb:.0f} MB")
    note(f"  each period, ms per HPA: {' '.join(f'{one:.2f}' for one in each)}")
    others = " ".join(f"{one.others / PERIOD_S:.2f}" for one in periods)
    note(f"  cores that others used:  {others}")
    return fmean(each) / made


if __name__ == "__main__":
    sys.exit(main())
