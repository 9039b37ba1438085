"""Dropping any condition of the prover changes a verdict, a text or an age of the tables.

A mutant is a copy of the prover with one refusal taken out, or one line changed. The tables
are those of ``coalescing.yaml`` and ``verdicts.py``; their verdicts are checked elsewhere,
here they only have to tell the mutant from the original.
"""

import ast
import importlib
import sys
from pathlib import Path

import pytest

import podscale.feed.prover as original
from tests.conformance.test_coalescing import FILE, plan_of
from tests.unit.feed.prometheus import pods_plan
from tests.unit.feed.verdicts import VERDICTS, outcome_of

PACKAGE = Path(original.__file__).parent
SOURCES = {path.name: path.read_text() for path in sorted(PACKAGE.glob("*.py"))}

# Conditions that are no refusal: (file, original, mutant).
LINES = [
    ("widening.py", "subject.carries", "True"),
    ("widening.py", "inner.carries and kept", "inner.carries"),
    ("widening.py", "inner.carries and kept", "kept"),
    ("widening.py", "if is_by and not kept:", "if False:"),
    ("widening.py", "elif not is_by and not kept:", "elif False:"),
    ("widening.py", "labels.namespace in bound)", "True)"),
    ("widening.py", 'return 1 if name == "quantile_over_time" else 0', "return 0"),
    ("widening.py", 'and not name.startswith("absent")', ""),
    ("widening.py", "bound_at != [place]", "place not in bound_at"),
    ("widening.py", "return (namespace, *node.labels)", "return node.labels"),
    ("widening.py", "label for label in node.labels if label != namespace", "*node.labels"),
    ("widening.py", "if not binding.carries:", "if False:"),
    ("widening.py", "right.bound <= left.bound", "left.bound <= right.bound"),
    ("widening.py", "return node.op != \"unless\"", "return False"),
    ("widening.py", "return base.carries\n", "return True\n"),
    ("widening.py", "return base.carries\n", "return other.carries\n"),
    (
        "widening.py",
        "return base.carries and _matched(node, node.labels, key.namespace)",
        "return base.carries",
    ),
    ("widening.py", 'left.bound if node.op == "unless" else bound', "bound"),
    ("widening.py", "is_included and label == key.namespace and not one.carries", "False"),
    ("proof.py", 'matcher.op in ("=", "=~")\n        and matcher.value', "matcher.value"),
    ("proof.py", 'and matcher.op == "=~"\n        and matcher.value', "and matcher.value"),
    ("proof.py", "and matcher.label == labels.namespace\n", ""),
    ("proof.py", "and matcher.label == labels.object\n", ""),
    ("proof.py", 'and m.op in ("=", "=~"))', ")"),
    ("proof.py", "_refuse(node.labels, values)", "pass"),
    ("proof.py", "_refuse((*node.labels, *node.included), values)", "pass"),
    ("proof.py", "_refuse((*node.labels, *node.included), values)",
     "_refuse(node.labels, values)"),
    ("proof.py", "_refuse((value,), values)", "pass"),
    ("proof.py", 'node.name or "", *(text', '"", *(text'),
    ("proof.py", "for text in (m.label, m.value)", "for text in (m.label,)"),
    ("proof.py", 'or node.op != "or"', ""),
    ("proof.py", "or node.labels:", ":"),
    ("proof.py", "if len(found) != 1 or", "if not found or"),
    ("proof.py", "or frozenset(found[0].bound) != frozenset(labels.key())", ""),
    ("proof.py", "if _is_moved(node) or", "if"),
    ("proof.py", " or _looks_back(node):", ":"),
    ("proof.py", "LOOKBACK_MS and any(promql.bound_selectors(node))", "LOOKBACK_MS"),
    ("proof.py", 'node.function.endswith("_over_time")', "True"),
    ("proof.py", "(node.offset_ms != 0 or node.at is not None)", "node.offset_ms != 0"),
    ("proof.py", "(node.offset_ms != 0 or node.at is not None)", "node.at is not None"),
    ("proof.py", "    if text.is_constant:\n        return Constant()\n", ""),
    ("tree.py", 'raise NotPromql("a selector with or")', "pass"),
]  # fmt: skip

