"""Who may do what: tokens, names in client certificates, and what each is granted.

The table holds SHA-256 digests, never tokens. A request's token is hashed and compared with every
digest in constant time. What is found is a `Bearer`, which stays the same object when the table is
replaced, so that whatever lasts longer than a request (a waiting pull, a subscription, a WebSocket)
can keep it and see at any time what it may do now. See docs/reference/access.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from hmac import compare_digest

import attrs

from zbus.edge.quotas import NO_LIMITS, Limits, Meter

OPERATIONS = (
    "produce",
    "consume",
    "route",
    "query",
    "declare",
    "empty",
    "remove",
    "track_pub",
    "track_sub",
    "tracker",
    "server",
    "ssl",
    "disconnect",
    "move",
)
"""What can be granted (specification, section 10), beside `*` (all of them) and `admin`."""

ADMIN = "admin"
"""The operation that passes everything, on every topic."""

ALL = "*"
NEVER_MS = 1 << 63


@attrs.frozen(eq=False)
class Grant:
    """The rights of a client. Names of topics and groups are compared without regard to case; one
    that ends in `*` stands for all that begin with what is before it."""

    name: str = ""  # whose it is, for people
    operations: frozenset[str] = frozenset()
    topics: tuple[tuple[str, tuple[str, ...]], ...] = ()  # a topic, and groups of it; lower case
    expires_ms: int = NEVER_MS  # epoch milliseconds from which on it is worth nothing
    limits: Limits = NO_LIMITS
    meter: Meter | None = None  # of one that has limits and is in a table

    def may(self, operation: str) -> bool:
        """Whether an operation is granted; "" is what needs none."""
        operations = self.operations
        return not operation or operation in operations or ALL in operations or self.admin

    def sees(self, topic: str, group: str | None = None) -> bool:
        """Whether the topic, or this group of it, is granted."""
        name, group = topic.lower(), None if group is None else group.lower()
        return self.admin or any(
            _matches(pattern, name)
            and (group is None or any(_matches(one, group) for one in groups))
            for pattern, groups in self.topics
        )

    def sees_all(self, topic: str) -> bool:
        """Whether the topic is granted with all of its groups."""
        name = topic.lower()
        return self.admin or any(
            ALL in groups and _matches(pattern, name) for pattern, groups in self.topics
        )

    @property
    def sees_everything(self) -> bool:
        """All groups of all topics, those to come included."""
        return self.admin or any(
            pattern == ALL and ALL in groups for pattern, groups in self.topics
        )

    @property
    def admin(self) -> bool:
        return ADMIN in self.operations


def _matches(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern[-1:] == ALL else name == pattern


def make_grant(
    name: str,
    operations: Iterable[str],
    topics: Mapping[str, Sequence[str]],
    expires_ms: int = NEVER_MS,
    limits: Limits = NO_LIMITS,
) -> Grant:
    """A grant as it is written: `{"Orders": ["billing"]}`; no groups are all groups."""
    folded = tuple(
        (topic.lower(), tuple(group.lower() for group in groups) or (ALL,))
        for topic, groups in topics.items()
    )
    return Grant(name, frozenset(operations), folded, expires_ms, limits)


def view_of(grant: Grant | None) -> Grant | None:
    """The same for all who see the same, as far as that is cheap to find."""
    return None if grant is None or grant.sees_everything else grant


@attrs.frozen
class Needs:
    """What a request needs; the same for all requests of a head."""

    operation: str = ""  # one of OPERATIONS; "" = any known token will do
    topic: str = ""
    groups: tuple[str, ...] = ()
    whole: bool = False  # the topic with all its groups
    command: str = ""  # what it is called in the dialect, for the log
    also: Needs | None = None  # of another topic

    def met_by(self, grant: Grant) -> bool:
        topic = self.topic
        if not grant.may(self.operation) or (self.also and not self.also.met_by(grant)):
            return False
        if not topic:
            return True
        if self.whole:
            return grant.sees_all(topic)
        return grant.sees(topic) and all(grant.sees(topic, group) for group in self.groups)


NOTHING = Grant(expires_ms=0)
"""Of a client that is unknown, or not known any more."""


class Bearer:
    """A client with a certain token or a certain name, and the rights that it has now."""

    __slots__ = ("grant",)

    def __init__(self) -> None:
        self.grant = NOTHING

    def is_known(self, now_ms: int) -> bool:
        """In the table, and not expired."""
        return now_ms < self.grant.expires_ms


UNKNOWN_BEARER = Bearer()
"""The bearer of an unknown token."""


@attrs.frozen
class Entry:
    """One entry of the table: what is granted, and to whom."""

    grant: Grant
    digests: tuple[bytes, ...] = ()  # SHA-256 of tokens; several while one replaces the other
    principals: tuple[str, ...] = ()  # names in client certificates
    anonymous: bool = False  # also to a client without credentials

    def shared(self, parts: int) -> Entry:
        """That of one of so many processes, each of which counts its part of the limits."""
        limits = self.grant.limits.shared(parts)
        return attrs.evolve(self, grant=attrs.evolve(self.grant, limits=limits))


class Access:
    """The table. It can be replaced at any time."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._tokens: dict[bytes, Bearer] = {}
        self._principals: dict[str, Bearer] = {}
        self._meters: dict[str, Meter] = {}  # by the names of their entries
        self.anonymous = Bearer()
        self._again_ms = 0  # when rights may be fewer than they were
        self.refusals = 0  # that the log does not know of
        self.logged_ms = 0  # when it was logged last
        self.update(entries)

    def update(self, entries: Iterable[Entry]) -> None:
        """Take over a new table. Who is not in it any more can do nothing from now on."""
        tokens: dict[bytes, Bearer] = {}
        principals: dict[str, Bearer] = {}
        old = [*self._tokens.values(), *self._principals.values(), self.anonymous]
        for bearer in old:
            bearer.grant = NOTHING
        meters: dict[str, Meter] = {}
        for entry in entries:
            grant = self._metered(entry.grant, meters)
            for digest in entry.digests:
                bearer = tokens[digest] = self._tokens.get(digest) or Bearer()
                bearer.grant = grant
            for name in entry.principals:
                bearer = principals[name] = self._principals.get(name) or Bearer()
                bearer.grant = grant
            if entry.anonymous:
                self.anonymous.grant = grant
        self._meters = meters
        self._tokens, self._principals = tokens, principals
        self._again_ms = 0

    def _metered(self, grant: Grant, meters: dict[str, Meter]) -> Grant:
        """With the meter of its entry, which goes on counting if there was one of that name."""
        if not grant.limits.any:
            return grant
        meter = meters[grant.name] = self._meters.get(grant.name) or Meter(grant.limits)
        if meter.limits != grant.limits:
            meter.change(grant.limits)
        return attrs.evolve(grant, meter=meter)

    def of_token(self, token: bytes) -> Bearer:
        """Whose token this is. Takes as long for an unknown one as for any other."""
        digest = sha256(token).digest()
        found = UNKNOWN_BEARER
        for known, bearer in self._tokens.items():
            if compare_digest(known, digest):
                found = bearer
        return found

    def of_tokens(self, tokens: Iterable[bytes]) -> Bearer:
        """The bearer of the first of these that is in the table."""
        found = [self.of_token(token) for token in tokens]
        return next((bearer for bearer in found if bearer is not UNKNOWN_BEARER), UNKNOWN_BEARER)

    def of_principal(self, name: str) -> Bearer:
        """Who has this name in a client certificate that was verified."""
        return self._principals.get(name, UNKNOWN_BEARER)

    def lapsed(self, now_ms: int) -> bool:
        """Whether rights may have ended since this was last asked: by a new table, or by time."""
        if now_ms < self._again_ms:
            return False
        bearers = [*self._tokens.values(), *self._principals.values(), self.anonymous]
        later = [b.grant.expires_ms for b in bearers if b.grant.expires_ms > now_ms]
        self._again_ms = min(later, default=NEVER_MS)
        return True
