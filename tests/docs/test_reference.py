"""The generated pages are what the programs say now, and every alert has its runbook."""

import re

import pytest
import yaml

from podscale.core.settings import HPA_SETTINGS
from tests.tools.reference import DOCS, ROOT, pages

ALERTS = sorted(
    rule["alert"]
    for path in (ROOT / "config" / "monitoring").glob("*-alerts.yaml")
    for group in yaml.safe_load(path.read_text())["groups"]
    for rule in group["rules"]
)
DOCUMENTS = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])


@pytest.mark.parametrize(
    ("path", "text"), pages().items(), ids=lambda each: getattr(each, "name", "")
)
def test_a_generated_page_is_current(path, text):
    assert path.read_text(encoding="utf-8") == text, "python -m tests.tools.reference"


def test_every_setting_of_an_hpa_has_its_row():
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    assert tuple(each for each in HPA_SETTINGS if f"\n| `{each}` |" not in text) == ()


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_has_a_runbook(alert):
    assert f"\n### {alert}\n" in (DOCS / "operations.md").read_text(encoding="utf-8")


def test_no_runbook_is_for_an_alert_that_is_gone():
    text = (DOCS / "operations.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^### (Podscale\w+)$", text, re.MULTILINE)) == set(ALERTS)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_into_the_project_leads_somewhere(document):
    text = document.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (document.parent / target).exists(), target


def test_the_first_page_stays_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 300
