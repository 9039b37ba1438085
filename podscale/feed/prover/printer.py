"""PromQL text of a tree: every parenthesis written, strings quoted as Go does.

Whoever prints a changed tree parses the text again and compares (``proof.py``): a printer
cannot be trusted, a comparison can. Pure.
"""

import re

from podscale.core.goquote import quote
from podscale.feed.prover import tree as promql

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


def printed(node: promql.Node) -> str:
    """Return the text; bound labels that were not filled in stand without a matcher."""
    match node:
        case promql.Number(text):
            return f"({text})" if text.startswith("-") else text
        case promql.Text(value):
            return quote(value)
        case promql.VectorSelector():
            return _selector(node)
        case promql.Negation(operand):
            return f"(-{printed(operand)})"
        case promql.Subquery():
            step = "" if node.step_ms is None else f"{node.step_ms}ms"
            return (
                f"({printed(node.operand)})[{node.range_ms}ms:{step}]"
                f"{_moved(node.at, node.offset_ms)}"
            )
        case promql.FunctionCall(function, arguments):
            return f"{function}({', '.join(map(printed, arguments))})"
        case promql.Aggregation():
            parameter = "" if node.parameter is None else f"{printed(node.parameter)}, "
            return (
                f"{node.op} {node.clause} ({_labels(node.labels)}) "
                f"({parameter}{printed(node.operand)})"
            )
        case promql.Binary():
            return f"({printed(node.left)} {node.op}{_modifiers(node)} {printed(node.right)})"


def _selector(node: promql.VectorSelector) -> str:
    matchers = [f"{_label(each.label)}{each.op}{quote(each.value)}" for each in node.matchers]
    name = node.name or ""
    if not _METRIC.fullmatch(name):
        matchers = [*([f"__name__={quote(name)}"] if name else []), *matchers]
        name = ""
    braces = f"{{{','.join(matchers)}}}" if matchers else ""
    width = "" if node.range_ms is None else f"[{node.range_ms}ms]"
    return f"{name}{braces}{width}{_moved(node.at, node.offset_ms)}"


def _moved(at: promql.AtModifier | None, offset_ms: int) -> str:
    text = ""
    if at is not None:
        text = f" @ {at.ms // 1000}.{at.ms % 1000:03}" if at.kind == "time" else f" @ {at.kind}()"
    if offset_ms:
        text += f" offset {'-' if offset_ms < 0 else ''}{abs(offset_ms)}ms"
    return text


def _modifiers(node: promql.Binary) -> str:
    text = " bool" if node.is_bool else ""
    if node.clause == "on" or node.labels or node.group:
        text += f" {node.clause} ({_labels(node.labels)})"
    if node.group and node.op not in promql.SET_OPS:
        text += f" group_{node.group} ({_labels(node.included)})"
    return text


def _labels(labels: tuple[str, ...]) -> str:
    return ",".join(map(_label, labels))


def _label(label: str) -> str:
    return label if _LABEL.fullmatch(label) else quote(label)
