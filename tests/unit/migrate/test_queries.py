"""Whether a trigger's query returns one element, whatever series there are."""

import pytest

from podscale.feed.prover.tree import parse
from podscale.migrate.keda.queries import is_single

SINGLE = """
sum(x)
quantile(0.9, x)
-sum(x)
scalar(x)
scalar(sum(x)) + 1
vector(1)
hour()
minute()
absent(up{job="a"})
absent_over_time(up[5m])
time() - max(x)
vector(1) * sum(a)
clamp_max(sum(x), scalar(max(y)))
histogram_quantile(0.9, sum by (le) (rate(x_bucket[5m])))
count_values("v", sum(x))
topk(1, x)
topk(2, sum(x))
sum by (queue) (x{queue="a"})
sum by (q) (x{q="a"}) / sum by (q) (y)
sum(a) / on() group_left() sum(b)
x / sum(y)
sum(a) or sum(b)
max(sum(a) or b)
sum(a) unless sum(b)
sum(rate(x[5m])) and on() (hour() >= 8)
(sum(a) > 0) * on() (hour() > 8)
avg_over_time(sum(x)[5m:])
label_replace(sum(x), "a", "b", "c", "d")
sum by (topic) (label_replace(sum(x), "topic", "b", "c", "d"))
"""
SEVERAL = """
x
x{a="1"}
rate(x[5m])
hour(x)
sum(x) by (queue)
sum without (pod) (x)
histogram_quantile(0.9, sum by (le, pod) (rate(x_bucket[5m])))
histogram_quantile(0.9, rate(x_bucket[5m]))
count_values("version", x)
count by (v) (count_values("v", x))
limitk(2, x)
limit_ratio(0.5, x)
bottomk(3, x)
topk by (zone) (1, x)
x / on() group_left sum(y)
sum by (q) (x) / sum by (q) (y)
sum(a) or b
x and on() hour() > 8
label_replace(x, "a", "b", "c", "d")
sum by (topic) (label_replace(x, "topic", "b", "c", "d"))
"""


@pytest.mark.parametrize("query", SINGLE.strip().splitlines())
def test_one_element_is_known_as_one(query):
    assert is_single(parse(query))


@pytest.mark.parametrize("query", SEVERAL.strip().splitlines())
def test_several_elements_are_told(query):
    assert not is_single(parse(query))
