"""What one worker completes in topics of others: redrives and batches, each message once, whatever
happens to the workers.

    moved -> back            topics of two workers: what is in the one is redriven into the other
    txn.app -> in0 in1 in2   an application commits batches for a topic of each worker
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final

import msgspec

from tests.simulation.workers.book import Book, TopicBook
from tests.simulation.workers.caller import Caller, Request
from tests.simulation.workers.server import WORKERS
from tests.simulation.workers.work import Work, messages
from zbus.core.patterns.redrive import LEASE_MS as MOVED_MS
from zbus.protocol.places import shard_of
from zbus.testing.world import Reply

_GROUP: Final = {"consume_group": "g"}
_BATCH_MAX: Final = 6


def _topic(start: str, shard: int) -> TopicBook:
    """One of this worker."""
    name = next(f"{start}{n}" for n in range(99) if shard_of(f"{start}{n}", WORKERS) == shard)
    return TopicBook(name, WORKERS, 1, [])


class App:
    """One that commits batches, and what it knows."""

    def __init__(self, shard: int) -> None:
        self.name = next(f"a{n}" for n in range(99) if shard_of(f"txn.a{n}", WORKERS) == shard)
        self._shard = shard
        self.batch = 0
        self.staged: dict[str, list[tuple[int, str]]] = {}  # offset and body, by topic
        self.asked: Request | None = None  # and not answered
        self.decided = False  # it may be: it is the same batch until that is answered
        self.committed: dict[str, list[str]] = {}

    def place(self, topic: str) -> TopicBook:
        """A topic as a request names it that is done where the application is."""
        place = TopicBook(topic, WORKERS, 1, [])
        place.owner = self._shard
        return place


class Completing:
    """See the module. `answer` sees to it that a caller is answered, `wait` lets time pass."""

    def __init__(
        self,
        random: Random,
        work: Work,
        book: Book,
        answer: Callable[[Caller], None],
        wait: Callable[[int], None],
    ) -> None:
        self._random, self._work, self._book = random, work, book
        self._answer, self._wait = answer, wait
        first = random.randrange(WORKERS)
        self.moved = _topic("moved", first)
        self.back = _topic("back", (first + 1) % WORKERS)
        self.targets = [_topic("in", shard) for shard in range(WORKERS)]
        self.app = App(random.randrange(WORKERS))
        self._serial = 0

    def declare(self, caller: Caller) -> None:
        for topic in (self.back, *self.targets):
            self._ask(caller, "declare", topic, {}, b"", self._done)
        options = _GROUP | {"group_ack": "true", "from": "earliest"}
        self._ask(caller, "declare", self.moved, options, b"", self._done)

    def ask(self, caller: Caller) -> None:
        """Something of it."""
        kinds = self._put, self._redrive, self._go_on
        self._random.choices(kinds, (4, 1, 5))[0](caller)

    def _ask(
        self,
        caller: Caller,
        command: str,
        topic: TopicBook,
        headers: dict[str, str],
        body: bytes,
        done: Callable[[Request, Reply], None],
    ) -> Request:
        """It may wait for other workers."""
        return self._work._ask(caller, command, topic, headers, body, done, wait_ms=120_000)

    def _done(self, request: Request, reply: Reply) -> None:
        self._work.expect(request, reply, 200)

    # -- messages that are moved ------------------------------------------------------------------

    def _put(self, caller: Caller) -> None:
        self._serial += 1
        self._ask(caller, "produce", self.moved, {}, b"d%d" % self._serial, self._done)

    def _redrive(self, caller: Caller) -> None:
        headers = _GROUP | {"to": self.back.name, "count": str(self._random.choice((1, 5, 100)))}
        self._ask(caller, "redrive", self.moved, headers, b"", self._done)

    # -- batches ----------------------------------------------------------------------------------

    def _go_on(self, caller: Caller) -> None:
        """The next step of the application, if the one before has ended."""
        app, asked = self.app, self.app.asked
        if asked is not None and asked.caller.connection.alive and asked in asked.caller.pending:
            return
        if asked is not None and not app.decided:
            app.staged = {}  # it is not known what is staged: from the beginning
        app.asked = None
        staged = sum(map(len, app.staged.values()))
        if not app.decided and staged < _BATCH_MAX and self._random.random() < 0.8:
            self._stage(caller)
        elif staged:
            self._commit(caller)

    def _stage(self, caller: Caller) -> None:
        app, topic = self.app, self._random.choice(self.targets)
        self._serial += 1
        body = f"b{self._serial}"

        def done(request: Request, reply: Reply) -> None:
            if self._work.expect(request, reply, 200) and app.asked is request:
                app.asked = None
                app.staged.setdefault(topic.name, []).append((int(reply.headers["offset"]), body))

        at = app.place(topic.name)
        app.asked = self._ask(caller, "txn_stage", at, {"txn": app.name}, body.encode(), done)

    def _commit(self, caller: Caller) -> None:
        app, batch = self.app, self.app.batch
        app.decided = True

        def done(request: Request, reply: Reply) -> None:
            if self._work.expect(request, reply, 200, 503) and batch == app.batch:
                for name, rows in app.staged.items():
                    app.committed.setdefault(name, []).extend([body for _, body in rows])
                app.batch += 1
                app.staged, app.asked, app.decided = {}, None, False

        stages = [
            {"topic": name, "offsets": ",".join([str(offset) for offset, _ in rows])}
            for name, rows in app.staged.items()
        ]
        headers = {"txn": app.name, "batch": str(batch)}
        body = msgspec.json.encode({"stages": stages})
        app.asked = self._ask(caller, "txn_commit", app.place(""), headers, body, done)

    # -- the end ----------------------------------------------------------------------------------

    def judge(self, caller: Caller) -> None:
        """All is moved, and the batch is committed. Then each message is there once."""
        while self.app.decided:
            self._commit(caller)
            self._answer(caller)
        for _ in range(2):  # what a redrive had that ended with its worker is leased for a while
            self._wait(2 * MOVED_MS)
            headers = _GROUP | {"to": self.back.name}
            self._ask(caller, "redrive", self.moved, headers, b"", self._done)
            self._answer(caller)
        put, moved = (Counter(self._log(caller, topic)) for topic in (self.moved, self.back))
        self._book.check(put == moved, f"not moved: {put - moved}; too many: {moved - put}")
        for topic in self.targets:
            stored, wanted = self._log(caller, topic), self.app.committed.get(topic.name, [])
            self._book.check(stored == wanted, f"{topic.name} has {stored}, and not {wanted}")

    def _log(self, caller: Caller, topic: TopicBook) -> list[str]:
        """All that is stored in a topic."""
        found: list[str] = []

        def done(request: Request, reply: Reply) -> None:
            if self._work.expect(request, reply, 200):
                found.extend([body for _, body in messages(reply)])

        before = -1
        while len(found) > before:
            before = len(found)
            headers = {"offset": str(before), "count": "100", "accept": "application/x-ndjson"}
            self._ask(caller, "read", topic, headers, b"", done)
            self._answer(caller)
        return found
