"""Settings of the feed and of its connection to Prometheus."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

Verb = Literal["GET", "POST"]
VERBS: Mapping[str, Verb] = {"GET": "GET", "POST": "POST"}


class PrometheusOptions(Struct, frozen=True):
    """How to reach Prometheus. Files are read again when they change."""

    url: str = "https://localhost"  # may carry a path prefix and query parameters
    verb: Verb | None = None  # None: not chosen; short queries GET, long ones and batches POST
    headers: tuple[tuple[str, str], ...] = ()
    parameters: tuple[tuple[str, str], ...] = ()  # sent with every request
    token_file: Path | None = None
    token: str | None = None  # from a kubeconfig
    username: str | None = None
    password: str | None = None
    password_file: Path | None = None  # read again when it changes
    ca_file: Path | None = None
    ca_data: str | None = None  # PEM; from a kubeconfig
    client_cert_file: Path | None = None
    client_key_file: Path | None = None
    client_cert_data: str | None = None  # PEM; from a kubeconfig
    client_key_data: str | None = None
    server_name: str | None = None  # tls-server-name of a kubeconfig
    is_insecure: bool = False  # insecure-skip-tls-verify of a kubeconfig
    deadline_s: float = 10.0
    series_deadline_s: float = 60.0
    body_limit_bytes: int = 16 * 1024 * 1024  # decoded; series answers are streamed instead
    connections: int = 32


class FeedOptions(Struct, frozen=True):
    """How requests become queries."""

    is_coalescing: bool = True  # --coalescing
    max_age_s: float = 5.0  # --feed-max-age; 0 merges only requests of the same moment
    with_sample_timestamps: bool = True  # --sample-timestamps
    max_sample_age_s: float = 300.0  # --max-sample-age
    gather_s: float = 0.005
    remembered_s: float = 45.0  # three sync periods of an HPA
    period_s: float = 15.0  # of an HPA
    namespace_queries: int = 1000  # in a period, each with the one for its samples' times
    batches_in_flight: int = 4
    queries_in_flight: int = 20
    text_cache_s: float = 1.0  # per-request answers: min(this, max_age_s)
