"""A queue of messages: producers fill it, the ready pods of a workload empty it."""

from collections.abc import Callable

from podscale.core.selectors.selector import Selector


class Queue:
    """The messages that wait in one queue."""

    cpu_s_per_message = 0.02
    memory_bytes = 48.0 * 2**20

    def __init__(
        self,
        namespace: str,
        selector: Selector,
        arrivals_per_s: Callable[[float], float],
        *,
        taken_per_s: float = 5.0,
    ) -> None:
        """``arrivals_per_s`` is of unix seconds; each ready pod takes ``taken_per_s``."""
        self.namespace = namespace
        self.selector = selector
        self.messages = 0.0
        self._arrivals_per_s = arrivals_per_s
        self._taken_per_s = taken_per_s

    def advance(self, now: float, elapsed: float, *, consumers: int) -> float:
        """Let ``elapsed`` seconds up to ``now`` pass; return how many messages were taken."""
        self.messages += self._arrivals_per_s(now) * elapsed
        taken = min(self.messages, consumers * self._taken_per_s * elapsed)
        self.messages -= taken
        # Halves of messages are nobody's backlog.
        if self.messages < 0.5:
            self.messages = 0.0
        return taken
