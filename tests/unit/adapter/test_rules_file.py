"""The rules file on disk: swapped links are seen, what reads badly changes nothing."""

import pytest

from adapter.errors import ConfigInvalid
from adapter.rules_file import RulesFile
from tests.unit.adapter.world import MAPPER

GOOD = "rules: [{seriesQuery: %s, metricsQuery: x}]"


class Followed:
    """A rules file, and what its follower said."""

    def __init__(self, path):
        self.taken, self.refused = [], []
        self.file = RulesFile(path, MAPPER, self._take, self.refused.append)

    async def _take(self, rules):
        self.taken.append(rules.custom[0].series_query)


def mounted(directory, version, text):
    """Write a file as the kubelet mounts a ConfigMap: through two symbolic links."""
    target = directory / f"..{version}"
    target.mkdir()
    (target / "config.yaml").write_text(text)
    swap = directory / "..data_tmp"
    swap.symlink_to(target.name)
    swap.replace(directory / "..data")
    link = directory / "config.yaml"
    if not link.is_symlink():
        link.symlink_to("..data/config.yaml")
    return link


async def test_a_swapped_config_map_is_taken_once(tmp_path):
    followed = Followed(mounted(tmp_path, 1, GOOD % "a"))
    assert (await followed.file.first()).custom[0].series_query == "a"
    await followed.file.look()
    assert followed.taken == []
    mounted(tmp_path, 2, GOOD % "b")
    await followed.file.look()
    await followed.file.look()
    assert followed.taken == ["b"]


@pytest.mark.parametrize(
    "text", ["rules: [{metricQuery: x}]", "a: b: c", "rules: [{name: {matches: (}}]"]
)
async def test_what_reads_badly_is_told_once_and_changes_nothing(tmp_path, text):
    followed = Followed(mounted(tmp_path, 1, GOOD % "a"))
    await followed.file.first()
    mounted(tmp_path, 2, text)
    await followed.file.look()
    await followed.file.look()
    assert followed.taken == []
    assert len(followed.refused) == 1
    assert "config.yaml:1" in followed.file.problem
    mounted(tmp_path, 3, GOOD % "c")
    await followed.file.look()
    assert followed.taken == ["c"]
    assert followed.file.problem == ""


async def test_a_file_that_is_gone_changes_nothing_and_its_return_is_seen(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text(GOOD % "a")
    followed = Followed(path)
    await followed.file.first()
    path.unlink()
    await followed.file.look()
    assert followed.taken == []
    assert followed.refused
    path.write_text(GOOD % "b")
    await followed.file.look()
    assert followed.taken == ["b"]


async def test_at_start_a_bad_file_is_refused(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text("Rules: []")
    with pytest.raises(ConfigInvalid):
        await Followed(path).file.first()
    with pytest.raises(OSError, match="absent"):
        await Followed(tmp_path / "absent").file.first()
