"""How a range is cut into slices."""

import itertools

import msgspec
import numpy as np
import pytest

from podscale.feed import range_reader
from podscale.feed.errors import QueryError
from podscale.feed.http import refusals


def request(steps, points=1000, step_s=60):
    return range_reader._Request("q", 0, (steps - 1) * step_s, step_s, points, 1)


class Answers:
    """A stand-in for Prometheus that has ``series`` series and bears so many steps at once."""

    def __init__(self, series, bears=10**9, step_s=60):
        self.series, self.bears, self.step_s = series, bears, step_s
        self.asked = []

    def __call__(self, _, start_s, end_s):
        steps = (end_s - start_s) // self.step_s + 1
        self.asked.append(steps)
        if steps > self.bears:
            raise refusals.error("execution", "too many samples")
        return range_reader._Slice(
            start_s, end_s, [{}] * self.series, [steps] * self.series, b"", b""
        )


def test_slices_grow_to_the_number_of_points_and_cover_every_step_once():
    answers = Answers(series=10)
    made = list(range_reader.slices(request(1000, points=2000), answers))
    assert answers.asked == [10, 80, 200, 200, 200, 200, 110]
    assert made[0].start_s == 0
    assert made[-1].end_s == 999 * 60
    assert all(a.end_s + 60 == b.start_s for a, b in itertools.pairwise(made))


def test_no_slice_has_more_steps_than_prometheus_allows():
    answers = Answers(series=1)
    list(range_reader.slices(request(100_000, points=10**9), answers))
    assert max(answers.asked) == range_reader.MAX_STEPS


def test_a_slice_that_is_too_much_is_halved():
    answers = Answers(series=1, bears=30)
    made = list(range_reader.slices(request(100), answers))
    assert sum(sum(one.counts) for one in made) == 100
    assert max(sum(one.counts) for one in made) <= 30


def test_one_step_that_is_too_much_is_an_error():
    with pytest.raises(QueryError) as caught:
        list(range_reader.slices(request(100), Answers(series=1, bears=0)))
    assert caught.value.kind == "execution"


def test_more_series_than_points_are_read_step_by_step():
    answers = Answers(series=5000)
    list(range_reader.slices(request(15, points=1000), answers))
    assert answers.asked == [10, 1, 1, 1, 1, 1]


def test_every_number_that_prometheus_writes_is_read():
    texts = ["1.5", "-0", "1e-05", "NaN", "+Inf", "-Inf", "1.7976931348623157e+308"]
    values = ",".join(f'[{at}.5,"{text}"]' for at, text in enumerate(texts))
    body = f'{{"data":{{"result":[{{"metric":{{"le":"+Inf"}},"values":[{values}]}}]}}}}'
    found = range_reader._answers.decode(body.encode())["data"]["result"]
    assert found[0].metric == {"le": "+Inf"}
    made = range_reader._packed(found, 0.0, 10.0)
    assert np.frombuffer(made.time_s).tolist() == [at + 0.5 for at in range(len(texts))]
    np.testing.assert_array_equal(np.frombuffer(made.values), [float(each) for each in texts])


@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b"not json", b'{"data":{"result":[{"metric":{}}]}}']
)
def test_what_is_no_answer_is_an_error(body):
    with pytest.raises(msgspec.MsgspecError):
        range_reader._answers.decode(body)
