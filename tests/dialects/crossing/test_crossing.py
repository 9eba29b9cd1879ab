"""What is put in one dialect and taken in another, each cell of the table over real sockets.

Each thing has an observer. It has one speaker put and another take, and says in a word of the table
what became of the thing:

    yes    the receiver is told, or the broker keeps to it
    text   the same for UTF-8 text; other bytes do not come through
    kept   the receiver has no word for it; who takes the message in zbus afterwards is told
    own    each dialect has its own

and an empty word is that of a sender that has none for the thing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.dialects.crossing.speakers import (
    Adf,
    Camellia,
    Message,
    Mqcloud,
    Native,
    Speaker,
    speak,
)
from tests.dialects.crossing.table import CELLS, PAGE, PAIRS, as_page, written
from tests.docs.pages import DOCS
from tests.examples.broker_process import BrokerProcess, lasting_port

TEXT = "grüße, 你好 \U0001f980, a=b&c+d%41 \"'\\\t\x01\r\n".encode()
BYTES = bytes(range(256)) * 4
LAST = Message(b"the last one")
DELAY_MS = 400
TOLD_MS = 5_000  # between a put that is read, from which its times count, and its timestamp


ADF_FORMS = ("ws-bin", "http-bin")


@pytest.fixture(scope="module", params=ADF_FORMS)
def speakers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Speaker]]:
    """One of each dialect, with a broker of theirs."""
    with BrokerProcess(tmp_path_factory.mktemp("crossing") / "data") as broker:
        found = speak(broker.port, request.param)
        yield found
        for speaker in found.values():
            speaker.close()


class Trip:
    """From a sender to a receiver, by a topic of its own that the sender's dialect made."""

    def __init__(
        self, speakers: dict[str, Speaker], sender: str, receiver: str, topic: str
    ) -> None:
        self.sender, self.receiver, self.topic = speakers[sender], speakers[receiver], topic
        native = speakers[Native.name]
        assert isinstance(native, Native)
        self.native = native
        self.sender.make(topic)

    def put(self, message: Message) -> str:
        return self.sender.put(self.topic, message)

    def take(self) -> Message:
        return self.receiver.take(self.topic)

    def give_back(self, taken: Message) -> None:
        self.receiver.give_back(self.topic, taken)

    def finish(self, taken: Message) -> None:
        self.receiver.finish(self.topic, taken)

    def over(self, sent: Message) -> Message:
        self.put(sent)
        return self.take()

    def kept(self, taken: Message) -> Message:
        """What zbus tells of a message that its receiver gives back."""
        self.give_back(taken)
        return self.native.take(self.topic)


def body(trip: Trip) -> str:
    assert trip.over(Message(TEXT)).body == TEXT
    if trip.sender.name in (Camellia.name, Mqcloud.name):
        return "yes"  # they send text alone
    return "yes" if trip.over(Message(BYTES)).body == BYTES else "text"


def order(trip: Trip) -> str:
    bodies = [b"%d" % number for number in range(5)]
    for each in bodies:
        trip.put(Message(each))
    taken = []
    for _ in bodies:
        message = trip.take()
        trip.finish(message)
        taken.append(message.body)
    return "yes" if taken == bodies else "no"


def place_in_front(trip: Trip) -> str:
    trip.put(Message(b"second"))
    return "yes" if trip.over(Message(b"first", front=True)).body == b"first" else "no"


def id_of_the_message(trip: Trip) -> str:
    known = trip.put(Message(b"x", id="order-17" if "id" in trip.sender.can_say else None))
    taken = trip.take()
    if taken.id == known:
        return "yes"
    return "kept" if trip.kept(taken).id == known else "own"


def label(name: str, value: str | dict[str, str]) -> Callable[[Trip], str]:
    def observe(trip: Trip) -> str:
        sent = Message(b"x", **{name: value})  # type: ignore[arg-type]
        taken = trip.over(sent)
        if getattr(taken, name) == value:
            return "yes"
        return "kept" if getattr(trip.kept(taken), name) == value else "no"

    return observe


def delay(trip: Trip) -> str:
    begin = time.monotonic()
    taken = trip.over(Message(b"x", delay_ms=DELAY_MS))
    came_ms = (time.monotonic() - begin) * 1_000
    assert taken.delay_ms is None or 0 <= taken.delay_ms - DELAY_MS < TOLD_MS
    return "yes" if came_ms >= DELAY_MS else "no"


def expiry(trip: Trip) -> str:
    told = trip.over(Message(b"x", ttl_ms=600_000))
    trip.finish(told)
    assert told.ttl_ms is None or 0 <= told.ttl_ms - 600_000 < TOLD_MS
    trip.put(Message(b"news of this moment", ttl_ms=1))
    stored_ms = trip.native.now_ms()
    while trip.native.now_ms() <= stored_ms + 1:
        pass
    return "yes" if trip.over(LAST).body == LAST.body else "no"


