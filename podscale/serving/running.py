"""A server put together from flags and products, running until the block is left.

This is where the other modules of the room meet: trust feeds TLS and authentication,
certificates come from files, the keeper or --cert-dir, everything is watched.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version

import structlog
from msgspec import Struct

from podscale.kube.client.api import Api
from podscale.serving.apis import builtin
from podscale.serving.apis.api import ApiGroup, Route
from podscale.serving.auth import trust as trust_
from podscale.serving.auth.authentication import Authenticator, TokenReviews
from podscale.serving.auth.authorization import Authorizer
from podscale.serving.certificates.keeper import CertificateKeeper
from podscale.serving.certificates.tls import (
    ServingFiles,
    ServingTls,
    TlsError,
    read_files,
    self_signed,
)
from podscale.serving.flags import Flags
from podscale.serving.handler_chain import HandlerChain
from podscale.serving.http.server import HttpServer, ServerLimits
from podscale.serving.monitoring.health import Health
from podscale.serving.monitoring.logs import Verbosity
from podscale.serving.monitoring.selfmetrics import SelfMetrics

_LOOK_AT_FILES_S = 5.0
_RENEW_S = 29 * 86400.0  # self_signed makes a new pair 30 days before the end


class Clusters(Struct, frozen=True):
    """Who answers questions about users; None: nobody is asked, and nobody gets in by it."""

    authentication: Api | None = None
    authorization: Api | None = None


class RunningServer(Struct, frozen=True):
    server: HttpServer
    port: int  # 0: --secure-port=0, nothing is served
    tls: ServingTls
    trust: trust_.TrustSource
    drain_delay_s: float

    async def drain(self, *, grace_s: float = 20.0) -> None:
        """End gracefully; call on SIGTERM, before the block is left."""
        log = structlog.get_logger()
        log.info("Draining", connections=len(self.server.connections))
        cut = await self.server.drain(delay_s=self.drain_delay_s, grace_s=grace_s)
        log.info("Drained", cut=cut)


@asynccontextmanager
async def running(
    flags: Flags,
    *,
    clusters: Clusters,
    groups: Sequence[ApiGroup] = (),
    routes: Sequence[Route] = (),
    health: Health,
    metrics: SelfMetrics,
    verbosity: Verbosity,
    keeper: CertificateKeeper | None = None,
    port: int | None = None,
    limits: ServerLimits | None = None,
) -> AsyncIterator[RunningServer]:
    """Serve while the block runs.

    ``flags`` hold ``flag_table.API_SERVER``; ``port`` overrides --secure-port, and 0 here
    means any free one. ``keeper`` makes the certificate where no file is named. Raises
    ``TlsError``, ``TrustError``, ``KubeError`` or ``OSError`` when it cannot start.
    """
    trust = trust_.TrustSource(flags, await asyncio.to_thread(trust_.read_ca_files, flags))
    if trust.needs_lookup and clusters.authentication is not None:
        await trust.look_up(clusters.authentication)
    files = await asyncio.to_thread(read_files, flags)
    tls = await _tls(flags, files, keeper)
    reviews = None
    if clusters.authentication is not None:
        ttl_s = flags.seconds("authentication-token-webhook-cache-ttl")
        reviews = TokenReviews(clusters.authentication, metrics, ttl_s=ttl_s)
    authenticator = Authenticator(trust.current, reviews, metrics)
    authorizer = Authorizer(
        clusters.authorization,
        metrics,
        always_allowed=flags.listing("authorization-always-allow-paths"),
        allowed_ttl_s=flags.seconds("authorization-webhook-cache-authorized-ttl"),
        denied_ttl_s=flags.seconds("authorization-webhook-cache-unauthorized-ttl"),
        cluster_first=flags.switch("authorization-cluster-first"),
    )
    tls.use_authorities(trust.current.authorities)
    # Judging first: whom we no longer believe is refused even when TLS cannot follow yet.
    trust.listeners.append(authenticator.use)
    trust.listeners.append(lambda now: tls.use_authorities(now.authorities))
    listening = [flags.number("secure-port") if port is None else port]
    everything = [
        *routes,
        *builtin.routes(
            groups,
            routes,
            health=health,
            metrics=metrics,
            verbosity=verbosity,
            port=lambda: listening[0],
            release=await asyncio.to_thread(version, "podscale"),
        ),
    ]
    front = HandlerChain(
        groups,
        everything,
        authenticator,
        authorizer,
        metrics,
        timeout_s=flags.seconds("request-timeout"),
    )
    server = HttpServer(
        front.respond,
        limits=limits
        or ServerLimits(
            reading=flags.number("max-requests-inflight"),
            mutating=flags.number("max-mutating-requests-inflight"),
        ),
        body_limit=front.body_limit,
        believes=authenticator.believes,
    )
    server.register(health)
    metrics.watch(server, lambda: tls.pair.not_after)
    failure: BaseException | None = None
    async with server, asyncio.TaskGroup() as background:
        tasks: list[asyncio.Task[None]] = []
        try:
            if port is not None or listening[0]:
                listening[0] = await server.listen(
                    flags.text("bind-address"),
                    listening[0],
                    tls.context,
                    shares_port=flags.switch("permit-port-sharing"),
                )
            tasks.append(
                background.create_task(_follow_files(flags, files, tls, trust, keeper is not None))
            )
            if trust.needs_lookup and clusters.authentication is not None:
                tasks.append(background.create_task(trust.follow(clusters.authentication)))
            if keeper is not None and files.pair is None:
                tasks.append(background.create_task(keeper.run(tls)))
            delay_s = flags.seconds("shutdown-delay-duration")
            yield RunningServer(server, listening[0], tls, trust, delay_s)
        except BaseException as error:  # noqa: BLE001 - raised below, outside the task groups
            failure = error
        finally:
            for task in tasks:
                task.cancel()
    if failure is not None:
        # Here, so that what the block raised arrives as it is and not in two groups.
        raise failure


async def _tls(flags: Flags, files: ServingFiles, keeper: CertificateKeeper | None) -> ServingTls:
    pair = files.pair
    if pair is None and keeper is not None:
        pair = await keeper.start()
    if pair is None:
        pair = await asyncio.to_thread(self_signed, flags.text("cert-dir"))
    tls = ServingTls(
        pair, minimum=flags.text("tls-min-version"), ciphers=flags.listing("tls-cipher-suites")
    )
    tls.use_pair(pair, files.named)
    return tls


async def _follow_files(
    flags: Flags, files: ServingFiles, tls: ServingTls, trust: trust_.TrustSource, has_keeper: bool
) -> None:
    """Apply changed files within seconds; what cannot be read leaves the old in force."""
    while True:
        await asyncio.sleep(_LOOK_AT_FILES_S)
        # One by one: a key that is missing must not keep in force a CA that has gone.
        with _going_on():
            files = await _serve_files(flags, files, tls, has_keeper)
        for flag in trust_.CA_FLAGS:
            with _going_on():
                trust.use_file(flag, await asyncio.to_thread(trust_.read_ca_file, flags, flag))


async def _serve_files(
    flags: Flags, before: ServingFiles, tls: ServingTls, has_keeper: bool
) -> ServingFiles:
    now = await asyncio.to_thread(read_files, flags)
    if now != before or tls.offered is not tls.pair:
        tls.use_pair(now.pair or tls.offered, now.named)
    if now != before:
        structlog.get_logger().info("ServingCertificateReloaded", waits=tls.offered is not tls.pair)
    if now.pair is None and not has_keeper and tls.offered.not_after - time.time() < _RENEW_S:
        pair = await asyncio.to_thread(self_signed, flags.text("cert-dir"))
        tls.use_pair(pair, now.named)
    return now


@contextmanager
def _going_on() -> Iterator[None]:
    try:
        yield
    except (TlsError, trust_.TrustError) as error:
        structlog.get_logger().warning("CertificateFilesRefused", error=str(error))
    except Exception:  # noqa: BLE001 - whatever it is, the next certificate must be taken over
        structlog.get_logger().exception("CertificateFilesNotFollowed")
