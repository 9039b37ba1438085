"""Who may read what, under which headers; and that nothing can be changed."""

import asyncio
import hashlib
from importlib.resources import files

import msgspec
import pytest

from podscale.page.part import Loopback
from podscale.serving.http.request import NOBODY, HttpRequest, Reply
from tests.browser.scenes import Played

STATIC = files("podscale.page") / "static"


@pytest.fixture(scope="module")
def loopback() -> Loopback:
    played = Played()
    asyncio.run(played.play(600.0))
    return Loopback(played.page.desk)


def asked(loopback: Loopback, target: str, method: str = "GET", **headers: str) -> Reply:
    named = {"host": "127.0.0.1:8087", **{k.replace("_", "-"): v for k, v in headers.items()}}
    request = HttpRequest(method, target, named, {}, b"", True, False)
    reply = loopback(request, NOBODY)
    assert isinstance(reply, Reply)
    return reply


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("target", ["/page/", "/page/api/workloads", "/page/api/workload"])
def test_nothing_but_reading_is_answered(loopback: Loopback, method: str, target: str) -> None:
    assert asked(loopback, target, method).status == 405


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:1", "localhost:8087", "[::1]", "[::1]:9"])
def test_the_loopback_is_known_by_its_names(loopback: Loopback, host: str) -> None:
    assert asked(loopback, "/page/", host=host).status == 200


@pytest.mark.parametrize(
    "host", ["", "evil.example", "evil.example:8087", "127.0.0.1.evil.example"]
)
def test_a_name_of_somebody_else_reads_nothing(loopback: Loopback, host: str) -> None:
    assert asked(loopback, "/page/api/workloads", host=host).status == 421


@pytest.mark.parametrize(
    "target", ["/page/", "/page/app.js", "/page/api/feed", "/page/api/nothing", "/page/none.js"]
)
def test_every_answer_carries_the_policy(loopback: Loopback, target: str) -> None:
    headers = dict(asked(loopback, target).headers)
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_no_cache_on_the_way_keeps_what_one_reader_was_told(loopback: Loopback) -> None:
    headers = dict(asked(loopback, "/page/api/workloads").headers)
    assert headers["Cache-Control"] == "no-store"


def test_a_file_known_by_its_tag_is_not_sent_again(loopback: Loopback) -> None:
    first = asked(loopback, "/page/page.css")
    again = asked(loopback, "/page/page.css", if_none_match=dict(first.headers)["ETag"])
    assert (first.status, again.status, again.body) == (200, 304, b"")


@pytest.mark.parametrize(
    "target", ["/page/../ring.py", "/page/%2e%2e/ring.py", "/page//etc/passwd", "/page/static"]
)
def test_only_files_of_the_page_are_files(loopback: Loopback, target: str) -> None:
    assert asked(loopback, target).status == 404


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ("workloads?state=odd", 400, "none of"),
        ("workloads?limit=x", 400, "numbers"),
        ("workload?id=web", 400, "NAMESPACE/KIND/NAME"),
        ("workload?id=shop/Deployment/none", 404, "not scaled"),
        ("decision?id=shop/Deployment/web&key=scale-1.0", 404, "not known any more"),
        ("decision?id=shop/Deployment/web&key=scale-x", 404, "not known any more"),
        ("secrets", 404, "/page/api/secrets is not there: ask for workloads"),
        ("", 404, "/page/api/ is not there: ask for workloads"),
    ],
)
def test_a_wrong_question_is_answered_with_what_to_do(
    loopback: Loopback, query: str, status: int, says: str
) -> None:
    reply = asked(loopback, f"/page/api/{query}")
    assert reply.status == status
    assert says in msgspec.json.decode(reply.body)["message"]


def test_uplot_is_the_file_that_was_published() -> None:
    named = [line.split() for line in (STATIC / "uPlot.sha256").read_text().splitlines()]
    assert {name for _, name in named} == {
        "uPlot.iife.min.js", "uPlot.min.css", "uPlot.LICENSE.txt",
    }  # fmt: skip
    for digest, name in named:
        assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == digest, name


def test_scripts_are_ours_and_uplot_and_nothing_names_another_server() -> None:
    for entry in STATIC.iterdir():
        if entry.name.startswith("uPlot") or entry.name.endswith(".svg"):
            continue
        text = entry.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text, entry.name
        assert "https://" not in text, entry.name
        assert "innerHTML" not in text, entry.name
        assert " style=" not in text, entry.name
