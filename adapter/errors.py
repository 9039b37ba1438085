"""What can be wrong with the adapter's input.

ConfigInvalid            the rules file is refused; carries every ``Problem``
QueryError               a rule cannot ask Prometheus about this request
├── UnsupportedOperator  the selector has no PromQL form (``>``, ``<``)
├── NoLabel              the rule has no label for the resource
└── EmptyQuery           metricsQuery renders to nothing
"""

from collections.abc import Sequence

from msgspec import Struct


class Problem(Struct, frozen=True):
    """One thing to mend in the rules file, at a place an editor can jump to."""

    path: str  # "rules[3].name.matches"; "" for the whole file
    message: str
    line: int = 0  # from 1; 0: not known
    column: int = 0
    bound: str = ""  # the reason, where it is a bound that other programs do not have

    def describe(self, file: str) -> str:
        """Return ``file:line:column: path: message``, the form compilers print."""
        place = f"{file}:{self.line}:{self.column}" if self.line else file
        return ": ".join(part for part in (place, self.path, self.message) if part)


class ConfigInvalid(Exception):
    """The rules file is refused. All problems are listed, so that one round mends them."""

    def __init__(self, problems: Sequence[Problem], file: str = "rules file") -> None:
        self.problems = tuple(sorted(problems, key=lambda p: (p.line, p.column, p.path)))
        self.file = file
        super().__init__("\n".join(p.describe(file) for p in self.problems))


class RuleQueryError(ValueError):
    """The rule cannot ask Prometheus this; the text says why."""


class UnsupportedOperator(RuleQueryError):
    """A selector operator without a PromQL form."""


class NoLabel(RuleQueryError):
    """The rule maps no label to the resource."""


class EmptyQuery(RuleQueryError):
    """metricsQuery renders to nothing for this request."""
