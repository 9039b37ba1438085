"""What is no JSON, or none that can be read, is a DecodeError, and nothing else is."""

import ast
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

import podscale.core.json_decoder
from podscale.core.json_decoder import JsonDecoder, NestsTooDeep, decode_json
from tests.names import ROOMS, ROOT

_THE_MODULE = Path(podscale.core.json_decoder.__file__)
_DECODING = {"decode", "Decoder", "loads", "load", "JSONDecoder"}


class Named(msgspec.Struct):
    name: str = ""


KINDS = [Named, dict[str, msgspec.Raw], msgspec.Raw, Any]


def nesting(levels: int) -> bytes:
    return b'{"x":' * levels + b"1" + b"}" * levels


@pytest.mark.parametrize("kind", KINDS)
def test_what_no_interpreter_follows_is_a_decode_error(kind):
    with pytest.raises(NestsTooDeep, match="nested too deeply"):
        decode_json(nesting(100_000), kind)
    with pytest.raises(msgspec.DecodeError):
        JsonDecoder(kind).decode(nesting(100_000))


@pytest.mark.parametrize("levels", [3_000, 9_995])
@pytest.mark.parametrize("kind", KINDS)
def test_nesting_is_read_or_a_decode_error(kind, levels):
    with suppress(msgspec.DecodeError):  # Python 3.13 follows 9,995 where little is on the stack
        decode_json(nesting(levels), kind)


@pytest.mark.parametrize("text", [b'{"name":"\xff"}', '{"name":"\ud800"}', b"", b"[]", "{"])
def test_what_is_no_object_of_text_is_a_decode_error(text):
    with pytest.raises(msgspec.DecodeError):
        decode_json(text, Named)


def _json_calls(path: Path) -> list[int]:
    """Return the lines that decode JSON: msgspec's ways, and the standard library's."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _DECODING:
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else node.value
            name = owner.id if isinstance(owner, ast.Name) else owner
            lines += [node.lineno] if name == "json" else []
        elif isinstance(node, ast.ImportFrom) and node.module in ("json", "msgspec.json"):
            lines += [node.lineno for each in node.names if each.name in _DECODING]
        elif isinstance(node, ast.ImportFrom) and node.module == "msgspec":
            lines += [node.lineno for each in node.names if each.name == "json"]
    return lines


def test_no_other_module_decodes_json():
    assert _json_calls(_THE_MODULE)
    others = {
        f"{path.relative_to(ROOT)}:{line}"
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if path != _THE_MODULE
        for line in _json_calls(path)
    }
    assert others == set(), "JSON of others is decoded by podscale.core.json_decoder"
