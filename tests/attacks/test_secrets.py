"""Credentials in URLs and files are in no message, whatever is wrong with them."""

from pathlib import Path

import pytest
import yaml
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from adapter import flags as adapter_flags
from adapter.flags import KubeconfigError, with_kubeconfig
from adapter.selfmetrics import AdapterMetrics, ObservedClient
from podscale.core.showable import HIDDEN, shown_url
from podscale.feed.http.client import PrometheusClient
from podscale.feed.http.session import proxy_for
from podscale.feed.options import PrometheusOptions
from podscale.kube.client.connect import ApiServerTarget, _choose, _why_not
from podscale.kube.client.errors import NotConfigured
from podscale.serving.flags import FlagError, parse

SECRETS = st.text(
    alphabet="abcXYZ019!$%&*-_.~:;,=+|'\"<>()[]{}\\^`/?#@ \té", min_size=3, max_size=12
).map(lambda text: f"s3c{text}r3t")
SCHEMES = ("http", "https", "ftp", "socks5", "HTTP", "htp", "", "prometheus+http", "unix", "s3")
MARKS = ("://", ":", ":/", "//", "", ":///", ":\\\\")
HOSTS = ("prometheus", "prometheus:9090", "[::1]:9090", "", "a b", "host:port", "host:99999", "é.x")


@st.composite
def urls(draw: st.DrawFn) -> tuple[str, str]:
    """Return a text like a URL with credentials, and what must not be shown of it."""
    secret = draw(SECRETS)
    user = draw(st.sampled_from(["", "admin:", ":", "admin:x:"]))
    begin = draw(st.sampled_from(SCHEMES)) + draw(st.sampled_from(MARKS))
    end = draw(st.sampled_from(["", "/", "/prefix", "?a=b", "#c", "/x@y", "?q=a@b"]))
    return f"{begin}{user}{secret}@{draw(st.sampled_from(HOSTS))}{end}", secret


def is_told(secret: str, text: str) -> bool:
    """Return whether a piece of the secret that tells it apart is in the text."""
    return "s3c" in text or "r3t" in text or secret in text


def test_what_is_no_secret_is_shown():
    for text in (
        "http://prometheus:9090/prefix", "localhost:9090", "ftp://host/path", "https://[::1]:9090",
        "prometheus.monitoring.svc:9090/a", "HTTP://h", "http://",
    ):  # fmt: skip
        assert shown_url(text) == text
    assert shown_url("http://prometheus:65535/a") == "http://prometheus:65535/a"
    assert shown_url("ftp://user:password@host:21/path?token=x#y") == "ftp://host:21/path"
    assert shown_url("http:/user:password@host") == HIDDEN


@given(
    st.sampled_from(["http://", "https://", ""]), st.sampled_from(["user", "a.b", "[::1]"]),
    st.one_of(st.integers(65_536, 10**12).map(str), st.integers(0, 10**6).map("0{}".format)),
    st.sampled_from(["", "/", "/path", "?a=b"]),
)  # fmt: skip
def test_digits_in_a_ports_place_that_are_no_port_are_hidden(begin, user, secret, end):
    assert secret not in shown_url(f"{begin}{user}:{secret}{end}")


@settings(max_examples=1_000)
@given(urls())
@example(("https3c://r3t@prometheus", "s3c://r3t"))
def test_no_url_is_shown_with_its_credentials(made):
    text, secret = made
    assert not is_told(secret, shown_url(text))


def _refusal(work, *errors: type[Exception]) -> str:
    try:
        work()
    except errors as error:
        return f"{error} {error!r}"
    return ""


@settings(max_examples=300, deadline=None)
@given(urls())
@example(("http://s3c00[r3t@[::1]:9090", "s3c00[r3t"))  # Python's words quote half of it
@example(("http://s3c[r3t@", "s3c[r3t"))  # yarl raises IndexError
def test_no_refusal_of_a_url_holds_its_credentials(made):
    text, secret = made
    assume("\t" not in secret)
    told = _refusal(lambda: adapter_flags.prometheus_url(text), FlagError)
    told += _refusal(lambda: PrometheusClient(PrometheusOptions(url=text)), ValueError)
    for name in ("HTTPS_PROXY", "HTTP_PROXY"):
        for url in ("http://prometheus", "https://prometheus"):
            told += _refusal(lambda url=url, name=name: proxy_for(url, {name: text}), ValueError)
    told += _refusal(
        lambda: parse([f"-prometheus-url={text}"], adapter_flags.TABLE), FlagError
    )  # one dash too few
    told += _refusal(lambda: _choose(ApiServerTarget(server=text), {}, Path("none")), NotConfigured)
    assert not is_told(secret, told)


def test_the_latency_metric_names_the_server_without_its_password():
    registry = CollectorRegistry()
    url = "https://admin:s3cr3t@prometheus:9090/p?token=s3cr3t"
    ObservedClient(PrometheusOptions(url=url), AdapterMetrics(registry))
    exposition = generate_latest(registry).decode()
    assert "s3cr3t" not in exposition
    assert 'server="https://prometheus:9090/p"' in exposition


# What may come before a secret that is not quoted, and makes it something else to YAML.
BEFORE = (
    "", "!", "*", "&", "!!int ", "!!float ", "!!timestamp ", "!!binary ", "@", "`", "%", "[", "{",
    "|", ">", "'", '"', "- ", ": ", "? ", "<<: *", "\\", '"\\', "2026-13-", "\t", "!<",
)  # fmt: skip
AFTER = ("", "\n  x", "\n\t- :", "]", "'", ": x: y")
KUBECONFIG = """current-context: c
clusters: [{name: c, cluster: {}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users:
- name: u
  user:
    password: SECRET
"""


@pytest.mark.parametrize("field", ["password", "token", "client-key-data", "exec", "tokenFile"])
@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(BEFORE), SECRETS, st.sampled_from(["", "\n  x", "\n\t- :", "]", "'", ": x: y"])
)
def test_no_trouble_with_a_file_of_secrets_holds_one(
    tmp_path_factory, field, before, secret, after
):
    path = tmp_path_factory.getbasetemp() / "kubeconfig"
    text = KUBECONFIG.replace("password:", f"{field}:").replace("SECRET", before + secret + after)
    path.write_text(text)
    told = _refusal(lambda: with_kubeconfig(PrometheusOptions(), path), KubeconfigError)
    assert not is_told(secret, told)
    told = _refusal(lambda: _reading_of(path), NotConfigured)
    assert not is_told(secret, told)


def _reading_of(path: Path) -> None:
    _choose(ApiServerTarget(kubeconfig=str(path)), {}, Path("none"))
    raise NotConfigured(_why_not(str(path)))


def test_what_is_wrong_with_a_file_is_said_with_its_place(tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text("users:\n- name: u\n  token: !s3cret x\n")
    with pytest.raises(KubeconfigError, match="line 3, column 10: not YAML: could not determine"):
        with_kubeconfig(PrometheusOptions(), path)
    with pytest.raises(yaml.YAMLError, match="s3cret"):  # what PyYAML says itself
        yaml.safe_load(path.read_text())
