"""Which proxy the environment names, as golang.org/x/net/http/httpproxy reads it."""

import pytest
from yarl import URL

from podscale.feed.http.client import PrometheusClient
from podscale.feed.http.session import proxy_for
from podscale.feed.options import PrometheusOptions

PROXY = "http://proxy.corp:3128"
IN_CLUSTER = "http://prometheus.monitoring.svc:9090/prefix"


@pytest.mark.parametrize(
    ("url", "environ", "proxy"),
    [
        (IN_CLUSTER, {}, None),
        (IN_CLUSTER, {"HTTP_PROXY": PROXY}, PROXY),
        (IN_CLUSTER, {"http_proxy": PROXY}, PROXY),
        (IN_CLUSTER, {"HTTP_PROXY": "proxy.corp:3128"}, PROXY),
        (IN_CLUSTER, {"HTTPS_PROXY": PROXY}, None),
        ("https://prom.example", {"HTTPS_PROXY": PROXY, "HTTP_PROXY": "http://other"}, PROXY),
        ("http://localhost:9090", {"HTTP_PROXY": PROXY}, None),
        ("http://127.8.8.8:9090", {"HTTP_PROXY": PROXY}, None),
        ("http://[::1]:9090", {"HTTP_PROXY": PROXY}, None),
    ],
)
def test_the_variable_of_the_scheme_counts_and_never_for_loopback(url, environ, proxy):
    assert proxy_for(url, environ) == (proxy and URL(proxy))


@pytest.mark.parametrize(
    ("url", "exceptions", "is_proxied"),
    [
        (IN_CLUSTER, "*", False),
        (IN_CLUSTER, ".svc", False),
        (IN_CLUSTER, "svc", False),
        (IN_CLUSTER, "*.svc", False),
        (IN_CLUSTER, " .cluster.local , .SVC ", False),
        (IN_CLUSTER, ".monitoring.svc:9090", False),
        (IN_CLUSTER, ".monitoring.svc:9091", True),
        (IN_CLUSTER, "prometheus.monitoring.svc", False),
        (IN_CLUSTER, ".prometheus.monitoring.svc", True),
        (IN_CLUSTER, "vc", True),
        (IN_CLUSTER, ",, :80", True),
        ("http://10.1.2.3:9090", "10.0.0.0/8", False),
        ("http://10.1.2.3:9090", "10.1.2.3", False),
        ("http://10.1.2.3:9090", "10.1.2.3:9091", True),
        ("http://10.1.2.3:9090", "10.1.2.4,192.168.0.0/16,10.x/8", True),
        ("http://[fd00::1]:9090", "fd00::/8", False),
        ("http://[fd00::1]:9090", "[fd00::1]:9090", False),
        ("http://[fd00::1]:9090", "fd00::2", True),
        ("http://prom.example", "prom.example:80", False),
    ],
)
def test_exceptions_are_names_domains_addresses_and_networks(url, exceptions, is_proxied):
    environ = {"HTTP_PROXY": PROXY, "NO_PROXY": exceptions}
    assert (proxy_for(url, environ) is not None) == is_proxied


def test_a_proxy_of_another_kind_is_refused_without_its_password():
    environ = {"HTTPS_PROXY": "socks5://me:secret@proxy.corp:1080"}
    with pytest.raises(ValueError, match="only http and https proxies") as caught:
        proxy_for("https://prom.example", environ)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("named", ["http://me:secret@proxy:port", "http://[secret", "secret:x@y:z"])
def test_what_is_no_url_is_refused_without_its_password(named):
    with pytest.raises(ValueError, match="HTTPS_PROXY is not the URL of a proxy") as caught:
        proxy_for("https://prom.example", {"HTTPS_PROXY": named})
    assert "secret" not in str(caught.value)


def test_a_ca_file_of_our_own_leaves_proxies_out_as_upstreams_transport_does(monkeypatch, tmp_path):
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert PrometheusClient(PrometheusOptions(url="https://prom.example"))._proxy == URL(PROXY)
    options = PrometheusOptions(url="https://prom.example", ca_file=tmp_path / "ca")
    assert PrometheusClient(options)._proxy is None
