"""What the client accepts, and bytes in that form.

Follows ``NegotiateMediaTypeOptions`` of k8s.io/apiserver: clauses by quality, then in
order; JSON and YAML are served, tables of version v1 where a group offers them, protobuf
never (a clause for it is passed over, which leaves ``*/*`` to be answered with JSON).
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from sys import getsizeof
from typing import Any

import msgspec
from msgspec import UNSET, Struct, structs

from podscale.core.ascii_text import ascii_lower, listed_words
from podscale.core.boundedcache import BoundedCache
from podscale.core.json_decoder import decode_json
from podscale.serving import status
from podscale.serving.apis.api import Media
from podscale.serving.status import Status

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
_WEIGHT = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")
_SERVED = (JSON, YAML)
_PRODUCED = (JSON, YAML, PROTOBUF)  # what upstream's routes say that they produce
_STREAMED = (f"{JSON};stream=watch", f"{PROTOBUF};stream=watch")
_BROWSERS = ("curl", "Wget", "Mozilla/5.0")
# So much of an Accept is read. kubectl's has 170 characters; a stranger's may have 60,000, and
# each clause takes a microsecond.
_READ = 1024
_TABLE = ("Table", "meta.k8s.io", "v1")
_ANSWER_BYTES = 500  # of a 406
_chosen: BoundedCache[tuple[str, bool, bool], Media | Status] = BoundedCache(1024 * 1024)


class _Clause(Struct, frozen=True):
    kind: str
    parameters: dict[str, str]
    quality: float


def media(
    accept: str, *, offers_table: bool, pretty: str, agent: str, is_streamed: bool = True
) -> Media | Status:
    """Return how to answer, or the 406: ``is_before_handling`` tells its two kinds apart.

    ``is_streamed``: upstream's route says that it can stream, as all but single objects do.
    ``pretty`` is the query parameter ("" when absent): it decides alone when it is
    there, otherwise people's programs are indented for.
    """
    is_pretty = ascii_lower(pretty) in ("1", "t", "true") if pretty else agent.startswith(_BROWSERS)
    key = accept, offers_table, is_streamed
    found = _chosen.get(key)
    if found is None:
        found = _choose(accept, offers_table, is_streamed)
        _chosen.put(key, found, getsizeof(accept) + _ANSWER_BYTES)
    if isinstance(found, Status):
        return found
    return structs.replace(found, is_pretty=True) if is_pretty else found


def is_before_handling(refusal: Status) -> bool:
    """Return whether upstream's router refuses before any handler runs.

    Content negotiation refuses a form of JSON (``as=Table``) only when the answer is there.
    """
    return refusal.details is not UNSET


def _choose(accept: str, offers_table: bool, is_streamed: bool) -> Media | Status:
    clauses = _clauses(accept)
    if not clauses:
        return Media()
    for clause in clauses:
        chosen = _match(clause, offers_table)
        if chosen is not None:
            return chosen
    if not any(clause.kind in ("*/*", "application/*", *_PRODUCED) for clause in clauses):
        return status.not_produced((*_PRODUCED, *_STREAMED) if is_streamed else _PRODUCED)
    # Upstream's sentence names protobuf too; whoever asks for exactly that should not
    # read that it would have been accepted.
    offered = _SERVED if PROTOBUF in accept else (*_SERVED, PROTOBUF)
    return status.not_acceptable(offered)


def _match(clause: _Clause, offers_table: bool) -> Media | None:
    if clause.kind in ("*/*", "application/*", JSON):
        content_type = JSON
    elif clause.kind == YAML:
        content_type = YAML
    else:
        return None
    if not clause.parameters.get("as"):
        return Media(content_type)
    form = tuple(map(clause.parameters.get, ("as", "g", "v")))
    return Media(content_type, True) if offers_table and form == _TABLE else None


def _clauses(accept: str) -> tuple[_Clause, ...]:
    if len(accept) > _READ:
        accept = accept[:_READ].rpartition(",")[0]
    found = []
    for text in accept.split(","):
        kind, *pairs = (part.strip() for part in text.split(";"))
        if not kind:
            continue
        parameters = {}
        for pair in pairs:
            key, _, value = pair.partition("=")
            parameters[ascii_lower(key.strip())] = value.strip().strip('"')
        weight = parameters.pop("q", "1")
        quality = float(weight) if _WEIGHT.fullmatch(weight) else 1.0
        if quality > 0:
            found.append(_Clause(ascii_lower(kind), parameters, quality))
    found.sort(key=lambda clause: -clause.quality)
    return tuple(found)


def takes_gzip(headers: Mapping[str, str]) -> bool:
    """Return whether the client accepts gzip by its name, and not with weight 0."""
    for clause in listed_words(headers.get("accept-encoding", "")[:_READ]):
        coding, *parameters = (part.strip(" \t") for part in clause.split(";"))
        if coding == "gzip":
            return not any(one.startswith("q=") and not one.strip("q=.0") for one in parameters)
    return False


def discovery_version(accept: str) -> str:
    """Return ``v2`` or ``v2beta1`` when the aggregated form is what is wanted most, else "".

    A clause for any other form of JSON that comes earlier wins.
    """
    for clause in _clauses(accept):
        if clause.kind not in ("*/*", "application/*", JSON):
            continue
        if not clause.parameters.get("as"):
            return ""
        version = clause.parameters.get("v", "")
        if (
            clause.parameters["as"] == "APIGroupDiscoveryList"
            and clause.parameters.get("g") == "apidiscovery.k8s.io"
            and version in ("v2", "v2beta1")
        ):
            return version
    return ""


def formatted(body: bytes, wanted: Media) -> bytes:
    """Return JSON ``body`` in the wanted form. Raises ``msgspec.DecodeError`` for other bytes."""
    if wanted.content_type == YAML:
        return _yaml(body)
    return msgspec.json.format(body, indent=2) if wanted.is_pretty else body


def _yaml(body: bytes) -> bytes:
    # Imported on first use: YAML is for people and costs every other process 10 ms.
    import yaml

    document: str = yaml.dump(
        decode_json(body), Dumper=_dumper(), allow_unicode=True, default_flow_style=False
    )
    return document.encode()


@lru_cache(maxsize=1)
def _dumper() -> Any:
    import yaml

    plain_text = "tag:yaml.org,2002:str"
    resolver: Any = yaml.resolver.Resolver()

    class Dumper(yaml.CSafeDumper):
        """Quotes as Go's yaml.v2: double, and only what would read as something else."""

        def ignore_aliases(self, _data: Any) -> bool:
            return True

    def text(dumper: Dumper, data: str) -> yaml.ScalarNode:
        is_plain = resolver.resolve(yaml.ScalarNode, data, (True, False)) == plain_text
        return dumper.represent_scalar(plain_text, data, style=None if is_plain else '"')

    Dumper.add_representer(str, text)
    return Dumper
