"""Failures of a query.

    QueryError                carries the ``Failure`` to hand on and the class of the failure

An HTTP exchange either yields an answer or raises this one error; the planner acts on
``kind`` (split, demote, give up), consumers only ever see ``failure``.
"""

from typing import Literal

from podscale.core.metrics import Failure

Kind = Literal[
    "unreachable",  # no connection, or it broke
    "deadline",  # we stopped waiting
    "no-place",  # the queries of others did not end in time
    "timeout",  # Prometheus stopped evaluating
    "execution",  # 422: too many samples, many-to-many and the like
    "bad-data",  # 400: the query, or what we made of it, is not understood
    "unauthorized",  # 401
    "forbidden",  # 403
    "throttled",  # 429
    "gateway",  # 5xx of Prometheus or of something before it
    "oversize",  # the body passes the limit
    "partial",  # something of what was asked could not be read
    "nonsense",  # not the JSON that Prometheus speaks: HTML, cut off, another shape
]

# Another, smaller query may succeed where this one failed.
SPLITTABLE: frozenset[Kind] = frozenset({"timeout", "execution", "oversize"})


class QueryError(Exception):
    """A query failed; ``failure`` says it to people, ``kind`` to the planner."""

    def __init__(self, kind: Kind, failure: Failure, detail: str = "") -> None:
        super().__init__(failure.message)
        self.detail = detail  # Prometheus's own words: for logs, not for users
        self.kind: Kind = kind
        self.failure = failure
