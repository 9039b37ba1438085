"""A look at the rules file before anything is connected: all that is wrong with it, at once.

Unknown keys, bad patterns and bad templates are told together. Whether the cluster has
the resources that overrides name is only known later (``adapter.rules.ruleset``).
"""

from pathlib import Path

from adapter.errors import ConfigInvalid
from adapter.rules.ruleset import read_rules
from podscale.kube.client.resource import Resource


class _AnyCluster:
    # Not ``adapter.rules.presumed``: that doubts names without a group, and here a doubt would
    # refuse a file that this cluster may well understand.
    def resource_for(self, resource: str, group: str = "", version: str = "") -> Resource:
        name = resource.lower()
        return Resource(group, version or "v1", name, resource, singular=name)


def problem(path: Path) -> str:
    """Return what is wrong with the file, "" when nothing is."""
    try:
        check(path)
    except ConfigInvalid as invalid:
        return str(invalid)
    except OSError as error:
        return f"{path}: cannot be read: {_why(error)}"
    return ""


def _why(error: OSError) -> str:
    match error:
        case FileNotFoundError():
            return "no such file"
        case IsADirectoryError():
            return "it is a directory"
    return (error.strerror or str(error)).lower()


def check(path: Path) -> None:
    """Raise ``ConfigInvalid`` with every problem of the file, or ``OSError``."""
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    read_rules(text, str(path), _AnyCluster())
