"""Which of two states of an object is the newer one. Pure.

resourceVersions of one resource are integers that grow (promised for clients since
Kubernetes 1.35, true of every release before); one that is not an integer can only be
taken as it comes.
"""

from podscale.core.ascii_text import whole_number


def number(resource_version: str) -> int:
    """Return the resourceVersion as a number; -1: it is not one."""
    found = whole_number(resource_version)
    return -1 if found is None else found


def is_older(candidate: int, known: int) -> bool:
    """Return whether ``candidate`` is surely older than what is known."""
    return 0 <= candidate < known


class NewestVersions:
    """How far each scope of a store has seen history, and which list is under way.

    ``is_rewritten`` tells that history went backwards (etcd restored from a backup):
    then the list is right and everything remembered is wrong, however new it looks.
    """

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._rewritten: dict[str, bool] = {}

    def start_list(self, scope: str) -> None:
        """A list begins."""
        self._rewritten.pop(scope, None)

    def note_page(self, scope: str, resource_version: str) -> bool:
        """Return whether this list comes from rewritten history."""
        if scope not in self._rewritten:
            listed = number(resource_version)
            self._rewritten[scope] = is_older(listed, self._seen.get(scope, -1))
        return self._rewritten[scope]

    def note_seen(self, scope: str, resource_version: str, *, is_list: bool = False) -> None:
        """History has been seen up to here."""
        head = number(resource_version)
        if is_list or head > self._seen.get(scope, -1):
            self._seen[scope] = head

    def is_past(self, scope: str, version: int) -> bool:
        """Return whether history up to ``version`` has been seen: what is absent was deleted."""
        return 0 <= version <= self._seen.get(scope, -1)
