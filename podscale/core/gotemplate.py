"""The subset of Go's text/template that metric rules use. (Contract first; the body follows.)"""

from collections.abc import Mapping, Sequence
from typing import Union

Value = Union[str, int, float, bool, None, Sequence["Value"], Mapping[str, "Value"]]


class TemplateError(ValueError):
    """The template cannot be read, or cannot be executed with the given fields."""


class Template:
    """A parsed template; rendering is pure."""

    def render(self, fields: Mapping[str, Value]) -> str:
        """Return the text; raises ``TemplateError`` for an unknown field or a bad call."""
        raise NotImplementedError


def parse(text: str, left: str = "<<", right: str = ">>") -> Template:
    """Return the template; raises ``TemplateError`` for syntax and unknown functions."""
    raise NotImplementedError
