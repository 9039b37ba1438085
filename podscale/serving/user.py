"""Who asks: the identity that authentication found and authorization judges."""

from msgspec import Struct

ANONYMOUS = "system:anonymous"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
MASTERS = "system:masters"


class User(Struct, frozen=True, gc=False):
    """One authenticated identity. Hashable: it is a part of cache keys."""

    name: str
    groups: tuple[str, ...] = ()  # as sent to SubjectAccessReview, in order
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()  # keys lower case, sorted


def with_authenticated_group(user: User) -> User:
    """Return ``user`` in ``system:authenticated``, as AuthenticatedGroupAdder does."""
    if AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return User(user.name, (*user.groups, AUTHENTICATED), user.uid, user.extra)


ANONYMOUS_USER = User(ANONYMOUS, (UNAUTHENTICATED,))
