"""A kubeconfig file as what YAML makes of it, and what is wrong with one that is none.

Whatever stands in the file may be a secret: a parser's words are shown without it.
"""

from pathlib import Path
from typing import Any

from podscale.core.showable import shown_problem


class NoKubeconfig(ValueError):
    """The file cannot be read as a kubeconfig; the text says why and holds nothing of it."""


def read(path: Path) -> dict[str, Any]:
    """Return the mapping that the file holds; raises ``NoKubeconfig``."""
    # Imported here: --help must not load it.
    import yaml

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        why = str(error)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        why = f"{where}not YAML: {shown_problem(error.problem or '')}"
    except yaml.YAMLError:
        why = "not YAML: it holds characters that YAML does not allow"
    except RecursionError:
        why = "nested too deeply"
    except UnicodeDecodeError:
        why = "not a text file in UTF-8"
    except Exception:  # noqa: BLE001 - PyYAML stumbles over it, and quotes it
        why = "not YAML: it holds a value that is not of the type it is tagged with"
    else:
        if isinstance(found, dict):
            return found
        why = "not a kubeconfig: no mapping with clusters and contexts"
    raise NoKubeconfig(why)
