"""Which form an answer takes for which Accept header."""

import pytest

from podscale.serving.apis.api import Media
from podscale.serving.apis.negotiate import discovery_version, formatted, media, takes_gzip
from podscale.serving.status import Status

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
LISTED = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
JSON, YAML = "application/json", "application/yaml"


@pytest.mark.parametrize(
    ("accept", "offers_table", "expected"),
    [
        ("", False, Media(JSON)),
        ("*/*", False, Media(JSON)),
        ("application/*", False, Media(JSON)),
        ("application/vnd.kubernetes.protobuf, */*", False, Media(JSON)),
        ("application/vnd.kubernetes.protobuf,application/json", False, Media(JSON)),
        ("application/yaml;q=0.9, application/json;q=0.8", False, Media(YAML)),
        ("application/yaml;q=0.1, application/json", False, Media(JSON)),
        (f"{TABLE},application/json", True, Media(JSON, True)),
        (f"{TABLE},application/json", False, Media(JSON)),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/yaml", True, Media(YAML)),
        (TABLE, False, None),
        ("text/html", True, None),
        ("application/json;q=0", True, Media(JSON)),
        ("application/vnd.kubernetes.protobuf", False, None),
        (TABLE.replace("v1", "v1beta1"), True, None),
        (LISTED, True, None),
        (f"{LISTED},application/json", True, Media(JSON)),
        (";;;,,=;q=x", False, None),
    ],
)
def test_negotiation(accept: str, offers_table: bool, expected: Media | None) -> None:
    found = media(accept, offers_table=offers_table, pretty="", agent="Go-http-client/1.1")
    if expected is None:
        assert isinstance(found, Status)
        assert found.code == 406
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("pretty", "agent", "expected"),
    [
        ("", "kubectl/v1", False),
        ("", "curl/8", True),
        ("true", "kubectl", True),
        ("0", "curl/8", False),
    ],
)
def test_people_get_indented_answers(pretty: str, agent: str, expected: bool) -> None:
    found = media("", offers_table=False, pretty=pretty, agent=agent)
    assert isinstance(found, Media)
    assert found.is_pretty is expected


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (DISCOVERY.format("v2"), "v2"),
        (f"{DISCOVERY.format('v2')},{DISCOVERY.format('v2beta1')},application/json", "v2"),
        (f"{DISCOVERY.format('v2beta1')},application/json", "v2beta1"),
        (f"{DISCOVERY.format('v3')},application/json", ""),
        ("application/json", ""),
        ("", ""),
        (f"application/json,{DISCOVERY.format('v2')}", ""),
    ],
)
def test_aggregated_discovery_is_chosen_by_its_clause(accept: str, expected: str) -> None:
    assert discovery_version(accept) == expected


def test_yaml_reads_as_gos() -> None:
    body = b'{"b":[{"cpu":"0","t":"2023-11-14T22:13:18Z","m":"1Ki","yes":"true","e":""}],"a":null}'
    assert formatted(body, Media(YAML)) == (
        b'a: null\nb:\n- cpu: "0"\n  e: ""\n  m: 1Ki\n'
        b'  t: "2023-11-14T22:13:18Z"\n  "yes": "true"\n'
    )


@pytest.mark.parametrize(
    ("sent", "takes"),
    [
        ("gzip", True),
        ("br , GZip;q=0.5", True),
        ("deflate;q=1,gzip", True),
        ("", False),
        ("xgzip", False),
        ("gzip-not", False),
        ("identity;x=gzip", False),
        ("gzip;q=0.000", False),
    ],
)
def test_gzip_is_a_word_of_its_own(sent: str, takes: bool) -> None:
    assert takes_gzip({"accept-encoding": sent}) is takes
