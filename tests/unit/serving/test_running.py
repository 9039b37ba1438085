"""Files that change while a server runs: each by itself, and none of them for the last time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from podscale.serving import running
from podscale.serving.auth.trust import TrustSource, read_ca_files
from podscale.serving.certificates.tls import ServingTls, read_files
from podscale.serving.flags import Flags
from tests.unit.serving.kit import Pki, authority, flags_for, pair_of


class Followed:
    """A server's certificate and trust, followed without the server."""

    def __init__(self, flags: Flags) -> None:
        files = read_files(flags)
        assert files.pair is not None
        self.tls = ServingTls(files.pair)
        self.trust = TrustSource(flags, read_ca_files(flags))
        self.task = asyncio.create_task(
            running._follow_files(flags, files, self.tls, self.trust, False)
        )

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not holds():  # noqa: ASYNC110 - files do not tell when they are read
                await asyncio.sleep(0.01)
        assert not self.task.done()


@pytest.fixture
def pki() -> Pki:
    return Pki()


@pytest.fixture
async def followed(
    tmp_path: Path, pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Followed]:
    monkeypatch.setattr(running, "_LOOK_AT_FILES_S", 0.01)
    found = Followed(flags_for(tmp_path, pki))
    yield found
    found.task.cancel()


async def test_a_missing_key_does_not_keep_a_replaced_ca_in_force(
    tmp_path: Path, pki: Pki, followed: Followed
) -> None:
    (tmp_path / "server.key").unlink()
    (tmp_path / "clients.crt").write_bytes(pki.strangers.cert_pem.bytes())
    await followed.until(lambda: followed.trust.current.client_ca == (authority(pki.strangers),))


async def test_one_unreadable_ca_does_not_keep_the_other(
    tmp_path: Path, pki: Pki, followed: Followed
) -> None:
    (tmp_path / "clients.crt").write_bytes(b"")
    (tmp_path / "proxies.crt").write_bytes(pki.strangers.cert_pem.bytes())
    await followed.until(lambda: followed.trust.current.proxy.ca == (authority(pki.strangers),))
    assert followed.trust.current.client_ca == (authority(pki.clients),)


async def test_an_unreadable_ca_does_not_keep_a_certificate(
    tmp_path: Path, pki: Pki, followed: Followed
) -> None:
    (tmp_path / "clients.crt").unlink()
    new = pair_of(pki.serving.issue_cert("localhost"))
    (tmp_path / "server.crt").write_bytes(new.certificate)
    (tmp_path / "server.key").write_bytes(new.key)
    await followed.until(lambda: followed.tls.pair == new)


async def test_a_failure_of_any_kind_ends_nothing(
    tmp_path: Path, pki: Pki, followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[Exception] = [RuntimeError("can't start new thread"), OSError(24, "no files")]
    follow = followed.tls.use_pair

    def fails(*given: object) -> None:
        raise failures.pop()

    monkeypatch.setattr(followed.tls, "use_pair", fails)
    new = pair_of(pki.serving.issue_cert("localhost"))
    (tmp_path / "server.crt").write_bytes(new.certificate)
    (tmp_path / "server.key").write_bytes(new.key)
    await followed.until(lambda: not failures)
    monkeypatch.setattr(followed.tls, "use_pair", follow)
    await followed.until(lambda: followed.tls.pair == new)
