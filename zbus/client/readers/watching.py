"""The core of a watch: a stream of events that goes on when its connection breaks. No IO.

It is the `Exchange` of a connection: that sends what `take` gives, hands what it receives to
`receive`, and says `lost` when the connection ended or nothing came for `patience_s`. It brings the
time (seconds of a clock that only grows) and a source of random numbers. Messages are taken from
`step`.

The broker says at the beginning where the stream is, and with each event. A client that
reconnects goes on from there: nothing is missed, and nothing sent twice.
"""

from __future__ import annotations

from collections import deque

import msgspec
from msgspec import Struct

from zbus.client.errors import ConnectionLost, Overloaded, ProtocolError, Refused, TooMany, refusal
from zbus.client.links.attempts import HERE, Attempts, Random
from zbus.client.messages import FRAMING, Delivery
from zbus.client.options import Addresses, Options
from zbus.client.positions import Start, encode_start
from zbus.client.requests import failure, line, optional, start
from zbus.wire.errors import WireError
from zbus.wire.events import Event, EventReader
from zbus.wire.heads.header_names import PREFIX
from zbus.wire.responses import ANSWER_LIMITS, Response, ResponseReader
from zbus.wire.target import encode_header_value

SILENCE_S = 45.0
"""A broker that has nothing to tell says so every 15 s. After three times that it is gone."""


class _Envelope(Struct):
    """A message as the broker has it in JSON (docs/reference/zbus.md, Containers)."""

    id: str
    topic: str
    offset: int
    partition: int
    timestamp: int
    tag: str = ""
    key: str = ""
    headers: dict[str, str] = {}
    body: str = ""
    body_base64: bytes | None = None


_ENVELOPES = msgspec.json.Decoder(_Envelope)


