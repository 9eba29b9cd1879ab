"""The bytes of a broker's answers, cut into responses: the client's side of `wire/http.py`.

Strict where framing is concerned: one status line, header lines that end with CR LF, exactly
`content-length` bytes. A broker never sends chunked bodies or folded lines, so nothing of that is
read. Interim responses (1xx) are passed over.

Most lines of answers come again and again, so checked lines are remembered, as the broker does
with the lines of requests. Answers to puts come again as a whole, but for two values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from zbus.wire.errors import WireError, quoted
from zbus.wire.heads.fields import VISIBLE, split_field

if TYPE_CHECKING:
    from zbus.wire.limits import WireLimits


class AnswerLimits(NamedTuple):
    """What a client takes; the names are those of `WireLimits`, which are options of a broker."""

    line_bytes_max: int = 64 << 10
    head_bytes_max: int = 128 << 10
    fields_max: int = 250
    body_bytes_max: int = 128 << 20


ANSWER_LIMITS = AnswerLimits()
"""What a client takes: more than a broker does, whose answers carry a producer's whole head."""

_MEMO_MAX = 4096
_MEMO_LINE_BYTES_MAX = 256
_FRAMING = (b"content-length", b"transfer-encoding")
_UNIQUE = frozenset((b"id", b"idempotency-key", b"offset", b"origin_id", b"timestamp"))
"""Names whose values hardly come again: not worth remembering."""

_ALIKE_BYTES_MAX = 256
_KNOWN_MAX = 64
_MISSES_MAX = 4
_UNLIKE = 100
"""After a few heads that are like none before, so many are not looked up."""

# What a line says depends on nothing else, so all readers remember together.
_lines: dict[bytes, tuple[bytes, bytes]] = {}
_starts: dict[bytes, int] = {}


class Response(NamedTuple):
    """One answer. Names are lower-case; of a repeated one the last is kept."""

    status: int
    fields: dict[bytes, bytes]
    body: bytes


