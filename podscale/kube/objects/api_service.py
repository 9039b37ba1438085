"""APIServices, and the Services that they route to."""

import msgspec
from msgspec import Struct

from podscale.kube.client.wire import ObjectMeta


class ServiceName(Struct, frozen=True):
    """A Service by namespace and name."""

    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ApiServiceSpec(Struct, frozen=True):
    """Who answers for the group and version, and by which CA he is known."""

    service: ServiceName | None = None  # None: the API server itself
    ca_bundle: str = msgspec.field(default="", name="caBundle")  # base64 of PEM
    is_insecure: bool = msgspec.field(default=False, name="insecureSkipTLSVerify")


class ApiServiceCondition(Struct, frozen=True):
    """One of ``status.conditions``."""

    type: str = ""
    status: str = ""
    message: str = ""


class ApiServiceStatus(Struct, frozen=True):
    conditions: tuple[ApiServiceCondition, ...] = ()


class ApiService(Struct, frozen=True):
    """An APIService, named ``version.group``."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ApiServiceSpec = ApiServiceSpec()
    status: ApiServiceStatus = ApiServiceStatus()
