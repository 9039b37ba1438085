"""What ``podscale doctor`` was given: the options, whether they fit together, and files."""

import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from podscale.feed.options import PrometheusOptions


class Given:
    """The options as click hands them over."""

    what: str | None
    config: str
    config_map: str
    prometheus_url: str
    prometheus_header: tuple[str, ...]
    prometheus_token_file: str
    prometheus_ca_file: str
    timeout: float
    metric: str
    api: str
    resource: str
    name: str
    selector: str
    metric_selector: str
    service: str
    reader: str
    relist_interval: str
    scrape_interval: str
    series: str
    record: str
    mask: bool
    disable_lint: tuple[str, ...]
    no_cluster: bool

    def __init__(self, **given: object) -> None:
        self.__dict__.update(given)


class WrongUsage(Exception):
    """The call was wrong; the text says how."""


def check(given: Given) -> None:
    """Raise ``WrongUsage`` for options that nothing can be done with."""
    from adapter.doctor.lint_objects import OBJECT_LINTS
    from adapter.doctor.lints import RULE_LINTS
    from podscale.core.selectors import selector

    known = {**RULE_LINTS, **OBJECT_LINTS}
    if unknown := [each for each in given.disable_lint if each not in known]:
        raise WrongUsage(f"--disable-lint {unknown[0]}: the lints are {', '.join(known)}")
    if given.config and given.config_map:
        raise WrongUsage(
            "say where the rules are once: --config FILE or --config-map NAMESPACE/NAME"
        )
    if given.no_cluster and not given.config:
        raise WrongUsage("without a cluster the rules come from a file: give --config FILE")
    if "/" not in given.config_map and given.config_map:
        raise WrongUsage(f"--config-map {given.config_map}: say NAMESPACE/NAME")
    if given.what and (given.metric or not given.what.lower().startswith("hpa/")):
        raise WrongUsage(f"say hpa/NAME, or --metric with an object; got {given.what!r}")
    if given.what and not given.what.partition("/")[2]:
        raise WrongUsage(f"{given.what}: say which, hpa/NAME")
    if given.what and given.no_cluster:
        raise WrongUsage("an HPA is read from a cluster: leave --no-cluster out, or give --metric")
    has_file = given.config or given.config_map
    if (given.metric or given.what) and has_file and not given.prometheus_url:
        raise WrongUsage("--prometheus-url is needed to follow a metric (or --series FILE)")
    if given.record and not (given.metric or given.what):
        raise WrongUsage("--record keeps the examination of one metric: give --metric")
    if not (math.isfinite(given.timeout) and given.timeout > 0):
        raise WrongUsage(f"--timeout {given.timeout:g}: give more than 0 seconds")
    for header in given.prometheus_header:
        if "=" not in header:
            raise WrongUsage(f"--prometheus-header {header}: write NAME=VALUE")
    for flag, text in (("selector", given.selector), ("metric-selector", given.metric_selector)):
        try:
            selector.parse(text)
        except selector.SelectorError as error:
            raise WrongUsage(f"--{flag} {text}: {error}") from None


def prometheus(given: Given) -> "PrometheusOptions | None":
    """Return how Prometheus is reached, ``None`` if it is not; raises ``WrongUsage``."""
    from adapter.flags import headers, prometheus_url
    from podscale.feed.http import credentials
    from podscale.feed.http.proxies import proxy_of
    from podscale.feed.options import PrometheusOptions
    from podscale.serving.flags import FlagError

    if not given.prometheus_url:
        return None
    try:
        options = PrometheusOptions(
            url=prometheus_url(given.prometheus_url),
            headers=headers(given.prometheus_header),
            token_file=Path(given.prometheus_token_file) if given.prometheus_token_file else None,
            ca_file=Path(given.prometheus_ca_file) if given.prometheus_ca_file else None,
            deadline_s=given.timeout,
        )
        proxy_of(options, os.environ)
    except (FlagError, ValueError) as error:
        raise WrongUsage(str(error)) from None
    for flag, file, read_file in (
        ("--prometheus-token-file", given.prometheus_token_file, credentials.headers),
        ("--prometheus-ca-file", given.prometheus_ca_file, credentials.context),
    ):
        try:
            read_file(options)
        except (OSError, ValueError) as error:
            why = (isinstance(error, OSError) and error.strerror) or error
            raise WrongUsage(f"{flag} {file}: {why}") from None
    return options


def seconds(flag: str, text: str) -> float:
    """Return the seconds of a Go duration; raises ``WrongUsage``."""
    from podscale.core.times.duration import DurationError, parse_go

    try:
        return parse_go(text)
    except DurationError:
        raise WrongUsage(
            f"{flag} {text}: not a duration; write one like 30s, 1m or 1h30m"
        ) from None


def stdin() -> str:
    """Return all of stdin; bytes that are no UTF-8 stay for the reader of YAML to refuse."""
    return sys.stdin.buffer.read().decode(errors="surrogateescape")


def read(path: str) -> str:
    """Return the text of a file as ``stdin`` does; raises ``WrongUsage``."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise WrongUsage(f"{path}: cannot be read: {error.strerror}") from None
