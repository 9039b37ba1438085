"""YAML read as strictly as prometheus-adapter reads it, with every problem kept.

Follows yaml.v2's ``UnmarshalStrict`` into Go structs: unknown and repeated keys are
errors, keys are case-sensitive, any scalar serves where a text is expected (``5`` is
"5"), booleans are those of YAML 1.1, ``null`` is the zero value. Where Go stops at one
problem of a kind, this reads on, so that one round of editing is enough.

A merge (``<<``) writes into the same struct, where it stands among the keys: what comes
later, merged or not, fills structs further, replaces texts and lists, and adds to mappings
with free keys, of which none may be set twice. ``null`` empties what is there.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, TypeVar, get_args, get_origin

import yaml
from msgspec import Struct
from msgspec.structs import FieldInfo
from msgspec.structs import fields as declared

from adapter.errors import Problem
from adapter.rules.yaml_nodes import is_merge, is_null, is_text, kind, root
from podscale.core.times import duration

T = TypeVar("T", bound=Struct)

_TRUE = frozenset(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
# Pairs that merges may bring into one file: each may merge the one before it twice.
_MOST_MERGED = 100_000
_MOST_OF_KEY = 100  # characters compared with the known ones
_FALSE = frozenset(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])


class Fields(Struct, frozen=True):
    """The keys of one struct, and where it stands."""

    path: str
    # What is written to each key, by merges too, in the order in which it takes effect.
    nodes: dict[str, list[yaml.Node]]
    node: yaml.Node | None = None  # the last that writes to it

    def has(self, key: str) -> bool:
        """Return whether ``key`` ends up with a value other than null."""
        return key in self.nodes and not is_null(self.nodes[key][-1])

    def since_null(self, key: str) -> Sequence[yaml.Node]:
        """Return what is written to ``key`` and not emptied again by a null."""
        nodes = self.nodes.get(key, [])
        start = max((at + 1 for at, node in enumerate(nodes) if is_null(node)), default=0)
        return nodes[start:]

    def at(self, key: str) -> str:
        """Return the path of ``key``."""
        return f"{self.path}.{key}" if self.path else key


class YamlReader:
    """Reads typed fields out of YAML nodes; collects problems and places on the way."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.places: dict[str, tuple[int, int]] = {}
        self._told: set[tuple[int, int, str]] = set()
        self._merged_pairs = 0

    def document(self, text: str) -> yaml.Node | None:
        """Return the root of the first document; ``None`` when it is empty or unreadable."""
        found = root(text)
        if isinstance(found, Problem):
            self.problems.append(found)
            return None
        return found

    def fields(self, nodes: Sequence[yaml.Node], path: str, known: Sequence[str]) -> Fields:
        """Return what ``nodes`` write, one after the other, into a struct with ``known`` keys."""
        found: dict[str, list[yaml.Node]] = {}
        for node in nodes:
            for key, name, value in self._pairs(node, path):
                if name in known:
                    found.setdefault(name, []).append(value)
                    self._place(f"{path}.{name}" if path else name, value)
                else:
                    self._refuse_key(key, name, path, known)
        return Fields(path, found, nodes[-1] if nodes else None)

    def struct(self, type_: type[T], nodes: Sequence[yaml.Node], path: str) -> T:
        """Return the struct that ``nodes`` write; its fields' types say how each key is read.

        Texts, booleans, structs, lists and mappings of structs are declared as such. An
        ``Annotated[X, parse]`` is a text with a meaning: ``parse`` returns it, or raises
        ``ValueError`` with what is expected.
        """
        known = declared(type_)
        fields = self.fields(nodes, path, [each.encode_name for each in known])
        return type_(**{each.name: self._value(fields, each) for each in known})

    def _value(self, parent: Fields, field: FieldInfo) -> object:
        key, type_ = field.encode_name, field.type
        shape, (item, *more) = get_origin(type_), get_args(type_) or (type_,)
        if type_ is str:
            return self.text(parent, key)
        if type_ is bool:
            return self.flag(parent, key, default=field.default)
        if shape is tuple:
            items = self.items(parent, key)
            return tuple(self.struct(item, [node], path) for node, path in items)
        if shape is Mapping:
            entries = self.entries(parent, key)
            return {name: self.struct(more[0], [node], path) for name, node, path in entries}
        if shape in (Annotated, UnionType) and not parent.has(key):
            return field.default
        if shape is Annotated:
            try:
                return more[0](self.text(parent, key))
            except ValueError as error:
                self.refuse(parent, key, str(error))
                return field.default
        return self.struct(item, parent.since_null(key), parent.at(key))

    def entries(self, parent: Fields, key: str) -> Iterator[tuple[str, yaml.Node, str]]:
        """Yield key, value and path of a mapping with free keys, in the order of writing."""
        path = parent.at(key)
        seen: set[str] = set()
        for node in parent.since_null(key):
            for at, name, value in self._pairs(node, path):
                if name in seen:
                    # Here and not in a struct: Go finds the key in the map that it fills.
                    self._add(at, path, f"{name!r} is set twice, by a merge; keep one of them")
                    continue
                seen.add(name)
                self._place(f"{path}.{name}", value)
                yield name, value, f"{path}.{name}"

    def items(self, parent: Fields, key: str) -> Iterator[tuple[yaml.Node, str]]:
        """Yield the items of a list and their paths; a later list replaces an earlier one."""
        path = parent.at(key)
        items: list[yaml.Node] = []
        for node in parent.nodes.get(key, []):
            items = node.value if isinstance(node, yaml.SequenceNode) else []
            if not isinstance(node, yaml.SequenceNode) and not is_null(node):
                self._add(node, path, f"a list is expected here, this is {kind(node)}")
        for index, item in enumerate(items):
            self._place(f"{path}[{index}]", item)
            yield item, f"{path}[{index}]"

    def patterns(self, parent: Fields, key: str, expected: str) -> tuple[str, ...]:
        """Return a list of texts, none of them empty; ``expected`` is told of others."""
        patterns = []
        for node, path in self.items(parent, key):
            if isinstance(node, yaml.ScalarNode) and node.value:
                patterns.append(str(node.value))
            else:
                self._add(node, path, expected)
        return tuple(patterns)

    def text(self, parent: Fields, key: str) -> str:
        """Return a text; any scalar but null stands for itself, null and absence are ""."""
        text = ""
        for node in parent.nodes.get(key, []):
            text = str(node.value) if isinstance(node, yaml.ScalarNode) else ""
            if not isinstance(node, yaml.ScalarNode):
                self._add(node, parent.at(key), f"a text is expected here, this is {kind(node)}")
        return text if parent.has(key) else ""

    def flag(self, parent: Fields, key: str, *, default: bool) -> bool:
        """Return a boolean of YAML 1.1 (``yes``, ``off``, ``y`` … count)."""
        value = default
        for node in parent.nodes.get(key, []):
            value = default
            if is_null(node):
                continue
            word = ""
            if isinstance(node, yaml.ScalarNode) and not is_text(node):
                word = node.value
            if word in _TRUE or word in _FALSE:
                value = word in _TRUE
            else:
                what = f"true or false is expected here, this is {kind(node)}"
                self._add(node, parent.at(key), what)
        return value

    def refuse(self, parent: Fields, key: str, message: str) -> None:
        """Record that the value of ``key`` cannot be used, or is missing."""
        node = parent.nodes[key][-1] if key in parent.nodes else parent.node
        if node is None:
            raise KeyError(key)
        self._add(node, parent.at(key), message)

    def seconds(self, parent: Fields, key: str, default: float) -> float:
        """Return a Go duration of more than 0."""
        text = self.text(parent, key)
        if not text:
            return default
        try:
            found = duration.parse_go(text)
        except duration.DurationError as error:
            self.refuse(parent, key, error.advice)
            return default
        if found <= 0:
            self.refuse(parent, key, "more than 0 is expected")
        return found

    def _pairs(
        self, node: yaml.Node, path: str, within: Sequence[yaml.Node] = ()
    ) -> Iterator[tuple[yaml.Node, str, yaml.Node]]:
        """Yield key, its text and value of a mapping, and in their place those it merges."""
        if is_null(node):
            return
        if not isinstance(node, yaml.MappingNode):
            self._add(node, path, f"a mapping is expected here, this is {kind(node)}")
            return
        seen: set[str] = set()
        for key, value in node.value:
            if is_merge(key):
                for source in self._merged(value, path, (*within, node)):
                    if self._merged_pairs > _MOST_MERGED:
                        outermost = within[0] if within else node
                        self._add(outermost, path, "merges bring in more than a file may hold")
                        return
                    yield from self._pairs(source, path, (*within, node))
                continue
            if not isinstance(key, yaml.ScalarNode):
                self._add(key, path, f"a key must be a text, this is {kind(key)}")
                continue
            name = "" if is_null(key) else str(key.value)
            if name in seen:
                self._add(key, path, f"{name!r} is written twice; keep one of them")
                continue
            seen.add(name)
            self._merged_pairs += bool(within)
            yield key, name, value

    def _merged(
        self, value: yaml.Node, path: str, within: Sequence[yaml.Node]
    ) -> Iterator[yaml.Node]:
        # From the last to the first: of several sources the first is to win.
        sources = value.value[::-1] if isinstance(value, yaml.SequenceNode) else [value]
        for source in sources:
            if not isinstance(source, yaml.MappingNode):
                what = f"a merge takes a mapping or a list of them, this is {kind(source)}"
                self._add(source, path, what)
            elif any(source is outer for outer in within):
                self._add(source, path, "a mapping cannot be merged into itself")
            else:
                yield source

    def _refuse_key(self, key: yaml.Node, name: str, path: str, known: Sequence[str]) -> None:
        lower = {each.lower(): each for each in known}
        near = difflib.get_close_matches(name[:_MOST_OF_KEY].lower(), lower, n=1)
        hint = f"did you mean {lower[near[0]]!r}?" if near else f"known here: {', '.join(known)}"
        self._add(key, path, f"unknown key {name!r}; {hint}")

    def _place(self, path: str, node: yaml.Node) -> None:
        self.places[path] = (node.start_mark.line + 1, node.start_mark.column + 1)

    def _add(self, node: yaml.Node, path: str, message: str) -> None:
        line, column = node.start_mark.line + 1, node.start_mark.column + 1
        # What is merged into many is read once for each of them, and told once.
        if (line, column, message) not in self._told:
            self._told.add((line, column, message))
            self.problems.append(Problem(path, message, line, column))
