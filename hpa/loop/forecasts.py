"""Forecasts of the autoscalers that want one: judged once a day by a replay of the past (the
gate), and half a day later by what they did live; one that did not pay (regret) is switched off.

The gate itself works elsewhere (``ForecastGate``). Its verdict is stored with the history; what
a forecast needs is learnt anew after a restart, and until then nothing is forecast.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Protocol

import structlog
from msgspec import Struct

from hpa.cluster.record import AutoscalerRecord, Catalog
from hpa.decide.api.spec import HPA
from hpa.decide.pods import Pods
from hpa.decide.settings import Settings
from hpa.forecast.daily import GateAnswer, GateQuestion, day_of, is_alike
from hpa.forecast.gate import NONE
from hpa.forecast.plan import LiveForecast
from hpa.history.clock import SteadyClock
from hpa.history.memory import HistoryMemory
from hpa.selfmetrics import HpaMetrics

_log = structlog.get_logger()

_LOOK_S = 10.0
_AGAIN_S = 3600.0  # after a gate that failed
_REGRET_S = 12 * 3600.0  # from a gate to the look back at what its forecast did


class ForecastGate(Protocol):
    """Replays the past of autoscalers, and says for which a forecast pays."""

    cpu_s: float  # that it has cost so far

    def answers(
        self, questions: Sequence[GateQuestion], settings: Settings, now: float
    ) -> AsyncGenerator[tuple[GateQuestion, GateAnswer | str], None]:
        """Yield the answer to each, or why there is none: ``""`` where a look back found nothing
        against the forecast. A child process that fails over one leaves the others theirs."""


class Forecasts(Struct, eq=False):
    """Sees to the forecasts of one controller."""

    gate: ForecastGate | None  # None: this process does not read Prometheus; nothing is forecast
    catalog: Catalog
    memory: HistoryMemory
    settings: Settings
    clock: SteadyClock
    metrics: HpaMetrics

    async def run(self) -> None:
        """Ask the gate about those that are due, for ever."""
        is_missed = False
        while True:
            await asyncio.sleep(_LOOK_S)
            wanted = self._wanted()
            if self.gate is None:
                if wanted and not is_missed:
                    _log.warning("no forecasts: they need --metrics-source=feed")
                is_missed = is_missed or bool(wanted)
                continue
            try:
                await self._ask(self.gate, wanted)
            except Exception:  # noqa: BLE001 - the next look is another try
                _log.exception("forecasts not judged")
                for record, _ in wanted:
                    self.memory.forecast(record).again_at = self.clock.now() + _AGAIN_S
            states = [self.memory.forecast(record) for record, _ in wanted]
            in_force = [each.live.plan.verdict.candidate for each in states if each.live]
            self.metrics.forecasts = Counter(in_force)
            self.metrics.counts.gate_s = self.gate.cpu_s

    def _wanted(self) -> list[tuple[AutoscalerRecord, HPA]]:
        found = []
        for record in self.catalog:
            hpa = record.hpa
            if hpa is not None and hpa.options.forecasts:
                found.append((record, hpa))
            elif record.history.forecast is not None:
                record.history.forecast = None
        return found

    async def _ask(
        self, gate: ForecastGate, wanted: Sequence[tuple[AutoscalerRecord, HPA]]
    ) -> None:
        unix, now = self.clock.unix(), self.clock.now()
        asked: list[GateQuestion] = []
        about: dict[int, AutoscalerRecord] = {}
        for record, hpa in wanted:
            question = self._question(record, hpa, unix, now)
            if question is not None:
                asked.append(question)
                about[id(question)] = record
        if not asked:
            return
        async with aclosing(gate.answers(asked, self.settings, unix)) as answers:
            async for question, answer in answers:
                self._take(about[id(question)], question, answer)

    def _question(
        self, record: AutoscalerRecord, hpa: HPA, unix: float, now: float
    ) -> GateQuestion | None:
        """Return what is to be asked about one autoscaler now; None: nothing is."""
        state = self.memory.forecast(record)
        if state.about is not None and not is_alike(hpa, state.about):
            state.live = state.sums = state.verdict = None
        state.about = hpa
        if now < state.again_at or record.history.past is None:
            return None  # the verdict that an earlier leader stored comes with the first pass
        requests = requests_in(record.observed.pods)
        verdict, live = state.verdict, state.live
        is_of_today = verdict is not None and verdict.at >= day_of(unix)
        if not is_of_today or (verdict is not None and verdict.is_taken and live is None):
            return GateQuestion(hpa, requests, verdict, state.sums)
        if live is not None and now >= state.regret_at:
            state.regret_at = now + _REGRET_S
            return GateQuestion(hpa, requests, verdict, lived=live.lived())
        return None

    def _take(
        self, record: AutoscalerRecord, question: GateQuestion, answer: GateAnswer | str
    ) -> None:
        state, now = self.memory.forecast(record), self.clock.now()
        name = "/".join(record.key)
        if isinstance(answer, str):
            if answer:
                state.again_at = now + _AGAIN_S
                _log.warning("forecast not judged", autoscaler=name, error=answer)
            return
        before = state.verdict.candidate if state.verdict else NONE
        if answer.verdict.candidate != before:
            _log.info("forecast", autoscaler=name, candidate=answer.verdict.candidate,
                      before=before, is_regretted=question.lived is not None,
                      saved=round(answer.verdict.saved, 3))  # fmt: skip
        state.verdict = answer.verdict
        state.live = None if answer.plan is None else LiveForecast(answer.plan)
        state.sums = answer.sums or state.sums
        state.regret_at = now + _REGRET_S


def requests_in(pods: Pods) -> dict[str, dict[str, int]]:
    """Return container → resource → milli-units of the newest template of ``pods``."""
    if not pods.templates:
        return {}
    template = pods.templates[max(pods.template, default=0)]
    return {each.name: dict(each.requests_milli) for each in template.running}
