"""The way to an API server: from a kubeconfig, from inside a pod, or a plain URL.

The only module that knows kubernetes_asyncio, and it imports it only to read a
kubeconfig (contexts, exec plugins): the import costs 0.5 s and 70 MB.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from msgspec import Struct

from podscale.kube.api import Api


class Target(Struct, frozen=True):
    """Which server, and as whom: what the command line says."""

    kubeconfig: str = ""  # file; "": KUBECONFIG, then in-cluster, then the default file
    context: str = ""
    server: str = ""  # overrides the server's URL; alone, without credentials, it is enough
    impersonate: str = ""  # --as
    impersonate_groups: Sequence[str] = ()  # --as-group
    qps: float = 0.0  # client-side limit of requests/s; 0 is none
    burst: int = 0


def connect(target: Target, *, user_agent: str) -> AbstractAsyncContextManager[Api]:
    """Open a connection; leaving the context closes it. Raises ``NotConfigured``."""
    raise NotImplementedError
