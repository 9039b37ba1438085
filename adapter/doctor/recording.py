"""Evidence for a bug report: everything the doctor was told, in one JSON document.

The doctor is deterministic, so a recording is replayed by giving the same answers in the
same order. Values and label values can be masked: equal ones stay equal, nothing else
is left of them. The rules file goes along as it is written.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct, structs

from adapter.doctor import evidence
from adapter.doctor.diagnosis import diagnose
from adapter.doctor.evidence import Diagnosis
from podscale.core.json_decoder import decode_json
from podscale.core.selectors import selector
from podscale.feed.prover.lexer import NotPromql, tokens

FORMAT = "podscale-doctor/2"
_NOT_SECRET = frozenset(["", "*"])


class RecordedAnswer(Struct, frozen=True):
    need: evidence.Need
    given: evidence.Given


class Recording(Struct, frozen=True, kw_only=True):
    """One examination of one metric."""

    format: str = FORMAT
    config: str
    asked: evidence.AskedEvidence
    around: evidence.Surroundings
    entries: Sequence[RecordedAnswer] = ()
    is_masked: bool = False


class RecordingInvalid(ValueError):
    """The document is no recording; the text says why."""


def encode(recording: Recording) -> bytes:
    return msgspec.json.format(msgspec.json.encode(recording), indent=1)


def decode(document: bytes) -> Recording:
    """Return the recording; raises ``RecordingInvalid``."""
    try:
        read = decode_json(document, Recording)
    except msgspec.DecodeError as error:
        raise RecordingInvalid(f"not a recording of podscale doctor: {error}") from None
    if read.format != FORMAT:
        raise RecordingInvalid(f"a recording of format {read.format!r}; this reads {FORMAT!r}")
    return read


async def replay(recording: Recording, file: str = "rules file") -> Diagnosis:
    """Return the diagnosis that the recorded answers lead to."""
    remaining = list(recording.entries)

    async def answer(need: evidence.Need) -> evidence.Given:
        if remaining and _is_about(remaining[0].need, need):
            return remaining.pop(0).given
        return evidence.Series(())  # it is not recorded, and comes to nothing

    way = diagnose(recording.config, recording.asked, recording.around, file)
    return await evidence.drive(way, answer)


def _is_about(recorded: evidence.Need, need: evidence.Need) -> bool:
    # A query's text holds names, which may be masked; its place in the order tells it.
    if isinstance(recorded, evidence.SeriesOf) and isinstance(need, evidence.SeriesOf):
        return (recorded.match, recorded.within_window) == (need.match, need.within_window)
    return isinstance(recorded, evidence.ResultOf) and isinstance(need, evidence.ResultOf)


def masked(recording: Recording) -> Recording:
    """Return the recording without values, label values, object names and addresses."""
    mask = _Mask()
    asked, around = recording.asked, recording.around
    return structs.replace(
        recording,
        asked=structs.replace(
            asked,
            namespace=mask.word(asked.namespace),
            name=mask.word(asked.name),
            selector=mask.selector(asked.selector),
            metric_selector=mask.selector(asked.metric_selector),
        ),
        around=structs.replace(
            around,
            prometheus_url="masked",
            prometheus_error=None if around.prometheus_error is None else "(masked)",
            objects=mask.words(around.objects),
            young=mask.words(around.young),
            apiservices={name: mask.word(to) for name, to in around.apiservices.items()},
            self_service=mask.word(around.self_service),
            access=around.access and structs.replace(around.access, user="masked", reason=""),
        ),
        entries=[RecordedAnswer(mask.need(e.need), mask.given(e.given)) for e in recording.entries],
        is_masked=True,
    )


class _Mask:
    """The same word for the same word, so that what is compared still compares."""

    def __init__(self) -> None:
        self._words: dict[str, str] = {}

    def word(self, word: str) -> str:
        if word in _NOT_SECRET:
            return word
        return self._words.setdefault(word, f"m{len(self._words) + 1}")

    def words(self, words: Iterable[str]) -> list[str]:
        return [self.word(word) for word in words]

    def selector(self, text: str) -> str:
        masked = (
            structs.replace(each, values=tuple(self.words(each.values)))
            for each in selector.parse(text).requirements
        )
        return str(selector.Selector(tuple(masked)))

    def text(self, text: str) -> str:
        written, end = "", 0
        try:
            for token in tokens(text):
                if token.lastgroup == "string":
                    quote, words = token[0][0], token[0][1:-1].split("|")
                    written += text[end : token.start()] + quote + "|".join(self.words(words))
                    end = token.end() - 1
        except NotPromql:
            return self.words([text])[0]
        return written + text[end:]

    def need(self, need: evidence.Need) -> evidence.Need:
        if isinstance(need, evidence.ResultOf):
            return evidence.ResultOf(self.text(need.promql))
        return structs.replace(need, wanted=tuple(self.words(need.wanted)))

    def given(self, given: evidence.Given) -> evidence.Given:
        match given:
            case evidence.Series():
                return evidence.Series(list(map(self.labels, given.labels)))
            case evidence.Result():
                return evidence.Result(list(map(self.point, given.points)))
            case evidence.Rejected():
                return evidence.Rejected(given.status, self.text(given.error))
        return evidence.Unreachable("(masked)")

    def point(self, point: evidence.Point) -> evidence.Point:
        value, labels = point.value, self.labels(point.labels)
        if not isinstance(value, str) and value:
            value = math.copysign(1.0, value)
        return structs.replace(point, labels=labels, value=value)

    def labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        return {k: v if k == "__name__" else self.word(v) for k, v in labels.items()}
