"""The zbus dialect: from a request to a verb of the broker (specification, sections 3 and 5).

A head is planned once: URL and header are merged, numbers parsed, the command found. The plan
stays on the head, so that a head which comes again costs a dictionary look-up.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import TypeAlias

from zbus.core.api import Broker, Routed
from zbus.dialects.zbus.documents import metrics
from zbus.dialects.zbus.documents import stats_stream as stats_module
from zbus.dialects.zbus.documents import trackers as track
from zbus.dialects.zbus.documents.history import Recorder
from zbus.dialects.zbus.inspect import get, read, redrive, why
from zbus.dialects.zbus.inspect import message_admin as single
from zbus.dialects.zbus.inspect import peek as listed
from zbus.dialects.zbus.messages import consume, events, leases, produce, routes
from zbus.dialects.zbus.messages import transactions as staged
from zbus.dialects.zbus.messages.cron import TIMES
from zbus.dialects.zbus.permissions import needs_of, shown_command
from zbus.dialects.zbus.placing import place_of
from zbus.dialects.zbus.replies import (
    Answered,
    NativeReply,
    forbidden_text,
    log_refusal,
    spelled,
    status_of,
)
from zbus.dialects.zbus.request.event_stream import wants_events
from zbus.dialects.zbus.request.header_lines import shown, stock
from zbus.dialects.zbus.request.json_frames import encode_json
from zbus.dialects.zbus.request.params import ALLOW, LOOKING, BadRequest, Params, hint_of
from zbus.dialects.zbus.request.put_kinds import PutKind
from zbus.dialects.zbus.request.reloads import Reloads
from zbus.dialects.zbus.request.websocket_frames import Frames, speaks_json
from zbus.dialects.zbus.schema.commands import BODIES, CHECKED, DOCUMENTS, FREE, MOUNTED, READS
from zbus.dialects.zbus.server import asyncapi, cluster, home, monitoring, openapi, tracker
from zbus.dialects.zbus.session import connections, login
from zbus.dialects.zbus.session.login import FORM
from zbus.dialects.zbus.settings import ZbusSettings
from zbus.dialects.zbus.topics import history, manage, schemas
from zbus.edge.access import Needs
from zbus.edge.bodies import NO_LENGTH_ANSWER, reading_body
from zbus.edge.connection import Connection, Plan
from zbus.edge.dialect import RESERVED, Parts, Report, first_segment
from zbus.edge.forms import FORM_BYTES_MAX
from zbus.edge.guard import Answer, Guard, Policy
from zbus.edge.places import ByOwnId, HowKnown, Place, Replies
from zbus.edge.rights import Rights, tokens_of
from zbus.edge.websocket import Codec
from zbus.wire.heads.heads import Head, Heads
from zbus.wire.replies import encode_reply
from zbus.wire.target import PAIRS_MAX

_INSTEAD_OF_BODY = frozenset((b"body", b"offset"))  # parameters, of a produce and a commit

Prepare: TypeAlias = "Callable[[ZbusDialect, Params], Plan]"


def at_once(answer: Callable[[NativeReply], None], quiet: bool = False) -> Prepare:
    """A command without parameters that is answered at once."""
    return lambda dialect, params: Answered(answer, dialect, params, quiet)


COMMANDS: dict[bytes, Prepare] = {
    b"produce": produce.Produce,
    b"consume": events.prepare,
    b"unconsume": consume.Unconsume,
    b"ack": leases.Ack,
    b"nack": leases.Nack,
    b"redrive": redrive.Redrive,
    b"txn_stage": staged.TxnStage,
    b"txn_commit": staged.TxnCommit,
    b"txn_abort": staged.TxnAbort,
    b"txn_query": staged.TxnQuery,
    b"extend": leases.Extend,
    b"delete": single.delete,
    b"cancel": single.cancel,
    b"fire": single.fire,
    b"reschedule": single.reschedule,
    b"peek": listed.Peek,
    b"why": why.Ask,
    b"route": routes.Route,
    b"declare": manage.Declare,
    b"seek": manage.Seek,
    b"query": manage.query,
    b"schema": schemas.schema,
    b"server": manage.query,
    b"stats": monitoring.Report,
    b"history": history.history,
    b"metrics": at_once(monitoring.scrape),
    b"health": monitoring.health,
    b"cluster": at_once(cluster.cluster),
    b"move": cluster.move,
    b"connections": connections.connections,
    b"disconnect": connections.disconnect,
    b"tracker": at_once(tracker.tracker),
    b"track_sub": at_once(tracker.follow),
    b"track_pub": tracker.TakeReport,
    b"ssl": tracker.ssl,
    b"remove": manage.Remove,
    b"empty": manage.Purge,
    b"pause": manage.Pause,
    b"resume": manage.Pause,
    b"read": read.Read,
    b"get": get.Get,
    b"heartbeat": at_once(manage.heartbeat, quiet=True),
    b"ping": at_once(manage.ping),
    b"version": at_once(manage.version),
    b"home": at_once(home.home),
    b"icon": at_once(home.icon),
    b"openapi": openapi.openapi,
    b"asyncapi": at_once(asyncapi.asyncapi),
    b"login": login.Login,
    b"logout": login.Logout,
    b"rights": at_once(login.rights),
}

POLICY = Policy(by_address=True, mark=b"cmd")
"""To put and take by a URL is this dialect's custom; headers with a `cmd` are a message."""

