"""Every row of the case files can fail: with another expectation, its test does.

In the short form until one mutation of each row was noticed, in the long form up to twelve of
each; the shares are printed. Left out are rows of which upstream has no answer, or a rule of
``deviations.yaml`` says all there is to say; and A1, A1-2 and A2, which are inputs.
"""

import asyncio
import inspect
import os

import pytest

from tests.conformance import adapter_behaviour as behaviour
from tests.conformance import explain_hpa, explain_vpa, hpa_deviations, template_deviations
from tests.conformance import test_adapter as adapter
from tests.conformance import test_coalescing as coalescing
from tests.conformance import test_doctor as doctor
from tests.conformance.adapter_behaviour import files
from tests.conformance.adapter_cases import numbered
from tests.conformance.adapter_served import demand, in_conflict, sampled, served
from tests.conformance.cases import cases, document
from tests.conformance.hpa_checks import CHECKS
from tests.conformance.hpa_inputs import releases
from tests.conformance.mutation import outcome
from tests.conformance.test_coalescing import prometheus
from tests.conformance.test_vpa import different
from tests.conformance.vpa_deviations import expected_of

__all__ = ["files", "in_conflict", "prometheus", "sampled", "served"]

IS_SHORT = bool(os.environ.get("PODSCALE_SHORT"))
MOST = 12
VERDICT = ("provable", "outcome", "widened_example", "local_default", "namespace_label_in_answer")
ANSWERS = ("per_request_answer", "widened_answer", "differs")


class Rows:
    """What came of mutating row after row."""

    def __init__(self, name):
        self.name, self.deaf, self.rows, self.tried, self.noticed = name, [], 0, 0, 0

    def mutate(self, row, expected, check):
        one = outcome(expected, check, row, most=MOST, until_noticed=IS_SHORT)
        self.rows += 1
        self.tried += one.tried
        self.noticed += one.noticed
        if not one.noticed:
            self.deaf.append(row)

    def close(self):
        print(f"{self.name}: {self.rows - len(self.deaf)} of {self.rows} rows can fail; "
              f"{self.noticed} of {self.tried} mutations noticed")  # fmt: skip
        assert not self.deaf


def test_of_the_hpa():
    rows = Rows("hpa")
    for case in cases("hpa.yaml", "hpa-executed.yaml"):
        if hpa_deviations.rule_of(case) is not None:
            continue
        current = {**case, "release": releases(case)[-1]}

        def check(expected, case=current):
            CHECKS[case["kind"]](case, case["inputs"], expected)

        rows.mutate(case["id"], case["expected"], check)
    rows.close()


def test_of_the_vpa():
    rows = Rows("vpa")
    for case in cases("vpa.yaml"):
        expected = expected_of(case)
        if expected is None:  # upstream panics
            continue

        def check(expected, case=case):
            assert not different({**case, "expected": expected}, expected)

        if isinstance(expected.get("error"), str):  # a token that only the file knows
            rows.mutate(case["id"], {"fails": True}, lambda it, check=check, e=expected: check(
                e if it["fails"] else {"result": None}))  # fmt: skip
        else:
            rows.mutate(case["id"], expected, check)
    rows.close()


def test_of_explanations():
    rows = Rows("explain")
    for case in cases("explain.yaml"):
        module = explain_hpa if case["kind"] == "hpa" else explain_vpa

        def check(expected, case=case, module=module):
            module.check({**case, "expected": expected})

        rows.mutate(f"{case['kind']}:{case['id']}", case["expected"], check)
    rows.close()


def test_of_the_doctor():
    rows = Rows("doctor")
    for case in cases("doctor.yaml"):

        def check(expected, case=case):
            doctor.test_the_first_failing_stage_is_named({**case, "expected": expected})

        rows.mutate(case["id"], case["expected"], check)
    rows.close()


def test_of_coalescing(prometheus):
    rows = Rows("coalescing")
    for case in cases("coalescing.yaml"):

        def check(expected, case=case):
            coalescing.test_verdict({**case, **expected})

        rows.mutate(case["id"], {key: case[key] for key in VERDICT if key in case}, check)
    for case in document("coalescing.yaml").get("counterexamples", ()):

        def check_answers(expected, case=case):
            coalescing.test_counterexample_is_rejected_and_reproduced(
                {**case, **expected}, prometheus
            )

        rows.mutate(case["id"], {key: case[key] for key in ANSWERS}, check_answers)
    rows.close()


# File → its test, the columns with what is expected, and the one that says whether it fails.
COLUMNS = {
    "A1-3": (adapter.test_default_rules_list, (0, 1, 2), None),
    "A2-2": (adapter.test_prefixed_rules_query, (7,), None),
    "A2-3": (adapter.test_prefixed_rules_list, (0, 1, 2), None),
    "A3": (adapter.test_custom_query_template, (9,), None),
    "A4": (adapter.test_external_query_template, (8,), None),
    "A5": (adapter.test_series_filter, (2,), None),
    "B1": (adapter.test_metric_naming, (3, 5), 4),
    "B2": (adapter.test_series_filters, (2,), 3),
    "B3": (adapter.test_labels_to_resources, (3, 4), 5),
    "B4": (adapter.test_resource_to_label, (3,), 4),
    "B5": (adapter.test_custom_query, (7,), 8),
    "B6": (adapter.test_external_query, (5,), 6),
    "B7": (adapter.test_metric_selector, (1, 2), 3),
    "B8": (adapter.test_quantities, (1, 2, 3, 4), None),
    "B9": (adapter.test_window, (1,), 2),
    "B10": (adapter.test_config_parsing, (1,), 2),
    "B11": (adapter.test_resource_normalisation, (1, 2), 3),
    "B12": (adapter.test_url_segment, (1, 2), None),
    "B13": (adapter.test_time_parameter, (1,), None),
    "B14": (adapter.test_series_names, (1, 2), 3),
    "B15": (adapter.test_query_results, (1,), 2),
}


