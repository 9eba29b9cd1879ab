"""The library wsproto as the judge of a client's frames: the slow, obviously right twin."""

from __future__ import annotations

from wsproto.frame_protocol import CloseReason, Frame, FrameProtocol, Opcode, ParseFailed

from zbus.wire.websocket import CLOSE, PING, Event


class Judge:
    """Read like a `WebSocketReader`."""

    def __init__(self) -> None:
        self._frames = FrameProtocol(client=False, extensions=[])
        self._message = b""
        self.closed = False
        self.code = 0  # of the error

    def receive(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        if self.closed:
            return events
        self._frames.receive_bytes(data)
        try:
            for frame in self._frames.received_frames():
                self._take(frame, events)
        except ParseFailed as error:
            self.code = int(error.code)
            self.closed = True
        return events

    def _take(self, frame: Frame, events: list[Event]) -> None:
        payload = frame.payload
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
            assert isinstance(payload, str | bytes)
            self._message += payload.encode() if isinstance(payload, str) else payload
            if frame.message_finished:
                events.append((int(frame.opcode), self._message))
                self._message = b""
        elif frame.opcode is Opcode.PING:
            assert isinstance(payload, bytes)
            events.append((PING, payload))
        elif frame.opcode is Opcode.CLOSE:
            assert isinstance(payload, tuple)
            code, reason = payload
            silent = code == CloseReason.NO_STATUS_RCVD
            events.append((CLOSE, b"" if silent else int(code).to_bytes(2) + reason.encode()))
            self.closed = True
