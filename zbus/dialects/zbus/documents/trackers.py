"""Trackers: who follows this broker's documents, and which other servers it knows (specification,
sections 5.10, 5.11 and 9). Every broker is its own tracker; stock clients begin with `track_sub`.
"""

from __future__ import annotations

from collections.abc import Callable

from zbus.core.api import CHANGES_PAUSE_MS as PAUSE_MS
from zbus.core.api import Broker
from zbus.dialects.zbus.documents.info import Document, encode_document, server_info
from zbus.dialects.zbus.documents.servers import Servers, read_event
from zbus.dialects.zbus.request.batch_formats import JSON
from zbus.dialects.zbus.request.json_frames import encode_json
from zbus.dialects.zbus.request.params import BadRequest
from zbus.dialects.zbus.settings import ZbusSettings
from zbus.edge.access import Bearer, Grant, view_of
from zbus.edge.connection import Connection
from zbus.edge.dialect import Report
from zbus.protocol.documents import ServerInfo, TrackerInfo
from zbus.wire.replies import encode_reply

BYTES_PER_MS = 2_500
"""How much of documents is made in a millisecond of the time between two pushes: a twentieth of the
time is spent on them at most, however large they are."""

PUSH_BYTES_MAX = 64 << 20
"""How much is pushed at a time: what is not sent at once, each subscriber has a copy of."""

EARLY_MS = 10 * PAUSE_MS
FOLLOWERS_PER_MS = 1_000
"""What is told before its time: each document counts as a pause, each copy as `BYTES_PER_MS` does,
and to look for who is to be told, too. A burst may have this much: ten documents."""

KEPT_BYTES_MAX = 64 << 20
"""Of documents of a kind."""

VERSIONS_PER_MS = 1_000
"""Versions of documents are microseconds of the broker's time, so that however many are asked for,
they do not run ahead of it: after a restart they go on above those of before."""

REPORT = (
    b"GET / HTTP/1.1\r\ncmd: track_pub\r\nack: 0\r\n%bcontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n%b"
)

PUSHED = b"cmd: track_pub\r\ncontent-type: %b\r\n" % JSON
"""Of a push. It has no id, so that no client takes it for the answer to a request."""


