"""What happened in a scene, in words: requests, replies, and what went wrong.

Who asks for the same again and is refused again, or given nothing, gets one line for all of it: so
a minute of idle polling does not push out what led to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import attrs

from zbus.testing.world import Reply

LINES_MAX = 300
_SHOWN = 40  # characters of a value, bytes of a body

_TOLD = ("offset", "partition", "retry", "skipped", "empty", "duplicate")
_NOT_TOLD = frozenset({"cmd", "topic", "content-length", "host"})


@attrs.define(eq=False)
class Who:
    """A client of the trace; several may have one name."""

    name: str
    number: int  # among those of the name
    asks: _Line | None = None
    answered: _Line | None = None  # the exchange before
    last: tuple[str, str] = ("", "")


@attrs.define(eq=False)
class _Line:
    ms: int
    who: Who | None
    text: str
    again: int = 0
    until_ms: int = 0


class Trace:
    """The last lines, oldest first."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._lines: list[_Line] = []
        self._names: Counter[str] = Counter()

    def introduce(self, name: str) -> Who:
        self._names[name] += 1
        return Who(name, self._names[name])

    def note(self, text: str, who: Who | None = None) -> _Line:
        line = _Line(self._now_ms(), who, text)
        self._lines.append(line)
        if len(self._lines) > 2 * LINES_MAX:
            del self._lines[:-LINES_MAX]
        return line

    def asks(self, who: Who, data: bytes) -> None:
        """A request was sent as a whole."""
        who.asks = self.note(f"asks: {request_words(data)}", who)

    def answered(self, who: Who, reply: Reply) -> None:
        text = reply_words(reply)
        asked = "" if who.asks is None else who.asks.text
        if reply.status != 200 and who.answered and who.last == (asked, text):
            self._lines = [line for line in self._lines if line is not who.asks]
            who.answered.again += 1
            who.answered.until_ms = self._now_ms()
            return
        who.last = asked, text
        who.answered = self.note(f"is told {text}", who)

    def lines(self) -> list[str]:
        return [self._words(line) for line in self._lines[-LINES_MAX:]]

    def _words(self, line: _Line) -> str:
        text, who = line.text, line.who
        if who is not None:
            several = self._names[who.name] > 1
            text = f"{who.name} {who.number} {text}" if several else f"{who.name} {text}"
        if line.again:
            text += f", and {line.again} times more until {line.until_ms} ms"
        return f"{line.ms:>14} ms  {text}"


def request_words(data: bytes) -> str:
    """Give command, topic, parameters, and how the body begins."""
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("utf-8", "replace").split("\r\n")
    fields = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines)
    }
    words = [first.removesuffix(" HTTP/1.1")]
    if "cmd" in fields:
        words = [fields["cmd"], fields.get("topic", "")]
    words += [f"{name}={value[:_SHOWN]}" for name, value in fields.items() if name not in _NOT_TOLD]
    return " ".join([*words, *_begin(body)])


def reply_words(reply: Reply) -> str:
    """Give the status, what matters of the headers, and how the body begins."""
    fields = [f"{name}={reply.headers[name]}" for name in _TOLD if name in reply.headers]
    return " ".join([str(reply.status), *fields, *_begin(reply.body)])


def _begin(body: bytes) -> list[str]:
    if not body:
        return []
    return [repr(body[:_SHOWN]) + ("..." if len(body) > _SHOWN else "")]