def attempts(trip: Trip) -> str:
    trip.put(Message(b"x"))
    for number in (1, 2):
        taken = trip.sender.take(trip.topic)
        assert taken.attempts == number
        trip.sender.give_back(trip.topic, taken)
    return "yes" if trip.take().attempts == 3 else "no"


def limit_of_attempts(trip: Trip) -> str:
    trip.put(Message(b"x", attempts_max=2))
    for _ in range(2):
        taken = trip.take()
        assert taken.body == b"x"
        assert taken.attempts_max in (None, 2)
        trip.give_back(taken)
    return "yes" if trip.over(LAST).body == LAST.body else "no"


def being_done(trip: Trip) -> str:
    trip.finish(trip.over(Message(b"x")))
    trip.put(LAST)
    return "yes" if trip.sender.take(trip.topic).body == LAST.body else "no"


OBSERVERS: Final[dict[str, tuple[str, Callable[[Trip], str]]]] = {
    "body": ("body", body),
    "order": ("body", order),
    "place in front": ("front", place_in_front),
    "id": ("body", id_of_the_message),
    "tag": ("tag", label("tag", "order.new.eu")),
    "key": ("key", label("key", "customer-1")),
    "headers": ("headers", label("headers", {"x-trip": "there and back"})),
    "delay": ("delay_ms", delay),
    "expiry": ("ttl_ms", expiry),
    "attempts": ("body", attempts),
    "limit of attempts": ("attempts_max", limit_of_attempts),
    "being done": ("body", being_done),
}
"""Of each thing: what its sender must be able to say, and who looks."""

CASES = [
    (thing, *pair, cell)
    for thing, cells in CELLS.items()
    for pair, cell in zip(PAIRS, cells, strict=True)
]


@pytest.mark.parametrize(("thing", "sender", "receiver", "cell"), CASES)
def test_what_carries_over(
    speakers: dict[str, Speaker], thing: str, sender: str, receiver: str, cell: str
) -> None:
    said, observe = OBSERVERS[thing]
    if said not in speakers[sender].can_say:
        assert not cell
        return
    topic = f"{thing} {sender} {receiver}".replace(" ", "-")
    assert observe(Trip(speakers, sender, receiver, topic)) == cell


def test_the_page_has_this_table() -> None:
    assert set(OBSERVERS) == set(CELLS)
    page = PAGE.read_text(encoding="utf-8")
    assert as_page() in page
    assert written(page) == page, "run: python -m tests.dialects.crossing.table"
    assert PAGE.is_relative_to(DOCS)


# -- through a crash -------------------------------------------------------------------------------


@contextmanager
def all_trips(port: int, adf_form: str) -> Iterator[list[Trip]]:
    """One for each pair, with topics that are the same at the next time."""
    speakers = speak(port, adf_form)
    yield [Trip(speakers, *pair, f"crash-{'-'.join(pair)}") for pair in PAIRS]
    for speaker in speakers.values():
        speaker.close()


def test_what_carries_over_a_crash(tmp_path: Path) -> None:
    """What was tried comes first, with its attempt, then what is new. In a queue that Adf has made,
    what somebody held when the broker was killed is back, too, and before all else."""
    port = lasting_port()
    with BrokerProcess(tmp_path / "data", port) as broker, all_trips(port, "ws-bin") as trips:
        for trip in trips:
            trip.give_back(trip.over(Message(b"tried")))
            trip.put(Message(b"new"))
            if trip.sender.name == Adf.name:
                assert trip.over(Message(b"held", front=True)).body == b"held"
        broker.kill()
    with BrokerProcess(tmp_path / "data", port), all_trips(port, "http-bin") as trips:
        for trip in trips:
            told = [(b"tried", 2), (b"new", 1)]
            if trip.sender.name == Adf.name:
                told.insert(0, (b"held", 2))
            for one in told:  # of a queue of MQCloud there is one at a time
                taken = trip.take()
                assert (taken.body, taken.attempts) == one
                trip.finish(taken)


def test_what_a_lost_websocket_held_comes_to_the_others(tmp_path: Path) -> None:
    """In the order in which it was handed out, before what is new, with its attempt."""
    with BrokerProcess(tmp_path / "data") as broker:
        speakers = speak(broker.port, "ws-bin")
        adf = speakers["Adf"]
        for body in (b"1", b"2", b"3"):
            adf.put("lost", Message(body))
        assert [adf.take("lost").body, adf.take("lost").body] == [b"1", b"2"]
        adf.close()
        takers = ("zbus", "camellia", "zbus")
        taken = [speakers[name].take("lost") for name in takers]
        assert [(one.body, one.attempts) for one in taken] == [(b"1", 2), (b"2", 2), (b"3", 1)]
        for name in ("zbus", "camellia"):
            speakers[name].close()
