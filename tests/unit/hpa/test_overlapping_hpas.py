"""Which HPAs select a pod in common, found through the index."""

from hypothesis import given
from hypothesis import strategies as st

from hpa.cluster.overlapping_hpas import OverlappingHpas
from podscale.core.selectors.selector import from_labels, parse
from tests.unit.hpa.overlapping import rivals_of


def test_only_selectors_that_match_a_pod_are_rivals() -> None:
    selectors = {
        "web": "app=web",
        "all": "app",
        "set": "app in (web,db)",
        "other": "app=db",
        "tier": "app=web,tier=front",
    }
    assert rivals_of("web", selectors, {"app": "web"}) == ("all", "set")
    assert rivals_of("web", selectors, {"app": "web", "tier": "front"}) == ("all", "set", "tier")
    assert rivals_of("other", selectors, {"app": "db"}) == ("all", "set")
    assert rivals_of("web", selectors) == ()  # no pod, no rival


def test_selectors_are_namespace_local_and_can_be_taken_back() -> None:
    rivals = OverlappingHpas()
    rivals.add("a", "one", from_labels({"app": "web"}))
    rivals.add("b", "two", from_labels({"app": "web"}))
    assert rivals.of("a", "one", [{"app": "web"}]) == ()
    rivals.add("a", "three", parse("app"))
    version = rivals.version("a")
    assert rivals.of("a", "one", [{"app": "web"}]) == ("three",)
    rivals.change("a", "three", parse("app"))
    assert rivals.version("a") == version  # nothing changed
    rivals.change("a", "three", parse("app=db"))
    assert rivals.of("a", "one", [{"app": "web"}]) == ()
    rivals.drop("a", "one")
    assert rivals.version("a") > version


def test_a_pass_that_ends_after_its_hpa_was_deleted_registers_nothing() -> None:
    rivals = OverlappingHpas()
    assert rivals.add("a", "one")
    assert rivals.drop("a", "one")
    assert not rivals.change("a", "one", from_labels({"app": "web"}))
    assert rivals.of("a", "two", [{"app": "web"}]) == ()


def test_an_hpa_that_was_never_looked_at_is_nobodys_rival() -> None:
    rivals = OverlappingHpas()
    rivals.add("a", "one")
    assert rivals.of("a", "two", [{"app": "web"}]) == ()
    assert not rivals.add("a", "one", from_labels({"app": "web"}))


TEXTS = ("app=web", "app=db", "app in (web,db)", "app in (web,web)", "tier", "", "app!=web")


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.none() | st.sampled_from(TEXTS)),
        max_size=20,
    )
)
def test_the_index_finds_what_looking_at_every_selector_does(
    changes: list[tuple[str, str | None]],
) -> None:
    rivals, plain = OverlappingHpas(), dict[str, str]()
    pods = [{"app": "web"}, {"app": "db", "tier": "x"}, {}]
    for name, text in changes:
        before = (rivals.version("ns"), {n: rivals.of("ns", n, pods) for n in "abcd"})
        if text is None:
            rivals.drop("ns", name)
            plain.pop(name, None)
        elif not rivals.add("ns", name, parse(text)):
            rivals.change("ns", name, parse(text))
            plain[name] = text
        else:
            plain[name] = text
        for each in "abcd":
            expected = tuple(sorted(
                other for other, written in plain.items()
                if other != each and any(parse(written).matches(pod) for pod in pods)
            ))  # fmt: skip
            assert rivals.of("ns", each, pods) == expected
        if rivals.version("ns") == before[0]:
            assert {n: rivals.of("ns", n, pods) for n in "abcd"} == before[1]


def test_a_namespace_without_an_hpa_leaves_nothing_and_shows_no_version_twice() -> None:
    rivals = OverlappingHpas()
    seen: list[int] = []
    for n in range(100):
        namespace = f"review-{n % 3}"
        rivals.add(namespace, "web")
        seen.append(rivals.version(namespace))
        rivals.change(namespace, "web", parse("app=web"))
        seen.append(rivals.version(namespace))
        assert rivals.drop(namespace, "web")
        assert not rivals.drop(namespace, "web")
        assert rivals.version(namespace) == 0
    assert len(set(seen)) == len(seen) == 200
    assert not rivals._selectors
