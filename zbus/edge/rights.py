"""Who asks, and whether he may: decided for every dialect before its plan is run.

A broker without a table of tokens lets everybody do everything. With one, each plan is wrapped
once, when its head is planned: what the head needs and which token it carries stay the same as long
as it is remembered. What the token is worth may change with any turn, so that is asked every time.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Sequence

import attrs

from zbus.core.broker import Broker
from zbus.core.fanout.subscribers import Subscriber
from zbus.core.model.errors import BrokerError, Refusal
from zbus.core.topics.topic import Group
from zbus.edge.access import NOTHING, UNKNOWN_BEARER, Access, Bearer, Needs
from zbus.edge.connection import Connection, Plan
from zbus.edge.guard import Guard, is_browser
from zbus.edge.parsed_request import ParsedRequest
from zbus.edge.shape_plans import Filled, Found, OfShape, Slotted
from zbus.option import option
from zbus.wire.heads.heads import Head
from zbus.wire.heads.shapes import Slots
from zbus.wire.target import decode_valid_percent

log = logging.getLogger("zbus")

_LOG_EVERY_MS = 1_000


@attrs.frozen(slots=False, kw_only=True)
class RightsOptions:
    """How a token may be shown."""

    allow_url_token: bool = option(
        False, "Take a token from the URL, too, where it stays in histories and in others' logs."
    )


URL_TOKEN = "a token in the URL is not taken here: send it as a header or cookie"


class PeerFollower(Subscriber):
    """Follows a topic for a peer, as long as the one who asked for it may read it."""

    __slots__ = ("bearer", "peer", "topic")

    def __init__(self, peer: Connection, topic: str) -> None:
        super().__init__(peer, peer.write)
        self.peer = peer
        self.topic = topic
        self.bearer = peer.asker  # None = everybody may


def forbidden(topic: str) -> BrokerError:
    """Reading that was allowed ends."""
    return BrokerError(Refusal.FORBIDDEN, f"{topic} may no longer be read with this token", topic)


Shown = tuple[bytes, ...] | str | None
"""What a request shows: the token, or several of which the first known one counts; () = one that
cannot be known; None = none; text = the refusal of one that stands where it must not."""


def tokens_of(head: Head, in_url: bytes, url_allowed: bool) -> Shown:
    """The first of: header `token`, `authorization: Bearer`, cookie, `authorization: Basic`, URL.

    Browsers remember the password of an address and add it to requests that pages of other sites
    make them send, so from a browser Basic is no token. A cookie is: `SameSite` keeps it back."""
    fields = head.fields
    if token := fields.get(b"token"):
        return (decode_valid_percent(token),)
    scheme, _, credentials = fields.get(b"authorization", b"").partition(b" ")
    scheme, credentials = scheme.lower(), credentials.strip()
    if scheme == b"bearer" and credentials:
        return (credentials,)
    for part in fields.get(b"cookie", b"").split(b";"):
        name, _, token = part.strip().partition(b"=")
        if name == b"token" and token:
            return (decode_valid_percent(token),)
    if scheme == b"basic" and credentials and not is_browser(fields):
        tokens = _tokens_of_basic(credentials)
        if tokens is not None:
            return tokens
    if in_url:
        return (in_url,) if url_allowed else URL_TOKEN
    return None


def _tokens_of_basic(credentials: bytes) -> tuple[bytes, ...] | None:
    """The password, then the user (RFC 7617); None if both are empty."""
    try:
        user, colon, password = base64.b64decode(credentials, validate=True).partition(b":")
    except binascii.Error:
        return ()
    if not colon:
        return ()
    return tuple(token for token in (password, user) if token) or None


class Rights:
    def __init__(
        self,
        broker: Broker,
        guard: Guard,
        access: Access | None = None,
        *,
        allow_url_token: bool = False,
    ) -> None:
        """Without a table of tokens everybody may do everything."""
        self.broker = broker
        self.guard = guard
        self.access = access
        self.allow_url_token = allow_url_token

    def knows(self, token: bytes) -> bool:
        """Whether a token is worth something now; without a table each is."""
        access = self.access
        return access is None or access.of_token(token).is_known(self.broker.now_ms)

    def wrap(self, head: Head, asked: ParsedRequest, plan: Plan | None = None) -> Plan:
        """The plan of what is asked, or another, to be run only for those who may."""
        if self.access is None or (needs := asked.needs()) is None:
            return plan or asked.plan()
        return Guarded(self, self.access, head, asked, needs, plan)

    def admit(self, peer: Connection, head: Head, asked: ParsedRequest) -> str:
        """A connection opens with this head (a WebSocket's handshake): its token counts for all
        requests on it that show none of their own. Returns why it is refused, or ""."""
        if self.access is None:
            return ""
        shown = tokens_of(head, asked.url_token(), self.allow_url_token)
        if isinstance(shown, str):
            return shown
        if shown is not None:
            peer.bearer = self.access.of_tokens(shown)
            if not peer.bearer.is_known(self.broker.now_ms):
                return "this token is not known"
        elif self.guard.is_anybodys(head):
            peer.bearer = self.access.anonymous
        return ""

    def upkeep(self) -> None:
        """To be called about once a second, and after a change of the table of tokens: who may not
        read a group any more is no reader of it."""
        if self.access is None or not self.access.lapsed(self.broker.now_ms):
            return
        for peer in list(self.broker.sessions.values()):
            if isinstance(peer, Connection):
                try:
                    self._expel(peer)
                except Exception as error:
                    self.broker.faults.quarantine(peer, error)

    def _expel(self, peer: Connection) -> None:
        """End the reading of what it may not read any more; it gets an error that says so."""
        broker, follower = self.broker, peer.follower
        if isinstance(follower, PeerFollower) and follower.bearer is not None:
            needs = Needs("consume", follower.topic, whole=True)
            if not self._may_still(follower.bearer, needs):
                broker.expel(follower, forbidden(follower.topic))
        if not peer.admitted:
            return
        for group, bearer in list(peer.admitted.items()):
            topic = group.topic
            # One queue, by whatever name it was asked for: who may any group may this one.
            groups = () if topic.options.competing else (group.name,)
            if self._may_still(bearer, Needs("consume", topic.name, groups)):
                continue
            del peer.admitted[group]
            if peer.groups and group in peer.groups:
                broker.leave_group(peer, group, forbidden(topic.name))

    def _may_still(self, bearer: Bearer, needs: Needs) -> bool:
        return may_still(bearer, needs, self.broker.now_ms)


def may_still(bearer: Bearer | None, needs: Needs, now_ms: int) -> bool:
    """Whether the client of an earlier request may do it now; None = all may."""
    return bearer is None or (bearer.is_known(now_ms) and needs.met_by(bearer.grant))


def admit_reader(peer: Connection, group: Group, bearer: Bearer | None) -> None:
    """A request made the peer a reader of the group: it is one as long as its rights permit. To be
    called by plans whose heads do not say which group it is."""
    groups = peer.groups
    if bearer is None or groups is None or group not in groups:
        return
    admitted = peer.admitted or {}
    admitted[group] = bearer
    if len(admitted) > len(groups):
        admitted = {group: by for group, by in admitted.items() if group in groups}
    peer.admitted = admitted


class Guarded:
    """A plan that is only run for those who may."""

    __slots__ = (
        "_access",
        "_anybody",
        "_asked",
        "_bearer",
        "_broker",
        "_judged",
        "_needs",
        "_passes",
        "_plan",
        "_shown",
    )

    def __init__(
        self,
        rights: Rights,
        access: Access,
        head: Head,
        asked: ParsedRequest,
        needs: Needs,
        plan: Plan | None,
    ) -> None:
        self._access = access
        self._broker = rights.broker
        self._needs = needs
        self._plan = plan  # None until a client may
        self._asked = asked
        self._shown = tokens_of(head, asked.url_token(), rights.allow_url_token)
        self._anybody = rights.guard.is_anybodys(head)
        self._bearer = UNKNOWN_BEARER  # of the token, once it was found
        self._judged = NOTHING  # the last grant that was looked at,
        self._passes = False  # and what it is good for

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        refused = self.refusal(peer, body)
        if refused is not None:
            refused.run(peer, id, body)
            return
        plan = self._plan
        if plan is None:
            plan = self._plan = self._asked.plan()
        plan.run(peer, id, body)
        if peer.groups:
            self.remember(peer)

    def slots(self) -> Slots | None:
        """What its plan says: a token is never free."""
        if self._plan is None:
            self._plan = self._asked.plan()
        return self._plan.slots() if isinstance(self._plan, Slotted) else None

    def fill(self, names: Sequence[bytes], unshaped: Filled) -> Filled:
        """The plan of the shape, for those who may."""
        plan: object = self._plan
        assert isinstance(plan, Slotted)
        id_at = names.index(b"id") + 1 if b"id" in names else 0
        return GuardedShape(self, plan.fill(names, unshaped), id_at)

    def refusal(self, peer: Connection, body: bytes) -> Plan | None:
        """What is to be done instead; None = the peer may, and is the one who asks."""
        bearer = self._bearer
        if bearer.grant is NOTHING:
            bearer = self._look_up(peer)
        grant = bearer.grant
        if grant is not self._judged:
            self._judged = grant
            self._passes = self._needs.met_by(grant)
        if not self._passes or self._broker.now_ms >= grant.expires_ms:
            self._log_refusal(peer)
            why = self._shown if isinstance(self._shown, str) else ""
            known = self._shown is not None and bearer.is_known(self._broker.now_ms)
            return self._asked.forbid(why, known)
        meter = grant.meter
        if meter is not None:
            answer = meter.admit(peer, self._broker.now_ms, len(body))
            if answer is not None:
                return self._asked.refuse(answer)
        peer.asker = bearer
        return None

    def passed(self) -> Plan | None:
        """What was run the last time; None = the request was refused."""
        return self._plan if self._passes else None

    def _look_up(self, peer: Connection) -> Bearer:
        shown = self._shown
        if shown is None:
            return self._bearer_of(peer)
        if not isinstance(shown, str):
            self._bearer = self._access.of_tokens(shown)
        return self._bearer

    def _bearer_of(self, peer: Connection) -> Bearer:
        """The bearer of a request without a token. For a page of an unknown site only anonymous
        rights count: browsers show their certificate for every page."""
        access = self._access
        if peer.bearer is not None:
            return peer.bearer
        if self._anybody:
            return access.anonymous
        known = access.of_principal(peer.principal) if peer.principal else UNKNOWN_BEARER
        return access.anonymous if known is UNKNOWN_BEARER else known

    def remember(self, peer: Connection) -> None:
        """If the peer is a reader by what it has asked now, it is one as long as it may be."""
        if self._needs.operation != "consume":
            return
        topic = self._broker.topic(self._needs.topic)
        if topic is None or not self._needs.groups:
            return
        group = topic.group(self._needs.groups[0])
        if group is not None:
            admit_reader(peer, group, peer.asker)

    def _log_refusal(self, peer: Connection) -> None:
        """Who runs the broker learns of it, yet not of each: a line a second at most."""
        access, needs, now_ms = self._access, self._needs, self._broker.now_ms
        access.refusals += 1
        if now_ms < access.logged_ms + _LOG_EVERY_MS:
            return
        who = "no token" if self._shown is None else "an unknown token"
        fields = {
            "peer": peer.address,
            "who": self._judged.name or who,
            "command": needs.command or needs.operation,
            "topic": needs.topic[:100],
            "times": access.refusals,
        }
        log.warning("forbidden", extra=fields)
        access.logged_ms, access.refusals = now_ms, 0


class GuardedShape(OfShape):
    """A plan of a shape that is only run for those who may."""

    __slots__ = ("_guarded", "_id_at")

    plan: Filled

    def __init__(self, guarded: Guarded, plan: Filled, id_at: int) -> None:
        self._guarded = guarded
        self._id_at = id_at  # the group of the id; 0 = there is none
        self.plan = plan

    def run(self, peer: Connection, found: Found, body: bytes) -> None:
        refused = self._guarded.refusal(peer, body)
        if refused is not None:
            refused.run(peer, found[self._id_at] if self._id_at else b"", body)
            return
        self.plan.run(peer, found, body)
        if peer.groups:
            self._guarded.remember(peer)
