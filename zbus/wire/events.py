"""A stream of server-sent events, cut into events: the client's side of
`dialects/zbus/messages/events.py`.

As the HTML standard reads them (section 9.2.6): lines end with LF, CR LF or CR, a line without a
name is a comment, the lines of an event's data are put together with line feeds, an event without
data is none, and an `id` holds until the next one. `retry` and unknown names are passed
over. Any split of the bytes gives the same events.
"""

from __future__ import annotations

from typing import NamedTuple

from zbus.wire.errors import WireError

EVENT_BYTES_MAX = 256 << 20
"""A body of 128 MiB as base64, or as JSON, is less, unless it is full of control characters."""

_BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """One event; `type` is empty if it has none of its own."""

    type: bytes
    id: bytes
    data: bytes


class EventReader:
    """Feed it the body of a stream as it comes; it gives back complete events in their order.
    `last_id` is the place in the stream: of the last event, or told before the first. `receive`
    raises WireError for an event over `EVENT_BYTES_MAX`."""

    def __init__(self, event_bytes_max: int = EVENT_BYTES_MAX) -> None:
        self._bytes_max = event_bytes_max
        self._rest = bytearray()  # the beginning of a line
        self._searched = 0  # bytes of it that hold no line end
        self._after_cr = False  # a line feed that comes now belongs to the line before
        self._first = True  # the next line is the first one
        self._type = b""
        self._id = b""
        self._data: list[bytes] = []
        self._bytes_used = 0
        self.last_id = b""

    def receive(self, data: bytes) -> list[Event]:
        """Take received bytes; return the events they complete."""
        found: list[Event] = []
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        rest = self._rest
        rest += data
        if rest.find(b"\n", self._searched) < 0 and rest.find(b"\r", self._searched) < 0:
            self._searched = len(rest)
            self._check()
            return found
        self._after_cr = rest.endswith(b"\r")
        whole = bytes(rest)
        rest.clear()
        if b"\r" in whole:
            whole = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, last = whole.split(b"\n")
        rest += last
        self._searched = len(rest)
        for line in lines:
            self._take(line, found)
        self._check()
        return found

    def _check(self) -> None:
        if len(self._rest) + self._bytes_used > self._bytes_max:
            raise WireError(413, f"an event is over {self._bytes_max} bytes")

    def _take(self, line: bytes, found: list[Event]) -> None:
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        if not line:
            self._end(found)
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._bytes_used += len(value) + 1
        elif name == b"event":
            self._type = value
        elif name == b"id" and b"\0" not in value:
            self._id = value

    def _end(self, found: list[Event]) -> None:
        self.last_id = self._id
        if self._data:
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            found.append(Event(self._type, self._id, data))
            self._data = []
            self._bytes_used = 0
        self._type = b""
