"""The nodes of a YAML document, scanned and composed as yaml.v2 does.

yaml.v2 is a port of libyaml, so it is libyaml that reads here: a tab may follow a value or
a colon, which PyYAML's own scanner refuses. That one stands in where PyYAML was built
without libyaml; then such tabs are told as problems, and nothing else changes.
"""

import base64
import re
from collections.abc import Iterator
from typing import Any

import yaml
from yaml.composer import Composer, ComposerError
from yaml.resolver import Resolver

from adapter.errors import Problem
from podscale.core.plainwords import plain_words

EVENTS: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_STR = "tag:yaml.org,2002:str"
_NULL = "tag:yaml.org,2002:null"
_MERGE = "tag:yaml.org,2002:merge"
_BOOL = "tag:yaml.org,2002:bool"
_INT = "tag:yaml.org,2002:int"
_FLOAT = "tag:yaml.org,2002:float"
_BINARY = "tag:yaml.org,2002:binary"
# JSON writes what lies beyond 16 bits as two escapes, which libyaml refuses.
_PAIR = re.compile(
    r"(?<!\\)((?:\\\\)*)\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", re.IGNORECASE
)
_NULLS = frozenset(["", "~", "null", "Null", "NULL"])
# What yaml.v2 takes for a value of the tag; PyYAML's own rules are those of YAML 1.1.
_TAGGED = {
    _NULL: re.compile(r"~|null|Null|NULL|"),
    _BOOL: re.compile(
        "[yYnN]|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF|true|True|TRUE|false|False|FALSE"
    ),
    _INT: re.compile(r"[-+]?(?:0[bB][01_]+|0o[0-7_]+|0[xX][0-9a-fA-F_]+|[0-9][0-9_]*)"),
    _FLOAT: re.compile(
        r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
    ),
}


def root(text: str, events: Any = EVENTS) -> yaml.Node | Problem | None:
    """Return the root of the first document, ``None`` when it is empty.

    ``events`` is the loader that scans: PyYAML's with libyaml or without.
    """
    try:
        composer = _Composer(events(text))
        node = composer.get_node() if composer.check_node() else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        problem = error.problem
        if mark and problem:  # libyaml does not say which character, and a tab cannot be seen
            at = text[mark.index : mark.index + 1]
            problem = problem.replace("found character that", f"found character {at!r} that")
        what = ", ".join(part for part in (problem, error.context) if part)
        return Problem("", f"not YAML: {what}", line, column)
    except (yaml.YAMLError, UnicodeError) as error:  # what YAML does not allow has no mark
        return Problem("", f"not YAML: {_words(error)}")
    except RecursionError:
        return Problem("", "not YAML: nested too deeply")
    return None if node is None or is_null(node) else node


def nodes(text: str) -> Iterator[yaml.Node]:
    """Yield the root of each document; raises ``yaml.YAMLError``, ``UnicodeError`` and
    ``RecursionError``.
    """
    joined = _PAIR.sub(lambda m: m[1] + bytes.fromhex(m[2] + m[3]).decode("utf-16-be"), text)
    composer = _Composer(EVENTS(joined))
    while composer.check_node():
        if (node := composer.get_node()) is not None:
            yield node


def is_blank(text: str) -> bool:
    """Return whether nothing is written but comments and marks of documents."""
    return all(line.partition("#")[0].strip() in ("", "---", "...") for line in text.splitlines())


class _Composer(Composer, Resolver):
    """Composes from the events of another loader; an anchor may be given anew, as in Go."""

    def __init__(self, events: Any) -> None:
        Composer.__init__(self)
        Resolver.__init__(self)
        self._events = events

    def check_event(self, *kinds: type[yaml.Event]) -> bool:
        return bool(self._events.check_event(*kinds))

    def peek_event(self) -> Any:
        return self._events.peek_event()

    def get_event(self) -> Any:
        return self._events.get_event()

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()
        if not isinstance(event, yaml.AliasEvent):
            self.anchors.pop(event.anchor, None)
        return super().compose_node(parent, index)

    def compose_scalar_node(self, anchor: dict[Any, yaml.Node]) -> yaml.ScalarNode:
        is_tagged = self.peek_event().tag not in (None, "!")
        node: yaml.ScalarNode = super().compose_scalar_node(anchor)
        if not is_tagged:
            return node
        if node.tag == _BINARY:
            node.value = _unpacked(node)
        elif node.tag in _TAGGED and not _TAGGED[node.tag].fullmatch(node.value):
            name = node.tag.rpartition(":")[2]
            what = (
                f"{node.value!r} is no {name}, as its tag !!{name} says; write it without the tag"
            )
            raise ComposerError(None, None, what, node.start_mark)
        # What is tagged is not to be guessed at, as what is quoted is not.
        node.style = (node.style or "'") if node.tag != _NULL else None
        return node


def is_null(node: yaml.Node) -> bool:
    """Return whether ``node`` is a null, which sets whatever it is written to back to zero."""
    if not isinstance(node, yaml.ScalarNode) or node.style:
        return False
    return node.tag == _NULL or (node.tag != _STR and node.value in _NULLS)


def is_merge(key: yaml.Node) -> bool:
    """Return whether ``key`` is a ``<<`` without quotes."""
    return isinstance(key, yaml.ScalarNode) and key.tag == _MERGE


def is_text(node: yaml.ScalarNode) -> bool:
    """Return whether ``node`` is quoted or tagged, and so is a text and no boolean."""
    return bool(node.style) and node.tag != _BOOL


def kind(node: object) -> str:
    """Return what ``node`` is, in the words of a problem."""
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if isinstance(node, yaml.ScalarNode):
        return f"the text {node.value!r}"
    return "nothing"


def _unpacked(node: yaml.ScalarNode) -> str:
    try:
        packed = node.value.translate({ord("\r"): None, ord("\n"): None})
        return base64.b64decode(packed, validate=True).decode()
    except ValueError:
        raise ComposerError(
            None, None, "a !!binary that is not a text in base64", node.start_mark
        ) from None


def _words(error: Exception) -> str:
    # PyYAML names the text it was given as if it were a file.
    return " ".join(plain_words(str(error)).replace('in "<unicode string>",', "at").split())
