"""The sources file: what it names, and every problem of it with its line."""

import asyncio
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from adapter.errors import ConfigInvalid
from adapter.selfmetrics import AdapterMetrics
from adapter.sources import sources_file
from adapter.sources.source_router import OpenSource, SourceRouter
from adapter.sources.sources_file import NamedSources, NamespaceMatch, read_sources
from podscale.feed.options import FeedOptions, PrometheusOptions
from podscale.feed.prover.confinement import Confinement

GOOD = """
sources:
- name: infra
  url: https://prometheus.infra:9090/prefix
  caFile: /etc/ca.crt
  clientCertFile: /etc/tls.crt
  clientKeyFile: /etc/tls.key
  tokenEnv: INFRA_TOKEN
  headers: {X-Scope-OrgID: infra}
  queryParameters: {dedup: "true"}
  verb: POST
  timeout: 3s
  connections: 8
- name: plain
  url: http://prometheus
namespaces:
- match: infra-*
  source: infra
- match: "*-old"
"""


def test_everything_that_is_written_is_meant() -> None:
    found = read_sources(GOOD, "sources.yaml", {"INFRA_TOKEN": "t0ken"})
    infra = found.sources["infra"]
    assert (infra.url, infra.verb, infra.deadline_s) == (
        "https://prometheus.infra:9090/prefix", "POST", 3.0
    )  # fmt: skip
    assert (infra.ca_file, infra.client_key_file) == (Path("/etc/ca.crt"), Path("/etc/tls.key"))
    assert (infra.token, infra.headers) == ("t0ken", (("X-Scope-OrgID", "infra"),))
    assert (infra.parameters, infra.connections) == ((("dedup", "true"),), 8)
    of = found.of_namespace
    assert [of("infra-1"), of("infra-old"), of("shop-old"), of("")] == ["infra", "infra", "", ""]
    assert found.listed_with("") == ("", "infra")
    assert found.listed_with("plain") == ("plain",)


