"""``podscale top``: lines of decisions, and the terminal through Textual's pilot."""

import pytest
from msgspec import structs
from textual.widgets import DataTable, Input, Static

from podscale.cli.output import table
from podscale.cli.top.app import DecisionScreen, TopApp
from podscale.cli.top.command import COLUMNS, chosen, fitted, row_of
from tests.conformance.cases import document


def facts_of(ratio):
    if ratio is None:
        return {}
    used = {"utilization": round(60 * ratio), "target_utilization": 60, "average_value": 68}
    return {"ratio": ratio, "metric": "cpu", "resource": "cpu", **used}


def scaling(name, ratio, reason="MetricAboveTarget", replicas=4):
    return row_of("hpa", {
        "metadata": {"namespace": "shop", "name": name},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": name}, "minReplicas": 2,
                 "maxReplicas": 10},
        "status": {"replicas": replicas, "first_reason": reason, "time": "2026-11-24T20:30:49Z",
                   "facts": facts_of(ratio),
                   "why": "It is above the target.",
                   "sentences": ["It is so.", "The size changes."],
                   "history": [{"time": "2026-11-24T20:30:29Z", "reason": "WithinTolerance"}]},
    })  # fmt: skip


def sizing(name):
    amount = {"container": "app", "resource": "memory", "first_reason": "PercentileOfUsage",
              "facts": {}, "decision": {"published": True, "amount": 2**20 * 523}}  # fmt: skip
    return row_of("vpa", {
        "metadata": {"namespace": "jobs", "name": name},
        "spec": {"targetRef": {"kind": "Deployment", "name": name}},
        "status": {"first_reason": "PercentileOfUsage", "facts": {}, "recommendation": [amount],
                   "why": "memory of app: 422Mi → 523Mi."},
    })  # fmt: skip


ROWS = [scaling("web", 1.4), scaling("api", 0.3, "ScaleDownStabilized"), scaling("cron", None),
        sizing("worker")]  # fmt: skip


def test_a_line_says_load_target_size_and_reason():
    assert scaling("web", 1.4).cells() == [
        "hpa", "shop/web", "84%/60% cpu", "Deployment/web", "4 of 2-10", "MetricAboveTarget",
        "It is above the target.",
    ]  # fmt: skip
    assert sizing("worker").cells() == [
        "vpa", "jobs/worker", "", "Deployment/worker", "app memory 523Mi", "PercentileOfUsage",
        "memory of app: 422Mi → 523Mi.",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "load"),
    [
        ({"utilization": 113, "target_utilization": 60, "average_value": 68}, "113%/60% m"),
        ({"average_value": 14_424, "target_average_value": 12_000}, "14.424/12 m"),
        ({"value": 2_000_000, "target_value": 500}, "2000/0.5 m"),
        ({"value": 90_000, "target_value": 60_000, "target_average_value": 30_000}, "90/60 m"),
        (
            {"resource": "memory", "average_value": 300 * 2**20 * 1000,
             "target_average_value": 2**30 * 1000},
            "300Mi/1Gi m",
        ),
    ],
)  # fmt: skip
def test_a_load_reads_as_kubectl_writes_it(facts, load):
    body = {
        "metadata": {"name": "web"},
        "status": {"facts": {"ratio": 1.9, "metric": "m", **facts}},
    }
    assert row_of("hpa", body).load == load


def test_names_cannot_command_a_terminal():
    assert "\x1b" not in "".join(scaling("web\x1b[2J", 1.0).cells())


@pytest.mark.parametrize("width", [72, 80, 100, 120, 160])
def test_a_table_printed_once_fits_a_terminal_and_keeps_the_reason(width, capsys):
    table(*fitted(ROWS, width))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert [row.reason in line for row, line in zip(ROWS, lines[1:], strict=True)] == [True] * 4


def test_a_table_printed_into_a_pipe_is_not_cut(capsys):
    table(*fitted(ROWS, 0))
    for row, line in zip(ROWS, capsys.readouterr().out.splitlines()[1:], strict=True):
        assert all(cell in line for cell in row.cells())


@pytest.mark.parametrize("by", COLUMNS)
def test_rows_are_sorted_by_every_column(by):
    up = chosen(ROWS, "", by, is_down=False)
    assert list(reversed(up)) == list(chosen(ROWS, "", by, is_down=True))
    if by == "load":
        assert [row.load_ratio for row in up] == [-1.0, -1.0, 0.3, 1.4]


def test_a_filter_looks_at_every_column():
    assert [row.object for row in chosen(ROWS, "STABILIZED", "object", is_down=False)] == [
        "shop/api"
    ]
    assert [row.object for row in chosen(ROWS, "523Mi", "object", is_down=False)] == ["jobs/worker"]


@pytest.mark.parametrize("width", [80, 120])
async def test_the_sentence_of_the_chosen_row_can_be_read_and_keys_are_in_the_footer(width):
    why = "cpu is 84% of the request (target 60%), which needs 6 replicas; maxReplicas cuts 6 to 5."
    app = TopApp(Fleet([structs.replace(row, why=f"{row.object}: {why}") for row in ROWS]))
    async with app.run_test(size=(width, 24)) as pilot:
        await pilot.press("down", "down")
        await pilot.pause()
        shown = str(app.query_one("#why", Static).render())
        assert shown == f"shop/cron: {why}"
        head = drawn(app)[0]
        assert ("WHY" in head) is (width == 120)
        footer = " ".join(str(key.description) for key in app.query("FooterKey"))
        assert {"open", "help", "filter", "quit"} <= set(footer.split())
        await pilot.press("question_mark")
        (helped,) = app._notifications
        assert "Enter opens" in helped.message


