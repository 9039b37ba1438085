"""Who asks: the identity that authentication found and authorization judges."""

from sys import getsizeof

from msgspec import Struct

ANONYMOUS = "system:anonymous"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
MASTERS = "system:masters"
_HEAD_BYTES = 150  # of the object and its tuples, and of each extra


class User(Struct, frozen=True, gc=False):
    """One authenticated identity. Hashable: it is a part of cache keys."""

    name: str
    groups: tuple[str, ...] = ()  # as sent to SubjectAccessReview, in order
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()  # keys lower case, sorted

    @property
    def size(self) -> int:
        """What it takes in a cache, in bytes."""
        texts = [self.name, *self.groups, self.uid]
        for key, values in self.extra:
            texts += (key, *values)
        return sum(map(getsizeof, texts)) + _HEAD_BYTES * (2 + len(self.extra))


def with_authenticated_group(user: User) -> User:
    """Return ``user`` in ``system:authenticated``, as AuthenticatedGroupAdder does."""
    if AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return User(user.name, (*user.groups, AUTHENTICATED), user.uid, user.extra)


ANONYMOUS_USER = User(ANONYMOUS, (UNAUTHENTICATED,))
