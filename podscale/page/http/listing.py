"""Search, filter and paging over all workloads, on our side of the wire."""

from collections import defaultdict
from collections.abc import Iterable

from msgspec import Struct

from podscale.page.http.rows import reason_of, row, state_of
from podscale.page.state.board import ShownWorkload, WorkloadBoard
from podscale.page.values.json_values import STATES, ShownListing, ShownWaiting, State

MOST_ROWS = 100
_EXAMPLES = 3
_MOST_WAITING = 12


class Query(Struct, frozen=True):
    """What is asked for."""

    text: str = ""  # words that namespace, name, kind or reason contain, in any order
    namespace: str = ""
    state: str = ""  # one of STATES; empty: all
    offset: int = 0
    limit: int = 25


class WorkloadList:
    """Answers queries; keeps the order of names between changes."""

    def __init__(self, board: WorkloadBoard) -> None:
        self._board = board
        self._version = -1
        self._ordered: list[ShownWorkload] = []
        self._namespaces: list[str] = []

    def answer(self, query: Query, *, now: float, is_leader: bool) -> ShownListing:
        """Return one page. Linear in the number of workloads."""
        ordered = self._in_order()
        states = [state_of(workload) for workload in ordered]
        counts: dict[State, int] = dict.fromkeys(STATES, 0)
        for state in states:
            counts[state] += 1
        words = query.text.lower().split()
        found = [
            workload
            for workload, state in zip(ordered, states, strict=True)
            if (not query.state or state == query.state)
            and (not query.namespace or workload.id[0] == query.namespace)
            and (not words or _matches(workload, words))
        ]
        limit = max(1, min(query.limit, MOST_ROWS))
        last = max((len(found) - 1) // limit * limit, 0)
        offset = min(max(query.offset, 0), last)
        return ShownListing(
            now,
            len(ordered),
            len(found),
            offset,
            [row(workload) for workload in found[offset : offset + limit]],
            counts,
            self._namespaces,
            waiting(
                (workload, state)
                for workload, state in zip(ordered, states, strict=True)
                if state in ("failing", "waiting")
            ),
            self._board.recent(),
            is_leader,
            self._board.size().bytes,
        )

    def _in_order(self) -> list[ShownWorkload]:
        if self._version != self._board.version:
            self._version = self._board.version
            self._ordered = sorted(
                self._board, key=lambda each: (each.id[0], each.id[2], each.id[1])
            )
            self._namespaces = sorted({workload.id[0] for workload in self._ordered})
        return self._ordered


def waiting(held: Iterable[tuple[ShownWorkload, State]]) -> list[ShownWaiting]:
    """Return what holds workloads back, by reason, failures and frequent ones first."""
    groups: dict[tuple[State, str], list[str]] = defaultdict(list)
    for workload, state in held:
        groups[state, reason_of(workload)].append("/".join(workload.id))
    ordered = sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1]), item[0][1]))
    return [
        ShownWaiting(reason, state, len(ids), ids[:_EXAMPLES])
        for (state, reason), ids in ordered[:_MOST_WAITING]
    ]


def _matches(workload: ShownWorkload, words: list[str]) -> bool:
    vpa = workload.vpa.name if workload.vpa is not None else ""
    hpas = " ".join(workload.scalings)
    text = f"{'/'.join(workload.id)} {hpas} {vpa} {reason_of(workload)}".lower()
    return all(word in text for word in words)
