"""The part of Go's text/template that metric rules use; anything else is refused by name.

Fields, constants, variables, pipelines, ``if``, ``with``, ``range``, ``define`` and
``template``, and the functions of ``functions``. ``parse`` reads a template with the tokens
of ``syntax`` into the ``nodes`` that write it. What is accepted renders as Go renders it.
"""

from podscale.core.gotemplate.errors import (
    TemplateError,
    TemplateExecutionError,
    TemplateSyntaxError,
)
from podscale.core.gotemplate.nodes import Template
from podscale.core.gotemplate.parse import parse
from podscale.core.gotemplate.values import Value

__all__ = [
    "Template",
    "TemplateError",
    "TemplateExecutionError",
    "TemplateSyntaxError",
    "Value",
    "parse",
]
