"""WebSocket (RFC 6455), a server's side: the handshake, bytes to messages, messages to bytes.

Frames are cut out here by their lengths alone. What nearly every client sends, a whole message or
ping in one whole frame, is unmasked at once (1 to 2 us). All other frames (fragments, half frames,
closing frames, whatever is wrong) are judged by wsproto, which sees each of them to its end. The
two agree; a property test holds them together.

No extension is offered: a compressed message is small only until it is unpacked.
"""

from __future__ import annotations

import binascii
import hashlib
import struct

from wsproto.frame_protocol import CloseReason, Frame, FrameProtocol, Opcode, ParseFailed

from zbus.wire.budget import Budget
from zbus.wire.errors import WireError
from zbus.wire.head import Head

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
"""Frames of one message. Whoever sends 64 bytes in each gets 6 MB through."""

VERSION_LINE = b"sec-websocket-version: 13\r\n"

Event = tuple[int, bytes]
"""TEXT, BINARY and a message; PING and what a pong repeats; CLOSE and what the answer repeats."""

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_REASON_BYTES_MAX = 123
_FINAL_TEXT, _FINAL_BINARY = 0x80 | TEXT, 0x80 | BINARY
_PING, _PONG = 0x80 | PING, 0x80 | PONG
_SHORT_HEADS = {
    opcode: [bytes((0x80 | opcode, length)) for length in range(126)]
    for opcode in (TEXT, BINARY, CLOSE, PING, PONG)
}


# -- the handshake ------------------------------------------------------------------------------


