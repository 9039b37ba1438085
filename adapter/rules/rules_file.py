"""The rules file on disk (``--config``)."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import structlog

from adapter.discovery.mapping import ResourceMapper
from adapter.doctor.lints import BROKEN, lint
from adapter.rules.followed_file import FollowedFile
from adapter.rules.ruleset import RuleSet, read_rules

log = structlog.get_logger(__name__)


def load(
    path: Path, mapper: ResourceMapper, sources: Callable[[], frozenset[str]] | None = None
) -> tuple[str, RuleSet]:
    """Return a file's text and its rules; raises ``ConfigInvalid`` or ``OSError``.

    Rules that load and answer nothing are logged, and that there are none: with both
    prometheus-adapter starts as well.

    ``sources`` returns the names of the sources that there are; None: any will do.
    """
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    known = None if sources is None else sources()
    parsed, rules = read_rules(text, str(path), mapper, known)
    for found in lint(parsed, rules):
        if found.lint in BROKEN:
            log.warning("rules may answer nothing", rule=found.subject, problem=found.text)
    return text, rules


def rules_file(
    path: Path,
    mapper: ResourceMapper,
    renewed: Callable[[RuleSet], Awaitable[None]],
    refused: Callable[[str], None],
    sources: Callable[[], frozenset[str]] | None = None,
) -> FollowedFile[RuleSet]:
    """Return what follows the file; see ``FollowedFile`` and ``load``."""
    return FollowedFile(
        path, partial(load, mapper=mapper, sources=sources), renewed, refused,
        what="rules",
        when_empty="`rules: []` where MetricRules or external backends serve all metrics",
    )  # fmt: skip
