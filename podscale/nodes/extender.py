"""``POST /scheduler/filter`` and ``/scheduler/prioritize``: a scheduler extender that decides as
ballast does, for schedulers that you run yourself.

Follows k8s.io/kube-scheduler/extender/v1 with ``nodeCacheCapable``: nodes come by name.
"""

import time
from collections.abc import Callable, Sequence
from typing import Self

import msgspec
import numpy as np
from msgspec import Raw, Struct, ValidationError
from numpy.typing import NDArray

from podscale.kube.client.wire import decode, encode
from podscale.nodes.cluster.live_requests import LiveRequests
from podscale.nodes.cluster.node_table import NodeArrays
from podscale.nodes.decide.ballast import Bools
from podscale.nodes.decide.node_scores import refuses, scores
from podscale.nodes.rounds import DecidedNodes, NodeRounds
from podscale.nodes.scheduling.objects import ScheduledPod
from podscale.nodes.scheduling.requests import requests
from podscale.serving import status
from podscale.serving.apis.api import Answered, ApiRequest, ApiResponse, Route
from podscale.serving.status import Status

Offsets = NDArray[np.intp]
Places = NDArray[np.int32]
Hashes = NDArray[np.uint64]

_LONGEST = 253  # bytes of a name, to Kubernetes
_WORD = 8  # bytes
_MOST = 64  # bytes of each name that are hashed at once: all of most names
_FACTORS = np.cumprod(np.full(256 // _WORD, 0x9E3779B97F4A7C15, np.uint64))  # odd, of all bits
_HALF = np.uint64(32)
PATH = "/scheduler"
BODY_LIMIT = 2 * 1024 * 1024  # a pod, and the names of tens of thousands of nodes
# One sentence for all nodes: the scheduler counts them by it.
_REFUSED = b"node(s) had no room by measured load"
# Unresolvable: evicting pods would change nothing about the load.
_FILTER_RESULT = b'{"NodeNames":[%s],"FailedAndUnresolvableNodes":{%s}}'
_BY_NAME = "podscale knows the nodes itself: set nodeCacheCapable: true for this extender"


class NamesText(Struct, frozen=True, eq=False):
    """A JSON array of names as Go writes it: without spaces and escapes.

    A scheduler sends thousands of names for every pod. Strings that are looked up one by one
    take twice as long as all the rest of the answer.
    """

    text: bytes
    starts: Offsets  # of the opening quotes
    ends: Offsets  # of the closing ones

    @classmethod
    def of(cls, raw: bytes | Raw) -> Self:
        """Return the names of a JSON array; raises ``msgspec.ValidationError``."""
        names = cls._of(bytes(raw)) or cls._of(encode(decode(raw, list[str])))
        if names is None or (names.ends - names.starts > _LONGEST + 1).any():
            raise ValidationError("names of nodes have at most 253 characters, none to escape")
        return names

    @classmethod
    def _of(cls, text: bytes) -> Self | None:
        quotes = np.flatnonzero(np.frombuffer(text, np.uint8) == ord('"'))
        starts, ends = quotes[::2], quotes[1::2]
        if text != b"[]" and (
            not (text.startswith(b'["') and text.endswith(b'"]'))
            or b"\\" in text
            or (starts[1:] - ends[:-1] != len('",')).any()
        ):
            return None
        return cls(text, starts, ends)

    def hashes(self) -> Hashes:
        """Return a hash of each name, the same in every list.

        It stands for the name: that two of 20,000 share one is less likely than 1 in 1,000.
        """
        lengths = self.ends - self.starts
        longest = int(lengths.max(initial=1))
        width = min(_MOST, -(-longest // _WORD) * _WORD)
        padded = self.text + bytes(longest + width)
        blocks = np.ndarray(len(padded) - width, f"V{width}", padded, strides=(1,))
        masks = (np.tri(width + 1, width, -1, np.uint8) * np.uint8(255)).view(blocks.dtype).ravel()
        hashes = np.zeros(len(lengths), np.uint64)
        for begin in range(0, longest, width):
            words = blocks[begin:][self.starts].view("<u8").reshape(-1, width // _WORD)
            kept = masks[np.clip(lengths - begin, 0, width)]  # what follows a name is not its
            words &= kept.view("<u8").reshape(words.shape)
            words ^= words >> _HALF
            hashes += words @ _FACTORS[begin // _WORD : (begin + width) // _WORD]
        hashes ^= hashes >> _HALF
        hashes *= _FACTORS[0]  # spreads them over the high bits, by which they are looked up
        return hashes

    def split(self, is_second: Bools) -> tuple[bytes, bytes]:
        """Return the text of two arrays, without their brackets."""
        is_seconds = np.repeat(is_second, self.ends - self.starts + 2)  # with the comma
        text = np.frombuffer(self.text, np.uint8)[1 : 1 + len(is_seconds)]
        return text[~is_seconds].tobytes()[:-1], text[is_seconds].tobytes()[:-1]


class NodeNames:
    """The places of known names, in a hash table made of arrays."""

    def __init__(self, names: Sequence[str]) -> None:
        hashes = NamesText.of(encode(names)).hashes()
        bits = (8 * len(names) + 1).bit_length()
        slots = [len(names)] * (2**bits + len(names) + 1)
        self._shift = np.uint64(64 - bits)
        for place, first in enumerate((hashes >> self._shift).tolist()):
            slots[slots.index(len(names), first)] = place
        self._slots = np.array(slots, np.int32)
        self._hashes = np.append(hashes, np.uint64(0))

    def places(self, names: NamesText) -> Places:
        """Return where each name is among the known ones; one that is not known: after them."""
        hashes, end = names.hashes(), len(self._hashes) - 1
        slots = (hashes >> self._shift).astype(np.intp)
        places = self._slots[slots]
        others = np.flatnonzero(self._hashes[places] != hashes)
        while len(others := others[places[others] < end]):
            slots[others] += 1
            places[others] = self._slots[slots[others]]
            others = others[self._hashes[places[others]] != hashes[others]]
        return places


class ExtenderArgs(Struct, frozen=True, rename="pascal"):
    pod: ScheduledPod
    node_names: Raw = Raw(b"null")  # a list of names


class HostPriority(Struct, frozen=True, rename="pascal"):
    host: str
    score: int


class Extender:
    """The answers, by the newest round and by the pods that are there now."""

    def __init__(
        self, rounds: NodeRounds, live: LiveRequests, *, stale_s: float,
        wall: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        """``stale_s``: after so long without a round nothing is answered."""
        self._rounds = rounds
        self._live = live
        self._stale_s = stale_s
        self._wall = wall
        self._names_of: NodeArrays | None = None  # the nodes that ``_known`` is of
        self._known = NodeNames(())

    def routes(self) -> Sequence[Route]:
        return tuple(
            Route(f"{PATH}/{verb}", answer, ("POST",), body_limit=BODY_LIMIT)
            for verb, answer in (("filter", self._filter), ("prioritize", self._prioritize))
        )

    def _filter(self, request: ApiRequest) -> Answered:
        read = self._read(request)
        if isinstance(read, Status):
            return read
        decided, pod, names = read
        if names is None:
            return ApiResponse(value={"Error": _BY_NAME})
        requested = self._live.over(decided.nodes)
        full = refuses(decided.columns, decided.plan, requested, _requests(pod))
        # A node that we do not know yet is admitted: its own fit check looks at it.
        is_refused = np.append(full, False)[self._places(decided.nodes, names)]
        left, refused = names.split(is_refused)
        refused = (refused + b",").replace(b'",', b'":"%s",' % _REFUSED)[:-1]
        return ApiResponse(_FILTER_RESULT % (left, refused))

    def _prioritize(self, request: ApiRequest) -> Answered:
        read = self._read(request)
        if isinstance(read, Status):
            return read
        decided, pod, names = read
        if names is None:
            return status.bad_request(_BY_NAME)
        nodes = decided.nodes
        requested = self._live.over(nodes)
        found = scores(decided.columns, nodes.thresholds, requested, _requests(pod))
        values = np.append(found, 0)[self._places(nodes, names)].tolist()
        hosts = decode(names.text, list[str])
        return ApiResponse(value=list(map(HostPriority, hosts, values)))

    def _places(self, nodes: NodeArrays, names: NamesText) -> Places:
        if nodes is not self._names_of:
            self._names_of, self._known = nodes, NodeNames(nodes.names)
        return self._known.places(names)

    def _read(
        self, request: ApiRequest
    ) -> tuple[DecidedNodes, ScheduledPod, NamesText | None] | Status:
        decided = self._rounds.decided
        if decided is None or self._wall() - decided.at_s > self._stale_s:
            # An ignorable extender is passed over; what is not known is not "full".
            return status.unavailable("nodes have not been looked at", retry_after_s=5)
        try:
            args = decode(request.body, ExtenderArgs)
            names = bytes(args.node_names)
            return decided, args.pod, None if names == b"null" else NamesText.of(names)
        except msgspec.DecodeError as error:
            return status.bad_request(f"these are no ExtenderArgs: {error}")


def _requests(pod: ScheduledPod) -> tuple[float, float]:
    found = requests(pod)
    return float(found.get("cpu", 0)), found.get("memory", 0) / 1000
