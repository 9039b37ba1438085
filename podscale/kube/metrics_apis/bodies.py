"""Errors of the API server as failures of a metric."""

from msgspec import Struct

from podscale.core.metrics import Failure, NotFound, Refused, Unavailable
from podscale.kube.client import errors
from podscale.kube.client.wire import ObjectMeta, Quantity, Time

# How our adapter's Warning header begins beside an external list from which series that are no
# numbers were left out (RFC 7234; aggregators hand it through): the list is not the metric.
LEFT_OUT = '299 podscale "NotANumber: '

# The header of our adapter's answer that names the adapter behind it.
ANSWERED_BY = "X-Podscale-External-Backend"


class ContainerMetrics(Struct, frozen=True, gc=False):
    name: str
    usage: dict[str, Quantity] = {}


class PodMetrics(Struct, frozen=True, gc=False):
    """Usage of one pod; ``window`` is a Go duration."""

    metadata: ObjectMeta
    timestamp: Time | None = None
    window: str = ""
    containers: tuple[ContainerMetrics, ...] | None = None


class NodeMetrics(Struct, frozen=True, gc=False):
    metadata: ObjectMeta
    timestamp: Time | None = None
    usage: dict[str, Quantity] = {}


class DescribedObject(Struct, frozen=True, gc=False):
    """What a custom metric is about."""

    kind: str = ""
    namespace: str = ""
    name: str = ""


class CustomValue(Struct, frozen=True, gc=False, rename="camel"):
    """An item of custom.metrics.k8s.io; v1beta1 spells the window ``window``."""

    described_object: DescribedObject = DescribedObject()
    value: Quantity = "0"
    timestamp: Time | None = None
    window_seconds: int | None = None
    window: int | None = None


class ExternalValue(Struct, frozen=True, gc=False, rename="camel"):
    """An item of external.metrics.k8s.io."""

    metric_labels: dict[str, str] | None = None
    value: Quantity = "0"
    timestamp: Time | None = None
    window_seconds: int | None = None
    window: int | None = None


_REFUSALS = (400, 401, 403, 405, 422)


def failure_of(error: errors.KubeError, doing: str) -> Failure:
    """Return the failure that ``error`` is; ``doing`` starts its message.

    The reason is the first cause of the Status where one is named (podscale's own
    adapter says there at which stage the metric was lost), else the Status' reason.
    """
    text = f"{doing}: {error}"
    if isinstance(error, errors.ApiUnreachable):
        reason = "Timeout" if error.is_timeout else "Unreachable"
        return Unavailable(reason, text, is_timeout=error.is_timeout)
    if not isinstance(error, errors.ApiError):
        return Unavailable(type(error).__name__, text)
    cause = next((cause.reason for cause in error.causes if cause.reason), "")
    reason = cause or error.reason or f"Status{error.status}"
    if isinstance(error, errors.ObjectNotFound):
        return NotFound(reason, text)
    if error.status in _REFUSALS:
        return Refused(reason, text)
    return Unavailable(
        reason, text, is_timeout=error.status == 504, retry_after_s=error.retry_after_s
    )
