"""What a migration comes to: manifests, and everything a person has to know beside them."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from podscale.migrate.compare import Comparable


class Remark(Struct, frozen=True):
    """One thing about one object of the input."""

    about: str  # "ScaledObject shop/web: triggers[1]"
    text: str


class MigrationOutcome(Struct, frozen=True, kw_only=True):
    """Nothing is applied by us: a person reads this and acts."""

    read: Sequence[str] = ()  # what was understood of the input, by kind and name
    kept: Sequence[str] = ()  # not read: what stands beside a program, and serves ours as well
    manifests: Sequence[Mapping[str, object]] = ()
    rules: Mapping[str, Sequence[Mapping[str, object]]] = {}  # section -> rules to add
    flags: Sequence[str] = ()  # arguments to give to podscale
    refused: Sequence[Remark] = ()  # has to be changed first, or the program does not start
    left_out: Sequence[Remark] = ()  # would be refused, and is not among what is to be applied
    broken: Sequence[Remark] = ()  # what answers nothing, with the program before as well
    lost: Sequence[Remark] = ()  # cannot be carried over, and why
    differs: Sequence[Remark] = ()
    steps: Sequence[str] = ()
    back: Sequence[str] = ()
    compared: Sequence[Comparable] = ()  # what history can be asked about


def together(outcomes: Iterable[MigrationOutcome]) -> MigrationOutcome:
    """Return one outcome of several; repeated flags, steps and remarks are said once."""
    every = list(outcomes)
    rules: dict[str, list[Mapping[str, object]]] = {}
    for each in every:
        for section, found in each.rules.items():
            rules.setdefault(section, []).extend(found)
    return MigrationOutcome(
        read=[text for each in every for text in each.read],
        kept=[text for each in every for text in each.kept],
        manifests=[manifest for each in every for manifest in each.manifests],
        rules=rules,
        flags=list(dict.fromkeys(flag for each in every for flag in each.flags)),
        refused=list(dict.fromkeys(remark for each in every for remark in each.refused)),
        left_out=list(dict.fromkeys(remark for each in every for remark in each.left_out)),
        broken=list(dict.fromkeys(remark for each in every for remark in each.broken)),
        lost=list(dict.fromkeys(remark for each in every for remark in each.lost)),
        differs=list(dict.fromkeys(remark for each in every for remark in each.differs)),
        steps=list(dict.fromkeys(step for each in every for step in each.steps)),
        back=list(dict.fromkeys(step for each in every for step in each.back)),
        compared=[found for each in every for found in each.compared],
    )
