"""Go's own answer to a template, where a Go toolchain is present."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from podscale.core import gotemplate
from podscale.core.gotemplate import TemplateExecutionError, TemplateSyntaxError
from tests.tools.required import absent

FIELDS = {
    "Series": "http_requests_total",
    "LabelMatchers": 'namespace="ns",pod=~"a|b"',
    "LabelValuesByName": {"namespace": "ns", "pod": "a|b", "empty": ""},
    "GroupBy": "pod,container",
    "GroupBySlice": ["pod", "container"],
}


_OUTSIDE = re.compile(
    r"TemplateConstructRefused|rules cannot|rules can |rules index|in rules|only maps have fields"
)


def is_outside(reason: str) -> bool:
    """Whether a template is refused as outside what rules can use, not as a mistake in Go."""
    return _OUTSIDE.search(reason) is not None


def answers(templates: Sequence[str]) -> list[tuple[str, str]]:
    """Return what Go makes of each template with ``FIELDS``: kind and text."""
    if shutil.which("go") is None:
        absent("no Go toolchain; install Go 1.26")
    lines = "\n".join(json.dumps({"Template": text, "Fields": FIELDS}) for text in templates)
    program = Path(__file__).parent / "main.go"
    done = subprocess.run(
        ["go", "run", str(program)],
        input=lines,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "GOFLAGS": "-mod=mod", "GO111MODULE": "off"},
    )
    assert done.returncode == 0, done.stderr
    read = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(read) == len(templates)
    return [(answer["kind"], answer["text"]) for answer in read]


def outcome(text: str) -> tuple[str, str]:
    """Return what our own template does with ``FIELDS``: kind and text."""
    try:
        template = gotemplate.parse(text)
    except TemplateSyntaxError as error:
        return "syntax", str(error)
    try:
        return "text", template.render(FIELDS)
    except TemplateExecutionError as error:
        return "execution", str(error)
