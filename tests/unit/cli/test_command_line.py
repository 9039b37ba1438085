"""Kubectl's habits: one line for an error, exit codes, the context's namespace."""

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from podscale.cli import cluster
from podscale.cli.cluster import ClusterChoice
from podscale.cli.output import emit, said
from tests.kit import commands


def podscale(*words: str, stdin: str = "", **environment: str) -> CompletedProcess[str]:
    nobody = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **environment}
    return commands.podscale(*words, stdin=stdin, env=nobody)


WRONG = {
    "unknown-command": (["adpter"], "did you mean 'adapter'?"),
    "missing-argument": (["explain"], "KIND[/NAME]"),
    "no-kind": (["explain", "web"], "KIND/NAME"),
    "namespace-in-name": (["explain", "pod/shop/web"], "say KIND/NAME, and the namespace with -n"),
    "unknown-option": (["migrate", "--nonsense", "x"], "--nonsense"),
    "no-number": (["doctor", "--timeout", "soon"], "--timeout"),
    "no-form": (["doctor", "-o", "xml"], "xml"),
    "no-file": (["doctor", "-f", "no-such-file", "--no-cluster"], "no-such-file: cannot be read"),
    "no-rules": (["doctor", "--no-cluster"], "--config FILE"),
    "no-cluster": (["doctor", "hpa/web"], "--kubeconfig"),
    "no-migration": (["migrate", "no-such-file"], "no-such-file: cannot be read"),
    "no-flag": (["adapter", "--prometheus-uri=x"], "--prometheus-uri"),
    "flag-no-number": (["adapter", "--v=x"], "not a whole number"),
    "flag-no-duration": (["adapter", "--metrics-relist-interval=x"], "; write one like 30s"),
    "flag-no-choice": (["hpa", "--mode=foo"], "replace, shadow, own"),
    "flag-missing": (["adapter"], "give --config"),
    "flag-of-two": (["serve"], "give --config"),
    "flag-no-port": (["admission", "--webhook-port=x"], "--webhook-port"),
    "flag-range": (["updater", "--secure-port=99999"], "--secure-port"),
    "no-shell": (["completion", "tcsh"], "tcsh"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_is_one_line_that_names_it_and_exit_2(name):
    words, named = WRONG[name]
    done = podscale(*words)
    told = done.stderr.strip().splitlines()
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert len(told) == 1, told
    assert told[0].startswith("podscale")
    assert named in told[0]
    for leak in ("Traceback", "[Errno", "strconv", "object at 0x", "<unicode string>"):
        assert leak not in told[0]


@pytest.mark.parametrize("url", ["notaurl", "ftp://prometheus"])
def test_a_prometheus_that_is_no_url_is_named(url, tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: []\n")
    done = podscale("doctor", "-f", str(rules), "--no-cluster", "--prometheus-url", url)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done
    assert f"--prometheus-url {url}" in done.stderr


@pytest.mark.parametrize("flag", ["--scrape-interval", "--relist-interval"])
def test_a_duration_that_is_none_is_told_by_its_flag(flag, tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: []\n")
    done = podscale("doctor", "-f", str(rules), "--no-cluster", flag, "soon")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done
    assert f"{flag} soon: not a duration" in done.stderr


@pytest.mark.parametrize("text", ["", "\n", "# later\n"])
def test_an_empty_file_is_one_without_rules_and_told_by_its_name(text, tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text(text)
    for words in (("doctor", "--no-cluster", "-f", str(rules)), ("migrate", "rules", str(rules))):
        done = podscale(*words)
        assert done.returncode == 1, done
        assert f"{rules}: NoRules: there are no rules" in done.stdout
    done = podscale("migrate", str(rules))
    assert done.returncode == 1, done
    assert f"there are no rules in {rules}" in done.stderr


def test_yaml_that_does_not_parse_is_told_with_file_and_line(tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text("kind: List\nitems: [\n")
    done = podscale("migrate", str(bad))
    assert done.returncode == 2, done
    assert f"{bad}:3:1: not YAML" in done.stderr
    assert done.stderr.count("\n") == 1


def test_debug_shows_where_and_nothing_else_does(tmp_path):
    hpa = tmp_path / "hpa.yaml"
    hpa.write_text("kind: Deployment\n")
    plain = podscale("hpa", "eval", "-f", str(hpa), "--observation", str(hpa))
    assert "Traceback" not in plain.stderr
    assert "Traceback" in podscale("--debug", "adpter").stderr


HPA = """
kind: HorizontalPodAutoscaler
apiVersion: autoscaling/v2
metadata: {name: web, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 5
  metrics:
  - {type: External, external: {metric: {name: q}, target: {type: AverageValue, averageValue: "5"}}}
"""
SEEN = "scale: {replicas: 3, selector: app=web}\nmetrics: [{values: ['40']}]\n"


@pytest.mark.parametrize(("hpa", "seen", "named", "words"), [
    (HPA.replace('"5"', '"5x"'), SEEN, "hpa.yaml", "averageValue"),
    (HPA, SEEN.replace("40", "4Q0"), "seen.yaml", "4Q0"),
    (HPA, "a: [", "seen.yaml", "flow node"),
    (SEEN, HPA, "hpa.yaml", "swapped"),
    ("", SEEN, "hpa.yaml", "no HPA"),
])  # fmt: skip
def test_hpa_eval_names_the_file_that_is_wrong_in_one_line(tmp_path, hpa, seen, named, words):
    (tmp_path / "hpa.yaml").write_text(hpa)
    (tmp_path / "seen.yaml").write_text(seen)
    done = podscale("hpa", "eval", "-f", str(tmp_path / "hpa.yaml"),
                    "--observation", str(tmp_path / "seen.yaml"))  # fmt: skip
    assert (done.returncode, done.stderr.count("\n"), done.stdout) == (2, 1, ""), done
    assert named in done.stderr
    assert words in done.stderr
    assert "unicode string" not in done.stderr
    assert "--help" not in done.stderr  # the call was right


def test_hpa_eval_says_where_a_file_is_not_yaml_so_that_editors_find_it(tmp_path):
    (tmp_path / "hpa.yaml").write_text(HPA + "a: [\n")
    (tmp_path / "seen.yaml").write_text(SEEN)
    done = podscale("hpa", "eval", "-f", str(tmp_path / "hpa.yaml"),
                    "--observation", str(tmp_path / "seen.yaml"))  # fmt: skip
    assert done.stderr.startswith(f"podscale hpa eval: {tmp_path / 'hpa.yaml'}:11:1: the HPA: not")


@pytest.mark.parametrize("stdin", ["-f", "--observation"])
def test_hpa_eval_reads_one_file_from_stdin_and_decides_at_a_time(tmp_path, stdin):
    files = {"-f": HPA, "--observation": SEEN}
    words = []
    for option, text in files.items():
        (tmp_path / option).write_text(text)
        words += [option, "-" if option == stdin else str(tmp_path / option)]
    done = podscale("hpa", "eval", *words, "--at", "2026-01-01T00:00:00Z", stdin=files[stdin])
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout.startswith("shop/web → Deployment/web: 5 replicas, 2026-01-01T00:00:00Z")


def test_rules_that_are_refused_end_migrate_with_2_and_their_place(tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text("rules:\n- seriesQuery: x\n  metricQuery: y\n")
    done = podscale("migrate", str(bad))
    assert done.returncode == 2, done
    assert f"{bad}:3:3" in done.stdout


def test_a_server_that_is_not_there_is_told_with_what_to_try():
    done = podscale("explain", "hpa/web", "--server", "http://127.0.0.1:9")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done
    assert "--context" in done.stderr


def test_errors_of_the_system_lose_their_number_and_objects_of_python():
    assert said(FileNotFoundError(2, "No such file or directory", "x")) == (
        "x: No such file or directory"
    )
    shown = "Cannot connect to host a:1 ssl:<ssl.SSLContext object at 0x7f0> [refused]"
    assert said(Exception(shown)) == "Cannot connect to host a:1 [refused]"


def config(path: Path, namespace: str) -> Path:
    context = {"name": "here", "context": {"cluster": "c", "namespace": namespace}}
    other = {"name": "there", "context": {"cluster": "c"}}
    path.write_text(json.dumps({"current-context": "here", "contexts": [context, other]}))
    return path


def test_the_namespace_is_that_of_the_context(tmp_path):
    file = str(config(tmp_path / "config", "shop"))
    assert ClusterChoice({"kubeconfig": file}).namespace == "shop"
    assert ClusterChoice({"kubeconfig": file, "namespace": "prod"}).namespace == "prod"
    assert ClusterChoice({"kubeconfig": file, "context": "there"}).namespace == "default"
    assert cluster.context_names(file) == ["here", "there"]


def test_no_color_is_obeyed_and_output_is_plain_where_it_is_no_terminal(tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: []\n")
    for environment in ({}, {"NO_COLOR": "1"}):
        done = podscale("doctor", "-f", str(rules), "--no-cluster", **environment)
        assert "\x1b" not in done.stdout + done.stderr


def test_json_is_json_whatever_the_numbers_are(capsys):
    emit({"ratio": float("nan"), "name": "größe"}, "json")
    shown = capsys.readouterr().out
    assert json.loads(shown, parse_constant=pytest.fail) == {"ratio": None, "name": "größe"}
    assert shown.startswith('{\n  "ratio"')
    assert "größe" in shown


@pytest.mark.parametrize("words", [
    ("config-gen", "--rate-interval", "5"),
    ("adapter", "--metrics-relist-interval", "1"),
    ("recommender", "--history-length", "8", "--storage", "prometheus"),
    ("demo", "--duration", "5"),
    ("doctor", "--no-cluster", "--config", "RULES", "--scrape-interval", "5"),
    ("doctor", "--no-cluster", "--config", "RULES"),
])  # fmt: skip
def test_a_duration_without_a_unit_is_told_alike_everywhere(words, tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("resourceRules: {window: 2}\n")
    done = podscale(*(str(rules) if word == "RULES" else word for word in words))
    assert done.returncode
    assert "; write one like 30s, 2m or 1h30m" in done.stdout + done.stderr


@pytest.mark.parametrize("flag", ["--config", "--sources", "--external-backends"])
def test_what_is_wrong_in_a_file_is_told_by_the_file_and_not_by_the_flags(flag, tmp_path):
    (tmp_path / "rules.yaml").write_text("rules: []\n")
    file = tmp_path / "file.yaml"
    file.write_text("rulez: []\n")
    done = podscale("adapter", "--prometheus-url=http://127.0.0.1:1",
                    f"--config={tmp_path / 'rules.yaml'}", f"{flag}={file}")  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith(f"{file}:1:1: ")
    assert "--help" not in done.stderr
