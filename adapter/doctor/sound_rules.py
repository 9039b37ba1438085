"""Rules as the adapter takes them from a file, with a log line for those that answer nothing.

Rules that load are taken even so, as by prometheus-adapter; ``adapter.doctor.lints`` finds them.
"""

import structlog

from adapter.discovery.mapping import ResourceMapper
from adapter.doctor.lints import BROKEN, lint
from adapter.rules.ruleset import RuleSet, read_rules

log = structlog.get_logger(__name__)


def sound_rules(
    text: str, file: str, mapper: ResourceMapper, sources: frozenset[str] | None = None
) -> RuleSet:
    """Return the rules of a file; raises ``ConfigInvalid``.

    ``sources`` are those that there are; None: any will do.
    """
    parsed, rules = read_rules(text, file, mapper, sources)
    for found in lint(parsed, rules):
        if found.lint in BROKEN:
            log.warning("rules may answer nothing", rule=found.subject, problem=found.text)
    return rules
