"""WebSocket (RFC 6455), a server's side: the handshake, bytes to messages, messages to bytes.

What nearly every client sends, a whole message in one whole frame, costs 1 to 2 us. Fragments cost
no more, however small they are, and no object is kept for any of them; so a peer that
sends the smallest costs no others. Whatever has come of a message in pieces is unmasked and checked
at once: text that cannot become UTF-8 is refused before it is complete. That the verdicts are those
of the library wsproto is held by tests: a property, and as many random streams as one likes.

No extension is offered: a compressed message is small only until it is unpacked.
"""

from __future__ import annotations

import binascii
import hashlib
import struct
from codecs import utf_8_decode

from zbus.wire.bodies.body import Body
from zbus.wire.bodies.budget import Budget
from zbus.wire.errors import WireError
from zbus.wire.heads.head import Head

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
"""Opcodes, as they stand in a frame and in an event."""

NORMAL = 1000
GOING_AWAY = 1001
PROTOCOL_ERROR = 1002
INVALID_DATA = 1007
POLICY = 1008
TOO_BIG = 1009
TRY_LATER = 1013
"""Codes of a close frame, as far as this side has something to say."""

FRAGMENTS_MAX = 100_000
"""Frames of one message. They take no memory, but with 64 bytes in each 6 MB get through,
and a message of empty ones would never end."""

FRAMES_PER_STEP = 32
"""Frames that one call reads: some 30 us. What else came waits for the next call."""

VERSION_LINE = b"sec-websocket-version: 13\r\n"

Event = tuple[int, bytes]
"""TEXT, BINARY and a message; PING and what a pong repeats; CLOSE and what the answer repeats."""

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_REASON_BYTES_MAX = 123
_CLOSE_CODES = frozenset((1000, 1001, 1002, 1003, *range(1007, 1014)))
_FINAL_TEXT, _FINAL_BINARY = 0x80 | TEXT, 0x80 | BINARY
_CLOSE, _PING, _PONG = 0x80 | CLOSE, 0x80 | PING, 0x80 | PONG
_FIRST_BYTES = frozenset((0, TEXT, BINARY, 0x80, _FINAL_TEXT, _FINAL_BINARY, _CLOSE, _PING, _PONG))
_SHORT_HEADS = {
    opcode: [bytes((0x80 | opcode, length)) for length in range(126)]
    for opcode in (TEXT, BINARY, CLOSE, PING, PONG)
}


# -- the handshake ------------------------------------------------------------------------------
# There are clients that look for `Sec-WebSocket-Accept` in this spelling alone.


def accept_handshake(head: Head, any_key: bool = False) -> bytes:
    """The 101 to a handshake. Raises WireError: 426 for another version, 400 for what is none.
    `any_key`: the key is taken as it is, for clients that send other than 16 bytes in Base64."""
    fields = head.fields
    options = [option.strip() for option in fields.get(b"connection", b"").lower().split(b",")]
    if head.method != b"GET" or not head.version_11:
        raise WireError(400, "a WebSocket handshake is a GET of HTTP/1.1")
    if head.content_length or head.chunked:
        raise WireError(400, "a WebSocket handshake has no body")
    if b"upgrade" not in options:
        raise WireError(400, "a WebSocket handshake needs Connection: Upgrade; a proxy drops it")
    if fields.get(b"sec-websocket-version") != b"13":
        raise WireError(426, "unsupported WebSocket version: only 13 is supported")
    key = fields.get(b"sec-websocket-key", b"")
    if not (_is_key(key) or (any_key and key)):
        raise WireError(400, "the Sec-WebSocket-Key is not 16 bytes in Base64")
    accept = binascii.b2a_base64(hashlib.sha1(key + _GUID).digest(), newline=False)
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
        b"cache-control: no-store\r\nSec-WebSocket-Accept: %b\r\n\r\n" % accept
    )


def _is_key(key: bytes) -> bool:
    try:
        return len(key) == 24 and len(binascii.a2b_base64(key, strict_mode=True)) == 16
    except binascii.Error:
        return False


# -- messages out -------------------------------------------------------------------------------


def encode_frame(opcode: int, payload: bytes) -> bytes:
    """One whole frame. The payload of CLOSE, PING and PONG has at most 125 bytes."""
    length = len(payload)
    if length < 126:
        return _SHORT_HEADS[opcode][length] + payload
    if length < 1 << 16:
        return struct.pack("!BBH", 0x80 | opcode, 126, length) + payload
    return struct.pack("!BBQ", 0x80 | opcode, 127, length) + payload


def encode_message(message: bytes) -> bytes:
    """A whole message in one frame: Text if it is UTF-8, else Binary."""
    if not message.isascii():
        try:
            message.decode()
        except UnicodeDecodeError:
            return encode_frame(BINARY, message)
    return encode_frame(TEXT, message)


def encode_close(code: int, reason: str = "") -> bytes:
    """A close frame; the reason is cut to what fits."""
    text = reason.encode()[:_REASON_BYTES_MAX].decode(errors="ignore")
    return encode_frame(CLOSE, code.to_bytes(2) + text.encode())


