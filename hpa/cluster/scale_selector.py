"""The selector of a scale as client-go hands it on, which turns it into an object and back.

Follows ``scale/client.go`` (``convertToScale``) and ``ParseToLabelSelector``, Kubernetes 1.36
and 1.37. What the object form has no word for fails there, before the HPA sees the scale.
"""

from podscale.core.goquote import quote
from podscale.core.selectors import selector as selectors
from podscale.core.selectors.labels import since_1_36
from podscale.core.selectors.selector import SelectorError
from podscale.kube.client.errors import KubeError

_NOT_CONVERTIBLE = (
    "received an object from a /scale endpoint which was not convertible to autoscaling Scale: "
    "failed to parse target selector: "
)


class NotConvertible(KubeError):
    """The scale's selector has no object form; the message is upstream's."""


def converted(text: str) -> str:
    """Return the canonical text; of several ``=`` on one key the last stays.

    Raises ``NotConvertible``.
    """
    try:
        found = selectors.parse(text)
    except SelectorError as error:
        said = since_1_36(str(error))
        raise NotConvertible(
            f'{_NOT_CONVERTIBLE}couldn\'t parse the selector string "{text}": {said}'
        ) from None
    for requirement in found.requirements:
        if requirement.operator in ("gt", "lt"):
            shown = f"{quote(requirement.operator)} isn't supported in label selectors"
            raise NotConvertible(_NOT_CONVERTIBLE + shown)
        if requirement.operator == "!=":
            raise NotConvertible(f'{_NOT_CONVERTIBLE}"!=" is not a valid label selector operator')
    return str(selectors.from_wire(selectors.to_wire(found) or {}))
