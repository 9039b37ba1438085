"""What commands read of a kubeconfig themselves: names of contexts, and their namespaces."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from podscale.kube.client.credentials import NoKubeconfig, read_kubeconfig


def namespace(kubeconfig: str, context: str) -> str:
    """Return the namespace of the context in use, "default" where none is set."""
    chosen = context or next(
        (
            str(each["current-context"])
            for each in _files(kubeconfig)
            if each.get("current-context")
        ),
        "",
    )
    for each in _entries(kubeconfig):
        if each.get("name") == chosen:
            about = each.get("context")
            if isinstance(about, dict) and about.get("namespace"):
                return str(about["namespace"])
    return "default"


def contexts(kubeconfig: str) -> list[str]:
    return sorted({str(each.get("name", "")) for each in _entries(kubeconfig)} - {""})


def _entries(kubeconfig: str) -> Iterator[dict[str, Any]]:
    for document in _files(kubeconfig):
        listed = document.get("contexts")
        if isinstance(listed, list):
            yield from (each for each in listed if isinstance(each, dict))


def _files(kubeconfig: str) -> Iterator[dict[str, Any]]:
    default = Path(os.environ.get("HOME", "~")).expanduser() / ".kube" / "config"
    named = kubeconfig or os.environ.get("KUBECONFIG", "") or str(default)
    for part in named.split(os.pathsep):
        try:
            yield read_kubeconfig(Path(part).expanduser())
        except NoKubeconfig:
            continue  # who connects says what is wrong with it
