"""Flags of several parts on one command line."""

import pytest

from podscale.cli.combined import merged, split
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


def test_defaults_of_the_command_reach_those_that_know_the_flag_and_yield_to_what_is_given():
    assert split_words(address="")["two"].text("address") == ""
    assert split_words("--address=:90", address="")["two"].text("address") == ":90"
    assert "address" not in split_words(address="")["one"].values


def test_help_lists_a_flag_once():
    assert usage(merged(TABLES)).count("share") == 1


def test_a_part_that_does_not_run_here_has_no_flags():
    with pytest.raises(FlagError, match=r"unknown flag: --three\.share"):
        split_words("--three.share=1")
