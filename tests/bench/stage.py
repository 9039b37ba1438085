"""Everything an adapter bench runs against: sandbox, exporter, real Prometheus, adapter."""

import json
import ssl
import sys
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from tests.integration.exporter import Exporter, Sample, Target
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import LOOPBACK, Program, free_port, wait_until

RULES = """\
rules:
- seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
  resources:
    overrides: {namespace: {resource: namespace}, pod: {resource: pod}}
  name: {matches: "^(.*)_total$", as: "${1}_per_second"}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[1m])) by (<<.GroupBy>>)'
externalRules:
- seriesQuery: 'ballast'
  resources: {namespaced: false}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
"""
METRIC = "http_requests_per_second"


def path(namespace: int, app: int) -> str:
    """Return the path of a ``*`` request for the ten pods of one app."""
    return (
        f"/apis/custom.metrics.k8s.io/v1beta1/namespaces/ns-{namespace}/pods/*/{METRIC}"
        f"?labelSelector=app%3Dapp-{app}"
    )


class Stage:
    """Starts it all; the adapter listens on ``url`` and believes ``token``."""

    def __init__(
        self,
        directory: Path,
        *,
        namespaces: int,
        apps: int,
        pods: int = 10,
        ballast: int = 0,
        arguments: Sequence[str] = (),
        rules: str = RULES,
        prometheus_url: str = "",
        scrape_interval_s: float = 10.0,
        rbac: bool = False,
    ) -> None:
        """``prometheus_url``: instead of a real one, which is then neither started nor waited
        for; ``pods`` is how many each of the ``apps`` of each namespace has;
        ``rbac``: the API server permits what a role does, and nothing else.
        """
        self.directory = directory
        self.namespaces, self.apps, self.pods, self.ballast = namespaces, apps, pods, ballast
        self.rules = directory / "rules.yaml"
        self.port = free_port()
        self.url = f"https://{LOOPBACK}:{self.port}"
        self.token = ""
        self._arguments = arguments
        self._rules_text = rules
        self._prometheus_url = prometheus_url
        self._scrape_interval_s = scrape_interval_s
        self._rbac = rbac
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._exit.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def _start(self) -> None:
        kubeconfig = self.directory / "kubeconfig"
        self.rules.write_text(self._rules_text)
        self.cluster = self._program(
            "cluster",
            [
                sys.executable, "-m", "tests.bench.cluster",
                "--namespaces", self.namespaces, "--apps", self.apps, "--pods", self.pods,
                "--kubeconfig", kubeconfig,
                *(["--rbac"] if self._rbac else []),
            ],
        )  # fmt: skip
        wait_until("the sandbox serves", lambda: self._said(self.cluster), 120, (self.cluster,))
        self.token = self._said(self.cluster).split()[1]
        is_real = not self._prometheus_url
        if is_real:
            self._start_prometheus()
        self.adapter = self._program(
            "adapter", [sys.executable, "-m", "podscale", "adapter", *self.flags()]
        )
        if is_real:
            self._wait_until_served()

    def _start_prometheus(self) -> None:
        exporter = self._exit.enter_context(Exporter(self.directory))
        exporter.set(("pods", Target({}, self._samples())))
        if self.ballast:
            series = [
                Sample("ballast", float(n), labels={"id": str(n)}) for n in range(self.ballast)
            ]
            exporter.set(("ballast", Target({}, series)))
        self.prometheus = self._exit.enter_context(
            PrometheusServer(
                self.directory, scrape_configs=[exporter.scrape_config(self._scrape_interval_s)]
            )
        )
        self._prometheus_url = self.prometheus.url

    def _wait_until_served(self) -> None:
        expected = self.pods
        wait_until(
            "the metric of every pod of the last app is served",
            lambda: len(self.get(path(self.namespaces - 1, self.apps - 1))["items"]) == expected,
            180,
            (self.adapter, self.cluster),
        )

    def flags(self) -> list[str]:
        """Return the adapter's arguments, also for one in another process."""
        kubeconfig = self.directory / "kubeconfig"
        return [
            f"--config={self.rules}",
            f"--prometheus-url={self._prometheus_url}",
            f"--secure-port={self.port}", f"--bind-address={LOOPBACK}",
            f"--cert-dir={self.directory}",
            f"--lister-kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--metrics-relist-interval=1m", "--metrics-max-age=10m",
            *self._arguments,
        ]  # fmt: skip

    def _program(self, name: str, command: Sequence[object]) -> Program:
        words = [str(word) for word in command]
        return self._exit.enter_context(Program(name, words, self.directory / f"{name}.log"))

    def _said(self, program: Program) -> str:
        lines = program.log.read_text().splitlines()
        return lines[0] if lines else ""

    def _samples(self) -> list[Sample]:
        return [
            Sample(
                "http_requests_total",
                1000.0,
                10.0,
                {"namespace": f"ns-{n}", "pod": f"app-{a}-{p}"},
                "counter",
            )
            for n in range(self.namespaces)
            for a in range(self.apps)
            for p in range(self.pods)
        ]

    def get(self, where: str) -> Any:
        """Return the decoded answer of the adapter."""
        return json.loads(self.body(where))

    def body(self, where: str, *, accepts: str = "identity") -> bytes:
        """Return the bytes of the adapter's answer, in the encoding that was asked for."""
        request = urllib.request.Request(  # noqa: S310 - our own loopback server
            self.url + where,
            headers={"Authorization": f"Bearer {self.token}", "Accept-Encoding": accepts},
        )
        tls = ssl._create_unverified_context()  # noqa: S323 - its self-signed certificate
        with urllib.request.urlopen(request, timeout=30, context=tls) as answer:  # noqa: S310
            body: bytes = answer.read()
        return body

    def quiet(self, seconds: float = 2.0) -> None:
        """Let start-up work end before something is measured."""
        time.sleep(seconds)