HTML = b"content-type: text/html\r\n"
OF_ALL = BadRequest(204, "", b"allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n")
"""`OPTIONS *` asks what the server can do at all (RFC 9110, section 9.3.7)."""


class ZbusDialect:
    prefixes: frozenset[bytes] = frozenset()  # everything that is no other dialect's
    policy = POLICY

    def __init__(
        self,
        broker: Broker,
        heads: Heads,
        settings: ZbusSettings,
        guard: Guard,
        rights: Rights,
    ) -> None:
        self.broker = broker
        broker.schedules.times = TIMES
        self.heads = heads
        self.settings = settings
        self.guard = guard
        self.rights = rights
        self.reloads = Reloads(settings.reload_window_ms)
        self.tracking = track.Tracking(broker, settings)
        self.stats = stats_module.Stats(broker, settings)
        self.metrics = metrics.Metrics(broker, settings)
        self.history = Recorder(broker) if settings.history == "on" else None
        if self.history is not None and settings.running is not None:
            settings.running.keep(self.history)
        self.put_kinds: dict[object, PutKind] = {}

    def claims(self, head: Head) -> bool:
        return b"cmd" in head.fields  # its URL may be one of elsewhere, which a proxy passes on

    def read(self, head: Head) -> ZbusRequest:
        cmd, skip, reserved_path = b"", 0, b""
        if head.target.startswith(b"/") and not (b"cmd" in head.fields or b"topic" in head.fields):
            first = first_segment(head)
            cmd, skip = MOUNTED.get(first, (b"", 0))
            if not cmd and (first.startswith(b"_") or first in RESERVED):
                reserved_path = first
        params = Params(head, cmd, skip)
        params.browser = None if head.contained else self.guard.browser(head)
        if params.browser is not None:
            params.plain, params.form = False, shown
        if params.implied and head.target == b"*":  # the wire takes it with OPTIONS alone
            return OfAll(self, params, b"")
        return ZbusRequest(self, params, reserved_path)

    def prepare(self, params: Params) -> Plan:
        """The plan of a command."""
        try:
            prepare = COMMANDS.get(params.cmd)
            if prepare is None:
                name = shown_command(params.cmd)
                text = f"Bad format: command({html.escape(name)}) not support"
                text += hint_of(params.cmd.lower(), COMMANDS)
                raise BadRequest(400, text, HTML)
            if params.crowded:
                text = f"400: Bad Format, a query has at most {PAIRS_MAX} parameters"
                raise BadRequest(400, text)
            if params.problem:
                raise BadRequest(400, f"400: Bad Format, {params.problem}")
            if params.only_looks and params.cmd not in READS and params.cmd != b"produce":
                raise BadRequest(405, LOOKING, ALLOW)
            if params.cmd in CHECKED and (params.head.json or not params.named):
                params.check_names()
            params.check_required()
            return prepare(self, params)
        except BadRequest as error:
            return Refuse(self, params, error)

    def open_codec(self) -> Frames:
        return Frames(self.heads)

    def reports(self) -> list[Report]:
        """What is told to each of the trackers."""
        return self.tracking.reports()

    def holds(self) -> dict[str, Callable[[], int]]:
        held = {"documents": self.tracking.bytes_used, "metrics": self.metrics.bytes_used}
        if self.history is not None:
            held["rates"] = self.history.bytes_used
        return held

    def upkeep(self) -> None:
        self.stats.upkeep()
        if self.history is not None:
            self.history.look()

    def push(self, peer: Connection, routed: Routed) -> bool:
        """A routed message for a client without an open call of that id."""
        lines = b"id: %b\r\nsender: %b\r\n%b" % (
            routed.id,
            routed.sender,
            routed.headers if speaks_json(peer) else stock(routed.headers),
        )
        encode = encode_json if speaks_json(peer) else encode_reply
        peer.write(encode(status_of(routed), lines, routed.body))
        return True


