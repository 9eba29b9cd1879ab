"""All logs, read from end to end when everything is at rest, and held against each other.

What lies in one log and was settled in another is there once, and settled: a dead letter, a message
that was redriven, the result of a delivery. A crash may come between the two, and must not show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tests.records import records_of
from tests.simulation.groups import GroupBook, Sent
from tests.simulation.model import Book, TopicBook
from tests.simulation.verbs import DEAD
from zbus.core.broker import Broker
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import BrokerError
from zbus.core.model.message_state import MessageState
from zbus.core.topics.outcomes import Slice
from zbus.core.topics.topic import Partition


def balance(book: Book, broker: Broker, settle: Callable[[], None]) -> Counter[str]:
    """Check them; says how much there was of what. `settle`: what was asked of the disk is done."""
    counts: Counter[str] = Counter()
    topics = [topic for topic in book.topics.values() if topic.durability == "disk"]
    topics = [topic for topic in topics if topic.declared and not topic.volatile]
    for topic in topics:  # the dead letters first: what was redriven comes from there
        found = broker.topic(topic.name)
        for partition in found.partitions if found is not None else ():
            _read(book, topic, partition, settle)
    for topic in topics:
        for group in topic.groups:
            if group.declared and group.leased:
                _results(book, topics, topic, group, broker, counts)
                _deaths(book, topic, group, broker, counts)
    if DEAD in book.topics and book.topics[DEAD].declared:
        _redriven(book, broker, counts)
    return counts


def _read(book: Book, topic: TopicBook, partition: Partition, settle: Callable[[], None]) -> None:
    """Every message of it is known to the book from here on."""
    answers: list[tuple[Chunk, int] | BrokerError] = []
    for offset in range(partition.first, partition.visible):
        partition.log.get(offset, answers.append)
        if not answers:
            settle()
        answer = answers.pop()
        assert not isinstance(answer, BrokerError), answer
        chunk, at = answer
        (record,) = records_of([Slice(partition.index, chunk, at, at + 1)])
        book.known(topic, record)


def _life(broker: Broker, topic: TopicBook, group: GroupBook, sent: Sent) -> MessageState:
    found = broker.topic(topic.name)
    assert found is not None
    assert sent.place is not None
    reader = found.group(group.name)
    assert reader is not None
    partition, offset = sent.place
    return reader.backlogs[partition].life(offset)


def _results(
    book: Book,
    topics: list[TopicBook],
    topic: TopicBook,
    group: GroupBook,
    broker: Broker,
    counts: Counter[str],
) -> None:
    """Of each delivery that somebody transformed: result and acknowledgement, both or neither."""
    stored = {one.serial for each in topics for one in each.sent.values() if one.place}
    elsewhere = {
        serial for each in book.topics.values() if each not in topics for serial in each.sent
    }
    for serial, results in group.results.items():
        name = f"message {serial} of {topic.name}/{group.name}"
        sent = topic.sent[serial]
        there = [result for result in results if result in stored]
        counts["results"] += len(there)
        book.check(group.moves > 0 or len(there) <= 1, f"{name} has the results {there}")
        if group.moves or sent.place is None or serial in group.passed:
            continue
        done = _life(broker, topic, group, sent) is MessageState.DONE
        book.check(done or not there, f"{name} has a result and is not acknowledged")
        otherwise = serial in group.acking or serial in group.buried
        otherwise = otherwise or any(result in elsewhere for result in results)
        otherwise = otherwise or group.redriven or sent.ttl_ms > 0 or _may_be_dead(group, serial)
        right = not done or bool(there) or otherwise
        book.check(right, f"{name} is acknowledged without a result, which should be {results}")


def _may_be_dead(group: GroupBook, serial: int) -> bool:
    most = group.retries.attempts_max
    return bool(most) and group.attempts_most(serial) >= most


def _deaths(
    book: Book, topic: TopicBook, group: GroupBook, broker: Broker, counts: Counter[str]
) -> None:
    """What was handed out too often is a dead letter, or it is not finished."""
    if not group.retries.dead_letter or group.moves:
        return
    for serial in group.handed:
        sent = topic.sent[serial]
        if sent.place is None or serial in group.acking or serial in group.results:
            continue
        if serial in group.passed or sent.ttl_ms:
            continue
        done = _life(broker, topic, group, sent) is MessageState.DONE
        letters = book.letters.get((topic.name, group.name, *sent.place), [])
        counts["dead letters"] += len(letters)
        name = f"message {serial} of {topic.name}/{group.name}"
        book.check(done == bool(letters), f"{name} is {'' if done else 'not '}done: {letters}")


def _redriven(book: Book, broker: Broker, counts: Counter[str]) -> None:
    """A dead letter that nobody acknowledged and that is done was put back, and nothing else."""
    dead = book.topics[DEAD]
    (group,) = dead.groups
    least: Counter[tuple[str, bytes]] = Counter()
    most: Counter[tuple[str, bytes]] = Counter()
    homes = {place: origin[0] for origin, places in book.letters.items() for place in places}
    for place, home in homes.items():
        sent = dead.sent[dead.places[place]]
        if _life(broker, dead, group, sent) is MessageState.DONE:
            most[home, sent.body] += 1
            least[home, sent.body] += not group.may_be_done(sent.serial)
    back: Counter[tuple[str, bytes]] = Counter()
    for topic in book.topics.values():
        for sent in topic.sent.values() if topic is not dead else ():
            back[topic.name, sent.body] += sent.serial < 0
    counts["redriven"] += back.total()
    for what in {*least, *most, *back}:
        home, body = what
        right = least[what] <= back[what] <= most[what]
        name = f"message {body[:10]!r} of {home}"
        text = f"{name} came back {back[what]} times, and {least[what]}-{most[what]} were sent back"
        book.check(right, text)
