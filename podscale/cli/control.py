"""``podscale control``: what acts on a cluster, each part under a Lease of its own."""

from podscale.cli.joined import joined

command = joined(
    "control",
    "Run the HPA, the recommender and the updater.",
    ("hpa", "recommender", "updater"),
    leads=True,
    has_page=True,
)
