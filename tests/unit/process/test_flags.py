"""Flags of several parts on one command line."""

import pytest

from podscale.process.flags import merged, split
from podscale.serving.flags import Flag, FlagError, parse, usage

TABLES = {
    "one": (Flag("v", "int", 0, shorthand="v"), Flag("share", "float", 0.1), Flag("service")),
    "two": (Flag("share", "float", 0.02), Flag("service"), Flag("address", default=":80")),
}


def split_words(*words, **defaults):
    return split(parse(words, merged(TABLES)), TABLES, defaults)


def test_each_part_keeps_its_own_default():
    flags = split_words()
    assert (flags["one"].seconds("share"), flags["two"].seconds("share")) == (0.1, 0.02)


def test_a_plain_flag_reaches_every_part_that_knows_it():
    flags = split_words("--share=0.5")
    assert (flags["one"].seconds("share"), flags["two"].seconds("share")) == (0.5, 0.5)


def test_a_part_s_own_word_wins_over_the_plain_one():
    flags = split_words("--share=0.5", "--two.share=0")
    assert (flags["one"].seconds("share"), flags["two"].seconds("share")) == (0.5, 0.0)


def test_what_two_parts_cannot_share_reaches_the_first_only():
    flags = split_words("--service=a/b")
    assert (flags["one"].text("service"), flags["two"].text("service")) == ("a/b", "")
    flags = split_words("--service=a/b", "--two.service=c/d")
    assert flags["two"].text("service") == "c/d"


def test_what_only_a_later_part_knows_reaches_it():
    tables = {**TABLES, "three": (Flag("port", "int", 8000),)}
    found = split(parse(["--port=9000"], merged(tables)), tables)
    assert found["three"].number("port") == 9000


def test_defaults_of_the_command_reach_those_that_know_the_flag_and_yield_to_what_is_given():
    assert split_words(address="")["two"].text("address") == ""
    assert split_words("--address=:90", address="")["two"].text("address") == ":90"
    assert "address" not in split_words(address="")["one"].values


def test_help_lists_a_flag_once():
    assert usage(merged(TABLES)).count("share") == 1


def test_a_part_that_does_not_run_here_has_no_flags():
    with pytest.raises(FlagError, match=r"unknown flag: --three\.share"):
        split_words("--three.share=1")


def told(parts, *words):
    from podscale.cli.parts import KINDS, problems

    tables = {part: KINDS[part].table for part in parts}
    return problems(split(parse(words, merged(tables)), tables))


def test_reviews_go_where_their_flags_say_and_else_to_the_cluster_of_the_objects():
    from podscale.cli.parts import KINDS
    from podscale.process.compose import _targets

    def reached(*words):
        kinds = {part: KINDS[part] for part in ("adapter", "hpa")}
        tables = {part: kind.table for part, kind in kinds.items()}
        found = _targets(split(parse(words, merged(tables)), tables), kinds)
        return [each.kubeconfig for each in (found.objects, found.authentication,
                                             found.authorization)]  # fmt: skip

    assert reached("--lister-kubeconfig=a") == ["a", "a", "a"]
    assert reached("--lister-kubeconfig=a", "--authentication-kubeconfig=b") == ["a", "b", "a"]
    assert reached("--lister-kubeconfig=a", "--authorization-kubeconfig=c") == ["a", "a", "c"]


@pytest.mark.parametrize("parts", [
    ("nodes",), ("hpa",), ("recommender",), ("hpa", "recommender", "updater"), ("adapter",),
])  # fmt: skip
@pytest.mark.parametrize("own", [(), ("--kubeconfig=own",)])
def test_the_listers_kubeconfig_is_enough_where_a_part_has_none_of_its_own(parts, own):
    from podscale.cli.parts import KINDS
    from podscale.process.compose import _targets

    if own and parts == ("adapter",):
        own = ("--lister-kubeconfig=own",)
    kinds = {part: KINDS[part] for part in parts}
    tables = {part: kind.table for part, kind in kinds.items()}
    words = ("--lister-kubeconfig=a", *own)
    found = _targets(split(parse(words, merged(tables)), tables), kinds)
    wanted = "own" if own else "a"
    assert [found.objects.kubeconfig, found.authentication.kubeconfig,
            found.authorization.kubeconfig] == [wanted] * 3  # fmt: skip


def test_parts_that_share_a_thing_must_be_told_the_same():
    parts = ("hpa", "recommender", "updater")
    api = ("--metrics-source=api",)
    assert told(parts, *api) == []
    assert told(parts, *api, "--ignored-vpa-object-namespaces=payments") == []
    (wrong,) = told(parts, *api, "--updater.ignored-vpa-object-namespaces=payments")
    assert "--ignored-vpa-object-namespaces is one for recommender, updater" in wrong


def test_ballast_is_held_under_a_lease_only():
    words = ("--metrics-source=api", "--leader-elect=false")
    assert told(("nodes",), *words) == []
    (wrong,) = told(("nodes",), *words, "--mode=ballast")
    assert "needs --leader-elect" in wrong


def test_two_readers_of_prometheus_read_the_same_one(tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: []\n")
    words = (f"--config={rules}", "--prometheus-url=http://127.0.0.1:1")
    assert told(("hpa", "recommender"), *words) == []
    found = told(("hpa", "recommender"), *words, "--recommender.prometheus-url=http://127.0.0.1:2")
    assert any("--prometheus-url is one for hpa, recommender" in text for text in found)
