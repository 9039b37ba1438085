"""YAML read as strictly as prometheus-adapter reads it, with every problem kept.

Follows yaml.v2's ``UnmarshalStrict`` into Go structs: unknown and repeated keys are
errors, keys are case-sensitive, any scalar serves where a text is expected (``5`` is
"5"), booleans are those of YAML 1.1, ``null`` is the zero value. Where Go stops at one
problem of a kind, this reads on, so that one round of editing is enough.
"""

from collections.abc import Iterator, Sequence

import yaml
from msgspec import Struct

from adapter.errors import Problem

_TRUE = frozenset(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
_FALSE = frozenset(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])
_NULLS = frozenset(["", "~", "null", "Null", "NULL"])
_STR = "tag:yaml.org,2002:str"
_NULL = "tag:yaml.org,2002:null"


class Fields(Struct, frozen=True):
    """The keys of one mapping that carry a value, and where the mapping stands."""

    path: str
    nodes: dict[str, yaml.Node]

    def has(self, key: str) -> bool:
        """Return whether ``key`` is written with a value other than null."""
        return key in self.nodes and not _is_null(self.nodes[key])

    def at(self, key: str) -> str:
        """Return the path of ``key``."""
        return f"{self.path}.{key}" if self.path else key


class Reader:
    """Reads typed fields out of YAML nodes; collects problems and places on the way."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.places: dict[str, tuple[int, int]] = {}

    def document(self, text: str) -> yaml.Node | None:
        """Return the root of the first document; ``None`` when it is empty or unreadable."""
        try:
            loader = yaml.SafeLoader(text)
            root: yaml.Node | None = loader.get_node() if loader.check_node() else None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
            what = ", ".join(part for part in (error.problem, error.context) if part)
            self.problems.append(Problem("", f"not YAML: {what}", line, column))
            return None
        except yaml.YAMLError as error:  # a character that YAML does not allow has no mark
            self.problems.append(Problem("", f"not YAML: {_words(error)}"))
            return None
        except RecursionError:
            self.problems.append(Problem("", "not YAML: nested too deeply"))
            return None
        return None if root is None or _is_null(root) else root

    def fields(self, node: object, path: str, known: Sequence[str]) -> Fields:
        """Return the entries of a mapping whose keys must be among ``known``."""
        nodes: dict[str, yaml.Node] = {}
        for key, value in self._pairs(node, path):
            if key in known:
                nodes[key] = value
                self._place(f"{path}.{key}" if path else key, value)
            elif not self._is_merge_into(nodes, key, value, path, known):
                self._refuse_key(node, key, path, known)
        return Fields(path, nodes)

    def child(self, parent: Fields, key: str, known: Sequence[str]) -> Fields:
        """Return the mapping below ``key``; an absent one has no fields."""
        if not parent.has(key):
            return Fields(parent.at(key), {})
        return self.fields(parent.nodes[key], parent.at(key), known)

    def entries(self, parent: Fields, key: str) -> Iterator[tuple[str, yaml.Node, str]]:
        """Yield key, value and path of a mapping with free keys, in the file's order."""
        if not parent.has(key):
            return
        path = parent.at(key)
        for name, value in self._pairs(parent.nodes[key], path):
            self._place(f"{path}.{name}", value)
            yield name, value, f"{path}.{name}"

    def items(self, parent: Fields, key: str) -> Iterator[tuple[yaml.Node, str]]:
        """Yield the items of a list and their paths."""
        if not parent.has(key):
            return
        node, path = parent.nodes[key], parent.at(key)
        if not isinstance(node, yaml.SequenceNode):
            self._add(node, path, f"a list is expected here, this is {_kind(node)}")
            return
        for index, item in enumerate(node.value):
            self._place(f"{path}[{index}]", item)
            yield item, f"{path}[{index}]"

    def text(self, parent: Fields, key: str) -> str:
        """Return a text; any scalar but null stands for itself, null and absence are ""."""
        if not parent.has(key):
            return ""
        node = parent.nodes[key]
        if not isinstance(node, yaml.ScalarNode):
            self._add(node, parent.at(key), f"a text is expected here, this is {_kind(node)}")
            return ""
        return str(node.value)

    def flag(self, parent: Fields, key: str, *, default: bool) -> bool:
        """Return a boolean of YAML 1.1 (``yes``, ``off``, ``y`` … count)."""
        if not parent.has(key):
            return default
        node = parent.nodes[key]
        if isinstance(node, yaml.ScalarNode) and not (node.style and node.tag == _STR):
            if node.value in _TRUE:
                return True
            if node.value in _FALSE:
                return False
        self._add(node, parent.at(key), f"true or false is expected here, this is {_kind(node)}")
        return default

    def refuse(self, parent: Fields, key: str, message: str) -> None:
        """Record that the value of ``key`` cannot be used."""
        self._add(parent.nodes[key], parent.at(key), message)

    def _pairs(self, node: object, path: str) -> Iterator[tuple[str, yaml.Node]]:
        if isinstance(node, yaml.Node) and _is_null(node):
            return
        if not isinstance(node, yaml.MappingNode):
            self._add(node, path, f"a mapping is expected here, this is {_kind(node)}")
            return
        seen: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._add(key, path, f"a key must be a text, this is {_kind(key)}")
                continue
            name = "" if _is_null(key) else str(key.value)
            if name in seen:
                self._add(key, path, f"{name!r} is written twice; keep one of them")
                continue
            seen.add(name)
            yield name, value

    def _is_merge_into(
        self,
        nodes: dict[str, yaml.Node],
        key: str,
        value: yaml.Node,
        path: str,
        known: Sequence[str],
    ) -> bool:
        if key != "<<":
            return False
        sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
        for source in reversed(sources):
            nodes.update(self.fields(source, path, known).nodes)
        return True

    def _refuse_key(self, node: object, key: str, path: str, known: Sequence[str]) -> None:
        assert isinstance(node, yaml.MappingNode)  # noqa: S101 - _pairs yields for nothing else
        at = next(k for k, _ in node.value if isinstance(k, yaml.ScalarNode) and k.value == key)
        near = next((k for k in known if k.lower() == key.lower()), None)
        hint = f"did you mean {near!r}?" if near else f"known here: {', '.join(known)}"
        self._add(at, path, f"unknown key {key!r}; {hint}")

    def _place(self, path: str, node: yaml.Node) -> None:
        self.places[path] = (node.start_mark.line + 1, node.start_mark.column + 1)

    def _add(self, node: object, path: str, message: str) -> None:
        line, column = 0, 0
        if isinstance(node, yaml.Node):
            line, column = node.start_mark.line + 1, node.start_mark.column + 1
        self.problems.append(Problem(path, message, line, column))


def _is_null(node: yaml.Node) -> bool:
    if not isinstance(node, yaml.ScalarNode) or node.style:
        return False
    return node.tag == _NULL or (node.tag != _STR and node.value in _NULLS)


def _kind(node: object) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if isinstance(node, yaml.ScalarNode):
        return f"the text {node.value!r}"
    return "nothing"


def _words(error: yaml.YAMLError) -> str:
    # PyYAML names the text it was given as if it were a file.
    return " ".join(str(error).replace('in "<unicode string>",', "at").split())
