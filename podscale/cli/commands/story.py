"""``podscale explain hpa/web --story``: what an autoscaler's machine was told, and made of it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpa.machine.story import Chapter


def story_lines(dumped: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return a served story in lines, and where it would be another one when it is played again
    by the machine of this release. Raises ``msgspec.ValidationError``."""
    # Imported here: --help must not load it.
    import msgspec

    from hpa.machine.story import DumpedStory, replay

    story = msgspec.convert(dumped, DumpedStory)
    return list(_lines(story.chapters, story.now)), replay(story.chapters)


def _lines(chapters: "Sequence[Chapter]", now: float) -> Iterator[str]:
    for number, chapter in enumerate(chapters):
        yield f"chapter {number}, {chapter.start.phase.value}"
        for step in chapter.steps:
            made = ", ".join(map(_words, step.instructions)) or "nothing"
            yield f"  {max(now - step.at, 0.0):8.2f} s ago  {_words(step.event)} -> {made}"


def _words(value: object) -> str:
    # Imported here: --help must not load it.
    import msgspec

    if isinstance(value, str):
        return value
    fields = msgspec.to_builtins(value)
    del fields["type"]  # the name says it
    name = type(value).__name__.removesuffix("Event")
    return f"{name} {msgspec.json.encode(fields).decode()}"
