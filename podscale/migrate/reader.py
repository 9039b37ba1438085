"""Any of the inputs to one outcome: each document goes to the reader of its kind."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any

import yaml
from msgspec import structs

from adapter.discovery.mapping import PresumingMapper
from adapter.doctor.evidence import LintFinding
from adapter.doctor.lints import BROKEN, lint, query_findings
from adapter.errors import ConfigInvalid
from adapter.metric_rules.objects import CLUSTER_METRIC_RULES, TYPES
from adapter.rules.config import Config, RuleConfig, parse
from adapter.rules.config_gen import dump_rule
from adapter.rules.ruleset import read_rules
from podscale.migrate import rules_source, workloads
from podscale.migrate.documents import Object, name_of, objects, text_at
from podscale.migrate.keda import connections, triggers
from podscale.migrate.keda.scaled_object import ScaledObjectConversion
from podscale.migrate.keda.side_by_side import side_by_side
from podscale.migrate.outcome import MigrationOutcome, Remark, together

# Not served since Kubernetes 1.25 and 1.26; their metrics may be written in another form.
_GONE = ("autoscaling/v2beta1", "autoscaling/v2beta2")
_NOT_SERVED = (
    "{} is served by no current release: give it as the cluster has it (kubectl get hpa -o yaml "
    "prints autoscaling/v2)"
)
# What stands beside a program in its installation, and goes with ours as it is.
_BESIDE = frozenset([
    "APIService", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "Endpoints",
    "MutatingWebhookConfiguration", "Namespace", "NetworkPolicy", "PodDisruptionBudget",
    "PodMonitor", "Role", "RoleBinding", "Secret", "Service", "ServiceAccount", "ServiceMonitor",
])  # fmt: skip
_BESIDE_KEDA = Remark(
    "external.metrics.k8s.io",
    "one server answers this API for a cluster. podscale hpa reads Prometheus itself "
    "(--metrics-source=feed), so KEDA may keep the APIService while ScaledObjects remain; "
    "the in-tree controller needs podscale there, with KEDA behind it (podscale migrate keda "
    "--side-by-side), and ignores podscale.io annotations",
)
_STAYS = "resourceRules have no objects: leave them in the rules file, without the other sections"


def beside_keda(texts: Sequence[tuple[str, str]]) -> MigrationOutcome:
    """Return what lets KEDA go on behind us, of its APIService; raises as ``migrate_all``."""
    return together(side_by_side(each) for text, file in texts for each in objects(text, file))


def migrate_all(
    texts: Sequence[tuple[str, str]], image: str = "podscale:latest", release: str = "1.37"
) -> MigrationOutcome:
    """Return what ``texts``, each with its file's name, become as one input; raises
    ``documents.Unreadable``. ``release`` is that of the cluster.

    A ScaledObject may stand in another file than its TriggerAuthentication.
    """
    read = [
        (text, file, objects(text, file), rules_source.values_in(text, file))
        for text, file in texts
    ]
    known = connections.authentications([each for *_, found, _ in read for each in found])
    whole = together(
        ScaledObjectConversion(each, known, release).outcome()
        if text_at(each, "kind") == "ScaledObject"
        else _of(each, text, file, len(found) == 1, values, image)
        for text, file, found, values in read
        for each in found
    )
    whole.refused += triggers.clashes(whole.rules.get("externalRules", ()))
    connections.assign_sources(whole)
    if any(about.startswith("ScaledObject") for about in whole.read):
        whole.differs.append(_BESIDE_KEDA)
    return whole


def _of(
    each: Object,
    text: str,
    file: str,
    is_alone: bool,
    values: Sequence[rules_source.RulesText],
    image: str,
) -> MigrationOutcome:
    """Return what one object becomes; ``text`` is what its file holds, with these ``values``."""
    kind = text_at(each, "kind")
    about = f"{kind} {'/'.join(filter(None, name_of(each)))}"
    inside = [found for found in values if found.about == about.strip()]
    if inside and (kind or is_alone):
        return together(_of_values(found, image) for found in inside)
    if kind == "ScaledJob":
        why = "jobs are started by KEDA, not scaled: leave it there"
        return MigrationOutcome(read=[about], lost=[Remark(about, why)])
    if kind in ("TriggerAuthentication", "ClusterTriggerAuthentication"):
        return MigrationOutcome(read=[about])
    if kind in ("VerticalPodAutoscaler", "VerticalPodAutoscalerCheckpoint"):
        return MigrationOutcome(read=[f"{about}, taken as it is"])
    if workloads.is_controller_manager(each):
        return workloads.controller_manager(each)
    if workloads.program_of(each):
        return workloads.workload(each, image)
    if kind == "HorizontalPodAutoscaler":
        version = text_at(each, "apiVersion")
        if version in _GONE:
            return MigrationOutcome(
                read=[about], refused=[Remark(about, _NOT_SERVED.format(version))]
            )
        return MigrationOutcome(read=[f"{about}, taken as it is"])
    if kind == "ConfigMap":
        rules = rules_source.of_config_map(each, file, text)
        if rules is not None:
            return check(rules, about)  # its manifest stays as it is, and is not printed again
    if not kind and is_alone:
        sections = {"rules", "externalRules", "resourceRules"}
        is_near = all(get_close_matches(key, sections) for key in each)
        if is_near or sections & set(each):
            return check(rules_source.RulesText(text, file, "rules file"), "rules file")
    if kind in _BESIDE:
        return MigrationOutcome(kept=[about])
    why = "ignored (migrate does not read this kind)"
    if kind in ("Deployment", "DaemonSet"):
        why += f": the name of no image is known ({', '.join(workloads.PROGRAMS)})"
    named = about.strip() if name_of(each)[1] else ": ".join(filter(None, (file, about.strip())))
    return MigrationOutcome(lost=[Remark(named, why)])


def _of_values(rules: rules_source.RulesText, image: str) -> MigrationOutcome:
    about = f"Helm values{rules.about and f' of {rules.about}'}"
    return together([workloads.values(rules.values, image, about), check(rules, f"{about}: rules")])


def check(rules: rules_source.RulesText, about: str) -> MigrationOutcome:
    """Return that rules need no change, what keeps them from loading and what is odd in them."""
    if rules.elsewhere:
        return MigrationOutcome(
            read=[f"{about}: in the ConfigMap {rules.elsewhere} (rules.existing)"]
        )
    mapper = PresumingMapper()
    try:
        parsed, compiled = read_rules(rules.text, rules.file, mapper)
    except ConfigInvalid as error:
        return MigrationOutcome(
            read=[about],
            refused=[Remark(about, problem.describe(rules.file)) for problem in error.problems],
            broken=_remarks(
                [*rules.problems, *query_findings(rules.text, rules.file, error.problems, mapper)]
            ),
        )
    found = rules.in_its_words(lint(parsed, compiled))
    count = len(compiled.custom) + len(compiled.external)
    resource = " and resourceRules" if compiled.resource else ""
    is_one = count == 1 and not resource
    taken = f"{count} rule{'' if count == 1 else 's'}{resource}, taken as "
    taken += "it is" if is_one else "they are"
    return MigrationOutcome(
        read=[f"{about}: {taken}"],
        broken=_remarks([*rules.problems, *(each for each in found if each.lint in BROKEN)]),
        differs=_remarks([each for each in found if each.lint not in BROKEN]),
        steps=["the rules file stays as it is"],
    )  # fmt: skip


def _remarks(findings: Sequence[LintFinding]) -> list[Remark]:
    return [Remark(found.place, f"{found.lint}: {found.reason}") for found in findings]


def rules_yaml(outcome: MigrationOutcome) -> str:
    """Return the rules to add as YAML, "" if there are none."""
    return _yaml(outcome.rules) if outcome.rules else ""


_TITLES = {
    "read": "read",
    "kept": "not read, and stays as it is",
    "refused": "refused, and to be changed first",
    "left_out": "left out of what is below",
    "broken": "may answer nothing, with prometheus-adapter as well",
    "lost": "cannot be carried over",
    "differs": "will behave differently",
    "steps": "steps",
    "back": "the way back",
    "flags": "arguments for podscale",
}


def render(outcome: MigrationOutcome) -> str:
    """Return the whole as one YAML stream: remarks as comments, manifests as documents."""
    head: list[str] = []
    for field, title in _TITLES.items():
        if lines := getattr(outcome, field):
            head += [f"# {title}:", *(f"# - {' '.join(str(line).split())}" for line in lines)]
    documents = ["\n".join(head) + "\n"]
    if outcome.sources:
        text = _yaml({"sources": outcome.sources})
        documents.append(f"# the sources file, which --sources names\n{text}")
    if added := rules_yaml(outcome):
        documents.append(f"# rules to add to the adapter's rules file\n{added}")
    return "---\n".join([*documents, *map(_yaml, outcome.manifests)])


def manifests_yaml(outcome: MigrationOutcome) -> str:
    """Return the manifests alone, as ``kubectl apply`` takes them."""
    return "---\n".join(map(_yaml, outcome.manifests))


def _yaml(value: object) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, _data: object) -> bool:
        return True  # what stands there twice is written twice


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
    found = dump_rule(rule)
    if isinstance(name := found["name"], dict):
        found["name"] = {key: text for key, text in name.items() if text}
    return {key: value for key, value in found.items() if value}
