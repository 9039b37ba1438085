"""Every situation of ``diagnosis.yaml``: the stage, the rule and the words the doctor must say."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from adapter.discovery import mapping
from adapter.doctor import diagnosis
from adapter.doctor.evidence import (
    Access,
    AskedEvidence,
    Given,
    Point,
    Rejected,
    Result,
    Series,
    Surroundings,
    Unreachable,
)
from podscale.core.times import duration
from podscale.kube.client.resource import Resource
from podscale.kube.discovery import Mapper
from tests.conformance.cases import cases, params
from tests.kit.doctor import WrittenAnswers, run, words


def surroundings(inputs: Mapping[str, Any]) -> Surroundings:
    prometheus, flags = inputs["prometheus"], inputs["flags"]
    review = inputs.get("access_review")
    return Surroundings(
        prometheus_url=prometheus["url"],
        prometheus_error=prometheus.get("error"),
        scrape_interval_s=prometheus.get("scrape_interval_s"),
        relist_interval_s=duration.parse_go(flags["metrics-relist-interval"]),
        sample_max_age_s=flags["sample_max_age_s"],
        resources=[
            Resource(r["group"], "v1", r["resource"], r["kind"], r["namespaced"], r["singular"])
            for r in inputs["api_resources"]
        ],
        objects=inputs["objects"],
        apiservices=inputs["apiservices"],
        self_service=inputs["self_service"],
        access=Access(review["user"], review["allowed"]) if review else None,
    )


def series(entry: Mapping[str, Any]) -> tuple[str, Given]:
    answer = entry["answer"]
    if isinstance(answer, list):
        return entry["match"], Series(answer)
    return entry["match"], failure(answer)


def result(pair: list[Any]) -> tuple[str, Given]:
    text, answer = pair
    if answer["status"] != 200:
        return text, failure(answer)
    return text, Result(
        [Point(p["metric"], float(p["value"]), p.get("age_s")) for p in answer["result"]]
    )


def failure(answer: Mapping[str, Any]) -> Given:
    if answer["status"] in (400, 422):
        return Rejected(answer["status"], answer["error"])
    return Unreachable(f"status {answer['status']}: {answer.get('error', '')}")


@pytest.mark.parametrize("case", params(cases("doctor.yaml")))
def test_the_first_failing_stage_is_named(case):
    inputs, expected = case["inputs"], case["expected"]
    around = surroundings(inputs)
    answers = WrittenAnswers(
        [series(entry) for entry in inputs["series"]],
        [series(entry) for entry in inputs.get("series_without_start", [])],
        [result(pair) for pair in inputs["query_answers"]],
    )
    asked = AskedEvidence(**inputs["asked"])
    # As the command does: pod, Pods and deployments are written too.
    resolved = mapping.resolve(Mapper(around.resources), *mapping.split(asked.resource))
    if resolved is not None:
        asked = replace(asked, resource=resolved.group_resource)
    found = run(diagnosis.diagnose(inputs["config"], asked, around, "rules.yaml"), answers)
    assert (found.stage, found.rule) == (expected["stage"], expected["rule"]), words(found)
    text = words(found).lower()
    assert [each for each in expected["must_mention"] if str(each).lower() not in text] == []
    if found.rule is not None:
        assert "rules.yaml:" in found.place
