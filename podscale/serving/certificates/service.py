"""The Service in front of us (``--service``): its name, and the certificate that it needs."""

from collections.abc import Callable

from podscale.kube.client.api import Api
from podscale.kube.objects.cluster import ServiceName
from podscale.serving.certificates.authority import DEFAULT_TIMES, AuthorityTimes
from podscale.serving.certificates.issuing import service_names
from podscale.serving.certificates.keeper import CertificateKeeper, Publish
from podscale.serving.flags import FlagError


def service_of(text: str) -> ServiceName | None:
    """Return the Service that ``namespace/name`` writes, None for no text; raises FlagError."""
    if not text:
        return None
    namespace, slash, name = text.partition("/")
    if not namespace or not slash or not name or "/" in name:
        raise FlagError(f"--service is NAMESPACE/NAME, and {text!r} is not")
    return ServiceName(namespace, name)


def keeper_behind(
    api: Api,
    *services: ServiceName,
    publish: Publish,
    may_write: Callable[[], bool],
    times: AuthorityTimes = DEFAULT_TIMES,
    purpose: str = "",
) -> CertificateKeeper:
    """Return what keeps one certificate for ``services``, with its CA beside the first of them.

    ``purpose`` is part of the Secret's name: two keepers behind one Service have a CA each.
    """
    first = services[0]
    names = [name for each in services for name in service_names(each.name, each.namespace)]
    return CertificateKeeper(
        api,
        namespace=first.namespace,
        secret="-".join(filter(None, [first.name, purpose, "ca"])),
        names=tuple(dict.fromkeys(names)),
        publish=publish,
        may_write=may_write,
        times=times,
    )
