"""The sources file (``--sources``): named Prometheus servers, and the namespaces that they serve.

    sources:
    - name: infra
      url: https://prometheus.infra:9090/prefix
      caFile: /etc/infra/ca.crt
      tokenFile: /etc/infra/token
      headers: {X-Scope-OrgID: infra}
      namespaces: [infra-*]  # whose own rules (MetricRules) may ask it; none unless they are named
      namespaceLabel: namespace
    default:               # the same two of --prometheus-url
      namespaces: ["*"]
    namespaces:            # of rules without a source; the first match decides
    - match: infra-*
      source: infra

Secrets are named by file or environment variable, never written here.
"""

import os
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from msgspec import Struct

from adapter.errors import ConfigInvalid
from adapter.rules.strict_yaml import Fields, YamlReader
from podscale.core.showable import is_http_url
from podscale.feed.http.session import proxy_of
from podscale.feed.options import VERBS, PrometheusOptions, Verb
from podscale.feed.prover.confinement import Confinement

_SOURCE = (
    "name", "url", "caFile", "clientCertFile", "clientKeyFile", "serverName",
    "insecureSkipVerify", "tokenFile", "tokenEnv", "username", "passwordFile", "passwordEnv",
    "headers", "queryParameters", "verb", "timeout", "seriesTimeout", "maxBodyBytes",
    "connections", "namespaces", "namespaceLabel",
)  # fmt: skip
# Where files lie whose content may be sent to a source: not where the token of our own
# ServiceAccount does, which whoever writes this file would have sent to an address of theirs.
SECRET_FOLDERS = ("/etc", "/mnt", "/vault/secrets", "/var/run/secrets/tokens")
_MOST_CONNECTIONS = 1024
_NAMESPACES = "a name of namespaces is expected, * and ? count"
_ZERO = PrometheusOptions()
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
DEFAULT_SOURCE = "default"  # what rules may call the one of --prometheus-url


class SourceAccess(Struct, frozen=True):
    """Which namespaces' own rules may ask a source, and what keeps them apart there."""

    namespaces: tuple[str, ...] = ()  # patterns as of a shell
    namespace_label: str = "namespace"

    def confinement(self, namespace: str) -> Confinement | None:
        """Return what a rule of ``namespace`` is kept within; ``None``: it may not ask."""
        if any(fnmatchcase(namespace, pattern) for pattern in self.namespaces):
            return Confinement(self.namespace_label, namespace)
        return None


class NamespaceMatch(Struct, frozen=True):
    """Which source answers for namespaces whose name matches."""

    pattern: str  # as of a shell: * and ?
    source: str  # "": the default


class NamedSources(Struct, frozen=True):
    """The file."""

    sources: Mapping[str, PrometheusOptions] = {}
    namespaces: tuple[NamespaceMatch, ...] = ()
    access: Mapping[str, SourceAccess] = {}  # by name; of the default, too

    @property
    def default_access(self) -> SourceAccess:
        """Whose rules may ask the one of ``--prometheus-url``."""
        return self.access.get(DEFAULT_SOURCE, SourceAccess())

    def of_namespace(self, namespace: str) -> str:
        """Return the source of rules that choose none; "": the default."""
        for each in self.namespaces:
            if fnmatchcase(namespace, each.pattern):
                return each.source
        return ""

    def for_own_rule(self, source: str, namespace: str) -> tuple[str, Confinement | None]:
        """Return the source of a namespace's own rule, and what it is kept within there;
        ``None``: the rule may not ask it.
        """
        name = source or self.of_namespace(namespace) or DEFAULT_SOURCE
        return name, self.access.get(name, SourceAccess()).confinement(namespace)

    def listed_with(self, source: str) -> tuple[str, ...]:
        """Return the sources whose series a rule of ``source`` exposes."""
        if source:
            return (source,)
        return tuple(dict.fromkeys(["", *(each.source for each in self.namespaces)]))


def read_sources(text: str, file: str, environment: Mapping[str, str] = os.environ) -> NamedSources:
    """Return what ``text`` names; raises ``ConfigInvalid`` with every problem."""
    reader = YamlReader()
    root = reader.document(text)
    fields = reader.fields([] if root is None else [root], "", ("sources", "namespaces", "default"))
    found: dict[str, PrometheusOptions] = {}
    default = reader.fields(
        fields.since_null("default"), "default", ("namespaces", "namespaceLabel")
    )
    access = {DEFAULT_SOURCE: _access(reader, default)}
    for node, path in reader.items(fields, "sources"):
        entry = reader.fields([node], path, _SOURCE)
        name = reader.text(entry, "name")
        options = _SourceReader(reader, entry, environment).options()
        if not name:
            reader.refuse(entry, "name", "a source needs a name")
        elif name == DEFAULT_SOURCE:
            reader.refuse(entry, "name", f"{name!r} is what the one of --prometheus-url is called")
        elif name in found:
            reader.refuse(entry, "name", f"{name!r} is the name of a source before it")
        else:
            found[name] = options
            access[name] = _access(reader, entry)
    matches = []
    for node, path in reader.items(fields, "namespaces"):
        entry = reader.fields([node], path, ("match", "source"))
        each = NamespaceMatch(reader.text(entry, "match"), reader.text(entry, "source"))
        if not each.pattern:
            reader.refuse(entry, "match", _NAMESPACES)
        if each.source and each.source not in found:
            reader.refuse(entry, "source", unknown_source(each.source, found))
        matches.append(each)
    if reader.problems:
        raise ConfigInvalid(reader.problems, file)
    return NamedSources(found, tuple(matches), access)


