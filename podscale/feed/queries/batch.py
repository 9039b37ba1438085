"""Which namespaces and names go into one query (coalescing.md 3).

Pure. A *wide* batch reads all objects of its namespaces, a *named* one those of a union of
names. Both list their namespaces; cluster-scoped plans have the one namespace ``""``.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

# A wide query costs half as much per series as a named one, so it may read some in vain.
WIDE_FACTOR = 3


class BatchLimits(Struct, frozen=True):
    """How much one query may hold."""

    series: int = 1000
    namespaces: int = 100
    names: int = 200
    text: int = 8 * 1024  # bytes aimed at
    hard_text: int = 16_000  # bytes beyond which one namespace's names are split


GET_LIMITS = BatchLimits(text=2048, hard_text=2048)


class Shape(Struct, frozen=True):
    """What a plan's text costs: it repeats its values once per bound selector."""

    static: int
    per_namespace: int = 0  # selectors that list the namespaces
    per_name: int = 0  # selectors that list the names

    def namespace_cost(self, namespace: str) -> int:
        """Return the bytes that one more namespace adds."""
        return self.per_namespace * (len(namespace) + 1)

    def name_cost(self, name: str) -> int:
        """Return the bytes that one more name adds."""
        return self.per_name * (len(name) + 1)


class NamespaceRequest(Struct, frozen=True):
    namespace: str
    names: tuple[str, ...]  # sorted; empty: everything (wide)
    series: int  # expected


class Batch(Struct, frozen=True):
    namespaces: tuple[str, ...]
    names: tuple[str, ...] = ()  # empty: wide

    def halves(self) -> tuple["Batch", "Batch"] | None:
        """Return two smaller batches: of the namespaces, or where there is but the one of a
        cluster-scoped plan, of its names.
        """
        if len(self.namespaces) > 1:
            middle = len(self.namespaces) // 2
            return (
                Batch(self.namespaces[:middle], self.names),
                Batch(self.namespaces[middle:], self.names),
            )
        if self.namespaces == ("",) and len(self.names) > 1:
            middle = len(self.names) // 2
            return Batch(("",), self.names[:middle]), Batch(("",), self.names[middle:])
        return None


def is_wide(wanted: int, known: int | None) -> bool:
    """Return whether to read all objects of a namespace rather than those wanted."""
    return known is not None and known <= WIDE_FACTOR * wanted


def pack(wants: Iterable[NamespaceRequest], shape: Shape, limits: BatchLimits) -> list[Batch]:
    """Return the batches that cover the wants, filled in order of namespaces.

    The same wants give the same batches. A namespace over a limit goes alone; only its
    names, where the text would pass the hard limit, are spread over several batches.
    """
    ordered = sorted(wants, key=lambda want: want.namespace)
    wide = [want for want in ordered if not want.names]
    named = [want for want in ordered if want.names]
    return [*_fill(wide, shape, limits), *_fill(named, shape, limits)]


def _fill(wants: Sequence[NamespaceRequest], shape: Shape, limits: BatchLimits) -> Iterator[Batch]:
    namespaces: list[str] = []
    names: set[str] = set()
    series, text = 0, shape.static
    for want in wants:
        fresh = [name for name in want.names if name not in names]
        cost = shape.namespace_cost(want.namespace) + sum(map(shape.name_cost, fresh))
        if namespaces and (
            series + want.series > limits.series
            or len(namespaces) >= limits.namespaces
            or len(names) + len(fresh) > limits.names
            or text + cost > limits.text
        ):
            yield from _split(namespaces, names, shape, limits)
            namespaces, names, fresh = [], set(), list(want.names)
            series, text = 0, shape.static
            cost = shape.namespace_cost(want.namespace) + sum(map(shape.name_cost, fresh))
        namespaces.append(want.namespace)
        names.update(fresh)
        series, text = series + want.series, text + cost
    if namespaces:
        yield from _split(namespaces, names, shape, limits)


def _split(
    namespaces: Sequence[str], names: set[str], shape: Shape, limits: BatchLimits
) -> Iterator[Batch]:
    room = limits.hard_text - shape.static - sum(map(shape.namespace_cost, namespaces))
    piece: list[str] = []
    used = 0
    for name in sorted(names):
        cost = shape.name_cost(name)
        if piece and used + cost > room:
            yield Batch(tuple(namespaces), tuple(piece))
            piece, used = [], 0
        piece.append(name)
        used += cost
    yield Batch(tuple(namespaces), tuple(piece))
