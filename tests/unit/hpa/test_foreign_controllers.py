"""Who else scales, read from who wrote the status and when."""

import pytest

from hpa.cluster.foreign_controllers import QUIET_S, ForeignControllers
from hpa.cluster.record import ForeignWrites
from podscale.kube.client.wire import ManagedField

IN_TREE = "kube-controller-manager"


def wrote(manager: str, at: float) -> ManagedField:
    return ManagedField(manager, "status", at)


def foreign() -> ForeignControllers:
    return ForeignControllers(started=1000.0, sync_period_s=15.0)


def test_a_status_that_others_wrote_before_us_is_watched_for_two_periods() -> None:
    known, web = foreign(), ForeignWrites("shop")
    known.note(web, wrote(IN_TREE, 500.0), 1000.0, is_first=True)
    assert known.acting(web, 1001.0) is None
    assert known.is_on_probation(web, 1034.0)
    assert not known.is_on_probation(web, 1036.0)


def test_a_write_seen_as_it_happens_makes_us_a_bystander_until_it_is_quiet() -> None:
    known, web = foreign(), ForeignWrites("shop")
    known.note(web, wrote(IN_TREE, 500.0), 1000.0, is_first=True)
    known.note(web, wrote(IN_TREE, 1010.0), 1010.0, is_first=False)
    assert known.acting(web, 1020.0) == IN_TREE
    assert known.acting(web, 1010.0 + QUIET_S + 1) is None


def test_an_update_that_wrote_no_status_is_no_evidence() -> None:
    known, web = foreign(), ForeignWrites("shop")
    known.note(web, wrote(IN_TREE, 500.0), 1000.0, is_first=True)
    known.note(web, wrote(IN_TREE, 500.0), 1010.0, is_first=False)
    assert known.acting(web, 1020.0) is None


def test_what_a_controller_does_to_one_object_holds_for_all_it_wrote() -> None:
    known, web, api = foreign(), ForeignWrites("shop"), ForeignWrites("shop")
    known.note(api, wrote(IN_TREE, 400.0), 1000.0, is_first=True)
    known.note(web, wrote(IN_TREE, 500.0), 1000.0, is_first=True)
    known.note(web, wrote(IN_TREE, 1010.0), 1010.0, is_first=False)
    assert known.acting(api, 1100.0) == IN_TREE


def test_a_new_object_is_ours_at_once_unless_somebody_else_is_active() -> None:
    known, web, api = foreign(), ForeignWrites("shop"), ForeignWrites("shop")
    known.note(web, None, 2000.0, is_first=True)
    assert not known.is_on_probation(web, 2000.0)
    known.note(api, wrote(IN_TREE, 1990.0), 1990.0, is_first=False)
    assert known.is_on_probation(web, 2001.0)
    assert not known.is_on_probation(web, 2000.0 + known.probation_s)


@pytest.mark.parametrize("manager", ["podscale-hpa", "podscale-control", "kubectl-edit", "argocd"])
def test_we_ourselves_and_people_are_no_controllers(manager: str) -> None:
    known, web = foreign(), ForeignWrites("shop")
    known.note(web, wrote(manager, 990.0), 1000.0, is_first=True)
    known.note(web, wrote(manager, 1010.0), 1010.0, is_first=False)
    assert known.acting(web, 1011.0) is None
    assert not known.is_on_probation(web, 1011.0)


def test_a_deleted_object_puts_nobody_on_probation() -> None:
    known, web, api = foreign(), ForeignWrites("shop"), ForeignWrites("shop")
    known.note(web, wrote(IN_TREE, 500.0), 1000.0, is_first=True)
    known.note(api, None, 1000.0, is_first=True)
    assert known.is_on_probation(api, 1001.0)
    known.forget(web)
    assert not known.is_on_probation(api, 1001.0)


def test_the_in_tree_controllers_rescale_makes_us_a_bystander_at_once() -> None:
    known, web, api = foreign(), ForeignWrites("shop"), ForeignWrites("shop")
    known.note_rescale(web, wrote(IN_TREE, 1010.0), (2, 4), 1010.0)
    assert known.acting(web, 1011.0) == IN_TREE
    assert known.acting(api, 1011.0) is None
    assert known.acting(web, 1011.0 + QUIET_S) is None


def test_an_unknown_program_counts_as_a_controller_when_it_comes_again() -> None:
    known, web = foreign(), ForeignWrites("shop")
    known.note_rescale(web, wrote("scaler", 1010.0), (2, 4), 1010.0)
    assert known.acting(web, 1011.0) is None
    known.note_rescale(web, wrote("scaler", 1100.0), (4, 2), 1100.0)
    assert known.acting(web, 1101.0) == "scaler"


@pytest.mark.parametrize(
    ("manager", "sizes"),
    [("kubectl-scale", (2, 4)), ("podscale-hpa", (2, 4)), ("keda", (0, 1)), ("keda", (1, 0))],
)
def test_people_activators_and_ourselves_rescale_without_being_rivals(
    manager: str, sizes: tuple[int, int]
) -> None:
    known, web = foreign(), ForeignWrites("shop")
    for at in (1010.0, 1020.0):
        known.note_rescale(web, wrote(manager, at), sizes, at)
    assert known.acting(web, 1021.0) is None


def test_of_writers_that_call_themselves_anything_only_the_last_are_kept() -> None:
    found, seen = foreign(), ForeignWrites("shop")
    for number in range(500):
        now = 1000.0 + 60.0 * number
        found.note(seen, wrote(f"any-{number}", now), now, is_first=False)
    assert len(found._active) <= QUIET_S / 60.0 + 1


def test_a_name_that_one_namespace_writes_keeps_no_other_namespace_from_us() -> None:
    known, mine, web = foreign(), ForeignWrites("alice"), ForeignWrites("shop")
    known.note(web, wrote(IN_TREE, 500.0), 1000.0, is_first=True)
    known.note(mine, None, 1000.0, is_first=True)
    known.note(mine, wrote(IN_TREE, 1100.0), 1100.0, is_first=False)
    assert known.acting(web, 1101.0) is None
    assert not known.must_watch(web, 1101.0)


def test_a_new_object_waits_where_somebody_writes_in_one_other_namespace() -> None:
    known, api = foreign(), ForeignWrites("shop")
    known.note(ForeignWrites("alice"), wrote(IN_TREE, 1100.0), 1100.0, is_first=False)
    known.note(api, None, 1101.0, is_first=True)
    assert known.is_on_probation(api, 1101.0)
    assert not known.is_on_probation(api, 1101.0 + known.probation_s)


def test_a_controller_that_writes_in_two_namespaces_acts_everywhere() -> None:
    known, web = foreign(), ForeignWrites("shop")
    known.note(web, wrote(IN_TREE, 500.0), 1000.0, is_first=True)
    for at, namespace in ((1010.0, "alice"), (1020.0, "bob")):
        known.note(ForeignWrites(namespace), wrote(IN_TREE, at), at, is_first=False)
    assert known.acting(web, 1021.0) == IN_TREE
    assert known.acting(web, 1011.0 + QUIET_S) is None
