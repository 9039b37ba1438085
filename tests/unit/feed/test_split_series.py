"""One answer for many namespaces tells of each what its own answer would."""

import random

import msgspec
import pytest

from podscale.feed.http.series import MOST_SHAPES, SeriesReader, SplitSeriesReader


def names(reader):
    steps = reader.names()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def entries(source):
    for _ in range(source.randrange(200)):
        labels = {"__name__": source.choice("abc")}
        if source.random() < 0.9:
            labels["namespace"] = source.choice(("n1", "n2", "n3"))
        for label in source.sample("pqrs", source.randrange(5)):
            labels[label] = "x"
        yield dict(source.sample(list(labels.items()), len(labels)))


@pytest.mark.parametrize("seed", range(50))
def test_each_value_is_told_as_by_its_own_answer(seed):
    source = random.Random(seed)
    every = list(entries(source))
    split = SplitSeriesReader("namespace", ["n1", "n2"])
    cut = source.randrange(len(every) + 1)
    split.page(msgspec.json.encode(every[:cut]))
    data = msgspec.json.encode(every[cut:]).decode()
    assert not split.end(f'{{"status":"success","data":{data}}}'.encode())
    for value, reader in split.readers.items():
        alone = SeriesReader()
        alone.page(msgspec.json.encode([e for e in every if e.get("namespace") == value]))
        assert names(reader) == names(alone)
        assert reader.count == alone.count


def test_who_has_too_many_label_lists_is_asked_for_alone():
    many = [{"__name__": "a", "namespace": "n1", f"l{n}": ""} for n in range(MOST_SHAPES + 1)]
    split = SplitSeriesReader("namespace", ["n1", "n2"])
    split.page(msgspec.json.encode([*many, {"__name__": "b", "namespace": "n2"}]))
    assert split.readers["n1"].crowded
    assert not split.readers["n2"].crowded
