"""What ``podscale doctor`` was given: the options, and whether they fit together."""

import math

from podscale.cli.inputs import WrongInput
from podscale.cli.prometheus import PrometheusChoice


class DoctorOptions:
    """The options as click hands them over."""

    what: str | None
    config: str
    config_map: str
    prometheus: PrometheusChoice
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


def check(given: DoctorOptions) -> None:
    """Raise ``WrongInput`` for options that nothing can be done with."""
    from adapter.doctor.lints import RULE_LINTS
    from podscale.cli.doctor.object_lints import OBJECT_LINTS
    from podscale.core.selectors import selector

    known = {**RULE_LINTS, **OBJECT_LINTS}
    if unknown := [each for each in given.disable_lint if each not in known]:
        raise WrongInput(f"--disable-lint {unknown[0]}: the lints are {', '.join(known)}")
    if given.config and given.config_map:
        raise WrongInput(
            "say where the rules are once: --config FILE or --config-map NAMESPACE/NAME"
        )
    if given.no_cluster and not given.config:
        raise WrongInput("without a cluster the rules come from a file: give --config FILE")
    if "/" not in given.config_map and given.config_map:
        raise WrongInput(f"--config-map {given.config_map}: say NAMESPACE/NAME")
    if given.what and (given.metric or not given.what.lower().startswith("hpa/")):
        raise WrongInput(f"say hpa/NAME, or --metric with an object; got {given.what!r}")
    if given.what and not given.what.partition("/")[2]:
        raise WrongInput(f"{given.what}: say which, hpa/NAME")
    if given.what and given.no_cluster:
        raise WrongInput("an HPA is read from a cluster: leave --no-cluster out, or give --metric")
    has_file = given.config or given.config_map
    if (given.metric or given.what) and has_file and not given.prometheus.url:
        raise WrongInput("--prometheus-url is needed to follow a metric (or --series FILE)")
    if given.record and not (given.metric or given.what):
        raise WrongInput("--record keeps the examination of one metric: give --metric")
    if not (math.isfinite(given.timeout) and given.timeout > 0):
        raise WrongInput(f"--timeout {given.timeout:g}: give more than 0 seconds")
    for header in given.prometheus.headers:
        if "=" not in header:
            raise WrongInput(f"--prometheus-header {header}: write NAME=VALUE")
    for flag, text in (("selector", given.selector), ("metric-selector", given.metric_selector)):
        try:
            selector.parse(text)
        except selector.SelectorError as error:
            raise WrongInput(f"--{flag} {text}: {error}") from None
