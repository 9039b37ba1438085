"""Options of every command that reads Prometheus itself, with the adapter's names."""

from collections.abc import Callable
from typing import TypeVar

import click

F = TypeVar("F", bound=Callable[..., object])

_OPTIONS = (
    click.option("--prometheus-url", default="", metavar="URL", help="Prometheus, as the adapter."),
    click.option("--prometheus-header", multiple=True, metavar="NAME=VALUE"),
    click.option("--prometheus-token-file", default="", metavar="FILE"),
    click.option("--prometheus-ca-file", default="", metavar="FILE"),
)


def prometheus_options(command: F) -> F:
    """Add the options."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
