"""A handler of `logging` that produces records to a topic, and never makes the program wait.

    logging.getLogger().addHandler(TopicHandler("Logs", "http://127.0.0.1:15555"))

A record is put into a buffer, and a thread sends what is there in batches. When the buffer is full,
because the broker is away or slow, new records are dropped. How many, and of which level, is a
record itself as soon as there is room again. (docs/howto/python-frameworks.md)
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import Counter, deque
from typing import Unpack

import msgspec

from zbus.client import DEFAULT_URL, BlockingClient, Message, NotFound, Options, Refused, ZbusError
from zbus.client.errors import Full, Overloaded, TooMany
from zbus.client.options import OptionArguments

BATCH_RECORDS = 500
TEXT_MAX = 16_384
"""Characters of a record; the rest is cut off. So a batch is far below the broker's limit."""
TAG_BYTES_MAX = 127
PAUSE_S = 1.0
"""Between attempts while the broker takes nothing."""
CLOSE_S = 2.0


class TopicHandler(logging.Handler):
    """Sends records to the topic `topic`, which is made if it is not there.

    Without a formatter a record is JSON: `time` (epoch seconds), `level`, `logger`, `message`,
    `process`, and `exception` if there is one. Its tag is `<level>.<logger>`, so `ERROR.#` is a
    filter. At most `records_max` records wait in memory. `options` are those of
    `zbus.client.connect`. Raises ValueError for a bad URL; a broker that is away raises nothing.
    """

    def __init__(
        self,
        topic: str,
        url: str = DEFAULT_URL,
        *,
        level: int | str = logging.NOTSET,
        records_max: int = 10_000,
        **options: Unpack[OptionArguments],
    ) -> None:
        super().__init__(level)
        self.topic = topic
        self.records_max = records_max
        self.dropped: Counter[str] = Counter()
        """Records by their level that were not sent, and that no record reports yet."""
        self._bus = BlockingClient(url, Options(**options))
        self._changed = threading.Condition()
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._waiting: deque[tuple[str, Message]] = deque()
        self._sending = 0
        self._closing = False
        self._thread: threading.Thread | None = None

    # -- in the program -------------------------------------------------------------------

    def emit(self, record: logging.LogRecord) -> None:
        """Takes microseconds, whatever the broker does."""
        if self._process != os.getpid():  # forked: what waits there is the parent's
            self._changed = threading.Condition()
            self._begin()
        thread = self._thread
        if thread is not None and record.thread == thread.ident:
            return  # what the client says about the broker while it sends
        try:
            message = self._message(record)
        except Exception:
            self.handleError(record)
            return
        with self._changed:
            if self._closing or len(self._waiting) >= self.records_max:
                self.dropped[record.levelname] += 1
                return
            self._waiting.append((record.levelname, message))
            if thread is None:
                self._thread = threading.Thread(target=self._send_all, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _message(self, record: logging.LogRecord) -> Message:
        tag = f"{record.levelname}.{record.name}".replace(" ", "_")
        tag = tag.encode("ascii", "replace")[:TAG_BYTES_MAX].decode()
        if self.formatter is not None:
            return Message(self.format(record)[:TEXT_MAX], tag=tag)
        fields: dict[str, object] = {
            "time": record.created,
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage()[:TEXT_MAX],
            "process": record.process,
        }
        if record.exc_info:
            fields["exception"] = logging.Formatter().formatException(record.exc_info)[-TEXT_MAX:]
        return Message(msgspec.json.encode(fields), tag=tag)

    def flush(self) -> None:
        """Wait until all is sent, for at most two seconds."""
        deadline_s = time.monotonic() + CLOSE_S
        with self._changed:
            while (self._waiting or self._sending) and self._process == os.getpid():
                if not self._changed.wait(deadline_s - time.monotonic()):
                    return

    def close(self) -> None:
        """Send what waits, for at most two seconds; the rest is counted on standard error."""
        self.flush()
        with self._changed:
            self._closing = True
            self.dropped.update(level for level, _ in self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
        self._bus.close()
        if self._thread is not None and self._process == os.getpid():
            self._thread.join(CLOSE_S)
        if self.dropped:
            print(f"logging to {self.topic}: {self._report()}", file=sys.stderr)
            self.dropped.clear()
        super().close()

    # -- the thread -----------------------------------------------------------------------

    def _report(self) -> str:
        counts = ", ".join(f"{count} {level}" for level, count in sorted(self.dropped.items()))
        return f"{self.dropped.total()} records were dropped ({counts})"

    def _send_all(self) -> None:
        while True:
            with self._changed:
                self._sending = 0
                self._changed.notify_all()  # of `flush`
                while not self._waiting and not self._closing:
                    self._changed.wait()
                if self._closing:
                    return
                count = self._sending = min(BATCH_RECORDS, len(self._waiting))
                batch = [self._waiting.popleft() for _ in range(count)]
                reported, text = Counter(self.dropped), self._report()
            messages = [message for _, message in batch]
            if reported:
                about = logging.makeLogRecord(
                    {"levelname": "WARNING", "name": __name__, "msg": text}
                )
                messages.append(self._message(about))
            stored = self._send(messages)
            with self._changed:
                if stored:
                    self.dropped -= reported  # what was dropped meanwhile is the next record's
                else:
                    self.dropped.update(level for level, _ in batch)
                    self._changed.wait(0 if self._closing else PAUSE_S)

    def _send(self, messages: list[Message]) -> bool:
        """Whether they are stored. A broker that is away or full is asked again, until `close`."""
        while True:
            try:
                self._bus.produce_many(self.topic, messages)
            except NotFound:
                try:
                    self._bus.declare(self.topic)
                except ZbusError:
                    return False
                continue
            except Refused as error:
                if not isinstance(error, Full | Overloaded | TooMany):
                    return False  # no repetition makes it right
            except ZbusError:
                pass
            else:
                return True
            with self._changed:
                if self._closing or self._changed.wait_for(lambda: self._closing, PAUSE_S):
                    return False
