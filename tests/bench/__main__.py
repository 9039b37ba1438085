"""``python -m tests.bench NAME…``: run benches; fails unless all their goals hold."""

import importlib
import sys

from tests.bench.figures import goals

BENCHES = {
    "adapter": (
        "bench_requests",
        "bench_fan_in",
        "bench_prometheus",
        "bench_relist",
        "bench_store",
        "bench_peer",
    ),
    "hpa": ("bench_decide", "bench_hpa", "bench_hpa_vpas", "bench_hpa_plane"),
    "nodes": ("bench_nodes",),
    "replay": ("bench_replay",),
    "report": ("bench_report",),
    "vpa": ("bench_vpa_model", "bench_vpa", "vpa_beside"),
}


def main(names: list[str]) -> int:
    """Run the parts of the named benches one after another; return the exit status."""
    if not names or set(names) - set(BENCHES):
        print(f"usage: python -m tests.bench {'|'.join(BENCHES)}", file=sys.stderr)
        return 2
    failed = []
    for name in names:
        for part in BENCHES[name]:
            print(f"\n== {part}", flush=True)
            module = importlib.import_module(f"tests.bench.{part}")
            if module.main() != 0:
                failed.append(part)
    print("\n== all goals", *goals, sep="\n")
    if failed:
        print(f"\ngoals missed in: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
