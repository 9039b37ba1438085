"""What is wrong with the queries of a rules file that does not load.

The queries are filled in and read as those of sound rules are, so that one round of editing is
enough. Pure; ``adapter.doctor.lints`` does the looking.
"""

from collections.abc import Sequence, Set

from msgspec import structs

from adapter.discovery.mapping import ResourceMapper
from adapter.doctor.findings import LintFinding
from adapter.doctor.lints import BROKEN, NO_RULES, lint
from adapter.errors import Problem
from adapter.rules.config import (
    Config,
    NameMapping,
    ResourceMapping,
    ResourceRuleConfig,
    ResourceRulesConfig,
    RuleConfig,
    read,
)
from adapter.rules.ruleset import compile_rules

# What stands in for a part that is refused already.
_LABELS = ResourceMapping(template="<<.Resource>>")
_QUERY = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
_USAGE = "sum(usage{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
_SERIES = "some_series"


def query_findings(
    text: str, file: str, problems: Sequence[Problem], mapper: ResourceMapper
) -> list[LintFinding]:
    """Return the findings beside the ``problems`` for which the file is refused."""
    parsed, _ = read(text, file)
    refused = {problem.path for problem in problems}
    config = parsed.config
    sound = structs.replace(
        parsed,
        config=Config(
            tuple(_rule(f"rules[{i}]", each, refused) for i, each in enumerate(config.rules)),
            tuple(
                _rule(f"externalRules[{i}]", each, refused)
                for i, each in enumerate(config.external_rules)
            ),
            _resource_rules(config.resource_rules, refused),
        ),
    )
    # Where nothing could be read, what is refused may have been the rules.
    found = lint(sound, compile_rules(sound, mapper))
    return [each for each in found if each.lint in BROKEN - {NO_RULES}]


def _rule(path: str, rule: RuleConfig, refused: Set[str]) -> RuleConfig:
    return structs.replace(
        rule,
        series_query=_text(path, "seriesQuery", rule.series_query, _SERIES, refused),
        series_filters=(),
        resources=_resources(path, rule.resources, refused),
        name=NameMapping(),
        metrics_query=_text(path, "metricsQuery", rule.metrics_query, _QUERY, refused),
    )


def _resource_rules(
    rules: ResourceRulesConfig | None, refused: Set[str]
) -> ResourceRulesConfig | None:
    if rules is None:
        return None
    return structs.replace(
        rules,
        cpu=_resource_rule("resourceRules.cpu", rules.cpu, refused),
        memory=_resource_rule("resourceRules.memory", rules.memory, refused),
    )


def _resource_rule(path: str, rule: ResourceRuleConfig, refused: Set[str]) -> ResourceRuleConfig:
    if rule == ResourceRuleConfig() and not refused & {"resourceRules", path}:
        return rule  # it is missing, and is said to be
    return structs.replace(
        rule,
        container_query=_text(path, "containerQuery", rule.container_query, _USAGE, refused),
        node_query=_text(path, "nodeQuery", rule.node_query, _USAGE, refused),
        resources=_resources(path, rule.resources, refused),
    )


def _text(path: str, key: str, text: str, sound: str, refused: Set[str]) -> str:
    # An absent one may be what is written under an unknown key, which is refused at ``path``.
    return sound if f"{path}.{key}" in refused or (not text and path in refused) else text


def _resources(path: str, labels: ResourceMapping, refused: Set[str]) -> ResourceMapping:
    at = f"{path}.resources"
    is_refused = any(each in (path, at) or each.startswith(f"{at}.") for each in refused)
    return structs.replace(_LABELS, namespaced=labels.namespaced) if is_refused else labels
