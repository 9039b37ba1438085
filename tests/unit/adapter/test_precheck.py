"""Before anything is connected, a rules file is told all that is wrong with it, once."""

from pathlib import Path

import pytest

from adapter.doctor.diagnosis import diagnose
from adapter.doctor.evidence import AskedEvidence, Surroundings
from adapter.errors import ConfigInvalid
from adapter.rules.precheck import check
from adapter.rules.rules_file import load
from podscale.migrate.reader import migrate
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
    with pytest.raises(ConfigInvalid) as refused:
        check(file)
    assert [(p.line, p.path) for p in refused.value.problems] == [
        (3, "rules[0]"),
        (4, "rules[0].name.matches"),
        (5, "rules[0].metricsQuery"),
    ]


def test_a_resource_of_some_cluster_is_not_refused_before_the_cluster_is_asked(
    tmp_path: Path,
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(
        "rules:\n- seriesQuery: x\n  resources: {overrides: {t: {resource: kafkatopic}}}\n"
        "  metricsQuery: up\n"
    )
    check(file)


def told_by_a_reload(text: str, file: Path) -> list[str]:
    file.write_text(text)
    with pytest.raises(ConfigInvalid) as refused:
        load(file, MAPPER)
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
        check(file)
    assert len(refused.value.problems) == 1
