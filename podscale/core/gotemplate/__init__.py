"""The part of Go's text/template that metric rules use; anything else is refused by name.

Fields, constants, ``if``, ``range``, and pipelines of ``index``, ``printf``, ``eq`` and ``ne``.
``parse`` reads a template into what writes it, by the ``functions``. What is accepted renders as
Go renders it.
"""

from podscale.core.gotemplate.functions import (
    LEFT,
    TemplateConstructRefused,
    TemplateError,
    TemplateExecutionError,
    TemplateSyntaxError,
    Value,
)
from podscale.core.gotemplate.parse import Template, parse

__all__ = [
    "LEFT",
    "Template",
    "TemplateConstructRefused",
    "TemplateError",
    "TemplateExecutionError",
    "TemplateSyntaxError",
    "Value",
    "parse",
]