def accept_handshake(head: Head) -> bytes:
    """The 101 to a handshake. Raises WireError: 426 for another version, 400 for what is none."""
    fields = head.fields
    options = [option.strip() for option in fields.get(b"connection", b"").lower().split(b",")]
    if head.method != b"GET" or not head.version_11:
        raise WireError(400, "a WebSocket handshake is a GET of HTTP/1.1")
    if head.content_length or head.chunked:
        raise WireError(400, "a WebSocket handshake has no body")
    if b"upgrade" not in options:
        raise WireError(400, "a WebSocket handshake needs Connection: Upgrade; a proxy drops it")
    if fields.get(b"sec-websocket-version") != b"13":
        raise WireError(426, "the WebSocket version spoken here is 13")
    key = fields.get(b"sec-websocket-key", b"")
    if not _is_key(key):
        raise WireError(400, "the Sec-WebSocket-Key is not 16 bytes in Base64")
    accept = binascii.b2a_base64(hashlib.sha1(key + _GUID).digest(), newline=False)
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
        b"sec-websocket-accept: %b\r\n\r\n" % accept
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
    """

    __slots__ = (
        "_budget",
        "_bytes_max",
        "_fragments",
        "_frames",
        "_held_bytes",
        "_message",
        "_missing",
        "_rest",
        "closed",
        "error",
    )

    def __init__(self, bytes_max: int, budget: Budget | None = None) -> None:
        """`bytes_max` bounds a message, `budget` what all connections' unfinished ones share."""
        self._bytes_max = bytes_max
        self._budget = budget
        self._frames: FrameProtocol | None = None  # made when the first frame has to be judged
        self._rest = b""  # the beginning of a frame's head
        self._missing = 0  # bytes of a frame of which the beginning was given to wsproto
        self._message: bytearray | None = None  # one that comes in pieces
        self._fragments = 0
        self._held_bytes = 0  # of it, counted in the budget
        self.closed = False
        self.error: WireError | None = None  # its status is the code to close with

    def receive(self, data: bytes) -> list[Event]:
        """Take received bytes; return what they complete."""
        events: list[Event] = []
        try:
            self._walk(data, events)
        except WireError as error:
            self.error = error.bare()
            self.close()
        if not self.midway:
            self._frames = None  # between messages it holds nothing
        return events

    @property
    def midway(self) -> bool:
        """A frame or a message has begun and is not complete."""
        return bool(self._rest or self._missing) or self._message is not None

    def close(self) -> None:
        """No more comes: what is not complete is given up."""
        self.closed = True
        self._message = self._frames = None
        self._missing, self._rest = 0, b""
        self._give_back()

    def _walk(self, data: bytes, events: list[Event]) -> None:
        at = 0
        if self._rest:
            data, self._rest = self._rest + data, b""
        while at < len(data) and not self.closed:
            if self._missing:
                piece = data[at : at + self._missing]
            else:
                size, begin = self._measure(data, at)
                if not size:
                    self._rest = data[at:]
                    return
                if at + size <= len(data) and self._take_whole(data, at, begin, at + size, events):
                    at += size
                    continue
                self._missing = size
                piece = data[at : at + size]
            self._missing -= len(piece)
            at += len(piece)
            self._judge(piece, events)

    def _take_whole(self, data: bytes, at: int, begin: int, end: int, events: list[Event]) -> bool:
        """The quick way: a whole message or ping in one frame. False if this is none."""
        kind = data[at]
        if kind in (_FINAL_TEXT, _FINAL_BINARY):
            if self._message is not None:
                return False
        elif kind not in (_PING, _PONG) or end - begin > 125:
            return False
        payload = _unmask(data[begin:end], data[begin - 4 : begin])
        if kind == _FINAL_TEXT and not _is_utf8(payload):
            return False
        if kind != _PONG:
            events.append((kind & 0x0F, payload))
        return True

    def _measure(self, data: bytes, at: int) -> tuple[int, int]:
        """Size of the frame that begins here, and where its payload does; 0 if too little is here
        to tell."""
        if len(data) - at < 2:
            return 0, 0
        if data[at + 1] < 0x80:
            raise WireError(PROTOCOL_ERROR, "a client's frames are masked")
        length, begin = data[at + 1] & 0x7F, at + 6
        if length == 126:
            begin = at + 8
            length = int.from_bytes(data[at + 2 : at + 4])
            canonical = length > 125
        elif length == 127:
            begin = at + 14
            length = int.from_bytes(data[at + 2 : at + 10])
            canonical = length > 0xFFFF
        else:
            canonical = True
        if begin > len(data):
            return 0, 0
        if not canonical:
            raise WireError(PROTOCOL_ERROR, "a frame's length is written longer than it need be")
        held = 0 if self._message is None else len(self._message)
        if length + held > self._bytes_max and not data[at] & 0x08:
            raise WireError(TOO_BIG, f"a message has at most {self._bytes_max} bytes")
        return begin - at + length, begin

    def _judge(self, piece: bytes, events: list[Event]) -> None:
        """A frame, or a part of one, for wsproto."""
        if self._frames is None:
            self._frames = FrameProtocol(client=False, extensions=[])
        self._frames.receive_bytes(piece)
        try:
            for frame in self._frames.received_frames():
                self._take(frame, events)
        except ParseFailed as error:
            raise WireError(int(error.code), ascii(str(error))[1:100]) from None

    def _take(self, frame: Frame, events: list[Event]) -> None:
        payload = frame.payload
        if frame.opcode is Opcode.PING:
            assert isinstance(payload, bytes)
            events.append((PING, payload))
        elif frame.opcode is Opcode.CLOSE:
            assert isinstance(payload, tuple)
            code, reason = payload
            silent = code == CloseReason.NO_STATUS_RCVD
            events.append((CLOSE, b"" if silent else int(code).to_bytes(2) + reason.encode()))
            self.close()
        elif frame.opcode is not Opcode.PONG:
            assert isinstance(payload, str | bytes)
            self._grow(frame, payload.encode() if isinstance(payload, str) else payload)
            if frame.message_finished:
                assert self._message is not None
                message, self._message = bytes(self._message), None
                self._fragments = 0
                self._give_back()
                events.append((int(frame.opcode), message))

    def _grow(self, frame: Frame, payload: bytes) -> None:
        """One more piece of a message."""
        if self._message is None:
            self._message = bytearray()
        self._fragments += frame.frame_finished
        if self._fragments > FRAGMENTS_MAX:
            raise WireError(POLICY, f"a message comes in at most {FRAGMENTS_MAX} frames")
        self._message += payload
        if self._budget is not None and not frame.message_finished:
            if not self._budget.take(len(payload)):
                raise WireError(TRY_LATER, "messages on their way in take all memory for them")
            self._held_bytes += len(payload)

    def _give_back(self) -> None:
        if self._budget is not None:
            self._budget.give_back(self._held_bytes)
        self._held_bytes = 0


def _unmask(payload: bytes, key: bytes) -> bytes:
    size = len(payload)
    pad = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(pad, "little")).to_bytes(
        size, "little"
    )


def _is_utf8(payload: bytes) -> bool:
    if payload.isascii():
        return True
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True
