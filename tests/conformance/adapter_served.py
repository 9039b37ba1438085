"""The adapter as part C runs it, in three worlds, and what a row demands of its answer."""

import pytest

from tests.conformance import adapter_sample as sample
from tests.conformance import adapter_world as world
from tests.conformance.adapter_cases import rows
from tests.conformance.adapter_compare import assert_same
from tests.conformance.adapter_deviations import Case, Expected, deviating
from tests.conformance.adapter_wire import CONDITIONS, wire


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The adapter in the world of C.1 to C.3."""
    with wire(
        tmp_path_factory.mktemp("adapter"),
        world.part_c_config(),
        lambda authorities: world.ScriptedCluster(
            world.part_c_resources(), rows("C1"), authorities
        ),
        world.part_c_prometheus(),
        *CONDITIONS,
        "--prometheus-timeout=2s",
    ) as running:
        yield running


@pytest.fixture(scope="module")
def in_conflict(tmp_path_factory):
    """The adapter in the world of C.9."""
    with wire(
        tmp_path_factory.mktemp("conflicts"),
        world.conflicts_config(),
        lambda authorities: world.ScriptedCluster(
            world.part_c_resources(), rows("C1"), authorities
        ),
        world.conflicts_prometheus(),
        *CONDITIONS,
    ) as running:
        yield running


def demand(running, path, status, content_type, body, calls=(), options=None, mode="", change=None):
    """Ask for ``path``; the answer must be the row's, changed by the listed deviations.

    ``change`` alters what is then expected: for who asks whether the row can fail.
    """
    objects = {row["kind"]: row["objects"] for row in rows("C1")}
    # Rows of a failing Prometheus do not show whether it was asked.
    asks = not mode or any(call.startswith("PROM ") for call in running.ask(path, options).calls)
    case = Case(path, options or {}, running.prometheus, objects, mode, running.config, asks)
    expected = Expected(status, content_type, body, list(calls))
    expected, _ = deviating(case, expected)
    expected = change(expected) if change else expected
    running.prometheus.mode = mode
    try:
        answer = running.ask(path, options)
    finally:
        running.prometheus.mode = ""
    if mode:
        expected = expected._replace(calls=answer.calls)  # the row does not show them
    assert_same(answer, expected)


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    """The adapter without rules, in front of another package's provider."""
    with wire(
        tmp_path_factory.mktemp("sample"),
        {},
        lambda authorities: world.ScriptedCluster(
            world.part_c_resources(), sample.objects(), authorities
        ),
        world.ScriptedPrometheus([], []),
        *CONDITIONS,
        others=[sample.provider()],
    ) as running:
        yield running