# -- messages in --------------------------------------------------------------------------------


class WebSocketReader:
    """Feed it what a connection received after the handshake; it gives back events in order.

    Whatever way the bytes are split, the events are the same. When the stream breaks, `error` says
    with which code and why; the events before are returned. After CLOSE nothing more comes.

    One call reads FRAMES_PER_STEP frames at most. `more` says that bytes are left that were not
    looked at: `receive(b"")` goes on with them.
    """

    __slots__ = (
        "_budget",
        "_bytes_max",
        "_final",
        "_fragments",
        "_half_character",
        "_held_bytes",
        "_key",
        "_kind",
        "_message",
        "_missing",
        "_rest",
        "closed",
        "error",
        "more",
        "spent",
    )

    def __init__(self, bytes_max: int, budget: Budget | None = None) -> None:
        """`bytes_max` bounds a message, `budget` what all connections' unfinished ones share."""
        self._bytes_max = bytes_max
        self._budget = budget
        self._rest = b""  # what was not read: the beginning of a frame, or more
        # The data frame of which the payload is under way.
        self._missing = 0  # bytes of it that are still to come
        self._key = b""  # of the mask, turned to where they begin
        self._final = False
        # The message under way.
        self._kind = 0  # TEXT or BINARY; 0 = there is none
        self._message: Body | None = None
        self._half_character = b""  # at the end of what has come of a text
        self._fragments = 0
        self._held_bytes = 0  # of it, counted in the budget
        self.closed = False
        self.error: WireError | None = None  # its status is the code to close with
        self.more = False
        self.spent = 0  # work, in units of about a microsecond; the owner sets it to 0

    def receive(self, data: bytes) -> list[Event]:
        """Take received bytes; return what they complete, as far as one step goes."""
        events: list[Event] = []
        if self.closed:
            return events
        if self._rest:
            data, self._rest = self._rest + data, b""
        try:
            self._walk(data, events)
        except WireError as error:
            self.error = error.bare()
            self.close()
        return events

    @property
    def midway(self) -> bool:
        """A frame or a message has begun and is not complete."""
        return bool(self._rest or self._kind)

    def close(self) -> None:
        """No more comes: what is not complete is dropped."""
        self.closed, self.more = True, False
        self._rest = b""
        self._end_message()

    # -- frames ---------------------------------------------------------------------------

    def _walk(self, data: bytes, events: list[Event]) -> None:
        at, end, frames_left = 0, len(data), FRAMES_PER_STEP
        if self._missing:
            at = self._take_payload(data, 0, events)
        while at < end and frames_left and not self.closed:
            first = data[at]
            if not first and self._message is not None:
                after, frames_left = self._take_fragments(data, at, frames_left)
                if after > at:
                    at = after
                    continue
            begin, length = self._measure(data, at)
            stop = begin + length
            if not begin or (first & 0x08 and stop > end):
                break  # too little is here to tell
            frames_left -= 1
            if first & 0x08:
                payload = _unmask(data[begin:stop], data[begin - 4 : begin])
                self._take_control(first, payload, events)
                at = stop
            elif first & 0x80 and self._message is None and stop <= end:
                # What nearly every client sends: a whole message in a whole frame.
                payload = _unmask(data[begin:stop], data[begin - 4 : begin])
                if first == _FINAL_TEXT and not payload.isascii():
                    self._check_text(payload, True)
                events.append((first & 0x0F, payload))
                at = stop
            else:
                self._begin_fragment(first)
                self._missing, self._key = length, data[begin - 4 : begin]
                at = self._take_payload(data, begin, events)
        self.spent += 1 + FRAMES_PER_STEP - frames_left + (at >> 10)
        if not self.closed:
            self._rest = data[at:]
            self.more = not frames_left and at < end

    def _measure(self, data: bytes, at: int) -> tuple[int, int]:
        """Where the payload of the frame that begins here does, and its length; 0 if its head is
        not whole. What is wrong with a head is refused as soon as that much of it is there."""
        if len(data) - at < 2:
            return 0, 0
        first, length = data[at], data[at + 1] - 0x80
        if length < 0:
            raise WireError(PROTOCOL_ERROR, "a client's frames are masked")
        if first not in _FIRST_BYTES:
            raise WireError(PROTOCOL_ERROR, _wrong_with(first))
        begin = at + 6
        if length > 125:
            if first & 0x08:
                raise WireError(PROTOCOL_ERROR, "a control frame has at most 125 bytes")
            begin, least = (at + 8, 126) if length == 126 else (at + 14, 1 << 16)
            if begin - 4 > len(data):
                return 0, 0
            length = int.from_bytes(data[at + 2 : begin - 4])
            if length < least:
                raise WireError(PROTOCOL_ERROR, "a frame's length is not in its shortest form")
        if not first & 0x08:
            message = self._message
            if first & 0x0F:
                if message is not None:
                    raise WireError(PROTOCOL_ERROR, "a new message begins inside a fragmented one")
                size = length
            elif message is None:
                raise WireError(PROTOCOL_ERROR, "there is no message to continue")
            else:
                size = message.size + length
            if size > self._bytes_max:
                raise WireError(TOO_BIG, f"a message has at most {self._bytes_max} bytes")
        return (begin, length) if begin <= len(data) else (0, 0)

    def _take_control(self, first: int, payload: bytes, events: list[Event]) -> None:
        if first == _CLOSE:
            _check_close(payload)
            self.close()
        if first != _PONG:
            events.append((first & 0x0F, payload))

    # -- messages that come in pieces -----------------------------------------------------

    def _begin_fragment(self, first: int) -> None:
        if self._message is None:
            self._kind = first & 0x0F
            self._message = Body()
        self._final = first >= 0x80
        self._fragments += 1
        if self._fragments > FRAGMENTS_MAX:
            raise WireError(POLICY, f"a message comes in at most {FRAGMENTS_MAX} frames")

    def _take_payload(self, data: bytes, at: int, events: list[Event]) -> int:
        """What has come of a data frame's payload; return where it ends."""
        piece = data[at : at + self._missing]
        size = len(piece)
        self._missing -= size
        whole = not self._missing
        self._grow(_unmask(piece, self._key), whole and self._final)
        if not whole:
            turn = size % 4
            self._key = self._key[turn:] + self._key[:turn]
        elif self._final:
            assert self._message is not None
            events.append((self._kind, self._message.data))
            self._end_message()
        return at + size

    def _take_fragments(self, data: bytes, at: int, frames_left: int) -> tuple[int, int]:
        """A run of short fragments, as far as it is like that. They are what a peer can make most
        of with least: there is no object for each, and no call."""
        assert self._message is not None
        gathered = bytearray()
        room = self._bytes_max - self._message.size
        frames, frames_max = 0, min(frames_left, FRAGMENTS_MAX - self._fragments)
        last = len(data) - 6
        while at <= last and frames < frames_max and not data[at]:
            length = data[at + 1] - 0x80
            stop = at + 6 + length
            if not 0 <= length < 126 or stop > last + 6 or len(gathered) + length > room:
                break
            if length == 1:
                gathered.append(data[at + 2] ^ data[at + 6])
            elif length:
                gathered += _unmask(data[at + 6 : stop], data[at + 2 : at + 6])
            at = stop
            frames += 1
        self._fragments += frames
        self._grow(gathered, False)
        return at, frames_left - frames

    def _grow(self, piece: bytes | bytearray, last: bool) -> None:
        """One more piece of a message."""
        message = self._message
        assert message is not None
        if self._kind == TEXT:
            self._check_text(piece, last)
        message.add(piece)
        if self._budget is not None and not last:
            if not self._budget.take(message.taken - self._held_bytes):
                raise WireError(TRY_LATER, "messages in transit use all their memory")
            self._held_bytes = message.taken

    def _check_text(self, piece: bytes | bytearray, last: bool) -> None:
        """Refuse what cannot become UTF-8 any more."""
        if self._half_character:
            piece = self._half_character + piece
        elif piece.isascii():
            return
        try:
            _, size = utf_8_decode(piece, "strict", last)
        except UnicodeDecodeError:
            raise WireError(INVALID_DATA, "a text is not UTF-8") from None
        self._half_character = bytes(piece[size:])

    def _end_message(self) -> None:
        self._message, self._kind = None, 0
        self._missing = self._fragments = 0
        self._half_character = b""
        if self._budget is not None:
            self._budget.give_back(self._held_bytes)
        self._held_bytes = 0


