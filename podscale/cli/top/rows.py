"""A decision of an HPA or a VPA as one line of ``podscale top``. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from podscale.cli.commands.explained import lines
from podscale.cli.output import GAP, printable

COLUMNS = ("kind", "object", "load", "target", "size", "reason", "why")
# What gives way to the reason, in this order, and the width that is left to it.
_GIVING_WAY = {"target": 0, "load": 6, "size": 11, "object": 16}


class TopRow(Struct, frozen=True):
    """One autoscaler: what is shown, what it is sorted by, and the decision itself."""

    kind: str
    object: str
    load: str
    target: str
    size: str
    reason: str
    why: str
    load_ratio: float  # -1: not known
    body: Mapping[str, Any]

    @property
    def key(self) -> str:
        """The same row of the next look."""
        return f"{self.kind}/{self.object}"

    def cells(self) -> list[str]:
        """Return the texts of the columns, safe for a terminal."""
        return [printable(str(getattr(self, each))) for each in COLUMNS]

    def details(self, now: float) -> list[str]:
        """Return the decision in words, and the reasons before it."""
        status = self.body.get("status", {})
        before = (f"  {each.get('time', '')}  {each.get('reason', '')}"
                  for each in reversed(status.get("history", ())))  # fmt: skip
        return [*lines(self.body, now=now), "", *map(printable, before)]


def row_of(kind: str, body: Mapping[str, Any]) -> TopRow:
    """Return the line of a ScalingDecision (``hpa``) or SizingDecision (``vpa``)."""
    metadata, spec, status = body["metadata"], body.get("spec", {}), body.get("status", {})
    facts = status.get("facts", {})
    target = spec.get("scaleTargetRef") or spec.get("targetRef") or {}
    ratio = facts.get("ratio")
    known = isinstance(ratio, float | int)
    return TopRow(
        kind,
        f"{metadata.get('namespace', '')}/{metadata['name']}",
        f"{ratio:.0%} {facts.get('metric', '')}".strip() if known else "",
        f"{target.get('kind', '')}/{target.get('name', '')}",
        _replicas(spec, status) if kind == "hpa" else _amounts(status),
        status.get("first_reason", ""),
        status.get("why", ""),
        float(ratio) if known else -1.0,
        body,
    )


def chosen(rows: Iterable[TopRow], text: str, by: str, *, is_down: bool) -> Sequence[TopRow]:
    """Return the rows that hold ``text`` anywhere, sorted by a column."""
    wanted = text.casefold()
    kept = [row for row in rows if wanted in " ".join(row.cells()).casefold()]

    def key(row: TopRow) -> tuple[Any, str]:
        return row.load_ratio if by == "load" else getattr(row, by), row.key

    return sorted(kept, key=key, reverse=is_down)


def column_widths(
    heads: Mapping[str, str], rows: Iterable[Sequence[str]], most: int, padding: int
) -> dict[str, int]:
    """Return the columns to show and their widths, so that the reason ends within ``most``.

    ``heads`` are by column, ``rows`` as ``TopRow.cells``; ``padding`` comes on top of each width.
    """
    cells = zip(heads.values(), *rows, strict=True)
    widths = {each: max(map(len, of)) for each, of in zip(COLUMNS, cells, strict=True)}
    over = sum(width + padding for each, width in widths.items() if each != "why") - most
    for each, least in _GIVING_WAY.items():
        if over <= 0:
            break
        if not least:
            over -= widths.pop(each) + padding
            continue
        given = max(0, min(over, widths[each] - least))
        widths[each] -= given
        over -= given
    return widths


def fitted(
    rows: Sequence[TopRow], most: int
) -> tuple[Sequence[str], Sequence[Mapping[str, object]]]:
    """Return columns and rows of a table whose lines end within ``most`` characters, if they can.

    ``most`` of 0 cuts nothing.
    """
    cells = [row.cells() for row in rows]
    if not most:
        return COLUMNS, [dict(zip(COLUMNS, each, strict=True)) for each in cells]
    widths = column_widths({each: each for each in COLUMNS}, cells, most, len(GAP))
    del widths["why"]
    left = most - sum(width + len(GAP) for width in widths.values())
    if left >= len("why"):
        widths["why"] = left
    return list(widths), [
        {
            column: text if len(text) <= widths[column] else f"{text[: widths[column] - 1]}…"
            for column, text in zip(COLUMNS, each, strict=True)
            if column in widths
        }
        for each in cells
    ]


def _replicas(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    size = status.get("replicas")
    bounds = f"{spec.get('minReplicas', 1)}-{spec.get('maxReplicas', '')}"
    return f"{'?' if size is None else size} of {bounds}"


def _amounts(status: Mapping[str, Any]) -> str:
    found = []
    for each in status.get("recommendation", ()):
        amount = each.get("decision", {}).get("amount")
        if amount is not None:
            is_cpu = each.get("resource") == "cpu"
            shown = f"{amount}m" if is_cpu else f"{amount / 2**20:.0f}Mi"
            found.append(f"{each.get('container')} {each.get('resource')} {shown}")
    return ", ".join(found)
