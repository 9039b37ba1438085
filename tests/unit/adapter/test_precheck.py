"""Before anything is connected, the adapter's files are told all that is wrong with them, once."""

from pathlib import Path

import pytest

from adapter.discovery.mapping import PresumingMapper
from adapter.doctor.diagnosis import diagnose
from adapter.doctor.evidence import AskedEvidence, Surroundings
from adapter.doctor.lints import sound_rules
from adapter.errors import ConfigInvalid
from adapter.flags import TABLE
from adapter.precheck import problems
from adapter.rules.config import read
from adapter.rules.ruleset import read_rules
from podscale.migrate.rules_source import find
from podscale.serving.flags import parse
from tests.kit.migrating import migrate
from tests.unit.adapter.world import MAPPER

WRONG = """\
rules:
- seriesQuery: x
  nam: {}
  name: {matches: "(a"}
  metricsQuery: "<<.Series"
"""


def test_keys_patterns_and_templates_are_told_together(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(WRONG)
    (told,) = problems(parse([f"--config={file}"], TABLE))
    places = [each.split(": ")[:2] for each in told.splitlines() if each.startswith(str(file))]
    assert [(at.removeprefix(str(file)).split(":")[1], path) for at, path in places] == [
        ("3", "rules[0]"),
        ("4", "rules[0].name.matches"),
        ("5", "rules[0].metricsQuery"),
    ]


def test_a_resource_of_some_cluster_is_not_refused_before_the_cluster_is_asked(
    tmp_path: Path,
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(
        "rules:\n- seriesQuery: x\n  resources: {overrides: {t: {resource: kafkatopic}}}\n"
        "  metricsQuery: up\n"
    )
    assert problems(parse([f"--config={file}"], TABLE)) == []


def told_by_a_reload(text: str, file: Path) -> list[str]:
    with pytest.raises(ConfigInvalid) as refused:
        sound_rules(text, str(file), MAPPER)
    return str(refused.value).splitlines()


def told_by_migrate(text: str, file: Path) -> list[str]:
    return [each.text for each in migrate(text, str(file)).refused]


def told_by_the_doctor(text: str, file: Path) -> list[str]:
    way = diagnose(text, AskedEvidence("custom", "x"), Surroundings(prometheus_url=""), str(file))
    with pytest.raises(StopIteration) as end:
        next(way)
    return str(end.value.value.seen).split(str(file))


@pytest.mark.parametrize("told", [told_by_a_reload, told_by_migrate, told_by_the_doctor])
def test_every_reader_tells_every_problem(told, tmp_path: Path) -> None:
    text = "\n".join(told(WRONG, tmp_path / "rules.yaml"))
    assert all(f":{line}:" in text for line in (3, 4, 5)), text
    assert "did you mean 'name'?" in text


def test_a_config_map_is_recognised_and_is_the_only_problem(tmp_path: Path) -> None:
    file = tmp_path / "cm.yaml"
    file.write_text("apiVersion: v1\nkind: ConfigMap\ndata:\n  config.yaml: |\n    rules: []\n")
    with pytest.raises(ConfigInvalid, match=r"this is a ConfigMap.*data\.config\.yaml") as refused:
        sound_rules(file.read_text(), str(file), MAPPER)
    assert len(refused.value.problems) == 1


@pytest.mark.parametrize(("data", "key"), [
    ("{config.yaml: 'rules: []'}", "config.yaml"), ("{config.yaml: ''}", "config.yaml"),
    ("{a.sh: 'rules', z.yaml: 'externalRules: []'}", "z.yaml"),
    ("{a.sh: 'rules'}", ""), ("{config.yaml: {rules: []}}", ""), ("null", ""), ("", ""),
    ("{? [a] : 'rules: []'}", ""), ("{a: &a 'rules: {', b: [*a]}", ""),
])  # fmt: skip
def test_a_config_map_is_said_to_hold_no_rules_where_the_doctor_finds_none(data, key) -> None:
    text = f"kind: ConfigMap\nmetadata: {{name: a}}\ndata: {data}\n"
    (told,) = read(text)[1]
    assert (f"give the value of its data.{key} (" in told.message) is bool(key)
    assert ("its data holds no rules file" in told.message) is not key
    assert find(text, "cm.yaml").form == ("ConfigMap a" if key else "rules file")


def test_an_unknown_resource_is_no_word_about_a_cluster_that_nobody_asked() -> None:
    text = "rules:\n- seriesQuery: x\n  resources: {overrides: {w: {resource: widgets}}}\n"
    with pytest.raises(ConfigInvalid, match="no resource that is known is named 'widgets'") as told:
        read_rules(text, "rules.yaml", PresumingMapper())
    assert "cluster" not in str(told.value)


def test_a_certificate_that_is_none_is_told_with_its_flag(tmp_path: Path) -> None:
    (bad := tmp_path / "bad.pem").write_text("no certificate")
    flags = parse([f"--prometheus-ca-file={bad}"], TABLE)
    (told,) = problems(flags)
    assert told.startswith(f"--prometheus-ca-file {bad}: cannot be used as PEM")
    pair = [f"--prometheus-client-tls-{part}-file={bad}" for part in ("cert", "key")]
    assert problems(parse(pair, TABLE)) == [], "upstream looks at it beside a CA only"
    flags = parse([f"--prometheus-ca-file={tmp_path / 'none'}", *pair], TABLE)
    missing, told = problems(flags)
    assert missing == f"--prometheus-ca-file {tmp_path / 'none'}: cannot be read: no such file"
    assert told.startswith(f"--prometheus-client-tls-cert-file {bad} with {bad}: cannot be used")


def test_sources_and_backends_are_read_as_early_as_the_rules(tmp_path: Path) -> None:
    sources = "sources:\n- name: infra\n  url: http://infra\n  cafile: /ca.crt\n"
    texts = {
        "config": f"{WRONG}- seriesQuery: y\n  metricsQuery: y\n  source: shop\n",
        "sources": sources,
        "external-backends": "backends:\n- nam: keda\n  url: http://keda\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    flags = parse([f"--{name}={tmp_path / name}" for name in texts], TABLE)
    told = "\n".join(problems(flags))
    for name, line, words in (
        ("config", 3, "did you mean 'name'?"), ("config", 5, "unclosed"),
        ("sources", 4, "did you mean 'caFile'?"),
        ("external-backends", 2, "did you mean 'name'?"),
        ("external-backends", 3, "an https URL"),
        ("external-backends", 2, "the CA of the backend's certificate is required"),
    ):  # fmt: skip
        place = f"{tmp_path / name}:{line}:"
        assert any(place in each and words in each for each in told.splitlines()), (place, told)
    assert "no source 'shop'" not in told, "it may stand in the file that does not read"
    (tmp_path / "sources").write_text(sources.replace("cafile", "caFile"))
    assert "there is no source 'shop': infra" in "\n".join(problems(flags))
    (tmp_path / "sources").unlink()
    assert f"{tmp_path / 'sources'}: cannot be read: no such file" in problems(flags)
