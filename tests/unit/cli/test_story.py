"""``explain --story``: shown, and played again."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from hpa.machine import events as ev
from hpa.machine.events import Signal
from hpa.machine.progress import Progress
from hpa.machine.story import DumpedStory, Story, StoryBook
from podscale.cli.commands.explain import command

FREE = ev.WriteGuards()
GREW = (
    Signal.DUE, ev.AnsweredEvent(), ev.ResizedEvent(2, 4, False, FREE),
    Signal.TURN_CAME, ev.AttemptEvent(FREE),
    ev.ScaleAnsweredEvent("failed", is_lost=True), ev.ConcludedEvent("more"),
    ev.StatusAnsweredEvent(is_written=True),
)  # fmt: skip


def story() -> dict[str, Any]:
    """Return a served story of a size that was written, and of the pass after it."""
    book, progress, held = StoryBook(), Progress(is_leading=True), Story(Progress())
    for at, event in enumerate((*GREW, Signal.DUE, Signal.GIVEN_UP)):
        book.follow(("shop", "web"), held, progress, event, float(at))
    dumped = DumpedStory("shop", "web", 20.0, book.chapters(("shop", "web"), held))
    return msgspec.json.decode(msgspec.json.encode(dumped))


@contextmanager
def served(body: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            text = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}", asked
        listening.shutdown()
        thread.join()


def explained(body: dict[str, Any], *words: str) -> Any:
    with served(body) as (url, asked):
        done = CliRunner().invoke(command, ["hpa/web", "-n", "shop", "-s", url, "--story", *words])
    assert all("story=true" in each for each in asked)
    return done


def test_a_story_is_shown_step_by_step_and_played_again() -> None:
    done = explained({"status": {"story": story()}})
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0] == "chapter 0, idle"
    assert lines[1].split(" ago  ")[1] == "Due -> Observe"
    (resized,) = (each for each in lines if "Resized" in each)
    event, made = resized.split("Resized ")[1].split(" -> TakeTurn ")
    guards = {"doubt": "", "knows_rescales": True, "is_same": True}
    assert json.loads(event) == {"before": 2, "after": 4, "is_correction": False, "guards": guards}
    assert json.loads(made) == {"since": 2.0}
    sent = 'RememberSent {"before":2,"after":4,"at":4.0}, Conclude'
    assert any(sent in each for each in lines)
    assert lines[-1] == "podscale explain: played again, the same instructions"


def test_a_story_that_is_another_one_here_fails() -> None:
    forged = story()
    forged["chapters"][0]["steps"][0][2] = ["Skip"]
    done = explained({"status": {"story": forged}})
    assert done.exit_code != 0
    assert "another one here: chapter 0" in done.output


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_story_is_dumped_as_it_was_served(form: str) -> None:
    done = explained({"status": {"story": story()}}, "-o", form)
    assert done.exit_code == 0
    assert "ResizedEvent" in done.stdout


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({}, "of an earlier release"),
        ({"story": {"chapters": 3}}, "of another release"),
        (
            {"story": {**story(), "chapters": [{"start": {"phase": "asleep"}, "steps": []}]}},
            "asleep",
        ),
    ],
)
def test_a_story_of_another_release_is_told_as_that(status: dict[str, Any], told: str) -> None:
    done = explained({"status": status})
    assert done.exit_code == 1
    assert told in done.output


@pytest.mark.parametrize(
    "words",
    [["hpa"], ["vpa/web"], ["hpa/web", "--at", "10m"], ["hpa/web", "-w"], ["hpa", "-A"]],
)
def test_a_story_is_about_one_hpa_as_it_is_now(words: list[str]) -> None:
    done = CliRunner().invoke(command, [*words, "--story"])
    assert done.exit_code == 2
    assert "--story is about one HPA as it is now" in done.output
