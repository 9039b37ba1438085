"""Why a query has no answer, in the words of Prometheus's HTTP API.

PromqlError
├── BadData      400: the query or a parameter is wrong
└── Unanswerable 422: this query on this data, or a construct that the stand-in does not know
"""


class PromqlError(Exception):
    """A refusal; ``kind`` is the API's errorType."""

    status = 500
    kind = "internal"


class BadData(PromqlError):
    """What was sent cannot be read."""

    status = 400
    kind = "bad_data"


class Unanswerable(PromqlError):
    """It was read, and cannot be evaluated."""

    status = 422
    kind = "execution"


def unsupported(construct: str) -> Unanswerable:
    """Return the refusal of a construct, by its name."""
    return Unanswerable(
        f"{construct} is not in the subset of PromQL that the demo's stand-in evaluates; "
        "put a real prometheus on PATH for the rest"
    )
