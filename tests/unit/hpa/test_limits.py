"""How large a class of the HPA may be: 8 parameters to make it, 12 attributes where it has methods.

More than that asks for a type. Structs are data and apart, but those of the record
(``hpa/cluster/record.py``) have 12 attributes at most as well.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import hpa

MOST_PARAMETERS, MOST_ATTRIBUTES = 8, 12
ROOT = Path(hpa.__file__).parent


def too_large(source: str, *, is_record: bool = False) -> Iterator[str]:
    """Yield what is too large in a module, in words."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef):
            continue
        is_struct = any("Struct" in ast.unparse(base) for base in node.bases)
        methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
        for made in (each for each in methods if each.name == "__init__"):
            count = len(made.args.args) + len(made.args.kwonlyargs) - 1
            if count > MOST_PARAMETERS:
                yield f"{node.name} takes {count} parameters"
        fields = {ast.unparse(each.target) for each in node.body if isinstance(each, ast.AnnAssign)}
        if not is_struct:
            fields |= set(_assigned(node))
        if len(fields) > MOST_ATTRIBUTES and (is_record or (methods and not is_struct)):
            yield f"{node.name} has {len(fields)} attributes"


def _assigned(node: ast.ClassDef) -> Iterator[str]:
    for each in ast.walk(node):
        is_set = isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
        if is_set and isinstance(each.value, ast.Name) and each.value.id == "self":
            yield each.attr


def test_no_class_is_too_large() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {each}"
        for path in sorted(ROOT.rglob("*.py"))
        for each in too_large(path.read_text(), is_record=path.name == "record.py")
    ]
    assert found == []


def test_what_is_too_large_is_found() -> None:
    attributes = "".join(f"        self.a{n} = {n}\n" for n in range(13))
    parameters = ", ".join(f"p{n}" for n in range(9))
    crowded = f"class Crowded:\n    def __init__(self, {parameters}):\n{attributes}"
    assert list(too_large(crowded)) == ["Crowded takes 9 parameters", "Crowded has 13 attributes"]
    fields = "class Data(Struct):\n" + "".join(f"    f{n}: int = 0\n" for n in range(13))
    assert list(too_large(fields)) == []
    assert list(too_large(fields, is_record=True)) == ["Data has 13 attributes"]
    assert list(too_large(fields.replace("(Struct)", "") + "    def m(self): ...\n")) == [
        "Data has 13 attributes"
    ]