# Conditions behind which another one stands, so that no template can tell: what stands there.
SHADOWED = {
    "proof.py: the widened text does not parse: *": "defence against a defect of the printer",
    "proof.py: the widened text reads back as another query": "the same",
    "widening.py: function *": "an unknown function has no subject, so its arguments are refused",
    "widening.py: an argument of * depends on the request": "scalar() is refused as a function, "
    "and nothing else makes a scalar of a vector",
    "widening.py: bound_at != [place]": "the same",
    "widening.py: a scalar that depends on the request": "the same",
    "widening.py: the parameter of * depends on the request": "the same",
    "widening.py: * with an argument that is no literal": "the parser takes literals only",
    "widening.py: labels.namespace in bound)": "p is read only where the namespace is bound",
    'widening.py: left.bound if node.op == "unless" else bound': "the right binds no more than "
    "the left, so that the union is the left",
}


def case_plans():
    for case in FILE["cases"]:
        yield plan_of(case["template"], case["api"], case["resource_labels"])
    for _, api, template, _ in VERDICTS:
        yield pods_plan(template=template, api=api)
    yield plan_of(
        "histogram_quantile(0.9, a{<<.LabelMatchers>>})",
        "custom",
        {"namespace": "namespace", "object": "le"},
    )
    for template in (
        "a{<M>} offset 5m",
        "a{<M>} @ end()",
        "max_over_time(a{<M>}[5m:1m] offset 1h)",
        "max_over_time(a{<M>}[5m:1m] @ 100)",
        "a{<M>} / on(namespace,pod) b{<M>}",
    ):
        yield pods_plan(template=template)


def verdicts_of(package):
    prove = importlib.import_module(f"{package}.proof").prove
    found = []
    for plan in case_plans():
        try:
            verdict = prove(plan)
        except Exception as error:  # noqa: BLE001 - a mutant may fail in any way
            found.append(type(error).__name__)
            continue
        if outcome_of(verdict) != "widen":
            found.append(outcome_of(verdict))
            continue
        default = verdict.default and (verdict.default.value, verdict.default.when)
        found.append(
            (
                verdict.text(("n1", "n2"), ("p", "q")),
                verdict.stamp_text(("n1", "n2")),
                verdict.carries_namespace,
                default,
            )
        )
    return found


def refusals(source):
    """Positions and words of every ``raise NotProvable``."""
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Raise)
            and isinstance(node.exc, ast.Call)
            and getattr(node.exc.func, "id", "") == "NotProvable"
        ):
            yield node


def words(node):
    (argument,) = node.exc.args
    if isinstance(argument, ast.JoinedStr):
        parts = [p.value if isinstance(p, ast.Constant) else "*" for p in argument.values]
        return "".join(parts)
    return argument.value


def without(source, node):
    lines = source.splitlines(keepends=True)
    first, last = node.lineno - 1, node.end_lineno
    cause = " " * node.col_offset + "pass\n"
    return "".join([*lines[:first], cause, *lines[last:]])


MUTANTS = [
    pytest.param(name, without(source, node), f"{name}: {words(node)}", id=f"{name}-{words(node)}")
    for name, source in SOURCES.items()
    for node in refusals(source)
] + [
    pytest.param(name, SOURCES[name].replace(old, new), f"{name}: {old}", id=f"{name}-{old}-{new}")
    for name, old, new in LINES
]


@pytest.fixture(scope="module")
def expected():
    return verdicts_of("podscale.feed.prover")


@pytest.mark.parametrize(("name", "source", "what"), MUTANTS)
def test_the_tables_notice(name, source, what, expected, tmp_path, monkeypatch):
    assert source != SOURCES[name], "the mutation no longer applies"
    package = f"mutant{abs(hash((name, source)))}"
    (tmp_path / package).mkdir()
    for other, text in (SOURCES | {name: source}).items():
        copy = text.replace("podscale.feed.prover", package)
        (tmp_path / package / other).write_text(copy)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        found = verdicts_of(package)
    finally:
        for module in [m for m in sys.modules if m.startswith(package)]:
            del sys.modules[module]
    is_shadowed = what in SHADOWED
    assert (found == expected) == is_shadowed, (
        "shadowed no longer: take it off the list" if is_shadowed else "no template notices"
    )
