"""What must be changed first is told before any server is asked, in one form by every part."""

import re
from pathlib import Path

import pytest

from podscale.replay.inputs import ReplayError
from podscale.replay.sweep import swept_field
from tests.kit.commands import podscale

NOWHERE = "http://127.0.0.1:1"
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n"


@pytest.mark.parametrize("part", ["adapter", "hpa", "recommender", "control", "run"])
def test_a_rules_file_that_is_none_ends_with_2_and_its_first_line(part: str, tmp_path: Path):
    file = tmp_path / "rules.yaml"
    file.write_text(POD)
    feed = [] if part == "adapter" else ["--metrics-source=feed"]
    done = podscale(part, f"--config={file}", f"--prometheus-url={NOWHERE}", *feed)
    assert done.returncode == 2
    assert done.stderr.startswith(f"{file}:1:1: unknown key 'apiVersion'")
    assert "TaskGroup" not in done.stderr


@pytest.mark.parametrize("part", ["adapter", "hpa", "control"])
def test_a_rules_file_that_cannot_be_read_says_why(part: str, tmp_path: Path):
    feed = [] if part == "adapter" else ["--metrics-source=feed"]
    for file, why in ((tmp_path / "none", "no such file"), (tmp_path, "it is a directory")):
        done = podscale(part, f"--config={file}", f"--prometheus-url={NOWHERE}", *feed)
        assert (done.returncode, done.stderr) == (2, f"{file}: cannot be read: {why}\n")


def test_a_binary_rules_file_is_told_without_words_of_the_parser(tmp_path: Path):
    file = tmp_path / "rules.yaml"
    file.write_bytes(b"\x0e\x01\xff\x00")
    done = podscale("hpa", f"--config={file}", f"--prometheus-url={NOWHERE}")
    assert done.returncode == 2
    assert done.stderr.startswith(f"{file}: not YAML: ")
    assert "unicode string" not in done.stderr


def test_without_a_command_the_help_keeps_its_lines():
    done = podscale()
    assert done.returncode == 2
    assert done.stderr.startswith("Usage: podscale")
    assert len(done.stderr.splitlines()) > 15
    assert podscale("help").stdout == podscale("--help").stdout
    assert podscale("version").stdout == podscale("--version").stdout


DEEP = '{"a":' * 10_000 + "1" + "}" * 10_000


@pytest.mark.parametrize(
    "words",
    [
        ["adapter", "--prometheus-url", NOWHERE, "--config", "DEEP"],
        ["doctor", "--no-cluster", "--config", "DEEP"],
        ["doctor", "--series", "DEEP"],
        ["migrate", "DEEP"],
        ["hpa", "eval", "-f", "DEEP", "--observation", "DEEP"],
        ["explain", "hpa/web", "--kubeconfig", "DEEP"],
    ],
)
def test_a_file_nested_ten_thousand_deep_is_a_sentence(words: list[str], tmp_path: Path):
    file = tmp_path / "deep.yaml"
    file.write_text(DEEP)
    done = podscale(*(str(file) if word == "DEEP" else word for word in words))
    # Of a rules file that it was asked to examine, the doctor makes a finding.
    is_finding = "--no-cluster" in words
    assert done.returncode == (1 if is_finding else 2), done
    assert "nested too deeply" in done.stdout + done.stderr
    assert "recursion" not in done.stdout + done.stderr


@pytest.mark.parametrize("part", ["adapter", "hpa", "recommender", "admission", "run"])
def test_a_kubeconfig_that_is_none_ends_every_part_with_2(part: str, tmp_path: Path):
    config, rules = tmp_path / "config", tmp_path / "rules.yaml"
    rules.write_text("rules: []\n")
    config.write_text("hello")
    flag = "--lister-kubeconfig" if part == "adapter" else "--kubeconfig"
    feeds = part in ("adapter", "hpa", "run")
    own = [f"--prometheus-url={NOWHERE}", f"--config={rules}"] if feeds else []
    done = podscale(part, f"{flag}={config}", *own)
    assert done.returncode == 2, done
    assert f"cannot use kubeconfig {config}: not a kubeconfig" in done.stdout + done.stderr


def test_an_empty_kubeconfig_variable_says_what_was_looked_for():
    nobody = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "KUBECONFIG": ""}
    done = podscale("explain", "hpa/web", env=nobody)
    assert done.returncode == 2
    assert done.stderr.startswith("podscale explain: no cluster is configured: KUBECONFIG is empty")
    assert done.stderr.count("\n") == 1


def test_the_url_that_migrate_compares_with_is_looked_at_first(tmp_path: Path):
    file = tmp_path / "rules.yaml"
    file.write_text("rules: []\n")
    done = podscale("migrate", str(file), "--prometheus-url", "foo")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--prometheus-url foo: not an http or https URL" in done.stderr


@pytest.mark.parametrize("words", [["migrate", "-"], ["doctor", "--no-cluster", "--config", "-"]])
def test_what_comes_by_stdin_is_called_so(words: list[str]):
    done = podscale(*words, stdin=" \n")
    assert done.returncode == 1
    assert re.search(r"there are no rules in stdin|stdin: NoRules", done.stdout + done.stderr)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--server", "foo"], "--server foo: not an http or https URL"),
        # A number that is no port may be a password, so it is not printed.
        (["--server", "http://a:99999"], "--server …: not an http or https URL"),
        (["--kubeconfig", "EMPTY"], "is empty"),
        (["--server", NOWHERE, "--at", "bogus"], "--at=bogus is neither an age"),
    ],
)
def test_a_cluster_or_a_time_that_is_none_ends_with_2(words: list[str], said: str, tmp_path: Path):
    empty = tmp_path / "config"
    empty.write_text("")
    done = podscale("explain", "hpa/web", *(str(empty) if w == "EMPTY" else w for w in words))
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["hpa", ""], "eval"),
        (["hpa", "--mo"], "--mode"),
        (["hpa", "eval", "--ob"], "--observation"),
    ],
)
def test_hpa_offers_eval_and_the_flags(words: list[str], offered: str):
    from podscale.cli.commands.completion import kubectl

    assert offered in [line.partition("\t")[0] for line in kubectl(words).splitlines()]


