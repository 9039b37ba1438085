"""``podscale run``: every part, for small clusters and tests."""

from podscale.cli.joined import joined

command = joined(
    "run",
    "Run everything in one process (small clusters).",
    ("adapter", "hpa", "recommender", "updater", "admission"),
    has_page=True,
)