def test_a_table_printed_once_shows_enough_of_the_sentence_or_none_of_it(capsys):
    rows = [structs.replace(row, why=row.why * 5) for row in ROWS]
    for width in range(60, 200):
        table(*fitted(rows, width))
        head, *lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= max(width, 72)
        assert "WHY" not in head or width - head.index("WHY") >= 40


class Fleet:
    """What each look finds."""

    def __init__(self, rows, said=""):
        self.rows, self.said = rows, said

    async def __call__(self):
        return self.rows, self.said


def drawn(app):
    table = app.query_one(DataTable)
    return [
        "".join(part.text for part in table.render_line(line))
        for line in range(table.row_count + 1)
    ]


def objects(app):
    table = app.query_one(DataTable)
    return [str(table.get_row(key)[1]) for key in table.rows]


async def test_the_table_is_sorted_filtered_and_opened():
    app = TopApp(Fleet(ROWS))
    async with app.run_test(size=(160, 40)) as pilot:
        assert objects(app) == ["jobs/worker", "shop/api", "shop/cron", "shop/web"]
        await pilot.press("s")  # by load, the highest first
        assert objects(app)[0] == "shop/web"
        await pilot.press("r")
        assert objects(app)[-1] == "shop/web"
        await pilot.press("slash", *"stabil")
        assert objects(app) == ["shop/api"]
        await pilot.press("enter", "enter")
        await pilot.pause()
        assert isinstance(app.screen, DecisionScreen)
        text = str(app.screen.query_one("#decision", Static).render())
        assert "The size changes." in text
        assert "WithinTolerance" in text
        await pilot.press("escape")
        await pilot.press("escape")
        assert app.query_one("#filter", Input).value == ""
        assert len(objects(app)) == len(ROWS)


async def test_brackets_in_a_sentence_are_no_markup():
    texts = ["external metric q(map[string]string{a: b})", "[/x] is no closing tag"]
    rows = [structs.replace(scaling(name, 1.0), why=text)
            for name, text in zip(("a", "b"), texts, strict=True)]  # fmt: skip
    app = TopApp(Fleet(rows))
    async with app.run_test(size=(160, 20)) as pilot:
        await pilot.pause()
        lines = drawn(app)[1:]
    assert all(text in line for text, line in zip(texts, lines, strict=True))


async def test_the_cursor_stays_on_its_row_while_others_come():
    fleet = Fleet(ROWS)
    app = TopApp(fleet)
    async with app.run_test() as pilot:
        await pilot.press("down", "down", "down")
        fleet.rows = [scaling("aaa", 0.5), *ROWS]
        await app.look_again()
        table = app.query_one(DataTable)
        assert str(table.get_row_at(table.cursor_row)[1]) == "shop/web"


async def test_what_cannot_be_read_is_said_and_takes_nothing_away():
    fleet = Fleet(ROWS)
    app = TopApp(fleet)
    async with app.run_test():
        fleet.rows, fleet.said = [], "hpas: the server does not answer"
        await app.look_again()
        assert len(objects(app)) == len(ROWS)
        assert "does not answer" in str(app.query_one("#said", Static).render())


async def test_a_terminal_without_rows_says_where_else_to_look():
    fleet = Fleet([])
    app = TopApp(fleet, nothing="No decisions found in namespace default")
    async with app.run_test():
        assert "namespace default" in str(app.query_one("#said", Static).render())
        fleet.rows = ROWS
        await app.look_again()
        assert str(app.query_one("#said", Static).render()) == ""


LONG = [
    structs.replace(scaling("a-name-of-a-workload-that-is-rather-long", 12.4, "GapInWindow"),
                    load="1240% http_requests_per_second_of_all_paths"),
    structs.replace(sizing("worker"), size="app cpu 25m, app memory 523Mi, sidecar cpu 100m"),
    scaling("web", 1.4, max(document("explain.yaml")["reasons"], key=len)),
]  # fmt: skip


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("rows", [ROWS, LONG, ROWS * 12], ids=["short", "long", "scrolled"])
@pytest.mark.parametrize("by", ["object", "reason", "load"])
async def test_a_narrow_terminal_shows_reasons_and_loads_whole(width, rows, by):
    rows = [structs.replace(row, object=f"{row.object}{n}") for n, row in enumerate(rows)]
    app = TopApp(Fleet(rows), by=by)
    async with app.run_test(size=(width, 24)) as pilot:
        await pilot.pause()
        lines = [line[: width - 2] for line in drawn(app)]
        shown = chosen(rows, "", by, is_down=by == "load")
    assert "REASON" in lines[0]
    for row, line in zip(shown, lines[1:], strict=True):
        assert row.reason in line
        assert row.load.split(" ")[0] in line


async def test_a_terminal_that_grows_shows_targets_again():
    app = TopApp(Fleet(LONG))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert "TARGET" not in drawn(app)[0]
        await pilot.resize_terminal(300, 24)
        await pilot.pause()
        head, *lines = drawn(app)
    assert "TARGET" in head
    for row, line in zip(chosen(LONG, "", "object", is_down=False), lines, strict=True):
        assert all(cell in line for cell in row.cells())
