"""Permissions (specification, section 10): what each command needs, who asks, and the refusal.

A broker without a table of tokens never comes here. With one, each plan is wrapped once, when its
head is planned: what the head needs and which token it carries stay the same as long as it is
remembered. What the token is worth may change with any turn, so that is asked every time.
"""

from __future__ import annotations

import logging

import attrs

from zbus.core.errors import BrokerError, Refusal
from zbus.faces.access import NOBODY, NOTHING, Access, Bearer, Grant
from zbus.faces.native.commands import NO_COMMAND, TABLE, Groups
from zbus.faces.native.context import Context
from zbus.faces.native.events import FollowStream, follows_topic
from zbus.faces.native.params import Params
from zbus.faces.native.replies import NativeReply
from zbus.faces.peer import Peer, Plan
from zbus.wire.target import decode_valid_percent

log = logging.getLogger("zbus")

_LOG_EVERY_MS = 1_000

URL_TOKEN = "a token in the URL is not taken here: send it as a header or cookie"


@attrs.frozen
class Needs:
    """What a request needs; the same for all requests of a head."""

    operation: str = ""
    topic: str = ""
    groups: tuple[str, ...] = ()
    whole: bool = False  # the topic with all its groups

    def met_by(self, grant: Grant) -> bool:
        topic = self.topic
        if not grant.may(self.operation):
            return False
        if not topic:
            return True
        if self.whole:
            return grant.sees_all(topic)
        return grant.sees(topic) and all(grant.sees(topic, group) for group in self.groups)


def needs_of(params: Params) -> Needs:
    """What a command needs, by the columns of its row."""
    cmd, topic = params.cmd, params.topic
    command = TABLE.get(cmd, NO_COMMAND)
    operation = command.operation or ""
    match command.groups:
        case Groups.UNKNOWN:
            return Needs(operation)
        case Groups.NONE:
            return Needs(operation, topic)
        case Groups.ALL:
            return Needs(operation, topic, whole=True)
        case Groups.NAMED:
            named = (params.group,) if params.group else ()
            return Needs(operation, topic, named, whole=not named)
    groups = [params.group or topic]
    if cmd == b"declare":
        if params.flag(b"group_name_auto"):
            # The broker takes the topic's name, perhaps with a number behind it.
            groups = [topic + "*"]
        if copied := params.text(b"group_start_copy"):
            groups.append(copied)  # the new group would tell where that one stands
    # At an offset, or in a stream without a group, the log is read: that of all groups.
    whole = cmd == b"consume" and (b"offset" in params.fields or follows_topic(params))
    return Needs(operation, topic, tuple(groups), whole)


def token_of(params: Params, url_allowed: bool) -> bytes | str | None:
    """The token that a request shows: header, else `authorization: Bearer`, else cookie, else URL.
    None = it shows none; text = the refusal of one that stands where it must not."""
    head = params.head.fields
    if token := head.get(b"token"):
        return decode_valid_percent(token)
    scheme, _, token = head.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer" and (token := token.strip()):
        return token
    for part in head.get(b"cookie", b"").split(b";"):
        name, _, token = part.strip().partition(b"=")
        if name == b"token" and token:
            return decode_valid_percent(token)
    if b"token" in params.query_names and (token := params.fields[b"token"]):
        return token if url_allowed else URL_TOKEN
    return None


def bearer_of(access: Access, peer: Peer, anybody: bool) -> Bearer:
    """Who asks, if a request shows no token. `anybody` says that it is a page's which is nobody in
    particular: browsers show their certificate for every page."""
    if peer.bearer is not None:
        return peer.bearer
    if anybody:
        return access.anonymous
    known = access.of_principal(peer.principal) if peer.principal else NOBODY
    return access.anonymous if known is NOBODY else known


def forbidden(command: str, topic: str) -> BrokerError:
    """The dialect's refusal, in the original's spelling."""
    about = f" Topic({topic})" if topic else ""
    return BrokerError(Refusal.FORBIDDEN, f"Command({command}){about} Forbbiden")


