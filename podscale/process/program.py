"""A program from its parsed flags to its exit code: logs, signals, what is said at the end."""

import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

import structlog

from podscale.kube.client.errors import KubeError, NotConfigured
from podscale.process.part import Stopping
from podscale.serving.auth.trust import TrustError
from podscale.serving.certificates.tls import TlsError
from podscale.serving.flags import FlagError, Flags
from podscale.serving.monitoring import logs
from podscale.serving.monitoring.logs import Verbosity

log = structlog.get_logger(__name__)


Serve = Callable[[Flags, Verbosity], AbstractAsyncContextManager[Stopping]]


async def run(flags: Flags, problems: Sequence[str], serve: Serve) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code.

    2 is what must be changed first (``problems`` of the command line, or what ``serve`` raises
    as ``FlagError`` before it serves), 1 everything else.
    """
    if problems:
        print("\n".join(problems), file=sys.stderr)  # noqa: T201 - no event to be logged
        return 2
    verbosity = Verbosity(flags.number("v"))
    logs.configure("json" if flags.text("log-format") == "json" else "console", verbosity)
    for warning in flags.warnings:
        log.warning(warning)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    this = asyncio.current_task()
    is_serving = False

    def end() -> None:
        stop.set()
        # While starting, nobody waits for the event: the cluster may be out of reach.
        if not is_serving and this is not None:
            this.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    code = 0
    expected: tuple[type[Exception], ...]
    expected = (FlagError, KubeError, TlsError, TrustError, OSError, ValueError)
    try:
        async with serve(flags, verbosity) as served:
            is_serving = True
            log.info("running")
            await stop.wait()
            # A Lease first: another replica can act while we still answer.
            await served.stop()
    except* asyncio.CancelledError:
        if not stop.is_set():
            raise
        log.info("ended before it served")
    except* expected as failed:
        first, code = _first(failed), 1
        if is_serving:
            # A defect, perhaps of one task among many: where it was is all there is to go by.
            log.error("ended by an error", error=str(first), exc_info=first)
        elif refused := failed.subgroup(FlagError):
            print(_first(refused), file=sys.stderr)  # noqa: T201 - lines that an editor can jump to
            code = 2
        else:
            log.error("cannot start", error=str(first))
            # A kubeconfig must be changed first; what else there is may pass by itself.
            code = 2 if isinstance(first, NotConfigured) else 1
    return code


def _first(errors: BaseExceptionGroup[Exception]) -> Exception:
    # Task groups wrap what their body raises; people want the sentence inside.
    first: Exception | BaseExceptionGroup[Exception] = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
