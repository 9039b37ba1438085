"""Options of every command that reads Prometheus itself, with the adapter's names."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from podscale.cli.inputs import CommandFailed, WrongInput, collecting
from podscale.cli.output import said
from podscale.core.showable import shown_url

if TYPE_CHECKING:
    from podscale.feed.errors import QueryError
    from podscale.feed.options import PrometheusOptions

F = TypeVar("F", bound=Callable[..., object])

_OPTIONS = (
    click.option("--prometheus-url", default="", metavar="URL", help="The URL of Prometheus."),
    click.option("--prometheus-header", multiple=True, metavar="NAME=VALUE", help="Repeatable."),
    click.option("--prometheus-token-file", default="", metavar="FILE"),
    click.option("--prometheus-ca-file", default="", metavar="FILE"),
)


class PrometheusUnanswered(CommandFailed):
    """Prometheus did not give what was asked; the text says which one, and what to do."""

    def __init__(self, url: str, error: "QueryError") -> None:
        text = f"{shown_url(url)}: {said(error)}"
        if error.kind in ("deadline", "timeout", "gateway", "throttled", "no-place"):
            text += ". Try again, or choose another one with --prometheus-url"
        super().__init__(text)


class PrometheusChoice(NamedTuple):
    """Which Prometheus a command was pointed at, as it was written."""

    url: str = ""
    headers: tuple[str, ...] = ()
    token_file: str = ""
    ca_file: str = ""

    def options(self, deadline_s: float) -> "PrometheusOptions | None":
        """Return how it is reached, ``None`` if it is not; raises ``WrongInput``."""
        # Imported here: --help must not load them.
        from adapter.flags import headers, prometheus_url
        from podscale.feed.http import credentials
        from podscale.feed.http.session import proxy_of
        from podscale.feed.options import PrometheusOptions
        from podscale.serving.flags import FlagError

        if not self.url:
            return None
        try:
            options = PrometheusOptions(
                url=prometheus_url(self.url),
                headers=headers(self.headers),
                token_file=Path(self.token_file) if self.token_file else None,
                ca_file=Path(self.ca_file) if self.ca_file else None,
                deadline_s=deadline_s,
            )
            proxy_of(options, os.environ)
        except (FlagError, ValueError) as error:
            raise WrongInput(str(error)) from None
        for flag, file, read_file in (
            ("--prometheus-token-file", self.token_file, credentials.headers),
            ("--prometheus-ca-file", self.ca_file, credentials.context),
        ):
            try:
                read_file(options)
            except (OSError, ValueError) as error:
                why = (isinstance(error, OSError) and error.strerror) or error
                raise WrongInput(f"{flag} {file}: {why}") from None
        return options


def prometheus_options(command: F) -> F:
    """Add the options; the command receives one ``prometheus: PrometheusChoice``."""
    names = ("prometheus_url", "prometheus_header", "prometheus_token_file", "prometheus_ca_file")

    def choice(given: Mapping[str, Any]) -> PrometheusChoice:
        return PrometheusChoice(*(given[name] for name in names))

    wrapped = collecting(command, "prometheus", names, choice)
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]  # click's decorators keep the callable