class Guarded:
    """A plan that is only run for those who may."""

    __slots__ = (
        "_access",
        "_anybody",
        "_bearer",
        "_face",
        "_judged",
        "_needs",
        "_params",
        "_passes",
        "_plan",
        "_token",
    )

    def __init__(self, face: Context, access: Access, params: Params, plan: Plan) -> None:
        self._face = face
        self._access = access
        self._params = params
        self._plan = plan
        self._needs = needs_of(params)
        self._token = token_of(params, face.settings.allow_url_token)
        self._anybody = face.guard.is_anybodys(params.head)
        self._bearer = NOBODY  # of the token, once it was found
        self._judged = NOTHING  # the last grant that was looked at,
        self._passes = False  # and what it is good for

    def run(self, peer: Peer, id: bytes, body: bytes) -> None:
        bearer = self._bearer
        if bearer.grant is NOTHING:
            bearer = self._look_up(peer)
        grant = bearer.grant
        if grant is not self._judged:
            self._judged = grant
            self._passes = self._needs.met_by(grant)
        if not self._passes or self._face.broker.now_ms >= grant.expires_ms:
            self._refuse(peer, id)
            return
        peer.asker = bearer
        self._plan.run(peer, id, body)
        if peer.groups and self._needs.operation == "consume":
            self._remember(peer, bearer)

    def _look_up(self, peer: Peer) -> Bearer:
        token = self._token
        if token is None:
            return bearer_of(self._access, peer, self._anybody)
        if type(token) is bytes:
            self._bearer = self._access.of_token(token)
        return self._bearer

    def _remember(self, peer: Peer, bearer: Bearer) -> None:
        """Who made the peer a reader of the group: it is one as long as that one may read it."""
        topic = self._face.broker.topic(self._needs.topic)
        groups = peer.groups
        if topic is None or groups is None or not self._needs.groups:
            return
        group = topic.group(self._needs.groups[0])
        if group is not None and group in groups:
            admitted = peer.admitted or {}
            admitted[group] = bearer
            if len(admitted) > len(groups):
                admitted = {group: by for group, by in admitted.items() if group in groups}
            peer.admitted = admitted

    def _refuse(self, peer: Peer, id: bytes) -> None:
        """Said even to who asked not to be told: a call with a bad token would wait for ever."""
        params = self._params
        self._tell_log(peer)
        reply = NativeReply(self._face, params, peer, id)
        if params.cmd == b"home":
            reply.tell(302, b"location: /?cmd=login\r\n")
        elif type(self._token) is str:
            reply.tell_error(BrokerError(Refusal.FORBIDDEN, self._token))
        else:
            reply.tell_error(forbidden(_shown(params.cmd), params.topic))

    def _tell_log(self, peer: Peer) -> None:
        """Who runs the broker learns of it, yet not of each: a line a second at most."""
        access, params, now_ms = self._access, self._params, self._face.broker.now_ms
        access.refusals += 1
        if now_ms < access.told_ms + _LOG_EVERY_MS:
            return
        who = "nobody" if self._token is None else "an unknown token"
        fields = {
            "peer": peer.address,
            "who": self._judged.name or who,
            "command": _shown(params.cmd),
            "topic": params.topic[:100],
            "times": access.refusals,
        }
        log.warning("forbidden", extra=fields)
        access.told_ms, access.refusals = now_ms, 0


def _shown(command: bytes) -> str:
    return command.strip(b"\0")[:40].decode("utf-8", "replace")


def expel(face: Context, access: Access) -> None:
    """End the reading of groups by those who may not any more; their waiting consumes get a 403.
    So do those who follow a topic."""
    broker = face.broker
    for peer in list(broker.sessions.values()):
        if not isinstance(peer, Peer):
            continue
        follower = peer.follower
        if isinstance(follower, FollowStream) and follower.bearer is not None:
            topic = follower.params.topic
            known = follower.bearer.is_known(broker.now_ms)
            if not (known and Needs("consume", topic, whole=True).met_by(follower.bearer.grant)):
                broker.following.expel(follower, forbidden("consume", topic))
        if not peer.admitted:
            continue
        for group, bearer in list(peer.admitted.items()):
            topic = group.topic.name
            # One queue, by whatever name it was asked for: who may any group may this one.
            groups = () if group.topic.options.competing else (group.name,)
            needs = Needs("consume", topic, groups)
            if bearer.is_known(broker.now_ms) and needs.met_by(bearer.grant):
                continue
            del peer.admitted[group]
            if peer.groups and group in peer.groups:
                broker.leave_group(peer, group, forbidden("consume", topic))
