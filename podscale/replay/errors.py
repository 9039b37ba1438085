"""What can be wrong with a replay.

ReplayError
└── TraceInvalid     a file of samples, with its line
"""


class ReplayError(ValueError):
    """It cannot be replayed before something is changed; the text says what."""


class TraceInvalid(ReplayError):
    """A file of samples is not what it is taken for."""

    def __init__(self, text: str, line: int) -> None:
        super().__init__(text)
        self.line = line
