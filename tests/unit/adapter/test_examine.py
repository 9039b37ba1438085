"""The scrape interval as Prometheus's own configuration tells it."""

from adapter.examine import longest_interval_s

GLOBAL = "global:\n  scrape_interval: 1m\n  scrape_timeout: 10s\n"
JOBS = """\
scrape_configs:
- job_name: quick
  honor_timestamps: true
  scrape_interval: 15s
  static_configs:
  - targets:
    - one:9090
- job_name: slow
  scrape_interval: 1m30s
"""


def test_the_longest_interval_of_a_job_counts():
    assert longest_interval_s(GLOBAL + JOBS) == 90.0


def test_where_nothing_is_scraped_no_interval_is_known():
    assert longest_interval_s(GLOBAL) is None
    assert longest_interval_s("") is None