class Tracking:
    """What `track_sub` and `track_pub` leave behind."""

    def __init__(self, broker: Broker, settings: ZbusSettings) -> None:
        self._broker = broker
        self._settings = settings
        self._version = 0
        self.servers = Servers()
        self._followers: dict[Connection, Follower] = {}
        self._behind: dict[Connection, Follower] = {}  # that have not been told the last change
        self._pushed = 0
        self._reports = 0  # changes of `servers`
        self._early_ms = 0  # until when the time is spent that early pushes may take
        self._own = DocumentCache(self.server_info)
        self._all = DocumentCache(self.tracker_info)

    def next_version(self) -> int:
        """The number of one more document: clients ignore those that are not newer."""
        self._version = max(self._version + 1, self._broker.now_ms * VERSIONS_PER_MS)
        return self._version

    def bytes_used(self) -> int:
        """What documents take that are kept."""
        return self._own.bytes_used + self._all.bytes_used + self.servers.bytes_used

    # -- documents --------------------------------------------------------------------------

    def server_info(self, grant: Grant | None = None) -> ServerInfo:
        """This server alone, as a grant may see it; None sees everything."""
        return server_info(self._broker, self._settings, self.next_version(), grant)

    def tracker_info(self, grant: Grant | None = None) -> TrackerInfo:
        """TrackerInfo: this server and those that reported to it."""
        self._forget_silent()
        own = self.server_info(grant)
        prefix = "[SSL]" if self._settings.tls else ""
        return TrackerInfo(
            info_version=own.info_version,
            address=own.address,
            servers={**self.servers.documents(grant), prefix + self._settings.address: own},
            version=self._settings.version,
        )

    def encoded(self, grant: Grant | None) -> Encoded:
        """TrackerInfo as JSON for a new subscriber. After a restart all come at once, so as
        long as nothing changes, one is good for all that come within the time between two pushes;
        and a long one for a while even so, since they will be told."""
        found = self._all.get(grant)
        if found is not None:
            current = found.state == self._changes()
            good_ms = self._broker.changes.pause_ms if current else found.cost_ms
            if self._broker.now_ms < found.made_ms + good_ms:
                return found
        return self._encode(self._all, grant)

    def _encode(self, cache: DocumentCache, grant: Grant | None) -> Encoded:
        data = encode_document(cache.make(view_of(grant)))
        return cache.put(grant, Encoded(data, self._changes(), self._broker.now_ms))

    def server_answer(self, grant: Grant | None) -> bytes:
        """ServerInfo as JSON, for who asks once."""
        return self._answer(self._own, grant)

    def tracker_answer(self, grant: Grant | None) -> bytes:
        """TrackerInfo as JSON, for who asks once."""
        return self._answer(self._all, grant)

    def _answer(self, cache: DocumentCache, grant: Grant | None) -> bytes:
        """As it is now; but a long one is told for a while until something is declared or removed,
        or a reader comes or goes: else a client that keeps asking would take all of the time."""
        self._forget_silent()
        found = cache.get(grant)
        good_ms = 0
        if found is not None and found.state == self._changes() and found.cost_ms >= PAUSE_MS:
            good_ms = found.made_ms + found.cost_ms - self._broker.now_ms
        return found.data if found and good_ms > 0 else self._encode(cache, grant).data

    def server_event(self) -> bytes:
        """What this broker reports to its trackers."""
        event: Document = {"live": True, "serverInfo": self.server_info()}
        if certificate := self._settings.certificate():
            event["certificate"] = certificate
        return encode_document(event)

    def reports(self) -> list[Report]:
        """What is told to each of the trackers."""
        return [Report(address, self._report_request) for address in self._settings.trackers]

    def _report_request(self) -> bytes:
        body, token = self.server_event(), self._settings.tracker_token
        lines = b"token: %b\r\n" % token.encode() if token else b""
        return REPORT % (lines, len(body), body)

    # -- subscribers --------------------------------------------------------------------------

    def follow(self, peer: Connection, json: bool, answer: Encoded) -> None:
        """Push every change since what it is told now to this peer, while it may see it."""
        if self._broker.sessions.get(peer.id) is not peer:
            return  # it has gone meanwhile
        peer.when_left(self._left)
        self._watch()
        if not self._followers:
            self._pushed = self._changes()
        follower = self._followers[peer] = Follower(peer.asker, json, answer.state)
        self._behind.pop(peer, None)
        if answer.state != self._changes():
            self._behind[peer] = follower
            self._broker.changes.wake(self._broker.now_ms)

    def _watch(self) -> None:
        self._broker.changes.watch(self.push_changes)

    def _changes(self) -> int:
        return self._broker.changes.count + self._reports

    def _left(self, peer: Connection) -> None:
        """A subscriber or reporter is gone."""
        self._followers.pop(peer, None)
        self._behind.pop(peer, None)
        if self.servers.forget_reporter(peer):
            self._changed()
        if not (self._followers or self.servers):
            self._broker.changes.unwatch(self.push_changes)

    def _forget_silent(self) -> None:
        if self.servers.forget_silent(self._broker.now_ms):
            self._reports += 1

    def _changed(self) -> None:
        self._reports += 1
        self._broker.changes.wake(self._broker.now_ms)

    def report(self, peer: Connection, body: bytes) -> BadRequest | None:
        """Another server says what it is like; an error if it cannot be taken."""
        event = read_event(body) if body else ""
        if not event:
            return BadRequest(400, "400: Bad Format, track_pub json required")
        if isinstance(event, str):
            return BadRequest(400, f"400: Bad Format, track_pub: {event}")
        address = event.server_info.server_address
        if address.address == self._settings.address:
            return None
        if event.live:
            if problem := self.servers.report(event, peer, self._broker.now_ms):
                return BadRequest(429, f"429: {problem}")
            peer.when_left(self._left)
            self._watch()
        elif not self.servers.forget(address.key):
            return None
        self._changed()
        return None

    def push_changes(self) -> None:
        """Push the last change to the subscribers that lack it and read what they are sent."""
        changes = self._broker.changes
        self._forget_silent()
        if self._pushed != self._changes():
            self._pushed = self._changes()
            behind = {p: f for p, f in self._followers.items() if f.state != self._pushed}
            self._behind |= behind  # who waits already is the first
        self._push([peer for peer in self._behind if not peer.stalled])
        if self._behind:
            changes.wake(self._broker.now_ms)
        if (silent_ms := self.servers.next_silent()) is not None:
            changes.wake(silent_ms)

    def respond_early(self, peer: Connection) -> None:
        """A declare of this peer is about to be answered. Stock clients follow over a connection of
        their own, and look for a topic in what that one was told, so subscribers of the same host
        are told before. For a client that declares a thousand topics, or a long document, or a
        thousand subscribers, the usual pace applies."""
        now_ms = self._broker.now_ms
        spent_ms = max(self._early_ms, now_ms)
        if not self._followers or spent_ms - now_ms >= EARLY_MS:
            return
        host, changes = peer.address.rpartition(":")[0], self._changes()
        for follower in list(self._followers):
            known = self._followers[follower].state == changes
            if known or follower.stalled or follower.address.rpartition(":")[0] != host:
                continue
            spent_ms += self._push_early(follower)
            if spent_ms - now_ms >= EARLY_MS:
                break
        self._early_ms = spent_ms + len(self._followers) // FOLLOWERS_PER_MS

    def _push_early(self, peer: Connection) -> int:
        """Tell this one all there is; what that costs, in milliseconds."""
        follower = self._followers[peer]
        if peer.heartbeat is not None or not follower.may(self._broker.now_ms):
            return 0  # as `_push` will find
        found, cost_ms = self._all.get(follower.grant), 1
        if found is not None and found.cost_ms >= PAUSE_MS:
            return 0
        if found is None or found.state != self._changes():
            found = self._encode(self._all, follower.grant)
            cost_ms += PAUSE_MS
        encode = encode_json if follower.json else encode_reply
        peer.write(encode(200, PUSHED, found.data))
        follower.state = found.state
        self._behind.pop(peer, None)
        return cost_ms + found.cost_ms

    def _push(self, peers: list[Connection]) -> None:
        """Tell these; those that may see the same get the same bytes. What would take too long at a
        time is left for the next: long documents of others, and more of bytes."""
        made: dict[tuple[Grant | None, bool], bytes] = {}
        cost_ms = size = 0
        for peer in peers:
            follower = self._behind[peer]
            # A stream has the connection for itself.
            if peer.heartbeat is not None or not follower.may(self._broker.now_ms):
                del self._behind[peer], self._followers[peer]
                continue
            key = (view_of(follower.grant), follower.json)
            if key not in made:
                found = self._all.get(follower.grant)
                if found is None or found.state < self._pushed:
                    if cost_ms >= PAUSE_MS:
                        continue
                    found = self._encode(self._all, follower.grant)
                    cost_ms += found.cost_ms
                encode = encode_json if follower.json else encode_reply
                made[key] = encode(200, PUSHED, found.data)
            if size >= PUSH_BYTES_MAX:
                break
            size += len(made[key])
            del self._behind[peer]
            follower.state = self._pushed
            peer.write(made[key])
        if size:
            self._broker.changes.pause_ms = max(PAUSE_MS, cost_ms)