class Watching:
    """A watch without its socket. Raises ValueError for what cannot be asked for."""

    def __init__(
        self,
        options: Options,
        random: Random,
        topic: str,
        start_at: Start | None,
        filter: str | None,
        partition: int | None,
        timeout_ms: int | None,
        addresses: Addresses = (HERE,),
    ) -> None:
        self._options = options
        token = b"" if options.token is None else line(b"token", options.token)
        self._lines = b"%baccept: text/event-stream\r\nenvelope: json\r\n%b%b" % (
            start(b"consume", topic),
            optional(group_filter=filter or None, partition=partition),
            token,
        )
        self._begin = b"" if start_at is None else line(b"from", encode_start(start_at))
        self._out = b""
        self.timeout_ms = timeout_ms
        self.place = b""  # of what was taken in; empty until the broker has said
        self._ready: deque[Delivery] = deque()
        self._skipped = 0  # messages dropped since the last one that was delivered
        self._head: bytearray | None = None  # what has come of the head; None: it is complete
        self._refusal: ResponseReader | None = None
        self._events = EventReader()
        self._why: Exception | None = None  # what the broker said
        self.begun = False  # the event stream began
        self.error: Exception | None = None  # there will be no more
        self.attempts = Attempts(options, random, addresses)

    has_news = False  # the request is sent by whoever connects

    @property
    def out_count(self) -> int:
        """Whether the request is to be sent."""
        return 1 if self._out else 0

    def take(self) -> bytes:
        """The request."""
        data, self._out = self._out, b""
        return data

    def connected(self) -> None:
        """There is a new connection, on which the watch begins, or goes on."""
        self._head = bytearray()
        self._refusal = None
        self._events = EventReader()
        self._why = None
        place = line(b"last-event-id", self.place.decode("latin-1")) if self.place else self._begin
        self._out = b"%b%b\r\n" % (self._lines, place)

    def receive(self, data: bytes) -> bool:
        """Bytes came. False if the connection is of no more use: close it and call `lost`."""
        try:
            return self._receive(data)
        except (WireError, msgspec.MsgspecError, ValueError) as error:
            self.error = ProtocolError(
                f"the answer is not a stream of events from a broker ({error})"
            )
            return False

    def _receive(self, data: bytes) -> bool:
        if self._refusal is not None:
            return self._read_refusal(self._refusal, data)
        if self._head is not None:
            head = self._head
            head += data
            end = head.find(b"\r\n\r\n", max(0, len(head) - len(data) - 3))
            if end < 0:
                if len(head) > ANSWER_LIMITS.head_bytes_max:
                    raise WireError(431, "the head of the answer is too long")
                return True
            if not _is_stream(bytes(head[: end + 2])):
                self._refusal = ResponseReader()
                return self._read_refusal(self._refusal, bytes(head))
            data = bytes(head[end + 4 :])
            self._head = None
            self.begun = True
            self.attempts.worked()
        for event in self._events.receive(data):
            self._take(event)
            if self._why is not None:
                return False
        self.place = self._events.last_id or self.place
        return True

    def _read_refusal(self, reader: ResponseReader, data: bytes) -> bool:
        responses = reader.receive(data)
        if reader.error is not None:
            raise reader.error
        if not responses:
            return True
        if responses[0].status < 400:
            raise WireError(400, "the answer is not a stream of events")
        self._refused(failure(responses[0]))
        return False

    def _take(self, event: Event) -> None:
        if event.type == b"":
            delivery = _delivery(_ENVELOPES.decode(event.data), self._skipped)
            self._skipped = 0
            self._ready.append(delivery)
        elif event.type == b"skipped":
            if not event.data.isdigit() or len(event.data) > 19:
                raise WireError(400, "the event `skipped` has no number")
            self._skipped += int(event.data)
        elif event.type == b"end":
            text = event.data.decode("utf-8", "replace")
            code = text[:3]
            status = int(code) if code.isascii() and code.isdigit() else 503
            self._refused(refusal(status, text))
            return
        self.place = event.id

    def _refused(self, error: Exception) -> None:
        """The broker ended the stream. One that stops, or lacks memory, comes back."""
        self._why = error
        throttled = isinstance(error, TooMany) and error.throttled
        if not (throttled or isinstance(error, Overloaded)):
            self.error = error

    def lost(self, now_s: float, why: str) -> None:
        """The connection ended, or could not be made. Decides whether to try again, and when."""
        self._out = b""
        if self.attempts.failed(now_s) and self.error is None:
            self.error = self._why if isinstance(self._why, Refused) else ConnectionLost(why)

    def forked(self, parent: int) -> None:
        """In a child: the watch is the parent's."""

    def close(self) -> None:
        """Nothing is under way that would end by it."""

    @property
    def patience_s(self) -> float:
        """How long nothing may come on a connection."""
        return SILENCE_S if self._head is None else self._options.timeout_s

    def step(self) -> Delivery | None:
        """The next message; None: there is none yet. Raises `error` when there will be none."""
        if self._ready:
            return self._ready.popleft()
        if self.error is not None:
            raise self.error
        return None


def _is_stream(head: bytes) -> bool:
    """Whether the answer is 200 and of the right type; else it says why not."""
    status, _, fields = head.partition(b"\r\n")
    return (
        status.startswith(b"HTTP/1.1 200 ")
        and b"\r\ncontent-type: text/event-stream" in b"\r\n" + fields.lower()
        and b"\r\ntransfer-encoding:" not in b"\r\n" + fields.lower()
    )


def _delivery(envelope: _Envelope, skipped: int) -> Delivery:
    """The same as if it had been read."""
    fields = {}
    for given, value in envelope.headers.items():
        name = given.encode()
        fields[PREFIX + name if name in FRAMING else name] = value.encode()
    fields[b"id"] = fields[b"origin_id"] = envelope.id.encode()
    fields[b"topic"] = encode_header_value(envelope.topic.encode())
    fields[b"offset"] = b"%d" % envelope.offset
    fields[b"partition"] = b"%d" % envelope.partition
    fields[b"timestamp"] = b"%d" % envelope.timestamp
    if envelope.tag:
        fields[b"tag"] = encode_header_value(envelope.tag.encode())
    if envelope.key:
        fields[b"key"] = encode_header_value(envelope.key.encode())
    if skipped:
        fields[b"skipped"] = b"%d" % skipped
    body = envelope.body.encode() if envelope.body_base64 is None else envelope.body_base64
    delivery = Delivery(Response(200, fields, body))
    delivery.settled = True
    return delivery
