"""A WebSocket on a raw TCP client; wsproto reads and writes its frames."""

from __future__ import annotations

from typing import Any

import msgspec
from wsproto.frame_protocol import CloseReason, Frame, FrameProtocol, Opcode

from tests.process.broker import Wire

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


class WebSocket:
    """`WebSocket(broker.connect()).ask({"cmd": "ping"})`."""

    def __init__(self, wire: Wire, *, sent: bool = False) -> None:
        """Does the handshake, or reads its answer alone if it was `sent`."""
        self.wire = wire
        if not sent:
            wire.send(HANDSHAKE)
        assert wire.read().status == 101
        self._frames = FrameProtocol(client=True, extensions=[])
        self._frames.receive_bytes(wire._buffer)

    def frame(self, message: bytes | str) -> bytes:
        return bytes(self._frames.send_data(message))

    def send(self, message: bytes | str) -> None:
        self.wire.send(self.frame(message))

    def tell(self, request: Any) -> None:
        self.send(msgspec.json.encode(request).decode())

    def ask(self, request: Any) -> Any:
        self.tell(request)
        return self.read_json()

    def pong(self, payload: bytes = b"") -> None:
        self.wire.send(bytes(self._frames.pong(payload)))

    def close(self) -> None:
        self.wire.send(bytes(self._frames.close(CloseReason.NORMAL_CLOSURE)))

    def read_frame(self) -> Frame:
        """The next frame, whole."""
        message: Any = None
        while True:
            for frame in self._frames.received_frames():
                if frame.opcode.iscontrol():
                    return frame
                message = frame.payload if message is None else message + frame.payload
                if frame.message_finished:
                    return frame._replace(payload=message)
            data = self.wire.sock.recv(1 << 16)
            if not data:
                raise EOFError
            self._frames.receive_bytes(data)

    def read_json(self) -> Any:
        frame = self.read_frame()
        assert frame.opcode is Opcode.TEXT, frame
        return msgspec.json.decode(str(frame.payload))

    def read_close(self) -> tuple[int, str]:
        """The closing frame, and nothing after it."""
        frame = self.read_frame()
        assert frame.opcode is Opcode.CLOSE, frame
        assert isinstance(frame.payload, tuple)
        assert self.wire.at_end()
        return int(frame.payload[0]), str(frame.payload[1])