def expectation(row, columns, error):
    made = {column: row[column] for column in columns if column < len(row)}
    return made | ({"fails": bool(row[error])} if error is not None and error < len(row) else {})


def restored(row, expected, error):
    made = list(row)
    for column, value in expected.items():
        if column == "fails":
            made[error] = (row[error] or "x") if value else ""
        else:
            made[column] = value
    return made


def call(test, *arguments):
    found = test(*arguments)
    if inspect.isawaitable(found):
        asyncio.run(found)


@pytest.mark.parametrize("file", COLUMNS)
def test_of_parts_a_and_b(file):
    test, columns, error = COLUMNS[file]
    rows = Rows(file)
    for id_, row in numbered(file):
        # Refused whatever Go makes of it: ``test_adapter`` has the rows expect just that.
        if file in ("B5", "B6") and template_deviations.is_refused(row[0]):
            continue

        def check(expected, row=row):
            call(test, restored(row, expected, error))

        rows.mutate(id_, expectation(row, columns, error), check)
    rows.close()


def test_of_default_rules_and_usage():
    rows = Rows("A0, A7")
    for id_, row in numbered("A0"):
        expected = {key: value for key, value in row.items() if key != "n"}

        def check(expected, row=row):
            adapter.test_default_rules({**expected, "n": row["n"]}, "1m", "")

        rows.mutate(id_, expected, check)
    for id_, row in numbered("A0-2"):
        rows.mutate(id_, row, lambda it: adapter.test_default_resource_rules(it, "1m", ""))
    for id_, row in numbered("A7"):

        def check_usage(expected, row=row):
            call(adapter.test_usage, {**row, "expect": expected})

        rows.mutate(id_, row["expect"], check_usage)
    rows.close()


def test_of_behaviour(files):
    rows = Rows("A8, A11")

    def mutate(id_, row, test, *fixtures):
        # Of a text that tells how something ended, only that is compared.
        ended = row[2].startswith(("ok", "error")) if isinstance(row[2], str) else False
        told = row[2].replace("pod", "pad") if isinstance(row[2], str) else row[2]

        def check(expected):
            column = row[2]
            if ended:
                column = "error" if row[2].startswith("ok") else "ok"
            elif expected != row[2]:
                column = told if isinstance(row[2], str) and told != row[2] else expected
            call(test, [row[0], row[1], column], *fixtures)

        rows.mutate(id_, row[2], check)

    for id_, row in numbered("A8"):
        if behaviour.has("kubeconfigPath")(row[1:]):
            mutate(id_, row, behaviour.test_a8_kubeconfig, files)
        elif behaviour.has("ca")(row[1:]):
            mutate(id_, row, behaviour.test_a8_ca, files)
        elif behaviour.has("flag")(row[1:]):
            mutate(id_, row, behaviour.test_a8_defaults)
        else:
            mutate(id_, row, behaviour.test_a8_headers)
    for id_, row in numbered("A11"):
        if behaviour.has("observe")(row[1:]):

            def check(expected, row=row):
                behaviour.test_a11_freshness([row[0], {**row[1], "expect": expected}])

            rows.mutate(id_, row[1]["expect"], check)
        elif behaviour.are_options(row[1:]):
            mutate(id_, row, behaviour.test_a11_options)
        elif behaviour.are_resources(row[1:]):
            mutate(id_, row, behaviour.test_a11_normalisation)
    rows.close()


def mutate_answer(rows, id_, *arguments):
    seen = []
    demand(*arguments, change=lambda expected: seen.append(expected) or expected)
    (expected,) = seen
    said = {"status": expected.status, "content_type": expected.content_type}
    if not callable(expected.body):  # else a rule looks at it
        said |= {"body": expected.body, "calls": expected.calls}
    rows.mutate(id_, said, lambda it: demand(*arguments, change=lambda e: e._replace(**it)))


@pytest.mark.parametrize("file", ["C4", "C5", "C6", "C7", "C8", "C8-2"])
def test_of_answers_on_the_wire(file, served):
    rows = Rows(file)
    for id_, row in numbered(file):
        match file:
            case "C7":
                path, options, status, content_type, body, calls = row
                wanted = (path, status, content_type, body, calls, options)
            case "C8":
                wanted = (*row[1:], (), None, row[0])
            case "C8-2":
                wanted = (*row[:4], (), None, "hang")
            case _:
                wanted = tuple(row)
        mutate_answer(rows, id_, served, *wanted)
    rows.close()


def test_of_answers_in_conflict(in_conflict):
    rows = Rows("C9-4")
    for id_, row in numbered("C9-4"):
        mutate_answer(rows, id_, in_conflict, *row)
    rows.close()


def test_of_answers_of_another_provider(sampled):
    rows = Rows("A10")
    for file in ("A10", "A10-2"):
        for id_, row in numbered(file):

            def check(expected, row=row):
                adapter.test_another_provider([*row[:2], *expected], sampled)

            rows.mutate(id_, row[2:], check)
    rows.close()
