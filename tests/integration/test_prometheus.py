"""The real Prometheus and the pretend pods, before anything of ours reads them."""

from pathlib import Path

import pytest

from tests.integration.exporter import Exporter, counter, gauge, pod
from tests.integration.prometheus import PrometheusServer, QueryError
from tests.tools.process import wait_until

pytestmark = pytest.mark.needs("prometheus", "promtool")


def test_pods_are_scraped_with_their_labels_and_a_killed_one_goes_stale(tmp_path: Path) -> None:
    pods = [
        pod("shop", f"web-{n}", counter("http_requests_total", rate=10.0), gauge("queue", n))
        for n in range(3)
    ]
    with Exporter(tmp_path) as exporter:
        exporter.set(*pods)
        scrape = exporter.scrape_config(interval_s=0.5)
        with PrometheusServer(tmp_path, scrape_configs=[scrape]) as prometheus:
            prometheus.wait_for('queue{namespace="shop"}', count=3)
            assert prometheus.values("queue") == {"web-0": 0, "web-1": 1, "web-2": 2}
            rates = "rate(http_requests_total[3s]) > 9.5"  # low until the range is full
            prometheus.wait_for(rates, count=3)
            assert prometheus.values(rates)["web-1"] == pytest.approx(10.0, rel=0.05)

            exporter.weather("down", "shop.web-1")
            wait_until(
                "web-1 is stale", lambda: set(prometheus.values("queue")) == {"web-0", "web-2"}, 10
            )
            assert prometheus.query('up{pod="web-1"}')[0]["value"][1] == "0"
            exporter.weather("up", "shop.web-1")
            prometheus.wait_for("queue", count=3)

            exporter.remove("shop.web-2")
            wait_until("web-2 is no target", lambda: len(prometheus.query("up")) == 2, 15)


def test_a_new_rate_does_not_reset_a_counter(tmp_path: Path) -> None:
    with Exporter(tmp_path) as exporter:
        exporter.set(pod("shop", "web", counter("sold_total", rate=1000.0)))
        scrape = exporter.scrape_config(interval_s=0.2)
        with PrometheusServer(tmp_path, scrape_configs=[scrape]) as prometheus:
            prometheus.wait_for("sold_total > 1000")
            exporter.set(pod("shop", "web", counter("sold_total", rate=10.0)))
            prometheus.wait_for("rate(sold_total[1s]) < 100 and rate(sold_total[1s]) > 0")
            assert prometheus.query("resets(sold_total[1h])")[0]["value"][1] == "0"


def test_seeded_history_is_answered_and_survives_a_kill(tmp_path: Path) -> None:
    lines = ["# TYPE load gauge"]
    lines += [
        f'load{{pod="p{n}"}} {n} {1_700_000_000 + 15 * k}' for n in range(2) for k in range(8)
    ]
    with PrometheusServer(tmp_path, openmetrics="\n".join([*lines, "# EOF", ""])) as prometheus:
        at = 1_700_000_100.0
        assert len(prometheus.query("load", at)) == 2
        prometheus.kill()
        assert not prometheus.program.is_running
        prometheus.start()
        assert len(prometheus.query_range("load", at - 60, at, 15)[0]["values"]) == 5


def test_a_frozen_prometheus_answers_nothing_and_a_wrong_query_is_an_error(tmp_path: Path) -> None:
    with PrometheusServer(tmp_path) as prometheus:
        with pytest.raises(QueryError, match="bad_data"):
            prometheus.query("sum(")
        prometheus.pause()
        with pytest.raises(TimeoutError):
            prometheus._request("GET", "/-/ready", timeout_s=0.3)
        prometheus.resume()
        assert prometheus.query("vector(1)")[0]["value"][1] == "1"
        assert prometheus.cpu_seconds() > 0
