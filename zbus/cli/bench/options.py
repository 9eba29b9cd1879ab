"""What a load run is: its options, and the request bytes that they mean.

A request that carries a unique id consists of three pieces, `head + counter digits + tail`. The
last digits and the tail are prebuilt together in a table, so that making a request is one
concatenation of two ready byte strings.
"""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import quote

import attrs

from zbus.cli.remote import MESSAGES_TYPE, address
from zbus.client.options import DEFAULT_URL

MODES: Final = ("produce", "consume", "produce-then-consume")

TABLE_ENTRIES_MAX: Final = 4096
TABLE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bodies are part of the table's entries, so long bodies get a shorter table."""


@attrs.frozen(kw_only=True)
class Options:
    """One load run."""

    mode: str = attrs.field(default="produce", validator=attrs.validators.in_(MODES))
    url: str = DEFAULT_URL
    token: str = attrs.field(default="", repr=False)
    topic: str = "bench"
    group: str = ""  # empty: the group named like the topic
    connections: int = attrs.field(default=32, validator=attrs.validators.ge(1))
    messages: int = attrs.field(default=100_000, validator=attrs.validators.ge(1))
    body_bytes: int = attrs.field(default=128, validator=attrs.validators.ge(0))
    pipeline: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    unique_ids: bool = True
    batch: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    durability: str = ""  # empty: the broker's own default
    partitions: int = attrs.field(default=0, validator=attrs.validators.ge(0))  # 0: as it is
    seconds: float = attrs.field(default=0.0, validator=attrs.validators.ge(0))  # 0: no limit
    processes: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    empty_timeout_ms: int = 2_000  # a consume that finds nothing for this long ends its connection
    stall_timeout_s: float = 15.0  # no reply on any connection for this long ends the run

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases of the mode, in order."""
        return ("produce", "consume") if self.mode == MODES[2] else (self.mode,)


class Requests:
    """Prebuilt bytes of one phase's requests; `block(n)` is n of them."""

    def __init__(self, options: Options, phase: str) -> None:
        head, tail = (_produce if phase == "produce" else _consume)(options)
        self._head, self._tail = head, tail
        self._unique = options.unique_ids
        self._plain = head + tail  # repeated as it is when ids are not wanted
        self._run_id = os.urandom(4).hex().encode()
        length = 1
        while length < TABLE_ENTRIES_MAX and length * 2 * (len(tail) + 64) <= TABLE_BYTES_MAX:
            length *= 2
        self._table = [b"%03x\r\n" % low + tail for low in range(length if self._unique else 0)]
        self._high = -1  # which run through the table this is
        self._low = length
        self._prefix = b""

    def block(self, count: int) -> bytes:
        """The bytes of `count` requests."""
        if not self._unique:
            return self._plain if count == 1 else self._plain * count
        if count == 1:
            return self._next()
        return b"".join([self._next() for _ in range(count)])

    def _next(self) -> bytes:
        low = self._low
        if low >= len(self._table):
            self._high += 1
            self._prefix = b"%bid: %b-%x" % (self._head, self._run_id, self._high)
            low = 0
        self._low = low + 1
        return self._prefix + self._table[low]


def _produce(options: Options) -> tuple[bytes, bytes]:
    body = b"x" * options.body_bytes
    lines = []
    if options.batch > 1:
        body = b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        body *= options.batch
        lines.append(f"content-type: {MESSAGES_TYPE}")
    if body:
        lines.append(f"content-length: {len(body)}")
    return _head(options, f"/{quote(options.topic, safe='')}?cmd=produce", lines), b"\r\n" + body


def _consume(options: Options) -> tuple[bytes, bytes]:
    path = "/" + "/".join(quote(name, safe="") for name in (options.topic, options.group) if name)
    lines = [f"timeout: {options.empty_timeout_ms}"]
    if options.batch > 1:
        lines += [f"batch: {options.batch}", f"accept: {MESSAGES_TYPE}"]
    return _head(options, f"{path}?cmd=consume", lines), b"\r\n"


def _head(options: Options, target: str, lines: list[str]) -> bytes:
    host, port = address(options.url)
    name = f"[{host}]" if ":" in host else host
    if options.token:
        lines = [f"token: {quote(options.token, safe='')}", *lines]
    return "\r\n".join([f"GET {target} HTTP/1.1", f"host: {name}:{port}", *lines, ""]).encode()