def unknown_source(name: str, known: Mapping[str, object]) -> str:
    """Return that there is no such source, and those that there are."""
    there = ", ".join(sorted(known)) or "none"
    return f"the sources file has no source {name!r}; there are: {there}"


def _access(reader: YamlReader, entry: Fields) -> SourceAccess:
    label = reader.text(entry, "namespaceLabel") or SourceAccess().namespace_label
    if not _LABEL.fullmatch(label):
        reader.refuse(entry, "namespaceLabel", f"{label!r} is not the name of a label")
    return SourceAccess(reader.patterns(entry, "namespaces", _NAMESPACES), label)


class _SourceReader:
    def __init__(self, reader: YamlReader, fields: Fields, environment: Mapping[str, str]) -> None:
        self._reader = reader
        self._fields = fields
        self._environment = environment

    def options(self) -> PrometheusOptions:
        cert, key = self._path("clientCertFile"), self._path("clientKeyFile")
        if (cert is None) != (key is None):
            self._refuse(
                "clientKeyFile" if key is None else "clientCertFile",
                "clientCertFile and clientKeyFile belong together",
            )
        for one, other in (("tokenFile", "tokenEnv"), ("passwordFile", "passwordEnv")):
            if self._text(one) and self._text(other):
                self._refuse(other, f"{one} and {other} exclude each other")
        options = PrometheusOptions(
            url=self._url(),
            verb=self._verb(),
            headers=self._pairs("headers"),
            parameters=self._pairs("queryParameters"),
            token_file=self._secret("tokenFile"),
            token=self._from_environment("tokenEnv"),
            username=self._text("username") or None,
            password=self._from_environment("passwordEnv"),
            password_file=self._secret("passwordFile"),
            ca_file=self._path("caFile"),
            client_cert_file=cert,
            client_key_file=key,
            server_name=self._text("serverName") or None,
            is_insecure=self._reader.flag(self._fields, "insecureSkipVerify", default=False),
            deadline_s=self._reader.seconds(self._fields, "timeout", _ZERO.deadline_s),
            series_deadline_s=self._reader.seconds(
                self._fields, "seriesTimeout", _ZERO.series_deadline_s
            ),
            body_limit_bytes=self._number("maxBodyBytes", _ZERO.body_limit_bytes, 2**31),
            connections=self._number("connections", _ZERO.connections, _MOST_CONNECTIONS),
        )
        try:
            proxy_of(options, self._environment)
        except ValueError as error:
            self._refuse("url", str(error))
        return options

    def _text(self, key: str) -> str:
        return self._reader.text(self._fields, key)

    def _path(self, key: str) -> Path | None:
        text = self._text(key)
        return Path(text) if text else None

    def _secret(self, key: str) -> Path | None:
        path = self._path(key)
        if path is not None and (
            ".." in path.parts or not any(map(path.is_relative_to, SECRET_FOLDERS))
        ):
            self._refuse(key, f"a file below one of {', '.join(SECRET_FOLDERS)} is expected")
        return path

    def _url(self) -> str:
        text = self._text("url")
        if not is_http_url(text):
            self._refuse("url", "an http or https URL is expected, like http://prometheus:9090")
            return _ZERO.url
        if "@" in urlsplit(text).netloc:
            what = "the URL holds a password: name it by username and passwordFile"
            self._refuse("url", what)
        return text

    def _verb(self) -> Verb | None:
        text = self._text("verb")
        if text and text not in VERBS:
            self._refuse("verb", f"GET or POST is expected, not {text!r}")
        return VERBS.get(text)

    def _pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        found = []
        for name, node, _ in self._reader.entries(self._fields, key):
            if isinstance(node, yaml.ScalarNode) and name and f"{name}{node.value}".isprintable():
                found.append((name, str(node.value)))
            else:
                self._refuse(key, f"{name}: one line of text is expected")
        return tuple(found)

    def _from_environment(self, key: str) -> str | None:
        name = self._text(key)
        if not name:
            return None
        value = self._environment.get(name)
        if not value:
            self._refuse(key, f"the environment has no variable {name!r}, or it is empty")
        return value

    def _number(self, key: str, default: int, most: int) -> int:
        text = self._text(key)
        if not text:
            return default
        if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= most:
            self._refuse(key, f"a number from 1 to {most} is expected, not {text!r}")
            return default
        return int(text)

    def _refuse(self, key: str, message: str) -> None:
        self._reader.refuse(self._fields, key, message)
