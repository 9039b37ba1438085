"""Names found in JSON text are those that decoding and a dict find."""

import msgspec
import numpy as np
import pytest

from podscale.nodes.extender import NamesText, NodeNames

LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz0123456789-."))


def names(random: np.random.Generator, count: int, longest: int) -> list[str]:
    sizes = random.integers(1, longest + 1, count)
    return list({"".join(random.choice(LETTERS, size)): None for size in sizes})


@pytest.mark.parametrize("longest", [1, 8, 9, 63, 253])
@pytest.mark.parametrize("seed", range(4))
def test_places_are_those_of_a_dict(seed: int, longest: int) -> None:
    random = np.random.default_rng(seed)
    known = names(random, 300, longest)
    asked = [*known, *names(random, 50, 253), *known[:5]]
    random.shuffle(asked)
    asked = asked[: random.integers(1, len(asked) + 1)]
    places = {name: place for place, name in enumerate(known)}
    found = NodeNames(known).places(NamesText.of(msgspec.json.encode(asked)))
    assert found.tolist() == [places.get(name, len(known)) for name in asked]


@pytest.mark.parametrize("width", [1, 7, 8, 9, 16, 17, 40])
def test_a_name_that_differs_in_one_byte_is_another(width: int) -> None:
    known = ["x" * place + other + "x" * (width - 1 - place)
             for place in range(width) for other in "abc0.-"]  # fmt: skip
    table = NodeNames(known)
    all_of_them = NamesText.of(msgspec.json.encode(known))
    assert table.places(all_of_them).tolist() == list(range(len(known)))
    near = ["x" * width, "x" * (width + 1), "x" * max(1, width - 1)]
    assert set(table.places(NamesText.of(msgspec.json.encode(near)))) == {len(known)}


def test_numbered_names_of_a_large_cluster_are_told_apart() -> None:
    known = [f"ip-10-{n // 65536}-{n // 256 % 256}-{n % 256}.eu-central-1.compute.internal"
             for n in range(70_000)]  # fmt: skip
    text = NamesText.of(msgspec.json.encode(known))
    assert len(np.unique(text.hashes())) == len(known)


def test_no_nodes_are_known() -> None:
    table = NodeNames(())
    assert table.places(NamesText.of(b"[]")).tolist() == []
    assert table.places(NamesText.of(b'["a","b"]')).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param(b"[]", [], id="empty"),
        pytest.param(b" [ ] ", [], id="empty-with-spaces"),
        pytest.param(b'["a"]', ["a"], id="one"),
        pytest.param(b'[\n\t"a", "b"\n]', ["a", "b"], id="with-spaces"),
        pytest.param(b'["\\u0061","b"]', ["a", "b"], id="escaped-for-nothing"),
        pytest.param('["ä","b"]'.encode(), ["ä", "b"], id="not-ascii"),
    ],
)
def test_text_is_read_however_it_is_written(text: bytes, found: list[str]) -> None:
    names = NamesText.of(text)
    none = np.zeros(len(found), np.bool_)
    assert msgspec.json.decode(b"[%s]" % names.split(none)[0]) == found
    assert names.split(~none)[1] == names.split(none)[0]
    assert names.split(none)[1] == b""


@pytest.mark.parametrize(
    "text",
    [
        *(b"5", b"[5]", b'["a",5]', b'[["a"]]', b'[["a"],"b"]', b'"a"', b'{"a":"b"}', b'["a\\""]'),
        pytest.param(b'["%s"]' % (b"x" * 254), id="longer-than-a-name"),
    ],
)
def test_what_is_no_list_of_names_is_refused(text: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        NamesText.of(text)
