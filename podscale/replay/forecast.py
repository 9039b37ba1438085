"""Today's spec with a forecast and its gate, as a row of the report, and the gate's table. Pure."""

from collections.abc import Mapping

from hpa.decide.api.spec import HPA
from hpa.forecast.gate import FEWEST_DAYS, GateVerdict
from hpa.forecast.trial import trial
from hpa.simulate.loop import simulate
from hpa.simulate.verdict import judge
from podscale.replay.candidate_runs import ReplayQuestion, ReplayRow, need_of

FORECAST = "forecast"
COLUMNS = ("candidate", "pod-hours", "unserved", "metrics alone", "saved", "")


def forecast_row(asked: ReplayQuestion, today: HPA) -> tuple[ReplayRow, GateVerdict | None, str]:
    """Return the row, what the gate says at the end (None: too few days), and a sentence."""
    tried = trial(today, asked.load, asked.plant, asked.settings, asked.capacities)
    need = need_of(asked, today)
    made = simulate(today, asked.load, asked.plant, asked.settings, asked.replicas, need.time_s,
                    expected=tried.expected)  # fmt: skip
    row = ReplayRow(FORECAST, judge(made, today, asked.load, asked.plant, need), made)
    if tried.last is None:
        return row, None, f"a forecast needs {FEWEST_DAYS} whole days of history"
    days = sum(each is not None and each.taken is not None for each in tried.taken)
    words = (
        f"{FORECAST} is the first spec with what its gate took each day, which was something on "
        f"{days} of {len(tried.taken)} days"
    )
    return row, tried.last, words


def gate_body(gate: GateVerdict) -> Mapping[str, object]:
    """Return the gate's table as data: shares of 1."""
    return {
        "candidate": gate.candidate,
        "days": gate.days,
        "rows": [
            {"candidate": row.name, "podHours": round(row.pod_hours, 2),
             "unserved": round(row.unserved, 6), "metricsAlone": round(row.reactive, 6),
             "saved": round(row.saved, 4), "isTaken": row is gate.taken}
            for row in gate.rows
        ],
    }  # fmt: skip


def gate_cells(gate: GateVerdict) -> list[dict[str, str]]:
    """Return the gate's table as people read it, by ``COLUMNS``."""
    return [
        dict(zip(COLUMNS, (
            row.name, f"{row.pod_hours:.1f}", f"{row.unserved:.3%}", f"{row.reactive:.3%}",
            f"{row.saved:.0%}", "taken" if row is gate.taken else "",
        ), strict=True))
        for row in gate.rows
    ]  # fmt: skip