def test_a_comparison_that_prometheus_did_not_answer_is_not_done(tmp_path: Path):
    file = tmp_path / "keda.yaml"
    file.write_text(
        "kind: ScaledObject\nmetadata: {name: web, namespace: shop}\nspec:\n"
        "  scaleTargetRef: {name: web}\n  triggers:\n  - type: prometheus\n"
        "    metadata: {serverAddress: http://prom, query: sum(load), threshold: '100'}\n"
    )
    assert podscale("migrate", str(file)).returncode == 0
    done = podscale("migrate", str(file), "--prometheus-url", NOWHERE)
    assert done.returncode == 1
    assert "not compared: " in done.stderr


@pytest.mark.parametrize(
    ("part", "url", "shown"),
    [
        ("adapter", "prometheus:9090", "prometheus:9090"),
        ("hpa", "http://", "http://"),
        ("control", "http://prometheus:99999", "…"),  # what is no port may be a password
    ],
)
def test_a_prometheus_that_is_no_url_is_refused_before_a_cluster_is_asked(
    part: str, url: str, shown: str, tmp_path: Path
):
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: []\n")
    feed = [] if part == "adapter" else ["--metrics-source=feed"]
    done = podscale(part, f"--config={rules}", f"--prometheus-url={url}", *feed)
    assert done.returncode == 2
    assert f"--prometheus-url {shown}: not an http or https URL" in done.stderr


PROGRAMS = [
    "adapter",
    "serve",
    "control",
    "run",
    "hpa",
    "recommender",
    "updater",
    "admission",
    "nodes",
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_word_that_a_program_does_not_take_is_refused(program: str):
    done = podscale(program, "--v=2", "nonsense")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"podscale {program}: 'nonsense' is neither a flag nor")


def test_a_word_that_nearly_is_a_subcommand_names_it():
    done = podscale("hpa", "evl")
    assert done.returncode == 2
    assert "did you mean `podscale hpa eval`?" in done.stderr


@pytest.mark.parametrize(("words", "said"), [
    (("off", "--timeout", "0"), "0 is not in the range x>=1"),
    (("watchdog", "--patience", "0s"), "--patience and --interval must be greater than 0"),
    (("watchdog", "--patience", "nan"), "--patience nan: not a duration; write one like 30s"),
])  # fmt: skip
def test_times_of_ballast_are_above_zero(words: tuple[str, ...], said: str):
    done = podscale("nodes", *words, "--server", NOWHERE)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize("values", [
    "prometheus: {url: http://prometheus}\nreplicas: 2\n", "rules: {default: false, custom: []}\n",
])  # fmt: skip
def test_values_of_a_chart_are_called_so_by_the_adapter(values: str, tmp_path: Path):
    file = tmp_path / "values.yaml"
    file.write_text(values)
    done = podscale("adapter", f"--config={file}", f"--prometheus-url={NOWHERE}")
    said = "these are a chart's values, not a rules file: podscale migrate writes the rules"
    assert (done.returncode, done.stderr) == (2, f"{file}:1:1: {said}\n")


@pytest.mark.parametrize(("words", "is_secret"), [
    (("--prometheus-header", "Authorization=Bearer verysecret"), True),
    (("--prometheus-header=X-Api-Key=verysecret",), True),
    (("--prometheus-url", "http://podscale:verysecret@127.0.0.1:1"), True),
    (("--prometheus-header", "X-Scope-OrgID=shop", "--prometheus-token-file=verysecret"), False),
])  # fmt: skip
def test_a_secret_in_the_arguments_is_remarked_on_and_not_repeated(
    words: tuple[str, ...], is_secret: bool
):
    for command in ("report", "adapter"):
        done = podscale(command, *words)
        assert ("visible in the list of processes" in done.stderr) == is_secret
        assert not is_secret or "verysecret" not in done.stderr


NOBODY = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
OF_CLUSTERS = (
    ("explain", "hpa/web"), ("doctor", "hpa/web"), ("doctor", "--metric", "m"), ("nodes", "off"),
    ("replay", "hpa/web", "--prometheus-url", NOWHERE), ("explain", "pod/web-1"),
    ("replay", "hpa", "-A", "--prometheus-url", NOWHERE),
    ("replay", "vpa/web", "--prometheus-url", NOWHERE),
)  # fmt: skip


@pytest.mark.parametrize("words", OF_CLUSTERS, ids=" ".join)
def test_every_command_ends_alike_without_a_cluster_and_with_one_that_is_down(words: tuple[str]):
    done = podscale(*words, env=NOBODY)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "KUBECONFIG is empty or not set" in done.stderr
    assert len(done.stderr) < 250
    assert podscale(*words, "--server", NOWHERE).returncode == 1


@pytest.mark.parametrize("sweep", ["target", "target=50..90", "=1"])
def test_a_sweep_that_is_none_is_explained_in_words(sweep: str):
    with pytest.raises(ReplayError, match=r"target=50\.\.90:5 \(from 50 to 90 in steps of 5\)"):
        swept_field(sweep)
