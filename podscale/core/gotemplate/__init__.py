"""Go's text/template, as far as metric rules can use it.

``parse`` reads a template, ``Template.render`` executes it with named fields:
``syntax`` makes tokens, ``parse`` the tree, ``execute`` walks it, ``functions`` are the
built-ins and ``format`` is Go's fmt. Checked against Go itself (tests/unit/core/oracle).
"""

from podscale.core.gotemplate.errors import (
    TemplateError,
    TemplateExecutionError,
    TemplateSyntaxError,
)
from podscale.core.gotemplate.execute import Template, parse
from podscale.core.gotemplate.values import Value

__all__ = [
    "Template",
    "TemplateError",
    "TemplateExecutionError",
    "TemplateSyntaxError",
    "Value",
    "parse",
]
