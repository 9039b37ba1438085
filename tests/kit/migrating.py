"""One input through migrate."""

from podscale.migrate.outcome import MigrationOutcome
from podscale.migrate.reader import migrate_all


def migrate(text: str, file: str = "input", image: str = "podscale:latest") -> MigrationOutcome:
    """Return what everything in ``text`` becomes; raises ``documents.Unreadable``."""
    return migrate_all([(text, file)], image)
