"""``podscale serve``: adapter and admission webhook."""

from podscale.cli.joined import joined

command = joined(
    "serve", "Run what other programs wait for: metrics and admission.", ("adapter", "admission")
)
