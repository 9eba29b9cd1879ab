"""Replies in the two forms: JSON objects, and the binary layout.

    JSON    {"action":"pull","requestid":"1","queue":"/q","result":"ok","body":"hi",...}

    binary  +--------+---+----+---+-------+---+--------+- only if the result is `ok` ---------+
            | action | I | id | Q | queue | R | result | push: messageid   count: count       |
            +--------+---+----+---+-------+---+--------+ pull: B body duplications messageid  |
              1        2   I    2   Q       2   R      +--------------------------------------+
                                                         messageid 8, count 4, B and duplications 2

Lengths are big-endian. A form knows the action and the queue of the replies that it makes, so what
they have in common is made once.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from zbus.dialects.adf.actions import PUSHES, Action

LENGTH_MAX: Final = 65_535
"""Of whatever has its length before it in the binary form."""

_MESSAGE_END: Final = struct.Struct("!HQ")


class Json:
    """Replies to one action on one queue; `id` is the requestid as it was given. Text goes out as
    it is, never escaped as surrogates: the stock client cannot read those."""

    __slots__ = ("_begin", "_middle", "_number")

    media_type: Final = b"content-type: application/json\r\n"
    body_bytes_max = 1 << 62  # of a message that fits a reply

    def __init__(self, word: bytes, action: Action | None, queue: bytes) -> None:
        self._begin = b'{"action":%b,"requestid":' % _text(word)
        self._middle = b',"queue":%b,"result":' % _text(queue)
        self._number = b"messageid" if action in PUSHES else b"count"

    def done(self, id: bytes) -> bytes:
        return b'%b%b%b"ok"}' % (self._begin, _text(id), self._middle)

    def number(self, id: bytes, number: int) -> bytes:
        """Of a push the messageid, else the count."""
        begin = (self._begin, _text(id), self._middle)
        return b'%b%b%b"ok","%b":%d}' % (*begin, self._number, number)

    def message(self, id: bytes, body: bytes, duplications: int, messageid: int) -> bytes:
        return b'%b%b%b"ok","body":%b,"duplications":%d,"messageid":%d}' % (
            self._begin,
            _text(id),
            self._middle,
            _text(body),
            duplications,
            messageid,
        )

    def failed(self, id: bytes, text: str) -> bytes:
        return b"%b%b%b%b}" % (self._begin, _text(id), self._middle, _text(text.encode()))


class Binary:
    """Likewise. Id and queue are given back as they came, whatever their bytes are."""

    __slots__ = ("_code", "_count", "_ok", "_queue")

    media_type: Final = b"content-type: application/octet-stream\r\n"
    body_bytes_max = LENGTH_MAX

    def __init__(self, code: int, action: Action | None, queue: bytes) -> None:
        self._code = bytes((code,))
        self._queue = len(queue).to_bytes(2) + queue
        self._ok = self._queue + b"\x00\x02ok"
        self._count = action not in PUSHES

    def done(self, id: bytes) -> bytes:
        return self._code + len(id).to_bytes(2) + id + self._ok

    def number(self, id: bytes, number: int) -> bytes:
        if self._count:
            return self.done(id) + min(number, 0x7FFF_FFFF).to_bytes(4)
        return self.done(id) + number.to_bytes(8)

    def message(self, id: bytes, body: bytes, duplications: int, messageid: int) -> bytes:
        end = _MESSAGE_END.pack(duplications, messageid)
        return self.done(id) + len(body).to_bytes(2) + body + end

    def failed(self, id: bytes, text: str) -> bytes:
        result = text.encode("ascii", "replace")
        parts = (self._code, len(id).to_bytes(2), id, self._queue, len(result).to_bytes(2), result)
        return b"".join(parts)


Form = Json | Binary


def _text(value: bytes) -> bytes:
    """As JSON; what is not UTF-8 is replaced."""
    if value.isalnum():
        return b'"%b"' % value
    return msgspec.json.encode(value.decode("utf-8", "replace"))
