"""The rules that are listed together, and what is known of each, while rules are replaced."""

from collections.abc import Iterator

from msgspec import structs

from adapter.discovery.listing import MetricSource
from adapter.discovery.registry import RelistFailure, RuleState
from adapter.rules.ruleset import Rule, RuleSet
from adapter.stages import Stage
from podscale.core.pace import LoopPace

# Origin, section and fingerprint: the same rule, wherever it stands.
RuleContent = tuple[str, str, str]


class RuleScope:
    """The rules that are listed together: those of everywhere, or a namespace's own."""

    def __init__(self, rules: RuleSet) -> None:
        self.states = {rule.id: _first_state(rule) for rule in _every(rules)}
        # Rules of before a change, which serve on until those that came with it are listed.
        self.leaving: dict[RuleContent, RuleState] = {}
        self.awaited: set[RuleContent] = set()

    async def replaced(self, rules: RuleSet) -> "RuleScope":
        """Return the scope of other rules; see ``Relister.replace``. Changes nothing, so that
        whatever ends it on the way leaves the rules of before in force."""
        before = {_content(state.rule): state for state in self.states.values()}
        known = {**self.leaving, **before}
        scope = RuleScope(rules)
        for rule in _every(rules):
            if (old := known.get(_content(rule))) is not None:
                scope.states[rule.id] = await _moved(old, rule)
        come = {_content(state.rule) for state in scope.states.values()}
        scope.awaited = (self.awaited | (come - before.keys())) & come
        scope.leaving = {
            content: state
            for content, state in known.items()
            if content not in come and state.listing is not None
        }
        return scope

    def asked(self) -> Iterator[RuleState]:
        """Yield what Prometheus is asked for: not the rules that are refused."""
        return (state for state in self.states.values() if state.rule.refusal is None)

    def let_go(self) -> tuple[RuleState, ...]:
        """Return what is leaving, without that in whose place everything is listed."""
        if not self.leaving:
            return ()
        unlisted = {_content(state.rule) for state in self.asked() if state.listing is None}
        self.awaited &= unlisted
        origins = {origin for origin, _, _ in self.awaited}
        self.leaving = {c: state for c, state in self.leaving.items() if c[0] in origins}
        return tuple(self.leaving.values())


def _every(rules: RuleSet) -> tuple[Rule, ...]:
    return (*rules.custom, *rules.external)


def _content(rule: Rule) -> RuleContent:
    return rule.origin, rule.section, rule.fingerprint


def _first_state(rule: Rule) -> RuleState:
    refusal = rule.refusal
    if refusal is None:
        return RuleState(rule)
    return RuleState(
        rule, failure=RelistFailure(Stage.QUERY_INVALID, refusal.message, refusal.reason)
    )


def is_behind(state: RuleState) -> bool:
    """Return whether another attempt may bring a list, or a newer one."""
    if state.failure is None:
        return state.listing is None
    return state.rule.refusal is None and not state.failure.is_final


async def _moved(state: RuleState, rule: Rule) -> RuleState:
    """Return what is known of a rule under the name that its new place gives it."""
    if state.listing is None or state.rule.id == rule.id:
        return structs.replace(state, rule=rule)
    exposed, pace = {}, LoopPace()
    for key, source in state.listing.exposed.items():
        await pace.rest()
        exposed[key] = MetricSource(rule, source.series)
    listing = structs.replace(state.listing, rule=rule, exposed=exposed)
    return structs.replace(state, rule=rule, listing=listing)
