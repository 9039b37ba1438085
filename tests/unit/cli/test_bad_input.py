"""No command answers bad input with the words of a library; it names the file, and the line.

Commands and their flags are asked from the program itself, so that new ones are tried as well.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from podscale.cli import entry
from tests.kit.commands import podscale

NOWHERE = "http://127.0.0.1:1"
_LONGEST_S = 20.0
INTERNALS = re.compile(
    r"""Traceback|\[Errno|NoneType|isatty|object\ at\ 0x|codec|\|\ null|Expected\ `|<class\ |
    \b[A-Z]\w*(?:Error|Exception)\b(?!:\ \w+\.yaml)|TaskGroup|sub-exception|Broken\ pipe|
    \bNone\b|TypeError|\bb'|surrogate|constructor|msgspec|jsonschema""",
    re.VERBOSE,
)
_FILES = re.compile(
    r"(^|-)(file|filename|config|kubeconfig|series|observation|key|dir|sources|backends)$"
)

BAD: dict[str, bytes] = {
    "empty": b"",
    "blank": b" \n\n",
    "binary": b"\x00\x01\xff\xfe\x80" * 20,
    "latin1": "rules: [{seriesQuery: 'é'}]\n".encode("latin-1"),
    "number": b"7\n",
    "list": b"- 1\n- [2]\n",
    "null": b"null\n",
    "unclosed": b"rules: [\n",
    "wrong types": b"rules:\n- seriesQuery: 3\n  resources: yes\n  name: []\nspec: 5\nkind: 8\n",
    "nan": b'{"rules": NaN, "kind": "Config", "spec": {"maxReplicas": NaN}, "clusters": NaN}\n',
    "null everywhere": b"kind: HorizontalPodAutoscaler\nmetadata: null\nspec: null\nrules: null\n",
    "lists for maps": b"apiVersion: v1\nkind: Config\nclusters: {a: 1}\nusers: 7\ncontexts: x\n",
}


class Told(NamedTuple):
    """How a command ended; code None: it was still running."""

    code: int | None
    text: str


def run(words: list[str]) -> Told:
    """Run a command for which nothing is tried again and again until somebody gives up."""
    nobody = {**os.environ, "KUBECONFIG": "/nonexistent", "HOME": "/nonexistent"}
    try:
        done = podscale(*words, env=nobody, longest_s=_LONGEST_S)
    except TimeoutError as running:
        return Told(None, str(running))
    return Told(done.returncode, done.stdout + done.stderr)


def _flags(name: str, command: click.Command) -> Iterator[list[str]]:
    """Every way to give the command a file: ``FILE`` stands for it."""
    with click.Context(command, info_name=name) as context:
        for parameter in command.params:
            if isinstance(parameter, click.Argument):
                if parameter.name == "files":
                    yield ["FILE"]
            elif any(_FILES.search(each.strip("-")) for each in parameter.opts):
                yield [parameter.opts[-1], "FILE"]
        if any(p.name == "words" for p in command.params):
            for item in command.shell_complete(context, "--"):
                if _FILES.search(item.value.strip("-")):
                    yield [f"{item.value}=FILE"]


# What else a command needs before it looks at the file.
_BESIDE = {
    "doctor": ["--no-cluster"],
    "explain": ["hpa/web"],
    "replay": ["hpa/web", "--prometheus-url", NOWHERE],
    "report": ["--prometheus-url", NOWHERE],
    "--observation": ["-f", "HPA"],
    "--filename": ["--observation", "HPA"],
}


def calls() -> list[list[str]]:
    """Every command with every flag that takes a file, and what else it needs.

    A flag that several parts share is tried with one of them, but for those that all read.
    """
    from podscale.cli.commands.hpa import evaluate

    commands = {name: each.load() for name, each in entry.COMMANDS.items()}
    found = []
    shared: set[str] = set()
    for name, command in [*commands.items(), ("hpa eval", evaluate)]:
        for words in _flags(name, command):
            if "=" in words[0] and words[0] not in ("--config=FILE", "--kubeconfig=FILE"):
                if "." in words[0] or words[0] in shared:
                    continue
                shared.add(words[0])
            beside = _BESIDE.get(words[0], [] if name == "hpa eval" else _BESIDE.get(name, []))
            if words[0] in ("--series", "--kubeconfig"):
                beside = [word for word in beside if word != "--no-cluster"]
            if words[0].endswith("-file") and name == "doctor":
                beside = [*beside, "--config", "RULES", "--prometheus-url", NOWHERE]
            reads = "prometheus-url" in _table(command) and not words[0].startswith("--config=")
            feed = [f"--prometheus-url={NOWHERE}", "--config=RULES"] if reads else []
            if "prometheus-url" in _table(command) and words[0].startswith("--config="):
                feed = [f"--prometheus-url={NOWHERE}"]
            if "metrics-source" in _table(command) and feed:
                feed.append("--metrics-source=feed")
            found.append([*name.split(), *words, *beside, *feed])
    return found


def _table(command: click.Command) -> set[str]:
    if not any(p.name == "words" for p in command.params):
        return set()
    with click.Context(command) as context:
        return {item.value.strip("-") for item in command.shell_complete(context, "--")}


def _named(words: list[str], bad: Path, directory: Path) -> list[str]:
    rules, hpa = directory / "good-rules.yaml", directory / "good-hpa.yaml"
    rules.write_text("rules: []\n")
    hpa.write_text(
        "kind: HorizontalPodAutoscaler\napiVersion: autoscaling/v2\nmetadata: {name: a}\n"
        "spec: {maxReplicas: 2, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}}\n"
    )
    return [
        word.replace("FILE", str(bad)).replace("RULES", str(rules)).replace("HPA", str(hpa))
        for word in words
    ]


@pytest.mark.parametrize("words", calls(), ids=lambda words: " ".join(words[:2]))
def test_no_file_makes_a_command_speak_of_its_insides(words: list[str], tmp_path: Path) -> None:
    places = {"missing": tmp_path / "missing" / "file.yaml", "directory": tmp_path / "directory"}
    places["directory"].mkdir()
    for name, content in BAD.items():
        places[name] = tmp_path / f"{name.replace(' ', '-')}.yaml"
        places[name].write_bytes(content)
    for name, place in places.items():
        told = run(_named(words, place, tmp_path))
        told_of = told.text.replace(str(tmp_path), "")
        found = INTERNALS.search(told_of)
        assert found is None, (name, found, told.text)
        is_of_cluster = "the kubeconfig /nonexistent" in told.text  # which was looked at before
        assert told.code is not None, (name, told.text)
        if told.code and not is_of_cluster:
            # Two flags that go together are named; a token may be any text, and nobody is there.
            flag = words[1].partition("=")[0] if len(words) > 1 else ""
            named = (place.name, f"{flag} and", f"and {flag}", "127.0.0.1:1")
            assert any(each in told.text for each in named), (name, told)


@pytest.mark.parametrize(("words", "name"), [
    (["doctor", "--no-cluster", "--config", "FILE"], "unclosed"),
    (["doctor", "--no-cluster", "--config", "FILE"], "wrong types"),
    (["migrate", "FILE"], "unclosed"),
    (["adapter", f"--prometheus-url={NOWHERE}", "--config=FILE"], "unclosed"),
    (["adapter", f"--prometheus-url={NOWHERE}", "--config=FILE"], "wrong types"),
    (["adapter", f"--prometheus-url={NOWHERE}", "--config=RULES", "--sources=FILE"], "unclosed"),
    (["serve", f"--prometheus-url={NOWHERE}", "--config=RULES", "--external-backends=FILE"],
     "wrong types"),
    (["hpa", "eval", "-f", "HPA", "--observation", "FILE"], "unclosed"),
    (["hpa", "eval", "-f", "FILE", "--observation", "HPA"], "unclosed"),
], ids=lambda given: given if isinstance(given, str) else " ".join(given[:2]))  # fmt: skip
def test_a_problem_in_a_file_is_told_with_its_line(words: list[str], name: str, tmp_path: Path):
    place = tmp_path / "some.yaml"
    place.write_bytes(BAD[name])
    told = run(_named(words, place, tmp_path))
    assert told.code in (1, 2)
    assert re.search(r"some\.yaml:\d+", told.text), told.text


def _numbers() -> Iterator[list[str]]:
    from podscale.cli.commands.hpa import evaluate

    commands = {name: each.load() for name, each in entry.COMMANDS.items()}
    for name, command in [*commands.items(), ("hpa eval", evaluate)]:
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.is_flag:
                yield [*name.split(), parameter.opts[0]]


@pytest.mark.parametrize("words", list(_numbers()), ids=" ".join)
def test_no_value_of_an_option_makes_a_command_speak_of_its_insides(words, tmp_path):
    beside = {"doctor": ["--no-cluster", "--config", "RULES", "--prometheus-url", NOWHERE],
              "explain": ["hpa/web", "--server", NOWHERE], "migrate": ["RULES"],
              "replay": ["hpa/web", "--server", NOWHERE]}  # fmt: skip
    for value in ("nan", "-inf", "1e999", "-1", "", "é", str(10**30)):
        if words[-1] in ("--record", "--duration") and value == "":
            continue
        rest = beside.get(words[0], [])
        if words[:2] == ["hpa", "eval"]:
            rest = ["-f", "HPA", "--observation", "HPA"]
        told = run(_named([*words, value, *rest], tmp_path, tmp_path))
        found = INTERNALS.search(told.text.replace(str(tmp_path), ""))
        assert found is None, (value, found, told.text)
        assert told.code is not None, (value, told.text)
