"""A WebSocket client over a connection of a world; wsproto reads and writes its frames."""

from __future__ import annotations

from typing import Any, NamedTuple

import h11
import msgspec
from wsproto.frame_protocol import CloseReason, FrameProtocol, Opcode

from tests.conformance.dialogue import Client, Reply, World

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
"""The example of RFC 6455, section 1.3."""


def handshake(target: str = "/", *lines: str, version: str = "13", key: str = KEY) -> bytes:
    head = (
        f"GET {target} HTTP/1.1",
        "host: localhost",
        "connection: keep-alive, Upgrade",
        "upgrade: websocket",
        f"sec-websocket-version: {version}",
        f"sec-websocket-key: {key}",
        *lines,
    )
    return "\r\n".join((*head, "", "")).encode()


class Message(NamedTuple):
    """A data frame of the broker."""

    data: bytes
    is_text: bool


class WebSocketClient:
    """Speaks WebSocket on a client of a world, after the handshake."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._frames = FrameProtocol(client=True, extensions=[])
        self.pongs: list[bytes] = []
        self.pings: list[bytes] = []
        self.close: tuple[int, str] | None = None
        self._messages: list[Message] = []

    # -- bytes to send --------------------------------------------------------------------

    def frame(self, message: bytes | str, fin: bool = True) -> bytes:
        return bytes(self._frames.send_data(message, fin))

    def ping(self, payload: bytes = b"") -> bytes:
        return bytes(self._frames.ping(payload))

    def closing(self, code: int | None = 1000, reason: str = "") -> bytes:
        return bytes(self._frames.close(None if code is None else CloseReason(code), reason))

    # -- a dialogue -----------------------------------------------------------------------

    def exchange(self, data: bytes) -> list[Message]:
        """Send bytes, turn until nothing happens any more, return all messages."""
        self.client.send(data)
        self.client.world.settle()
        return self.messages()

    def messages(self) -> list[Message]:
        """What has come since the last call."""
        received, self.client.received = self.client.received, b""
        self._frames.receive_bytes(received)
        for frame in self._frames.received_frames():
            assert self.close is None, "nothing follows a close frame"
            if frame.opcode is Opcode.PING:
                self.pings.append(bytes(frame.payload))  # type: ignore[arg-type]
            elif frame.opcode is Opcode.PONG:
                self.pongs.append(bytes(frame.payload))  # type: ignore[arg-type]
            elif frame.opcode is Opcode.CLOSE:
                assert isinstance(frame.payload, tuple)
                code, reason = frame.payload
                self.close = (int(code), str(reason))
            else:
                assert frame.message_finished
                payload = frame.payload
                if isinstance(payload, str):
                    self._messages.append(Message(payload.encode(), True))
                else:
                    self._messages.append(Message(bytes(payload), False))  # type: ignore[arg-type]
        messages, self._messages = self._messages, []
        return messages

    def request(self, message: bytes | str) -> Reply:
        """One HTTP message out, one back."""
        messages = self.exchange(self.frame(message))
        assert len(messages) == 1, (messages, self.close)
        return read_http(messages[0].data)

    def ask(self, request: Any) -> Any:
        """One JSON object out, one back."""
        messages = self.exchange(self.frame(msgspec.json.encode(request).decode()))
        assert len(messages) == 1, (messages, self.close)
        return read_json(messages[0])

    def asks(self, *requests: Any) -> list[Any]:
        data = b"".join(self.frame(msgspec.json.encode(item).decode()) for item in requests)
        return [read_json(message) for message in self.exchange(data)]


def read_http(message: bytes) -> Reply:
    """One whole reply and nothing behind it."""
    reader = h11.Connection(h11.CLIENT)
    reader.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
    reader.send(h11.EndOfMessage())
    reader.receive_data(message)
    response = reader.next_event()
    assert isinstance(response, h11.Response), response
    headers = {name.decode(): value.decode("utf-8", "replace") for name, value in response.headers}
    body = b""
    while not isinstance(event := reader.next_event(), h11.EndOfMessage):
        assert isinstance(event, h11.Data), event
        body += bytes(event.data)
    assert reader.trailing_data[0] == b""
    return Reply(response.status_code, headers, body)


def read_json(message: Message) -> Any:
    assert message.is_text
    return msgspec.json.decode(message.data)


def upgraded(client: Client, data: bytes | None = None) -> WebSocketClient:
    """Do the handshake."""
    client.send(handshake() if data is None else data)
    client.world.settle()
    return begun(client)


def begun(client: Client) -> WebSocketClient:
    """Read the 101 that has come, and what may have come behind it."""
    head, end, rest = client.received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 "), client.received
    assert end
    assert f"Sec-WebSocket-Accept: {ACCEPT}".encode() in head
    client.received = rest
    return WebSocketClient(client)


def connected(world: World) -> WebSocketClient:
    return upgraded(world.connect())