def _wrong_with(first: int) -> str:
    """Why no frame begins with this byte."""
    if first & 0x70:
        return "a reserved bit is set, and no extension was agreed upon"
    if first & 0x0F in (CLOSE, PING, PONG):
        return "a control frame may not be fragmented"
    return f"there is no opcode {first & 0x0F}"


def _check_close(payload: bytes) -> None:
    """RFC 6455, section 7.4: nothing, or a code that may be sent, and a reason."""
    if not payload:
        return
    if len(payload) == 1:
        raise WireError(PROTOCOL_ERROR, "the code of a close frame has two bytes")
    code = int.from_bytes(payload[:2])
    if code not in _CLOSE_CODES and not 3000 <= code < 5000:
        raise WireError(PROTOCOL_ERROR, f"{code} is not a valid close code")
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        raise WireError(INVALID_DATA, "the reason of a close frame is not UTF-8") from None


_AS_NUMBER_BYTES_MAX = 512
"""A longer payload is unmasked faster by translation of every fourth byte."""


def _unmask(payload: bytes, key: bytes) -> bytes:
    size = len(payload)
    if size > _AS_NUMBER_BYTES_MAX:
        lanes = bytearray(payload)
        for lane in range(4):
            lanes[lane::4] = lanes[lane::4].translate(_XORED[key[lane]])
        return bytes(lanes)
    pad = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(pad, "little")).to_bytes(
        size, "little"
    )


_XORED = [_unmask(bytes(range(256)), bytes((byte,)) * 4) for byte in range(256)]
"""All bytes, each with this one: 64 KiB in all."""
