"""How far back a query looks, walked on its parsed PromQL."""

import pytest

from podscale.core.silences import QueryWindow
from podscale.feed.prover.tree import windows


@pytest.mark.parametrize(("query", "found"), [
    ('sum(rate(x{a="[9m]"}[2m])) by (pod)', {(0, 120)}),
    ("rate(x[2m]) / rate(y[5m])", {(0, 120), (0, 300)}),
    ("rate(x[2m]) / rate(y[2m])", {(0, 120)}),
    ("max_over_time(rate(x[1m])[30m:1m])", {(0, 1860)}),
    ("avg_over_time(x[1h:])", {(0, 3600)}),
    ("rate(x[2m] offset 1h)", {(3600, 120)}),
    ("max_over_time(rate(x[1m] offset 5m)[10m:1m] offset 1h)", {(3900, 660)}),
    ("topk(2, -increase(x[90s]))", {(0, 90)}),
    ("x", set()),
    ("rate(x[2m] @ 100)", set()),
    ("max_over_time(rate(x[1m])[30m:1m] @ 100)", set()),
    ("rate(x[2m] @ end() offset 5m)", {(300, 120)}),
    ("max_over_time(rate(x[1m])[30m:1m] @ start())", {(0, 1860)}),
    ("max_over_time(rate(x[1m] @ end())[30m:1m] offset 1h)", {(0, 60)}),
    ("rate(x", set()),
])  # fmt: skip
def test_ranges_are_found_wherever_they_stand(query, found):
    assert set(windows(query)) == {QueryWindow(*each) for each in found}
    assert len(windows(query)) == len(found)