class ResponseReader:
    """Feed it what a connection received; it gives back complete responses in their order.

    `error` is set when the stream broke: nothing after it can be understood.
    """

    def __init__(self, limits: AnswerLimits | WireLimits = ANSWER_LIMITS) -> None:
        self._limits = limits
        self._rest = bytearray()  # the beginning of a head
        self._pending: tuple[int, dict[bytes, bytes]] | None = None  # its body is on its way
        self._parts: list[bytes] = []
        self._missing = 0
        # What is before `id` and between that and `offset`: status, all fields, length of the body.
        self._known: dict[tuple[bytes, bytes], tuple[int, dict[bytes, bytes], int]] = {}
        self._missed = self._unlike = 0  # heads that were not known, and that are not looked up
        self.error: WireError | None = None

    @property
    def between(self) -> bool:
        """Nothing is half there: a connection that ends now ends cleanly."""
        return self._pending is None and not self._rest and self.error is None

    def receive(self, data: bytes) -> list[Response]:
        """Take received bytes; return the responses they complete."""
        found: list[Response] = []
        if self.error is None:
            try:
                self._walk(data, found)
            except WireError as error:
                self.error = error.bare()
        return found

    def _walk(self, data: bytes, found: list[Response]) -> None:
        at = search = 0
        if self._pending is not None:
            at = self._feed(data, found)
        elif self._rest:
            search = max(0, len(self._rest) - 3)
            self._rest += data
            if self._rest.find(b"\r\n\r\n", search) < 0:
                self._check_rest(len(self._rest))
                return
            data = bytes(self._rest)
            self._rest.clear()
        while at < len(data):
            end = data.find(b"\r\n\r\n", max(at, search))
            if end < 0:
                self._check_rest(len(data) - at)
                self._rest += data[at:]
                return
            status, fields, length = self._read_head(data[at:end])
            at = end + 4
            if length <= len(data) - at:
                if status >= 200:
                    found.append(Response(status, fields, data[at : at + length]))
                at += length
            else:
                self._pending = (status, fields)
                self._parts = [data[at:]]
                self._missing = length - (len(data) - at)
                return

    def _feed(self, data: bytes, found: list[Response]) -> int:
        """Bytes of a body; return where it ends."""
        assert self._pending is not None
        piece = data[: self._missing]
        self._parts.append(piece)
        self._missing -= len(piece)
        if not self._missing:
            found.append(Response(*self._pending, b"".join(self._parts)))
            self._pending = None
            self._parts = []
        return len(piece)

    def _check_rest(self, size: int) -> None:
        if size > self._limits.head_bytes_max:
            raise WireError(431, f"a head is over {self._limits.head_bytes_max} bytes")

    def _read_head(self, raw: bytes) -> tuple[int, dict[bytes, bytes], int]:
        """Status, fields, and the length of the body. The answers to puts are alike but for `id`
        and, at the end, `offset`: what one of them has otherwise is remembered."""
        if self._unlike:
            self._unlike -= 1
            return self._read_other_head(raw)
        before, _, rest = raw.partition(b"\r\nid: ")
        id, _, rest = rest.partition(b"\r\n")
        between, _, offset = rest.rpartition(b"\r\noffset: ")
        known = self._known.get((before, between))
        short = len(raw) <= _ALIKE_BYTES_MAX
        if known is not None and short and offset.isdigit() and not id.translate(None, VISIBLE):
            self._missed = 0
            status, alike, size = known
            fields = alike.copy()
            fields[b"id"], fields[b"offset"] = id, offset
            return status, fields, size
        status, fields, size = found = self._read_other_head(raw)
        self._missed += 1
        if self._missed > _MISSES_MAX:
            self._unlike = _UNLIKE
        if between and short and offset.isdigit() and len(fields) == raw.count(b"\r\n"):
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[before, between] = status, fields.copy(), size
        return found

    def _read_other_head(self, raw: bytes) -> tuple[int, dict[bytes, bytes], int]:
        lines = raw.split(b"\r\n")
        if len(lines) > self._limits.fields_max:
            raise WireError(431, f"there are more than {self._limits.fields_max} header lines")
        status = _starts.get(lines[0]) or self._new_start(lines[0])
        get = _lines.get
        fields: dict[bytes, bytes] = {}
        for line in lines[1:]:
            name, value = get(line) or self._new_line(line)
            fields[name] = value
        if len(fields) != len(lines) - 1:
            _check_repeated(lines)
        length = fields.get(b"content-length")
        if b"transfer-encoding" in fields:
            raise WireError(400, "an answer with a transfer-encoding is not understood here")
        if status < 200 or status in (204, 304):
            return status, fields, 0
        if length is None:
            raise WireError(400, "an answer has no content-length")
        size = int(length)
        if size > self._limits.body_bytes_max:
            raise WireError(413, f"a body is over {self._limits.body_bytes_max} bytes")
        return status, fields, size

    def _new_start(self, line: bytes) -> int:
        version, _, rest = line.partition(b" ")
        code, _, reason = rest.partition(b" ")
        if version != b"HTTP/1.1" or len(code) != 3 or not code.isdigit() or code < b"100":
            raise WireError(
                400, f"the answer begins with {quoted(line)}, which is not a status line"
            )
        if b"\r" in reason or b"\n" in reason:
            raise WireError(400, "a status line has a control byte in its reason")
        status = int(code)
        if len(_starts) < _MEMO_MAX and len(line) <= _MEMO_LINE_BYTES_MAX:
            _starts[line] = status
        return status

    def _new_line(self, line: bytes) -> tuple[bytes, bytes]:
        name, colon, value = line.partition(b": ")
        if colon and name in _UNIQUE and not value.translate(None, VISIBLE):
            return name, value
        if len(line) > self._limits.line_bytes_max:
            raise WireError(431, f"a header line is over {self._limits.line_bytes_max} bytes")
        name, value = field = split_field(line)
        if name == b"content-length" and not (value.isdigit() and len(value) <= 19):
            raise WireError(400, f"the content-length {quoted(value)} is not a number of bytes")
        if len(line) <= _MEMO_LINE_BYTES_MAX and name not in _UNIQUE:
            if len(_lines) >= _MEMO_MAX:
                _lines.clear()
            _lines[line] = field
        return field


def _check_repeated(lines: list[bytes]) -> None:
    names = [split_field(line)[0] for line in lines[1:]]
    for name in _FRAMING:
        if names.count(name) > 1:
            raise WireError(400, f"{name.decode()} is repeated")
