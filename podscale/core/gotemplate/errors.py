"""What can be wrong with a template.

TemplateError
├── TemplateSyntaxError     it cannot be read: refused when the rules are loaded
└── TemplateExecutionError  it cannot be executed with these fields: fails one request
"""

from podscale.core.goquote import quote


class TemplateError(ValueError):
    """The template cannot be read, or cannot be executed with the given fields."""


class TemplateSyntaxError(TemplateError):
    """The text is not a template; the message has upstream's form, name and line first.

    ``action`` is the text from where an action opens that does not end well, ``""`` where none
    is to blame; ``left`` its delimiter, and ``opened`` how many of that stand before it.
    """

    def __init__(
        self, name: str, line: int, reason: str, action: str = "", left: str = "", opened: int = 0
    ) -> None:
        super().__init__(f"template: {name}:{line}: {reason}")
        self.line = line
        self.reason = reason
        self.action = action
        self.left = left
        self.opened = opened

    @property
    def plain(self) -> str:
        """The message for whoever wrote the text, which has no name and often one line."""
        text = f"line {self.line}: {self.reason}" if self.line > 1 else self.reason
        return f"{text}: {quote(self.action)}" if self.action else text


class TemplateExecutionError(TemplateError):
    """The template asks for a field, an index or an operation that does not exist."""
