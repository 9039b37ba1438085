"""Files of the webhook's certificate and CA change in any order, and every review is answered."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from podscale.serving.certificates.issuing import make_authority, make_leaf
from podscale.serving.certificates.tls import ServingTls, read_files
from podscale.serving.flags import parse
from podscale.serving.running import _going_on, _serve_files
from vpa.admission import flags as flags_
from vpa.admission.registration import Handover, is_trusted

_NOW = time.time()
_AUTHORITIES = [make_authority("ca", now=_NOW, life_s=9000.0) for _ in range(3)]
_LEAVES = [make_leaf(each, ["webhook.vpa.svc"], now=_NOW, life_s=8000.0) for each in _AUTHORITIES]
_CONTENTS = {
    "caCert.pem": [each.certificate for each in _AUTHORITIES],
    "serverCert.pem": [each.certificate for each in _LEAVES],
    "serverKey.pem": [each.key for each in _LEAVES],
}
_WRITES = st.tuples(
    st.sampled_from(sorted(_CONTENTS)), st.sampled_from([0, 1, 2]),
    st.sampled_from(["whole", "half", "empty", "absent"]),
)  # fmt: skip
_LEAF = st.integers(0, 2).map(lambda which: ("leaf", which, "whole"))
_CA = st.integers(0, 2).map(lambda which: ("caCert.pem", which, "whole"))
_STEPS = st.lists(
    st.sampled_from(["look", "announce", "write", "fail", "know", "register"])
    | _LEAF | _CA | _WRITES,
    max_size=40,
)  # fmt: skip


class Webhook:
    """One replica with its files, and the API server that believes a caBundle."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in _CONTENTS:
            self.put(name, 0, "whole")
        given = [f"--tls-cert-file={directory}/serverCert.pem",
                 f"--tls-private-key={directory}/serverKey.pem",
                 f"--client-ca-file={directory}/caCert.pem"]  # fmt: skip
        self.flags = parse(given, flags_.TABLE)
        self.serving = flags_.serving(self.flags)
        self.files = read_files(self.serving)
        assert self.files.pair is not None
        self.tls = ServingTls(self.files.pair)
        self.handover = Handover(self.tls)
        self.tls.may_follow = self.handover.may_follow
        self.announced = b""
        self.believed: list[bytes] = []  # the API server's: the last, and while it hears, both
        self.take("register")

    def put(self, name: str, which: int, how: str) -> None:
        if name == "leaf":
            for each in ("serverCert.pem", "serverKey.pem"):
                self.put(each, which, how)
            return
        whole, path = _CONTENTS[name][which], self.directory / name
        if how == "absent":
            path.unlink(missing_ok=True)
        else:
            path.write_bytes({"whole": whole, "half": whole[: len(whole) // 2]}.get(how, b""))

    def take(self, step: str) -> None:
        match step:
            case "register":
                for part in ("announce", "write", "know"):
                    self.take(part)
            case "look":
                with _going_on():
                    looked = _serve_files(self.serving, self.files, self.tls, False)
                    self.files = asyncio.run(looked)
            case "announce":
                read = flags_.authority(self.flags) or self.tls.offered.certificate
                self.announced = self.handover.bundle(read)
            case "write" | "fail" if self.announced:
                # A write whose answer was lost may have been one all the same.
                self.believed = [*self.believed, self.announced]
                self.is_written = step == "write"
            case "know" if self.believed and self.is_written:
                self.believed = self.believed[-1:]
                self.handover.registered = self.believed[-1]

    def check(self) -> None:
        for bundle in self.believed:
            assert is_trusted(self.tls.pair, bundle, time.time())


@contextmanager
def webhook() -> Iterator[Webhook]:
    with TemporaryDirectory() as directory:
        yield Webhook(Path(directory))


@settings(deadline=None)
@given(_STEPS)
def test_no_review_fails_while_files_are_swapped(steps: list[str | tuple[str, int, str]]) -> None:
    with webhook() as running:
        running.check()
        for step in steps:
            if isinstance(step, str):
                running.take(step)
            else:
                running.put(*step)
            running.check()
        for name in _CONTENTS:
            running.put(name, 1, "whole")
        for _ in range(3):
            for step in ("register", "look"):
                running.take(step)
                running.check()
        assert running.tls.pair.certificate == _LEAVES[1].certificate
        assert running.believed == [_AUTHORITIES[1].certificate]
