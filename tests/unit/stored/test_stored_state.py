"""What an earlier release has stored is read as it was meant.

``written_at_3dc6ee2e.json`` holds objects as that commit wrote them: 40 minutes of the demo at
twenty times the speed, without managedFields.
"""

import gzip
import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from hpa.history.configmaps import HistoryConfigMaps
from hpa.history.history import from_record
from podscale.coordinate import anchor
from podscale.core.selectors import selector
from podscale.kube.client.wire import parse_time
from podscale.kube.objects.vpa import Vpa, decode
from tests.unit.hpa.world import World
from tests.unit.vpa.recommender.test_checkpoints import Shelf
from vpa.model.cluster import ClusterModel
from vpa.model.samples.checkpoints import ANNOTATION, to_wire
from vpa.model.samples.membership import VpaKey
from vpa.recommender.history.checkpoints import Checkpoints

Json = dict[str, Any]
WRITTEN: Json = json.loads((Path(__file__).parent / "written_at_3dc6ee2e.json").read_bytes())


def histories() -> dict[tuple[str, str], Json]:
    """Return the stored lines by namespace and name."""
    lines: Json = {}
    for config_map in WRITTEN["historyConfigMaps"]:
        lines |= json.loads(gzip.decompress(b64decode(config_map["binaryData"]["history.json.gz"])))
    return {(key.split("/")[0], key.split("/")[1]): line for key, line in lines.items()}


async def test_histories_of_autoscalers_are_read() -> None:
    world = World()
    for config_map in WRITTEN["historyConfigMaps"]:
        world.config_maps[config_map["metadata"]["name"]] = config_map
    records = await HistoryConfigMaps(world, "podscale", "hpa").load()
    assert records.keys() == histories().keys()
    assert len(records) == 3
    for key, line in histories().items():
        past = from_record(records[key], None)
        runs = [[each.replicas, each.at] for each in past.recommendations or ()]
        assert runs == line["runs"]
        assert [[each.change, each.at] for each in past.scale_ups] == line["ups"]
        assert [[each.change, each.at] for each in past.scale_downs] == line["downs"]
        assert (records[key].size, records[key].uid) == (line["size"], line["uid"])


@pytest.mark.parametrize(
    "stored", WRITTEN["checkpoints"], ids=lambda each: each["metadata"]["name"]
)
async def test_checkpoints_and_their_open_windows_are_read(stored: Json) -> None:
    shelf = Shelf()
    shelf.objects = {stored["metadata"]["name"]: stored}
    status = stored["status"]
    now = parse_time(status["lastUpdateTime"])
    cluster = ClusterModel()
    [owner] = (
        each
        for each in WRITTEN["vpas"]
        if each["metadata"]["namespace"] == stored["metadata"]["namespace"]
    )
    cluster.put_vpa(decode(owner, Vpa), selector.parse("app=any"), now)
    assert await Checkpoints(shelf, ("",)).load(cluster, now) == 1
    key = VpaKey(owner["metadata"]["namespace"], owner["metadata"]["name"])
    [(again, _)] = cluster.checkpoints([(key, stored["spec"]["containerName"])], now)
    written = to_wire(again)
    cpu = written["cpuHistogram"]
    assert cpu["bucketWeights"] == status["cpuHistogram"]["bucketWeights"]
    assert cpu["totalWeight"] == pytest.approx(status["cpuHistogram"]["totalWeight"])
    for field in ("firstSampleStart", "lastSampleStart", "totalSamplesCount"):
        assert written[field] == status[field]
    # The open windows' peaks count until their containers are seen again.
    windows = json.loads(stored["metadata"]["annotations"][ANNOTATION])["windows"]
    assert written["memoryHistogram"]["totalWeight"] > status["memoryHistogram"].get(
        "totalWeight", 0.0
    )
    assert len(windows) > 1


def test_the_anchor_of_a_workload_is_read() -> None:
    [text] = (
        each["metadata"]["annotations"][anchor.ANNOTATION]
        for each in WRITTEN["vpas"]
        if "annotations" in each["metadata"]
    )
    line = json.loads(text)
    parsed = anchor.parse(text, line["uid"], line["container"])
    assert parsed is not None
    assert (parsed.milli, parsed.size) == (line["milli"], line["size"])