class Encoded:
    """A document as it was."""

    __slots__ = ("cost_ms", "data", "made_ms", "state")

    def __init__(self, data: bytes, state: int, made_ms: int) -> None:
        self.data = data
        self.state = state  # how many changes are in it
        self.made_ms = made_ms
        self.cost_ms = len(data) // BYTES_PER_MS  # how long no other should be made


class DocumentCache:
    """Documents of a kind, kept for the next who may see the same."""

    def __init__(self, make: Callable[[Grant | None], ServerInfo | TrackerInfo]) -> None:
        self.make = make
        self._made: dict[Grant | None, Encoded] = {}  # the oldest first

    def get(self, grant: Grant | None) -> Encoded | None:
        return self._made.get(view_of(grant))

    def put(self, grant: Grant | None, encoded: Encoded) -> Encoded:
        made, view = self._made, view_of(grant)
        made.pop(view, None)
        made[view] = encoded
        while self.bytes_used > KEPT_BYTES_MAX and len(made) > 1:
            del made[next(iter(made))]
        return encoded

    @property
    def bytes_used(self) -> int:
        return sum([len(one.data) for one in self._made.values()])


class Follower:
    """Who asked to be told of changes, and how."""

    __slots__ = ("_bearer", "json", "state")

    def __init__(self, bearer: Bearer | None, json: bool, state: int) -> None:
        self._bearer = bearer
        self.json = json
        self.state = state  # how many changes are in what it was told last

    @property
    def grant(self) -> Grant | None:
        return None if self._bearer is None else self._bearer.grant

    def may(self, now_ms: int) -> bool:
        """Still: rights can be taken away, and end by themselves."""
        bearer = self._bearer
        return bearer is None or (bearer.is_known(now_ms) and bearer.grant.may("track_sub"))
