"""Templates that Go reads and ours refuses, known by their text alone (parts B5 and B6)."""

import re
from collections.abc import Callable, Mapping

# A word of Go's that no rules file we know uses, in an action and in no string; or a variable.
_WORD = re.compile(
    r"(?:and|block|break|call|continue|define|ge|gt|html|js|le|len|lt|nil|not|or|print|println"
    r"|slice|template|urlquery|with)\b"
)
_ACTION = re.compile(r"<<(.*?)>>", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|`[^`]*`|/\*.*?\*/')


def is_refused(template: str) -> bool:
    """Return whether the template uses a construct that rules cannot use."""
    actions = [_STRING.sub('""', action).strip() for action in _ACTION.findall(template)]
    return any(
        re.search(rf"(?:^|[\s(|]){_WORD.pattern}", action)
        or (":=" in action and not action.startswith("range"))
        for action in actions
    )


RULES: Mapping[str, Callable[[str], bool]] = {"TemplateConstructRefused": is_refused}
