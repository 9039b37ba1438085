"""Flags of upstream's command lines, read as upstream reads them."""

import pytest

from podscale.serving.flags import parse
from vpa.admission import flags as admission
from vpa.flags import gate, problems
from vpa.recommender import flags as recommender
from vpa.updater import flags as updater

GATES = ("InPlace", "CPUStartupBoost", "PerVPAConfig")


@pytest.mark.parametrize(
    ("words", "on"),
    [
        ((), ()),
        (("AllAlpha=true",), GATES),
        (("AllAlpha=1",), GATES),
        (("AllAlpha=false,InPlace=true",), ("InPlace",)),
        (("InPlace=false,AllAlpha=true",), ("CPUStartupBoost", "PerVPAConfig")),
        (("AllAlpha=true", "InPlace=false"), ("CPUStartupBoost", "PerVPAConfig")),
        (("AllBeta=true",), ()),
        (("InPlace=false", "InPlace=T"), ("InPlace",)),
        (("InPlace = true,",), ("InPlace",)),
    ],
)
def test_a_gate_that_is_named_goes_before_all_alpha(words: tuple[str, ...], on: tuple[str, ...]):
    flags = parse([f"--feature-gates={word}" for word in words], updater.TABLE)
    assert problems(flags) == []
    assert tuple(name for name in GATES if gate(flags, name)) == on


@pytest.mark.parametrize("text", ["AllAlpha", "AllAlpha=yes", "=true"])
def test_a_gate_that_cannot_be_read_is_a_problem(text: str):
    assert problems(parse([f"--feature-gates={text}"], updater.TABLE))


def test_all_alpha_reaches_each_program():
    words = ["--feature-gates=AllAlpha=true"]
    assert recommender.options(parse(words, recommender.TABLE)).per_vpa_config
    settings = updater.options(parse(words, updater.TABLE), "kube-system").settings
    assert (settings.in_place, settings.cpu_startup_boost, settings.per_vpa_config) == (True,) * 3
    assert admission.boost(parse(words, admission.TABLE)).enabled


def test_the_workers_of_startup_boosts_are_taken_without_effect():
    flags = parse(["--concurrent-cpu-startup-boost-syncs=4"], updater.TABLE)
    assert updater.problems(flags) == []
    assert "--concurrent-cpu-startup-boost-syncs changes nothing" in flags.warnings[0]


@pytest.mark.parametrize(
    ("words", "url"),
    [
        (("--webhook-address=10.0.0.5", "--webhook-port=8000"), "https://10.0.0.5:8000"),
        (("--webhook-address=https://10.0.0.5", "--webhook-port=8000"), "https://10.0.0.5:8000"),
        (("--webhook-address=https://vpa.example",), "https://vpa.example"),
        (("--webhook-address=vpa.example",), "https://vpa.example"),
    ],
)
def test_an_address_may_carry_its_scheme(words: tuple[str, ...], url: str):
    flags = parse(["--register-by-url", *words], admission.TABLE)
    assert admission.problems(flags) == []
    assert admission.registration(flags, "kube-system").url == url


def test_the_webhooks_port_is_no_port_of_the_service():
    flags = parse(["--webhook-port=8000"], admission.TABLE)
    body = admission.registration(flags, "kube-system").body(b"pem")
    assert body["webhooks"][0]["clientConfig"]["service"] == {
        "namespace": "kube-system", "name": "vpa-webhook",
    }  # fmt: skip


def test_ignored_namespaces_reach_the_recommender():
    flags = parse(["--ignored-vpa-object-namespaces=a,b"], recommender.TABLE)
    assert recommender.options(flags).ignored == ("a", "b")
