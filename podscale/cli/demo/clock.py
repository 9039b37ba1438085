"""The demo's time: the machine's, or one that starts with it and runs faster.

Whatever decides takes this as its ``wall``; the sandbox writes its objects at it; the stand-in
scrapes at it. Deadlines of the network and of certificates stay on the machine's time, so a
faster demo asks more of the machine but does not fail sooner.
"""

import time


class Clock:
    """Unix seconds that pass ``speed`` times as fast as real ones. Call it for the time."""

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed
        self._began_s = time.time()
        self._began = time.monotonic()

    def __call__(self) -> float:
        if self.speed == 1.0:
            return time.time()
        return self._began_s + (time.monotonic() - self._began) * self.speed

    def real_s(self, seconds: float) -> float:
        """Return how many real seconds ``seconds`` of the demo take."""
        return seconds / self.speed

    def flag(self, seconds: float) -> str:
        """Return a period of the demo as a flag's value in real time."""
        return f"{max(self.real_s(seconds), 0.001):.3f}s"
