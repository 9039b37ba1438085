"""The lines of each capability and their budgets: the table of docs/architecture.md.

``python -m tests.tools.budgets`` prints the table, and fails where a capability passes its
budget; ``make lint`` runs it. ``--write`` renews the column of present lines, ``--lower`` the
budgets as well where there are fewer lines now. A budget is raised by hand, in a commit that
says why.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DOCUMENT = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- lines: python -m tests.tools.budgets --write -->\n", "<!-- lines end -->\n"

# The longest beginning of a path counts.
CAPABILITIES: Mapping[str, Sequence[str]] = {
    "adapter core: rules, discovery, APIs": ["adapter/"],
    "MetricRules, sources, backends": [
        "adapter/metric_rules/", "adapter/sources/", "adapter/backends/",
        "podscale/feed/source_routing.py",
    ],
    "serving: HTTPS, auth, certificates, discovery": ["podscale/serving/"],
    "feed": ["podscale/feed/"],
    "prover": ["podscale/feed/prover/"],
    "kube: watch, columns, Lease, events": ["podscale/kube/"],
    "HPA decide": ["hpa/decide/"],
    "HPA shell": ["hpa/"],
    "reasons: frame, history, API": ["podscale/explain/"],
    "HPA explain and API": ["hpa/explain/", "hpa/decisions"],
    "forecast and simulation": ["hpa/forecast/", "hpa/simulate/", "hpa/loop/forecasts.py"],
    "VPA recommender": ["vpa/recommender/", "vpa/model/", "vpa/capping.py"],
    "VPA updater": ["vpa/updater/"],
    "VPA admission": ["vpa/admission/"],
    "VPA explain, API, shared": ["vpa/"],
    "HPA with VPA": [
        "podscale/coordinate/", "vpa/recommender/coordination",
    ],
    "nodes": [
        "podscale/nodes/", "podscale/cli/commands/nodes", "podscale/cli/commands/explain_pod"
    ],
    "doctor": ["adapter/doctor/", "podscale/cli/doctor/"],
    "migrate": ["podscale/migrate/", "podscale/cli/commands/migrate"],
    "replay": ["podscale/replay/", "podscale/cli/replay/"],
    "report": ["podscale/replay/fleet/", "podscale/cli/report/"],
    "page (Python)": ["podscale/page/", "podscale/cli/page"],
    "sandbox": ["podscale/sandbox/"],
    "demo": ["podscale/cli/demo/"],
    "other commands, eval, top": ["podscale/cli/"],
    "process, core": ["podscale/process/", "podscale/core/", "podscale/__", "config/"],
}  # fmt: skip


@dataclass
class Lines:
    """What is counted of modules, added up."""

    phys: int = 0
    code: int = 0  # without blanks, docstrings and comments
    modules: int = 0  # without those that are called __init__
    imports: int = 0  # lines of import statements
    unformatted: int = 0  # ``# fmt: skip``

    def add(self, text: str, *, is_module: bool) -> None:
        """Count the text of one file."""
        self.phys += text.count("\n")
        self.code += len(_code_lines(text))
        self.modules += is_module
        self.imports += sum(
            node.end_lineno - node.lineno + 1
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Import | ast.ImportFrom) and node.end_lineno
        )
        self.unformatted += len(re.findall(r"# fmt: skip\b", text))


def _code_lines(text: str) -> set[int]:
    # Lines with a token that says something, docstrings left out.
    idle = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
            tokenize.ENCODING, tokenize.ENDMARKER}  # fmt: skip
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in idle:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        is_documented = isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        )
        if is_documented and node.body and ast.get_docstring(node, clean=False) is not None:
            doc = node.body[0]
            lines.difference_update(range(doc.lineno, (doc.end_lineno or doc.lineno) + 1))
    return lines


def capability(path: str) -> str:
    """Return whose lines a file's are; KeyError for a file that nobody has."""
    fitting = [
        (len(prefix), name)
        for name, prefixes in CAPABILITIES.items()
        for prefix in prefixes
        if path.startswith(prefix)
    ]
    if not fitting:
        raise KeyError(f"{path}: name its capability in tests/tools/budgets.py")
    return max(fitting)[1]


def count(root: Path = ROOT) -> dict[str, Lines]:
    """Return the lines of each capability in the files that git knows."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=root, capture_output=True, text=True, check=True
    ).stdout.split()
    found = {name: Lines() for name in CAPABILITIES}
    for path in listed:
        file = root / path
        if not path.startswith("tests/") and file.exists():
            text = file.read_text(encoding="utf-8")
            found[capability(path)].add(text, is_module=file.name != "__init__.py")
    return found


def budgets(document: str) -> dict[str, int]:
    """Return the budgets that stand in the document's table."""
    table = document.partition(BEGIN)[2].partition(END)[0]
    rows = re.findall(r"^\| ([^|]+) \| [\d,]+ \| [\d,]+ \| ([\d,]+) \|$", table, re.MULTILINE)
    return {name: int(budget.replace(",", "")) for name, budget in rows if name != "sum"}


def table(found: Mapping[str, Lines], allowed: Mapping[str, int]) -> str:
    """Return the table of the document; a capability without a budget gets its lines as one."""
    rows = [(name, each.phys, each.code, allowed.get(name, each.phys))
            for name, each in found.items()]  # fmt: skip
    rows.append(("sum", *(sum(row[column] for row in rows) for column in (1, 2, 3))))
    head = "| capability | lines now | code | budget |\n|---|---|---|---|\n"
    return head + "".join(f"| {name} | {a:,} | {b:,} | {c:,} |\n" for name, a, b, c in rows)


def shares(found: Mapping[str, Lines]) -> str:
    """Return the line of what is counted over all."""
    phys = sum(each.phys for each in found.values())
    imports = sum(each.imports for each in found.values())
    said = 1 - sum(each.code for each in found.values()) / phys
    return (
        f"{sum(each.modules for each in found.values())} modules; imports {imports / phys:.1%} of "
        f"lines; docstrings, comments and blanks {said:.1%}; "
        f"`# fmt: skip` {sum(each.unformatted for each in found.values())} times\n"
    )


def beyond(found: Mapping[str, Lines], allowed: Mapping[str, int]) -> list[str]:
    """Return a sentence for each capability above its budget."""
    return [
        f"{name}: {each.phys:,} lines, and its budget is {allowed[name]:,}: make it fewer, or "
        "raise the budget in docs/architecture.md in a commit that says why"
        if name in allowed
        else f"{name}: has no budget in docs/architecture.md"
        for name, each in found.items()
        if each.phys > allowed.get(name, -1)
    ]


def main(words: Sequence[str]) -> int:
    """Print or write the table; return 1 where a budget is passed."""
    found, document = count(), DOCUMENT.read_text(encoding="utf-8")
    allowed = budgets(document)
    if words == ["--lower"]:
        allowed = {name: min(budget, found[name].phys) for name, budget in allowed.items()
                   if name in found}  # fmt: skip
    text = table(found, allowed) + "\n" + shares(found)
    if words:
        before, _, after = document.partition(BEGIN)
        written = before + BEGIN + text + END + after.partition(END)[2]
        DOCUMENT.write_text(written, encoding="utf-8")
        allowed = budgets(written)
    print(text, end="")
    problems = beyond(found, allowed)
    print("\n".join(["", *problems]) if problems else "every capability is within its budget")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
