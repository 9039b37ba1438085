"""Which HPAs select a pod in common, found through the index."""

from podscale.core.selector import from_labels, parse
from tests.unit.hpa.rivals_of import rivals_of


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
    from hpa.rivals import Rivals

    rivals = Rivals()
    rivals.put("a", "one", from_labels({"app": "web"}))
    rivals.put("b", "two", from_labels({"app": "web"}))
    assert rivals.of("a", "one", [{"app": "web"}]) == ()
    rivals.put("a", "three", parse("app"))
    version = rivals.version("a")
    assert rivals.of("a", "one", [{"app": "web"}]) == ("three",)
    rivals.put("a", "three", parse("app"))
    assert rivals.version("a") == version  # nothing changed
    rivals.put("a", "three", parse("app=db"))
    assert rivals.of("a", "one", [{"app": "web"}]) == ()
    rivals.drop("a", "one")
    assert rivals.version("a") > version
