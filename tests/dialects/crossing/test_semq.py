"""SEMQ beside the other dialects: topics that a node sends to, mailboxes that others put into.

The group of a mailbox is its node's alone, and a node cannot take from any other topic. So this is
a table of its own: what one can put that the other is told.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import quote, urlencode

import pytest

from tests.dialects.crossing.speakers import (
    PATIENCE_S,
    Adf,
    Camellia,
    Message,
    Mqcloud,
    Native,
    Speaker,
    speak,
)
from tests.dialects.crossing.table import PAGE
from tests.dialects.crossing.test_crossing import BYTES, TEXT
from tests.docs.tables import table
from tests.examples.broker_process import BrokerProcess

NODE, EPOCH = "1:7", "9f00000000000001"
OTHERS: Final = (Native.name, Adf.name, Camellia.name, Mqcloud.name)

CELLS: Final[dict[str, tuple[str, ...]]] = {
    "body": ("yes", "yes", "text", "yes", "yes", "yes", "yes", "yes"),
    "order": ("yes",) * 8,
    "id": ("yes", "own", "yes", "yes", "yes", "own", "yes", "yes"),
    "headers": ("yes", "kept", "kept", "kept", "yes", "", "", ""),
    "key": ("", "", "", "", "yes", "", "", "yes"),
    "delay": ("", "", "", "", "yes", "", "yes", "yes"),
    "being done": ("yes",) * 8,
}
"""First what a node sends to a topic and each of the others takes, then what they put into a
mailbox and its node takes."""


class Semq(Speaker):
    """A node over plain HTTP. It takes from its mailbox, and puts into any topic."""

    name = "SEMQ"
    can_say = frozenset({"body", "headers"})
    _seqs = itertools.count(1)

    def make(self, topic: str) -> None:
        """The first poll of a node makes its mailbox."""
        self._connection.request("GET", f"/semq/{topic.removeprefix('semq.')}?cmd=semq_poll")
        reply = self._connection.getresponse()
        assert (reply.status, reply.read()) == (204, b"")

    def put(self, topic: str, message: Message) -> str:
        seq = str(next(self._seqs))
        fields = {"src": NODE, "dst": f"0:1/{topic}", "savefwd": "3", "stream": "3", "seq": seq}
        fields |= {"lk0": f"{NODE}/1/1/{seq}", "epoch": EPOCH, "cmd": "semq_send"}
        told, _ = self.ask("POST", "/semq", message.body, **fields, **(message.headers or {}))
        assert (told["ack_flag"], told["flag"]) == ("1", "2"), "Ack-Save"
        return f"{NODE}/1/1/{EPOCH}/3/{seq}"

    def take(self, topic: str) -> Message:
        node = topic.removeprefix("semq.")
        told, body = self.ask("GET", f"/semq/{node}?cmd=semq_poll&wait={PATIENCE_S}")
        assert told["src"] == "0:1"
        handle = {name: told[name] for name in ("lk0", "epoch", "stream", "seq")}
        handle["ref_id"] = handle["src_ref_id"] = told["lk1"].rpartition("/")[2]
        return Message(
            body,
            id=told.get("origin_id"),
            key=told.get("key"),
            headers={name: told[name] for name in told if name.startswith("x-trip")},
            handle="&".join(f"{name}={quote(value)}" for name, value in handle.items()),
        )

    def give_back(self, topic: str, taken: Message) -> None:
        node = topic.removeprefix("semq.")
        self._say(node, f"cmd=semq_inquiry_resp&about=send&result=0&{taken.handle}")

    def finish(self, topic: str, taken: Message) -> None:
        self._say(topic.removeprefix("semq."), f"cmd=semq_ack&ack_flag=1&{taken.handle}")

    def _say(self, node: str, words: str) -> None:
        self.ask("POST", f"/semq?src={node}&dst=0:1&{words}")


@pytest.fixture(scope="module")
def speakers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Speaker]]:
    with BrokerProcess(tmp_path_factory.mktemp("crossing") / "data") as broker:
        found = {**speak(broker.port, "ws-bin"), Semq.name: Semq(broker.port)}
        yield found
        for speaker in found.values():
            speaker.close()


class Trip:
    """From a sender to a receiver, one of which is a node."""

    def __init__(self, speakers: dict[str, Speaker], thing: str, pair: tuple[str, str]) -> None:
        self.sender, self.receiver = speakers[pair[0]], speakers[pair[1]]
        self.native, name = speakers[Native.name], "-".join((thing, *pair)).replace(" ", "-")
        if self.receiver.name == Semq.name:
            self.topic = f"semq.1:{name}"
            self.receiver.make(self.topic)
            if isinstance(self.sender, Mqcloud):  # no consumer has a name with a colon
                said = {"topic": self.topic, "producer": f"{self.topic}-producer"}
                self.sender.ask("POST", f"/mq/register?{urlencode(said)}")
            else:
                self.sender.make(self.topic)
        else:
            self.topic = name
            self.native.make(name)

    def over(self, sent: Message) -> Message:
        self.sender.put(self.topic, sent)
        return self.receiver.take(self.topic)


def body(trip: Trip) -> str:
    assert trip.over(Message(TEXT)).body == TEXT
    if trip.sender.name in (Camellia.name, Mqcloud.name):
        return "yes"  # they send text alone
    return "yes" if trip.over(Message(BYTES)).body == BYTES else "text"


def order(trip: Trip) -> str:
    bodies = [b"%d" % number for number in range(5)]
    for each in bodies:
        trip.sender.put(trip.topic, Message(each))
    taken = []
    for _ in bodies:
        message = trip.receiver.take(trip.topic)
        trip.receiver.finish(trip.topic, message)
        taken.append(message.body)
    return "yes" if taken == bodies else "no"


def id_of_the_message(trip: Trip) -> str:
    own = "order-17" if "id" in trip.sender.can_say else None
    known = trip.sender.put(trip.topic, Message(b"x", id=own))
    return "yes" if trip.receiver.take(trip.topic).id == known else "own"


def headers(trip: Trip) -> str:
    said = {"x-trip": "one", "x-trip-two": "2 3"}
    taken = trip.over(Message(b"x", headers=said))
    if taken.headers is not None:
        return "yes" if taken.headers == said else "no"
    trip.receiver.give_back(trip.topic, taken)
    return "kept" if trip.native.take(trip.topic).headers == said else "no"


def key(trip: Trip) -> str:
    return "yes" if trip.over(Message(b"x", key="k1")).key == "k1" else "no"


def delay(trip: Trip) -> str:
    trip.sender.put(trip.topic, Message(b"late", delay_ms=400))
    trip.sender.put(trip.topic, Message(b"now"))
    found = [trip.receiver.take(trip.topic).body for _ in range(2)]
    return "yes" if found == [b"now", b"late"] else "no"


def being_done(trip: Trip) -> str:
    taken = trip.over(Message(b"first"))
    trip.receiver.finish(trip.topic, taken)
    return "yes" if trip.over(Message(b"second")).body == b"second" else "no"


OBSERVERS: Final[dict[str, tuple[str, Callable[[Trip], str]]]] = {
    "body": ("body", body),
    "order": ("body", order),
    "id": ("body", id_of_the_message),
    "headers": ("headers", headers),
    "key": ("key", key),
    "delay": ("delay_ms", delay),
    "being done": ("body", being_done),
}

PAIRS = [*[(Semq.name, one) for one in OTHERS], *[(one, Semq.name) for one in OTHERS]]
CASES = [
    (thing, pair, cell)
    for thing, cells in CELLS.items()
    for pair, cell in zip(PAIRS, cells, strict=True)
]


@pytest.mark.parametrize(("thing", "pair", "cell"), CASES)
def test_what_carries_over(
    speakers: dict[str, Speaker], thing: str, pair: tuple[str, str], cell: str
) -> None:
    said, observe = OBSERVERS[thing]
    if said not in speakers[pair[0]].can_say:
        assert not cell
        return
    assert observe(Trip(speakers, thing, pair)) == cell


def as_page() -> str:
    rows = [("", *(f"{sender} → {receiver}" for sender, receiver in PAIRS))]
    rows += [(thing, *(cell or "\N{EN DASH}" for cell in cells)) for thing, cells in CELLS.items()]
    return table(rows)


def test_the_page_has_this_table() -> None:
    assert as_page() in PAGE.read_text(encoding="utf-8"), as_page()