def build(parts: Parts) -> ZbusDialect:
    """The dialect, as `zbus.dialects.registry.DIALECTS` has it."""
    settings = parts.settings
    assert isinstance(settings, ZbusSettings)
    return ZbusDialect(parts.broker, parts.heads, settings, parts.guard, parts.rights)


class ZbusRequest:
    """A head as this dialect understands it."""

    __slots__ = ("_dialect", "_params", "_stray")

    def __init__(self, dialect: ZbusDialect, params: Params, reserved_path: bytes) -> None:
        """`stray` is the first segment of its path if that is reserved, yet leads nowhere."""
        self._dialect = dialect
        self._params = params
        self._stray = reserved_path

    def changes(self) -> bool:
        params = self._params
        if params.cmd == b"login":
            return params.head.method != b"GET"  # the form, and the token that was written into it
        return not self._stray and params.cmd not in READS

    def needs(self) -> Needs | None:
        params = self._params
        return None if self._stray or params.cmd in FREE else needs_of(params)

    def url_token(self) -> bytes:
        params = self._params
        return params.fields[b"token"] if b"token" in params.query_names else b""

    def opens(self) -> Callable[[], Codec] | None:
        return None if self._stray in RESERVED else self._dialect.open_codec

    def place(self) -> Place:
        if self._stray:
            return None
        running = self._dialect.settings.running
        return place_of(self._params, running is not None and running.cluster is not None)

    def replies(self) -> HowKnown:
        params = self._params
        if params.cmd in (b"consume", b"stats") and wants_events(params):
            return Replies.ALONE
        if params.multiplexed:
            return Replies.LOOSE
        return ByOwnId(params.id) if params.id else Replies.BY_ID

    def plan(self) -> Plan:
        if self._stray:
            text = f"404: there is nothing at /{self._stray.decode('latin-1')} here"
            return Refuse(self._dialect, self._params, BadRequest(404, text))
        params = self._params
        needs_body = params.cmd in BODIES and _INSTEAD_OF_BODY.isdisjoint(params.fields)
        if params.cmd == b"declare":
            needs_body = params.fields.get(b"schema") == b"body"
        if needs_body and params.head.open_ended:
            return self.refuse(NO_LENGTH_ANSWER)
        plan = self._dialect.prepare(params)
        if params.cmd not in DOCUMENTS:
            return plan
        most = FORM_BYTES_MAX if params.cmd == b"login" else None
        return reading_body(self, plan, params.fields, most)

    def plan_unread(self) -> Plan | None:
        if self._stray or self._params.cmd != b"route":
            return None
        return routes.Unread(self._dialect, self._params)

    def refuse(self, answer: Answer) -> Plan:
        # A supervisor asks by whatever name it knows this machine by, and is told nothing secret.
        if answer.status == 421 and self._params.cmd == b"health":
            return self.plan()
        error = BadRequest(answer.status, answer.text, answer.lines)
        return Refuse(self._dialect, self._params, error)

    def forbid(self, why: str, known: bool) -> Plan:
        # A person who opened this address can show a token there; a known one is told its lack.
        params = self._params
        if params.opened and not (known or why):
            error = BadRequest(302, "", FORM)
        elif why:
            error = BadRequest(403, f"403: {why}")
        else:
            text = forbidden_text(shown_command(params.cmd), params.topic)
            hint = "; log in anew at /?cmd=logout" if params.opened else ""
            if not known and not params.seed and tokens_of(params.head, self.url_token(), True):
                hint = "; this token is not known"
            error = BadRequest(403, spelled(text, params.seed) + hint)
        return Refuse(self._dialect, params, error, loud=True)


class OfAll(ZbusRequest):
    """`OPTIONS *`, for everybody."""

    __slots__ = ()

    def changes(self) -> bool:
        return False

    def needs(self) -> None:
        return None

    def plan(self) -> Plan:
        return Refuse(self._dialect, self._params, OF_ALL)


class Refuse:
    """A request that cannot be done as it stands."""

    __slots__ = ("_dialect", "_lines", "_params", "_quiet", "_status", "_text")

    def __init__(
        self, dialect: ZbusDialect, params: Params, error: BadRequest, *, loud: bool = False
    ) -> None:
        self._dialect = dialect
        self._params = params
        # Not the error itself: its traceback would keep all that was under way.
        self._status, self._lines, self._text = error.status, error.lines, error.text
        # Who produces without wanting to know is told nothing at all, as in the original; but he is
        # told that he may not: a call with a bad token would wait for ever.
        quiet = params.cmd == b"produce" and not params.flag(b"ack")
        self._quiet = quiet and not loud

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        reply = NativeReply(self._dialect, self._params, peer, id, self._quiet)
        log_refusal(peer, self._params, self._text)
        reply.respond(self._status, self._lines, self._text.encode())
