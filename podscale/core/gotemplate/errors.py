"""What can be wrong with a template.

TemplateError
├── TemplateSyntaxError           it cannot be read: refused when the rules are loaded
│   └── TemplateConstructRefused  Go can read it, and rules cannot use it
└── TemplateExecutionError        it cannot be executed with these fields: fails one request
"""

from podscale.core.goquote import quote

LEFT = "<<"  # opens an action
_MOST_SHOWN = 40  # characters of an action in a message


class TemplateError(ValueError):
    """The template cannot be read, or cannot be executed with the given fields."""


class TemplateSyntaxError(TemplateError):
    """The text is not a template; the message quotes the action that is wrong, with its place."""

    def __init__(self, text: str, at: int, reason: str) -> None:
        """``at`` is where in ``text`` the action opens."""
        self.reason = reason
        self.opened = text.count(LEFT, 0, at)  # actions before that one
        shown, *others = text[at : at + _MOST_SHOWN + 1].split("\n", 1)
        if others or len(shown) > _MOST_SHOWN:
            shown = f"{shown[:_MOST_SHOWN]}…"
        line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
        super().__init__(f"line {line}, column {column}: {reason}: {quote(shown)}")


class TemplateConstructRefused(TemplateSyntaxError):
    """The template uses what Go has and rules cannot use."""

    def __init__(self, text: str, at: int, construct: str) -> None:
        reason = (
            f"TemplateConstructRefused: rules cannot use {construct} in templates; write it with "
            "fields, index, if, range, printf, eq and ne"
        )
        super().__init__(text, at, reason)


class TemplateExecutionError(TemplateError):
    """The template asks for a field, an index or an operation that does not exist."""
