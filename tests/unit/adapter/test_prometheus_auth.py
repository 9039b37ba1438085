"""A kubeconfig as credentials for Prometheus."""

from base64 import b64encode

import pytest
import yaml

from adapter.flags import KubeconfigError, with_kubeconfig
from podscale.feed.options import PrometheusOptions

OPTIONS = PrometheusOptions(url="https://prometheus:9090/x")


def written(tmp_path, user, cluster=None, **more):
    path = tmp_path / "config"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [
            {"name": "there", "context": {"cluster": "other", "user": "other"}},
            {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "n"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": "https://api"} | (cluster or {})}],
        "users": [{"name": "u", "user": user}],
    } | more
    path.write_text(yaml.safe_dump(document))
    return path


def encoded(text):
    return b64encode(text.encode()).decode()


def test_the_current_context_gives_the_credentials_and_the_url_stays(tmp_path):
    path = written(
        tmp_path,
        {"token": "t", "client-certificate": "tls/me.crt", "client-key-data": encoded("key")},
        {"certificate-authority-data": encoded("pem"), "tls-server-name": "prom.example"},
    )
    got = with_kubeconfig(OPTIONS, path)
    assert got.url == OPTIONS.url
    assert (got.token, got.ca_data, got.server_name) == ("t", "pem", "prom.example")
    assert (got.client_cert_file, got.client_key_data) == (tmp_path / "tls/me.crt", "key")
    assert not got.is_insecure


def test_basic_auth_token_file_and_insecure_are_taken(tmp_path):
    path = written(
        tmp_path,
        {"username": "u", "password": "p", "tokenFile": "/var/token"},
        {"insecure-skip-tls-verify": True},
    )
    got = with_kubeconfig(OPTIONS, path)
    assert (got.username, got.password, str(got.token_file)) == ("u", "p", "/var/token")
    assert got.is_insecure


def test_plugins_are_refused_by_name(tmp_path):
    with pytest.raises(KubeconfigError, match="uses exec, which is not supported"):
        with_kubeconfig(OPTIONS, written(tmp_path, {"exec": {"command": "aws"}}))


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(KubeconfigError, match="there is no user 'u'"):
        with_kubeconfig(OPTIONS, written(tmp_path, {}, users=[]))
    with pytest.raises(KubeconfigError, match="none"):
        with_kubeconfig(OPTIONS, tmp_path / "none")
    (tmp_path / "bad").write_text("[1,")
    with pytest.raises(KubeconfigError, match="bad"):
        with_kubeconfig(OPTIONS, tmp_path / "bad")
