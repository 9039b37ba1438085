"""The rules of a rules file, ConfigMap or chart's values as ClusterMetricRules.

Their names keep the file's order: of equal metrics the last by name counts, as the last in a file.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import structs

from adapter.metric_rules.objects import CLUSTER_METRIC_RULES, TYPES
from adapter.rules.config import Config, RuleConfig, parse
from adapter.rules.config_gen import dump_rule
from podscale.migrate import rules_source
from podscale.migrate.outcome import MigrationOutcome, Remark, together
from podscale.migrate.reader import check

_STAYS = "resourceRules have no objects: leave them in the rules file, without the other sections"


def rule_objects(texts: Sequence[tuple[str, str]]) -> MigrationOutcome:
    """Return what the rules in ``texts``, each with its file's name, become as objects."""
    return together(_objects(*each) for each in texts)


def _objects(text: str, file: str) -> MigrationOutcome:
    found = rules_source.find(text, file)
    if found.elsewhere:
        return MigrationOutcome(
            lost=[Remark(found.form, f"the rules are in the ConfigMap {found.elsewhere}: give it")]
        )
    as_file = check(found, found.form)
    if as_file.refused:
        return as_file
    config = parse(found.text, found.file).config
    manifests = list(_manifests(config))
    if not manifests:
        return as_file
    stays = [Remark(found.form, _STAYS)] if config.resource_rules else []
    return structs.replace(
        as_file,
        read=[f"{found.form}: rules: {len(manifests)}"],
        manifests=manifests,
        differs=[*as_file.differs, *stays],
        steps=[
            "kubectl apply the CRDs (config/crds/metric-rules) and the rules below",
            "when kubectl get clustermetricrules shows them serving, take them out of the file",
        ],
        back=["put the file's rules back, and kubectl delete -f what was applied"],
    )


def _manifests(config: Config) -> Iterator[dict[str, Any]]:
    sections = {"rules": config.rules, "externalRules": config.external_rules}
    for type_, section in TYPES.items():
        for index, rule in enumerate(sections[section]):
            yield {
                "apiVersion": CLUSTER_METRIC_RULES.api_version,
                "kind": CLUSTER_METRIC_RULES.kind,
                "metadata": {"name": f"{type_.lower()}-{index:03}"},
                "spec": {"type": type_, **_spec(rule)},
            }


def _spec(rule: RuleConfig) -> dict[str, Any]:
    found = dump_rule(rule) | ({"source": rule.source} if rule.source else {})
    if isinstance(name := found["name"], dict):
        found["name"] = {key: text for key, text in name.items() if text}
    return {key: value for key, value in found.items() if value}