@pytest.mark.parametrize(
    ("was", "wrong", "line", "words"),
    [
        ("name: plain", "name: infra", 14, "'infra' is the name of a source before it"),
        ("- name: plain\n  url", "- url", 14, "a source needs a name"),
        ("url: http://prometheus", "url: prometheus", 15, "an http or https URL is expected"),
        ("url: http://prometheus", "url: http://u:p@prometheus", 15, "holds a password"),
        ("  url: http://prometheus\n", "", 14, "an http or https URL is expected"),
        ("verb: POST", "verb: PUT", 11, "GET or POST is expected, not 'PUT'"),
        ("timeout: 3s", "timeout: 3 apples", 12, "apples"),
        ("timeout: 3s", "timeout: 0s", 12, "more than 0"),
        ("connections: 8", "connections: 5000", 13, "a number from 1 to 1024"),
        ("tokenEnv: INFRA_TOKEN", "tokenEnv: OTHER", 8, "no variable 'OTHER'"),
        ("  clientKeyFile: /etc/tls.key\n", "", 3, "belong together"),
        ("{X-Scope-OrgID: infra}", "{X-Scope-OrgID: [a]}", 9, "one line of text is expected"),
        ("caFile", "cafile", 5, "did you mean 'caFile'"),
        ("match: infra-*", "match: ''", 17, "a name of namespaces"),
        ("  source: infra", "  source: infrared", 18, "there are: infra, plain"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(was, wrong, line, words) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        read_sources(GOOD.replace(was, wrong, 1), "s.yaml", {"INFRA_TOKEN": "t0ken"})
    first = refused.value.problems[0]
    assert words in first.message
    assert first.line == line
    assert "t0ken" not in str(refused.value)
    assert ":p@" not in str(refused.value)


def test_every_problem_is_told_at_once() -> None:
    text = "sources:\n- url: ftp://x\n  verb: PUT\n- name: a\n  url: http://a\n  tokenFIle: x\n"
    with pytest.raises(ConfigInvalid) as refused:
        read_sources(text, "s.yaml", {})
    assert len(refused.value.problems) == 4


def test_an_empty_file_names_nothing() -> None:
    assert read_sources("", "s.yaml", {}).sources == {}


async def test_patterns_are_tried_once_for_each_namespace(monkeypatch) -> None:
    tried: list[str] = []
    monkeypatch.setattr(
        sources_file, "fnmatchcase", lambda name, _: bool(tried.append(name) or name == "shop")
    )
    sources = SourceRouter(
        OpenSource(None, None, None, None), FeedOptions(), AdapterMetrics(CollectorRegistry())
    )
    async with sources:
        for source in ("gone", "lost"):
            await sources.replace(NamedSources({}, (NamespaceMatch("shop", source),)))
            tried.clear()
            for _ in range(3):
                failure = sources.feed_for("", "shop")
                assert f"no source '{source}'" in failure.message
            assert tried == ["shop"]


async def test_a_source_that_was_just_left_does_not_delay_the_end() -> None:
    options = PrometheusOptions(url="http://127.0.0.1:9", series_deadline_s=30)
    sources = SourceRouter(
        OpenSource(None, None, None, None), FeedOptions(), AdapterMetrics(CollectorRegistry())
    )
    async with asyncio.timeout(5):
        async with sources:
            await sources.replace(NamedSources({"shop": options}))
            await sources.replace(NamedSources())


def test_who_may_ask_a_source_is_said_in_the_file() -> None:
    text = GOOD.replace("  url: http://prometheus\n", (
        "  url: http://prometheus\n  namespaces: [shop-*, bar]\n  namespaceLabel: kube_namespace\n"
    ))  # fmt: skip
    found = read_sources(text + "default: {namespaces: [old-*]}\n", "f", {"INFRA_TOKEN": "t"})
    own = found.for_own_rule
    assert own("plain", "shop-1") == ("plain", Confinement("kube_namespace", "shop-1"))
    assert own("plain", "old-1") == ("plain", None)
    assert own("", "old-1") == ("default", Confinement("namespace", "old-1"))
    assert own("", "bar") == ("default", None)
    assert own("", "infra-1") == ("infra", None)  # chosen by the namespace, and open to nobody
    assert own("nowhere", "bar") == ("nowhere", None)
    assert NamedSources().for_own_rule("", "bar") == ("default", None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("default: {namespaces: [[]]}", "f:1:24: default.namespaces[0]: a name of namespaces"),
        ("default: {namespaceLabel: a-b}", "default.namespaceLabel: 'a-b' is not the name"),
        ("sources: [{name: default, url: http://a}]", "is what the one of --prometheus-url"),
    ],
)
def test_what_is_wrong_about_access_is_told_with_its_place(text: str, words: str) -> None:
    with pytest.raises(ConfigInvalid) as error:
        read_sources(text, "f")
    assert words in str(error.value)


@pytest.mark.parametrize("key", ["tokenFile", "passwordFile"])
@pytest.mark.parametrize(
    "path",
    [
        "/var/run/secrets/kubernetes.io/serviceaccount/token",
        "/etc/../run/secrets/kubernetes.io/serviceaccount/token",
        "/proc/self/environ",
        "etc/token",
    ],
)
def test_what_is_sent_to_a_source_lies_below_a_folder_for_it(key: str, path: str) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        read_sources(GOOD.replace("tokenEnv: INFRA_TOKEN", f"{key}: {path}"), "s.yaml", {})
    [problem] = refused.value.problems
    assert (problem.path, problem.line) == (f"sources[0].{key}", 8)
    assert "/var/run/secrets/tokens" in problem.message


@pytest.mark.parametrize("folder", sources_file.SECRET_FOLDERS)
def test_a_token_is_read_from_each_of_the_folders(folder: str) -> None:
    text = GOOD.replace("tokenEnv: INFRA_TOKEN", f"tokenFile: {folder}/infra/token")
    found = read_sources(text, "s.yaml", {}).sources["infra"]
    assert found.token_file == Path(f"{folder}/infra/token")
