"""Patches hold what is safe, best first."""

import numpy as np
import pytest
from msgspec.structs import replace

from podscale.replay.fleet.reading import FleetSpan
from podscale.replay.fleet.report import (
    Chance,
    FleetLine,
    FleetReport,
    ResourceLine,
    file_name,
    patches_of,
)
from podscale.replay.fleet.sizing import UsageShape
from podscale.replay.fleet.usage import FleetContainer, FleetWorkload
from podscale.replay.inputs import PriceList

SHAPE = UsageShape("steady", 1.0, 1.0, 0.0, 0.0, 1.0)
MIB = 2.0**20


def resource(request, recommended, chance, limit=None, pods=1):
    stated = None if chance is None else Chance(chance, chance / 2, min(1.0, chance * 2))
    saving = ((request or 0.0) - recommended) * pods
    return ResourceLine(request, limit, 0.1, 0.2, 0.3, 0.4, SHAPE, recommended, (), stated, 0.0,
                        saving)  # fmt: skip


def line(name, cpu, memory, kind="Deployment", container="main", has_hpa=False):
    sized = FleetContainer(FleetWorkload("shop", kind, name), container)
    return FleetLine(sized, 1.0, has_hpa, has_hpa, 8.0, 0, None, {"cpu": cpu, "memory": memory})


def report(*lines):
    return FleetReport(lines, FleetSpan(86400 * 8, 32), (), PriceList("EUR", 1.0, 1.0))


def containers(patch):
    return patch.body["spec"]["template"]["spec"]["containers"]


def test_only_what_is_safe_and_known_is_in():
    memory = resource(512 * MIB, 100.5 * MIB, 0.001, limit=1024 * MIB)
    found = patches_of(report(line("web", resource(1.0, 0.5, 0.02), memory),
                              line("new", resource(1.0, 0.5, None), resource(1e9, 1e8, None))),
                       0.01, "kustomize")  # fmt: skip
    assert [each.workload.name for each in found] == ["web"]
    (container,) = containers(found[0])
    assert container == {"name": "main", "resources": {
        "requests": {"memory": "101Mi"}, "limits": {"memory": "201Mi"},
    }}  # fmt: skip
    assert found[0].risk == 0.001


def test_cpu_stays_out_where_an_hpa_measures_by_it():
    of_hpa = line("web", resource(1.0, 0.5, 0.0), resource(1e9, 1e8, 0.0), has_hpa=True)
    (patch,) = patches_of(report(of_hpa), 0.01, "kustomize")
    assert list(containers(patch)[0]["resources"]["requests"]) == ["memory"]


def test_cpu_stays_out_where_nobody_knows_of_hpas():
    silent = replace(report(line("web", resource(None, 0.5, 0.0), resource(None, 1e8, 0.0))),
                     knows_requests=False)  # fmt: skip
    (patch,) = patches_of(silent, 0.01, "kustomize")
    assert list(containers(patch)[0]["resources"]["requests"]) == ["memory"]


def test_most_saving_for_the_risk_comes_first():
    same = resource(1e9, 1e9, 0.0)
    lines = [
        line(name, resource(*amounts), same)
        for name, amounts in (
            ("safe", (1.0, 0.5, 0.001)), ("big", (4.0, 1.0, 0.01)), ("more", (0.5, 1.0, 0.001))
        )
    ]  # fmt: skip
    names = [each.workload.name for each in patches_of(report(*lines), 0.01, "kustomize")]
    assert names == ["safe", "big", "more"]


@pytest.mark.parametrize(("kind", "path"), [
    ("StatefulSet", ("spec", "template")),
    ("CronJob", ("spec", "jobTemplate", "spec", "template")),
])  # fmt: skip
def test_a_patch_is_of_its_kind(kind, path):
    of = line("db", resource(1.0, 0.5, 0.0), resource(1e9, 1e8, 0.0), kind=kind)
    (patch,) = patches_of(report(of), 0.01, "kustomize")
    at = patch.body
    for step in path:
        at = at[step]
    assert at["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "500m"
    assert patch.body["kind"] == kind
    assert patches_of(report(line("x", *of.resources.values(), kind="Pod")), 0.01, "helm") == []


def test_values_of_helm_name_containers_where_there_are_several():
    amounts = resource(1.0, 0.5, 0.0), resource(1e9, 1e8, 0.0)
    one = report(line("web", *amounts))
    assert patches_of(one, 0.01, "helm")[0].body["resources"]["requests"]["cpu"] == "500m"
    two = report(line("web", *amounts), line("web", *amounts, container="side"))
    assert set(patches_of(two, 0.01, "helm")[0].body) == {"main", "side"}


def test_sums_keep_what_is_freed_apart_from_what_is_missing():
    found = report(line("a", resource(1.0, 0.5, 0.0), resource(None, 2.0**30, 0.0)),
                   line("b", resource(0.5, 1.0, 0.0), resource(2.0**31, 2.0**30, 0.0)))  # fmt: skip
    totals = found.totals()
    assert (totals["freedCores"], totals["addedCores"]) == (0.5, 0.5)
    assert (totals["freedGib"], totals["addedGib"]) == (1.0, 1.0)
    assert totals["moneyAMonth"] == pytest.approx(0.0)
    assert np.all([row["moneyAMonth"] is not None for row in found.rows()])


def test_a_file_is_called_by_a_name_of_whatever_characters():
    safe = resource(1.0, 0.5, 0.001)
    (patch,) = patches_of(report(line("../we/b", safe, safe)), 0.01, "kustomize")
    assert file_name(1, patch) == "0001-shop-deployment-.._we_b.yaml"
