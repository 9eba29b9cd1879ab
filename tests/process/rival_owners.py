"""Two owners in one process that take a stream from each other on real NATS servers, and what the
stream must hold afterwards."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Final

from tests.process.nats_faults import FaultyCluster
from zbus.storage.errors import JournalDamage
from zbus.storage.format.batch import Kind, decode_chunk, iterate, split_whole
from zbus.storage.jetstream.client import Access, NatsClient
from zbus.storage.jetstream.engine import JetStreamJournal
from zbus.storage.jetstream.lane import EPOCH
from zbus.storage.jetstream.nats import NatsStream
from zbus.storage.jetstream.ownership import Claim, Claimed, Owner
from zbus.storage.jetstream.stream import Stored
from zbus.storage.jetstream.subjects import Subjects
from zbus.storage.port import JournalError, Lane, StoredLane, Verdicts
from zbus.testing.engines import Bench, Writer

LANES: Final[tuple[Lane, ...]] = tuple([("orders", number) for number in range(4)])
COMMITS_MAX: Final = 32
"""So many of an owner may wait for their answers."""
TURN_S: Final = 0.01
OPEN_S: Final = 60.0


class Rival(Bench):
    """An owner on a thread of its own, until the other one claims; then it waits a while, and
    claims in its turn."""

    def __init__(self, name: str, cluster: FaultyCluster, seed: int) -> None:
        super().__init__()
        self._name = name
        self._subjects = cluster.subjects
        self._access = Access([("127.0.0.1", port) for port in cluster.ports_for(name)])
        self._chance = Random(seed)
        self.counts: Counter[str] = Counter()
        self.confirmed: list[tuple[Lane, bytes]] = []
        self.confirmed_s: list[float] = []
        self.wrong: list[str] = []
        self.stopped = threading.Event()
        self.journal: JetStreamJournal | None = None
        self._writers: dict[Lane, Writer] = {}
        self._waiting = 0
        self._in_doubt = False
        self.thread = threading.Thread(target=self._run, daemon=True)

    @property
    def delivers(self) -> bool:
        journal = self.journal
        return journal is not None and journal.is_certain and not journal.is_quiet

    def _run(self) -> None:
        while not self.stopped.wait(self._chance.uniform(2.0, 6.0)):
            stream = NatsStream(NatsClient(self._access, self.post), self._subjects.stream)
            try:
                self._own(stream)
            except Exception as error:
                self.wrong.append(f"{self._name}: {error!r}")
                return
            finally:
                stream.close()
                self.posted = queue.SimpleQueue()
            self.wrong += [text for text in self.failures if "has taken over" not in text]
            self.counts["taken"] += len(self.failures)

    def _own(self, stream: NatsStream) -> None:
        answers: list[Claimed | Owner | JournalError | None] = []
        self.failures.clear()
        Claim(stream, self._subjects, self._name, "", lambda _: True, answers.append).start()
        while not answers and not self.stopped.is_set():
            self._turn(TURN_S)
        if not answers:
            return
        if not isinstance(answers[0], Claimed):
            raise TypeError(f"the claim was answered with {answers[0]!r}")
        self.counts["claims"] += 1
        self._waiting, self._in_doubt = 0, False
        self.journal = journal = JetStreamJournal(
            stream, self._subjects, answers[0], self.failures.append
        )
        epoch, number = answers[0].owner.epoch, itertools.count()
        try:
            self._open(journal, LANES)
            while not self.failures and not self.stopped.is_set():
                if failed := [lane for lane in LANES if lane in journal.verdicts]:
                    self.counts["lanes opened again"] += len(failed)
                    self._open(journal, failed)
                elif self._waiting < COMMITS_MAX:
                    self._append(journal, f"{epoch} {next(number)}".encode())
                self._turn(TURN_S)
        finally:
            self.journal = None
            journal.close()

    def _turn(self, wait_s: float) -> None:
        """Run what is posted within this time."""
        until_s = time.monotonic() + wait_s
        while (left_s := until_s - time.monotonic()) > 0:
            try:
                self.posted.get(timeout=left_s)()
            except queue.Empty:
                return
            journal = self.journal
            was, self._in_doubt = self._in_doubt, journal is not None and _is_in_doubt(journal)
            self.counts["doubts"] += self._in_doubt and not was

    def _open(self, journal: JetStreamJournal, lanes: Sequence[Lane]) -> None:
        """Go on behind what the stream has of these. Only damage is a mistake: a stream that is
        away is asked again."""
        deadline_s = time.monotonic() + OPEN_S
        while not self.failures and not self.stopped.is_set():
            found: list[StoredLane] = []
            answers: list[JournalError | None] = []
            journal.open(lanes, found.append, answers.append)
            while not answers and not self.failures and not self.stopped.is_set():
                self._turn(TURN_S)
            if answers == [None]:
                self._writers |= {lane: Writer(lane) for lane in lanes}
                for stored in found:
                    header = next(iterate(list(stored.batches)[-1])).header
                    self._writers[stored.lane] = Writer(stored.lane, header.crc, header.end_offset)
                return
            if answers and (isinstance(answers[0], JournalDamage) or time.monotonic() > deadline_s):
                raise RuntimeError(f"lanes cannot be opened: {answers[0]!r}")
            self.counts["opened again"] += bool(answers)

    def _append(self, journal: JetStreamJournal, number: bytes) -> None:
        """To some of the lanes, and commit it."""
        lanes = self._chance.sample(LANES, self._chance.randint(1, len(LANES)))
        bodies = [number + b" %d" % index for index in range(self._chance.randint(1, 3))]
        for lane in lanes:
            writer = self._writers[lane]
            if writer.last == 0 or self._chance.random() < 0.05:
                writer.append(journal, writer.checkpoint)
            writer.append(journal, partial(writer.data, *bodies))

        def done(verdicts: Verdicts) -> None:
            self._waiting -= 1
            good = [lane for lane in lanes if lane not in verdicts]
            self.confirmed += itertools.product(good, bodies)
            if good:
                self.confirmed_s.append(time.monotonic())

        self._waiting += 1
        journal.commit(lanes, True, done)


def _is_in_doubt(journal: JetStreamJournal) -> bool:
    return bool(journal.figures()["inDoubt"])


def watch(first: Rival, second: Rival) -> None:
    """Two that deliver at once break a law; the first is looked at before and after the second."""
    while not (first.stopped.wait(0.002) and second.stopped.is_set()):
        if first.delivers and second.delivers and first.delivers:
            first.wrong.append("two owners deliver at once")
            return


def read_lanes(
    log: Sequence[Stored], subjects: Subjects, wrong: list[str]
) -> tuple[Counter[tuple[Lane, bytes]], int]:
    """All messages by lane and body, and how many strays there are: written by a former owner
    behind the claim of a later one. Each lane must be a chain."""
    there: Counter[tuple[Lane, bytes]] = Counter()
    ends = dict.fromkeys(LANES, 0)
    newest = strays = 0
    for message in log:
        epoch = int(message.headers[EPOCH])
        strays += epoch < newest
        newest = max(newest, epoch)
        lane = subjects.lane_of(message.subject)
        if lane is None:
            continue
        try:
            for batch in split_whole(message.body, ends[lane]):
                ends[lane] = batch.header.crc
                if batch.header.kind is Kind.DATA:
                    there.update([(lane, body) for body in decode_chunk(batch).bodies])
        except JournalDamage as error:
            wrong.append(f"sequence {message.sequence} of {lane}: {error}")
    return there, strays
