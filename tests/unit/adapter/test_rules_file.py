"""The rules file on disk: swapped links are seen, what reads badly changes nothing."""

from functools import partial

import pytest
import structlog

from adapter.doctor.lints import lint, sound_rules
from adapter.errors import ConfigInvalid
from adapter.rules.followed_file import FollowedFile
from adapter.rules.ruleset import read_rules
from tests.unit.adapter.world import MAPPER

GOOD = "rules: [{seriesQuery: %s, metricsQuery: x}]"


def rules_file(path, mapper, renewed, refused):
    """Follow a file as the adapter does."""
    parse = partial(sound_rules, mapper=mapper)
    return FollowedFile(path, parse, renewed, refused, what="rules", when_empty="`rules: []` where")


class Followed:
    """A rules file, and what its follower said."""

    def __init__(self, path):
        self.taken, self.refused = [], []
        self.file = rules_file(path, MAPPER, self._take, self.refused.append)

    async def look(self):
        """Look twice: what has changed since the last look may still be being written."""
        await self.file.look()
        await self.file.look()

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
    await followed.look()
    assert followed.taken == []
    mounted(tmp_path, 2, GOOD % "b")
    await followed.look()
    await followed.look()
    assert followed.taken == ["b"]


@pytest.mark.parametrize(
    "text", ["rules: [{metricQuery: x}]", "a: b: c", "rules: [{name: {matches: (}}]"]
)
async def test_what_reads_badly_is_told_once_and_changes_nothing(tmp_path, text):
    followed = Followed(mounted(tmp_path, 1, GOOD % "a"))
    await followed.file.first()
    mounted(tmp_path, 2, text)
    await followed.look()
    await followed.look()
    assert followed.taken == []
    assert len(followed.refused) == 1
    assert "config.yaml:1" in followed.file.problem
    mounted(tmp_path, 3, GOOD % "c")
    await followed.look()
    assert followed.taken == ["c"]
    assert followed.file.problem == ""


@pytest.mark.parametrize("text", ["", "\n", "# rules: later\n", "---\n# x\n...\n"])
async def test_an_emptied_file_is_refused_and_the_old_rules_stay(tmp_path, text):
    path = tmp_path / "rules.yaml"
    path.write_text(GOOD % "a")
    followed = Followed(path)
    await followed.file.first()
    path.write_text(text)
    await followed.look()
    await followed.look()
    assert followed.taken == []
    (refused,) = followed.refused
    assert refused.startswith(f"{path}: the file is empty; write `rules: []`")
    assert followed.file.text == GOOD % "a"
    path.write_text(GOOD % "b")
    await followed.look()
    assert followed.taken == ["b"]


async def test_a_file_that_says_it_has_no_rules_is_taken(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text(GOOD % "a")
    taken, refused = [], []

    async def take(rules):
        taken.append(rules)

    file = rules_file(path, MAPPER, take, refused.append)
    await file.first()
    path.write_text("rules: []\n")
    await file.look()
    await file.look()
    assert [rules.custom for rules in taken] == [()]
    assert refused == []


SOUND = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
RULE = "rules:\n- seriesQuery: a\n  resources: {template: <<.Resource>>}\n  metricsQuery: %s\n"


def warned(logs):
    return [each["problem"] for each in logs if each["log_level"] == "warning"]


@pytest.mark.parametrize("query", [
    "sum(<<.Series>>{<<.LabelMatchers>>}",
    "sum(<<.Series>>{<<.LabelMatcherz>>}) by (<<.GroupBy>>)",
    "",
])  # fmt: skip
async def test_a_rule_that_answers_nothing_is_told_at_start_and_at_reload(tmp_path, query):
    path = tmp_path / "rules.yaml"
    path.write_text(RULE % query)
    told = [each.text for each in lint(*read_rules(RULE % query, str(path), MAPPER))]
    followed = Followed(path)
    with structlog.testing.capture_logs() as logs:
        await followed.file.first()
    assert warned(logs) == told != []
    assert told[0].startswith(f"{path}:4:")
    path.write_text(RULE % SOUND)
    with structlog.testing.capture_logs() as logs:
        await followed.look()
    assert warned(logs) == []
    path.write_text(RULE % query + "# again\n")
    with structlog.testing.capture_logs() as logs:
        await followed.look()
    assert warned(logs) == told
    assert (followed.taken, followed.refused) == (["a", "a"], [])


@pytest.mark.parametrize("text", ["", "# later\n", "{}", "rules: []\n", "resourceRules:\n"])
async def test_that_there_are_no_rules_is_told_at_start(tmp_path, text):
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    with structlog.testing.capture_logs() as logs:
        assert (await Followed(path).file.first()).custom == ()
    (told,) = warned(logs)
    assert told.startswith(f"{path}:")
    assert "NoRules: there are no rules" in told


async def test_a_file_that_is_being_written_is_left_alone(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text(GOOD % "a")
    followed = Followed(path)
    await followed.file.first()
    for text in ("", "rules:", "rules: [{", "rules: [{seriesQuery: b, metrics"):
        path.write_text(text)
        await followed.file.look()
    path.write_text(GOOD % "b")
    await followed.file.look()
    assert (followed.taken, followed.refused) == ([], [])
    await followed.file.look()
    assert followed.taken == ["b"]


async def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text(GOOD % "a")

    class Writing:
        """A mapper that is asked while the file is compiled, and writes it."""

        text = ""

        def resource_for(self, *args):
            if self.text:
                path.write_text(self.text)
                self.text = ""
            return MAPPER.resource_for(*args)

    mapper, taken = Writing(), []

    async def take(rules):
        taken.append([rule.series_query for rule in rules.custom])

    file = rules_file(path, mapper, take, pytest.fail)
    await file.first()
    half = "rules: [{seriesQuery: b, metricsQuery: x, resources: {overrides: {p: {resource: pod}}}}"
    path.write_text(f"{half}]")
    mapper.text = f"{half}, {{seriesQuery: c, metricsQuery: x}}]"
    await file.look()
    await file.look()
    assert taken == []
    await file.look()
    await file.look()
    assert taken == [["b", "c"]]


async def test_a_bug_in_reading_the_file_keeps_the_old_rules_and_says_so(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text(GOOD % "a")

    class Broken:
        def resource_for(self, *args):
            raise ZeroDivisionError

    taken, refused = [], []

    async def take(rules):
        taken.append(rules)

    file = rules_file(path, Broken(), take, refused.append)
    await file.first()
    override = "x, resources: {overrides: {p: {resource: pod}}}}]"
    path.write_text(f"rules: [{{seriesQuery: b, metricsQuery: {override}")
    await file.look()
    await file.look()
    assert taken == []
    assert [str(path) in text and "ZeroDivisionError" in text for text in refused] == [True]
    assert file.problem == refused[0]


async def test_a_file_that_is_gone_changes_nothing_and_its_return_is_seen(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text(GOOD % "a")
    followed = Followed(path)
    await followed.file.first()
    path.unlink()
    await followed.look()
    assert followed.taken == []
    assert followed.refused
    path.write_text(GOOD % "b")
    await followed.look()
    assert followed.taken == ["b"]


async def test_at_start_a_bad_file_is_refused(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text("Rules: []")
    with pytest.raises(ConfigInvalid):
        await Followed(path).file.first()
    with pytest.raises(OSError, match="absent"):
        await Followed(tmp_path / "absent").file.first()
