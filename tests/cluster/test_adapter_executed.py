"""Names, labels and queries of random rules, beside prometheus-adapter's own packages."""

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest

from adapter.errors import ConfigInvalid, RuleQueryError
from adapter.rules import config_gen
from adapter.rules.config import parse
from adapter.rules.ruleset import Rule, compile_rules
from podscale.core import quantity
from podscale.core.selectors import selector
from tests.cluster.adapter_draws import DRAWS
from tests.cluster.adapter_executed import Told, execute, program
from tests.conformance import adapter_pure as pure
from tests.conformance.adapter_cases import part_b_mapper, part_b_resources
from tests.conformance.adapter_pure import comparable
from tests.unit.core.oracle import is_outside

pytestmark = pytest.mark.timeout(1200)  # the first time, Go builds what executes

SHORT, LONG = 2_000, 20_000  # of each kind

INT64_MAX = 2**63 - 1
MAPPER = part_b_mapper()
Json = Any


def compiled(asked: Json) -> Rule:
    """Return the rule; raises ``ConfigInvalid``."""
    section = "externalRules" if asked["kind"] == "external" else "rules"
    rules = compile_rules(parse(json.dumps({section: [asked["rule"]]})), MAPPER)
    return (rules.external or rules.custom)[0]


def our_name(rule: Rule, asked: Json) -> Told:
    series = asked["series"]
    name = rule.namer.name(series)
    return Told(
        name or "", rule.keeps(series), None, False, failed="" if name is not None else "no"
    )


def our_labels(rule: Rule, asked: Json) -> Told:
    reading = rule.labels.read(asked["labels"])
    return Told(
        "", False, [each.group_resource for each in reading.resources], reading.is_namespaced
    )


def our_label(rule: Rule, asked: Json) -> Told:
    return Told(rule.labels.label(asked["resource"]), False, None, False)


def our_custom(rule: Rule, asked: Json) -> Told:
    found = pure.custom(
        rule.query, asked["series"], asked["resource"], asked["namespace"], asked["names"],
        selector.parse(asked["selector"]), asked["extra"],
    )  # fmt: skip
    return Told(found, False, None, False)


def our_external(rule: Rule, asked: Json) -> Told:
    wanted = selector.parse(asked["selector"])
    found = pure.external(rule.query, asked["series"], asked["namespace"], wanted)
    return Told(found, False, None, False)


def our_file(asked: Json) -> Told:
    found = config_gen.dump(parse(asked["text"]).config)
    return Told("", False, None, False, file=found)


def our_selector(asked: Json) -> Told:
    found = selector.parse(asked["selector"])
    labels = dict(each.split("=") for each in asked["labels"])
    return Told(str(found), found.matches(labels), None, False)


def our_quantity(asked: Json) -> Told:
    try:
        found = quantity.parse(asked["text"])
    except quantity.QuantityError as error:
        return Told("", False, None, False, refused=str(error))
    if found.nano < 0 or found.milli > INT64_MAX:  # upstream's are not what they say there
        return Told(f"{found} 0 0", False, None, False)
    return Told(f"{found} {found.milli} {found.value}", False, None, False)


OURS: Mapping[str, Callable[[Rule, Json], Told]] = {
    "custom": our_custom,
    "external": our_external,
    "name": our_name,
    "labels": our_labels,
    "label": our_label,
}
WITHOUT_RULE: Mapping[str, Callable[[Json], Told]] = {
    "file": our_file,
    "selector": our_selector,
    "quantity": our_quantity,
}


def ours(asked: Json) -> Told:
    """Return what we make of it, in the original's form; reasons are ours."""
    try:
        if asked["kind"] in WITHOUT_RULE:
            return WITHOUT_RULE[asked["kind"]](asked)
        rule = compiled(asked)
    except ConfigInvalid as error:
        return Told("", False, None, False, refused=str(error))
    except selector.SelectorError as error:
        return Told("", False, None, False, failed=str(error))
    try:
        return OURS[asked["kind"]](rule, asked)
    except (RuleQueryError, selector.SelectorError) as error:
        return Told("", False, None, False, failed=str(error))


def plain(file: Json) -> Json:
    """Return a file without what is so anyhow."""
    if isinstance(file, dict):
        return {k: plain(v) for k, v in file.items() if (k, v) != ("namespaced", True)}
    return [plain(each) for each in file] if isinstance(file, list) else file


def shown(told: Told) -> tuple[object, ...]:
    """Return what is compared: texts of errors are each program's own."""
    if told.refused or told.failed:
        return bool(told.refused), bool(told.failed), told.kept
    return (
        told.text,
        told.kept,
        sorted(told.resources or ()),
        told.namespaced,
        comparable(plain(told.file)),
    )


@pytest.mark.parametrize("kind", DRAWS)
def test_random_rules_come_to_what_prometheus_adapter_makes_of_them(kind: str) -> None:
    count = SHORT if os.environ.get("PODSCALE_SHORT") else LONG
    start = int(os.environ.get("PODSCALE_SEED", "0"))
    asked = [DRAWS[kind](Random(f"{kind} {seed}")) for seed in range(start, start + count)]
    told = execute(program(), part_b_resources(), asked)
    came = Counter("refused" if t.refused else "failed" if t.failed else "made" for t in told)
    made = [ours(each) for each in asked]
    outside = [is_outside(own.refused or own.failed or "") for own in made]
    differing = [
        f"seed {seed}: {json.dumps(each)}\n  they {theirs}\n  we   {own}"
        for seed, (each, theirs, own) in enumerate(zip(asked, told, made, strict=True), start)
        if not outside[seed - start] and shown(own) != shown(theirs)
    ]
    print(
        f"{kind}: {count} from seed {start}, {dict(came)}, {len(differing)} differ, "
        f"{sum(outside)} templates outside what rules can use"
    )
    assert sum(outside) < count / 2
    assert not differing, "\n".join(differing[:10])
    assert came["made"] > count / 5
