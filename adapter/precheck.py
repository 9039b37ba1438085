"""A look at the adapter's files before anything is connected: all that is wrong with them, at once.

Unknown keys, bad patterns and bad templates are told together. Whether the cluster has
the resources that overrides name is only known later (``adapter.rules.ruleset``).
"""

import ssl
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from adapter.backends.backends_file import read_backends
from adapter.errors import ConfigInvalid
from adapter.rules.followed_file import text_of
from adapter.rules.ruleset import read_rules
from adapter.sources.sources_file import read_sources
from podscale.feed.http import credentials
from podscale.feed.options import PrometheusOptions
from podscale.kube.client.resource import Resource
from podscale.serving.flags import Flags

FILES = ("sources", "config", "external-backends")  # flags that name a file that is read here


class _AnyCluster:
    # Not ``adapter.discovery.mapping``: that doubts names without a group, and here a doubt would
    # refuse a file that this cluster may well understand.
    def resource_for(self, resource: str, group: str = "", version: str = "") -> Resource:
        name = resource.lower()
        return Resource(group, version or "v1", name, resource, singular_name=name)


def problems(flags: Flags) -> list[str]:
    """Return what is wrong with the files that flags name, one text a file. Blocking."""
    found: list[str] = []
    sources: frozenset[str] | None = frozenset()

    def look(flag: str, read: Callable[[str, str], object]) -> None:
        if path := flags.text(flag):
            found.extend(filter(None, [_problem(Path(path), read)]))

    def named(text: str, file: str) -> None:
        nonlocal sources
        sources = frozenset(read_sources(text, file).sources)

    if flags.text("sources"):
        sources = None  # of a file that cannot be read any may be there
    look("sources", named)
    look("config", partial(read_rules, mapper=_AnyCluster(), sources=sources))
    look("external-backends", read_backends)
    return [*found, *_certificates(flags)]


def _certificates(flags: Flags) -> Iterator[str]:
    ca = flags.text("prometheus-ca-file")
    if not ca:
        return  # nor is a client certificate looked at
    tried = {f"--prometheus-ca-file {ca}": PrometheusOptions(ca_file=Path(ca))}
    certificate = flags.text("prometheus-client-tls-cert-file")
    if certificate and (key := flags.text("prometheus-client-tls-key-file")):
        options = PrometheusOptions(client_cert_file=Path(certificate), client_key_file=Path(key))
        tried[f"--prometheus-client-tls-cert-file {certificate} with {key}"] = options
    for named, options in tried.items():
        try:
            credentials.context(options)
        except ssl.SSLError as error:
            yield f"{named}: cannot be used as PEM: {error.reason or error}"
        except OSError as error:
            yield f"{named}: cannot be read: {_why(error)}"


def _problem(path: Path, read: Callable[[str, str], object]) -> str:
    try:
        read(text_of(path), str(path))
    except ConfigInvalid as invalid:
        return str(invalid)
    except OSError as error:
        return f"{path}: cannot be read: {_why(error)}"
    return ""


def _why(error: OSError) -> str:
    match error:
        case FileNotFoundError():
            return "no such file"
        case IsADirectoryError():
            return "it is a directory"
    return (error.strerror or str(error)).lower()
