"""The files that a replay is given: specs, samples, prices."""

import math
from typing import Any, TypeVar

import msgspec

from hpa.simulate.load import LoadHistory
from podscale.cli.evaluation.manifest import WrittenError, place, plain
from podscale.cli.evaluation.observation import EvaluationError, placing, plain_hpa, written_hpa
from podscale.cli.inputs import WrongInput, read
from podscale.core.quantity import QuantityError
from podscale.core.quantity import parse as parse_quantity
from podscale.kube.objects.autoscaler import Autoscaler
from podscale.replay.errors import ReplayError, TraceInvalid
from podscale.replay.trace_file import read_trace

T = TypeVar("T", bound=msgspec.Struct)


def plain_of_file(file: str) -> dict[str, Any]:
    """Return an HPA as it is written; raises ``WrongInput`` unless it is a valid one."""
    text = read(file)
    try:
        with placing(text):
            found = plain_hpa(text)
            written_hpa(found)
    except EvaluationError as error:
        raise WrongInput(f"{file}{_at(error.line, error.column)}: {error}") from None
    return found


def _at(line: int, column: int) -> str:
    return f":{line}:{column}" if line else ""


def written(of: dict[str, Any]) -> Autoscaler:
    """Return the object; raises ``ReplayError`` for one that an API server refuses."""
    try:
        return written_hpa(of)
    except EvaluationError as error:
        raise ReplayError(str(error).removeprefix("the HPA: ")) from None


def trace_of_file(file: str, scale: float) -> tuple[LoadHistory, list[str]]:
    """Return the load times ``scale``, and notes; raises ``WrongInput``."""
    if not 0.0 < scale < math.inf:  # nor NaN
        raise WrongInput(f"--scale {scale:g}: a finite number above zero is wanted")
    try:
        load, notes = read_trace(read(file))
    except TraceInvalid as error:
        raise WrongInput(f"{file}:{error.line}: {error}") from None
    columns = {name: values * scale for name, values in load.columns.items()}
    return LoadHistory(load.time_s, columns, load.hidden), notes


def converted(file: str, kind: type[T]) -> T:
    """Return the YAML of a file as ``kind``; raises ``WrongInput`` with file and line."""
    text = read(file)
    try:
        return msgspec.convert(plain(text), kind)
    except WrittenError as error:
        raise WrongInput(f"{file}{_at(error.line, error.column)}: {error}") from None
    except msgspec.ValidationError as error:
        known = ", ".join(kind.__struct_encode_fields__)
        raise WrongInput(
            f"{file}{_at(*place(text, str(error)))}: {error}; known: {known}"
        ) from None


def requests_of(words: tuple[str, ...]) -> dict[str, dict[str, int]]:
    """Return container → resource → milli-units of ``[CONTAINER/]cpu=500m``."""
    found: dict[str, dict[str, int]] = {}
    for word in words:
        of, equals, amount = word.partition("=")
        container, slash, resource = of.rpartition("/")
        try:
            if not equals or not resource or (slash and not container):
                raise QuantityError(word, "RESOURCE=QUANTITY or CONTAINER/RESOURCE=QUANTITY")
            milli = parse_quantity(amount).milli_int64
        except QuantityError as error:
            raise WrongInput(f"--request {word}: {error}") from None
        if milli <= 0:
            raise WrongInput(f"--request {word}: above zero is wanted")
        found.setdefault(container or "app", {})[resource] = milli
    return found
