"""The transport of kombu against a real broker: routing, settling, leases, bad messages."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count, islice
from socket import SHUT_RDWR, socket
from typing import Any

import pytest
from amqp.exceptions import RecoverableConnectionError
from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu.asynchronous import Hub
from kombu.exceptions import ChannelError, MessageStateError

import zbus.client
from zbus.integrations.kombu_terms import TEN_YEARS_MS, put_options

NOW_MS = 1_800_000_000_000
NUMBERS = count()

BAD = [
    "",
    "{",
    "[]",
    "5",
    '{"body": ""}',
    '{"properties": 7}',
    "[" * 2000,
    '"\\ud800"',
    '{"properties": {"body_encoding": 7}, "body": "a"}',
    '{"properties": {}, "headers": [1]}',
    '{"properties": {"body_encoding": "base64"}, "body": "a"}',
    '{"properties": {"delivery_info": 1}}',
]
"""What others may put into a topic of Celery's."""

Connect = Callable[..., Any]


@pytest.fixture
def connect(port: int) -> Iterator[Connect]:
    """Makes connections whose names are this test's alone."""
    made = []
    path = f"test{next(NUMBERS)}"

    def make(**options: Any) -> Any:
        made.append(Connection(f"zbus://127.0.0.1:{port}/{path}", transport_options=options))
        return made[-1]

    yield make
    for each in made:
        each.release()


class Reader:
    """A consumer of queues: what it is given, in order."""

    def __init__(self, connection: Any, *queues: Queue, prefetch: int = 0, **more: Any) -> None:
        self.connection = connection
        self.messages: list[Any] = []
        self.consumer = Consumer(
            connection.channel(), list(queues), on_message=self.messages.append, **more
        )
        self.consumer.qos(prefetch_count=prefetch)
        self.consumer.consume()

    def read(self, number: int) -> list[Any]:
        """The bodies of the next so many, in order of their text."""
        begin = len(self.messages)
        while len(self.messages) < begin + number:
            self.connection.drain_events(timeout=10)
        return sorted(message.payload for message in self.messages[begin:])

    def is_quiet(self, seconds: float = 0.3) -> bool:
        try:
            self.connection.drain_events(timeout=seconds)
        except TimeoutError:
            return True
        return False


def publish(connection: Any, exchange: Exchange | str, *keys: str, **more: Any) -> None:
    """One message for each key, which is its body."""
    with connection.channel() as channel:
        for key in keys:
            Producer(channel).publish(key, exchange=exchange, routing_key=key, **more)


def test_a_direct_exchange(connect: Connect) -> None:
    exchange = Exchange("orders", "direct")
    eu = Queue("eu", exchange, "eu")
    both = Queue("both", exchange, "eu")
    reader, all_of_it = Reader(connect(), eu), Reader(connect(), both)
    more = Queue("both", exchange, "us.east")  # another process binds the queue again
    with connect().channel() as channel:
        more(channel).declare()
    publish(connect(), exchange, "eu", "us.east", "asia")
    assert reader.read(1) == ["eu"]
    assert all_of_it.read(2) == ["eu", "us.east"]
    assert reader.is_quiet()
    assert all_of_it.is_quiet()
    with connect().channel() as channel:
        more(channel).declare()
        more(channel).unbind_from(exchange, "us.east")
    publish(connect(), exchange, "us.east", "eu")
    assert all_of_it.read(1) == ["eu"]
    assert all_of_it.is_quiet()


def test_a_topic_exchange(connect: Connect) -> None:
    exchange = Exchange("events", "topic")
    reader = Reader(connect(), Queue("a", exchange, "task.*"))
    everything = Reader(connect(), Queue("b", exchange, "#"))
    publish(connect(), exchange, "task.sent", "worker.online", "task.a.b")
    assert reader.read(1) == ["task.sent"]
    assert everything.read(3) == ["task.a.b", "task.sent", "worker.online"]
    assert reader.is_quiet()


def test_a_fanout_exchange(connect: Connect) -> None:
    exchange = Exchange("news", "fanout")
    queues = [Queue(name, exchange, auto_delete=True, durable=False) for name in "ab"]
    readers = [Reader(connect(), queue, no_ack=True) for queue in queues]
    publish(connect(), exchange, "to all")
    assert [reader.read(1) for reader in readers] == [["to all"], ["to all"]]


@pytest.mark.parametrize(
    ("kind", "key"),
    [("direct", "a.*"), ("direct", "#"), ("direct", "a;b"), ("topic", "#.a"), ("topic", "a;b")],
)
def test_keys_that_no_filter_can_say(connect: Connect, kind: str, key: str) -> None:
    queue = Queue("q", Exchange("odd", kind), key)
    with connect().channel() as channel, pytest.raises(ChannelError, match="cannot be a binding"):
        queue(channel).declare()


def test_settling(connect: Connect) -> None:
    queue = Queue("jobs")
    reader = Reader(connect(), queue)
    publish(connect(), "", "jobs")
    reader.read(1)
    first = reader.messages[-1]
    assert not first.delivery_info.get("redelivered")
    first.requeue()
    reader.read(1)
    again = reader.messages[-1]
    assert again.delivery_info["redelivered"]
    again.ack()
    with pytest.raises(MessageStateError, match="already acknowledged"):
        again.ack()
    with pytest.raises(ChannelError, match="acknowledged or given back before"):
        again.channel.basic_ack(again.delivery_tag)
    assert reader.is_quiet()
    publish(connect(), "", "jobs")
    reader.read(1)
    reader.messages[-1].reject()
    assert reader.is_quiet()


def test_what_a_closed_channel_held_is_delivered_first(connect: Connect) -> None:
    queue = Queue("jobs")
    connection = connect()
    reader = Reader(connection, queue)
    publish(connect(), "", "jobs", "jobs")
    reader.read(2)
    held = reader.messages[0]
    connection.close()
    with pytest.raises(RecoverableConnectionError, match="given back"):
        held.channel.basic_ack(held.delivery_tag)
    other = Reader(connect(), queue)
    assert other.read(2) == ["jobs", "jobs"]
    assert other.messages[0].properties["delivery_info"]["redelivered"]


def test_prefetch(connect: Connect) -> None:
    queue = Queue("jobs")
    reader = Reader(connect(), queue, prefetch=2)
    publish(connect(), "", *["jobs"] * 5)
    reader.read(2)
    assert reader.is_quiet()
    assert Reader(connect(), queue).read(3) == ["jobs"] * 3  # they are free for others
    reader.messages[0].ack()
    publish(connect(), "", "jobs")


def test_leases_are_kept_while_the_program_works(connect: Connect) -> None:
    """For three times as long as they are; and a message that comes back to who has it is not
    delivered to it again."""
    queue = Queue("jobs")
    reader = Reader(connect(visibility_timeout=0.5), queue)
    publish(connect(), "", "jobs")
    reader.read(1)
    other = Reader(connect(visibility_timeout=0.5), queue)
    assert other.is_quiet(1.5)
    reader.messages[0].ack()
    assert other.is_quiet(0.7)


def test_sizes(connect: Connect) -> None:
    connection = connect()
    with connection.channel() as channel:
        with pytest.raises(ChannelError, match="no queue 'jobs'"):
            channel.queue_declare("jobs", passive=True)
        Queue("jobs")(channel).declare()
        publish(connection, "", *["jobs"] * 3)
        assert channel.queue_declare("jobs", passive=True).message_count == 3
        assert channel.basic_get("jobs", no_ack=True).payload == "jobs"
        held = channel.basic_get("jobs")
        assert channel.queue_purge("jobs") == 1
        assert channel.basic_get("jobs") is None
        held.ack()
        channel.queue_delete("jobs")
        with pytest.raises(ChannelError, match="no queue"):
            channel.queue_declare("jobs", passive=True)


def test_temporary_queues_go_with_their_connection(connect: Connect, port: int) -> None:
    connection = connect()
    with connection.channel() as channel:
        Queue("replies", durable=False, auto_delete=True)(channel).declare()
        Queue("jobs")(channel).declare()
        topic = connection.transport.topic("kombu.transient")
        with zbus.client.connect(f"http://127.0.0.1:{port}") as bus:
            assert [group.name for group in bus.query(topic).groups] == ["replies"]
            connection.transport.leases.link.close()  # as if it had been killed
            while bus.query(topic).groups:
                pass


def test_what_is_no_message_of_kombu_is_logged_and_done(
    connect: Connect, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    connection = connect()
    reader = Reader(connection, Queue("jobs"))
    with zbus.client.connect(f"http://127.0.0.1:{port}") as bus:
        bus.produce_many(connection.transport.topic("jobs"), BAD)
        publish(connect(), "", "jobs")
        assert reader.read(1) == ["jobs"]
        reader.messages[0].ack()
        group = bus.query(connection.transport.topic("jobs"), "jobs")
        assert (group.message_count, group.leased_count) == (0, 0)
    assert sum("is no message of kombu" in text for text in caplog.messages) == len(BAD)


@pytest.mark.parametrize(
    ("headers", "properties", "wanted"),
    [
        ({}, {}, {}),
        (None, {}, {}),
        ({"eta": None}, {}, {}),
        ({"eta": "2027-01-15T08:00:01+00:00"}, {}, {"deliver_at_ms": NOW_MS + 1_000}),
        ({"eta": "2027-01-15T09:00:01+01:00"}, {}, {"deliver_at_ms": NOW_MS + 1_000}),
        ({"eta": "2027-01-15T08:00:00.000100"}, {}, {"deliver_at_ms": NOW_MS + 1}),
        ({"eta": "2020-01-01T00:00:00+00:00"}, {}, {}),
        ({"eta": "2999-01-01T00:00:00+00:00"}, {}, {"deliver_at_ms": NOW_MS + TEN_YEARS_MS}),
        ({}, {"expiration": "1500"}, {"ttl_ms": 1_500}),
        ({}, {"expiration": "0"}, {"ttl_ms": 1}),
        ({}, {"priority": 0}, {}),
        ({}, {"priority": 7}, {"priority": 7}),
        ({}, {"priority": 200}, {"priority": 9}),
        ({}, {"priority": -1}, {"priority": 0}),
    ],
)
def test_times(headers: Any, properties: Any, wanted: Any) -> None:
    assert put_options({"headers": headers, "properties": properties}, NOW_MS) == wanted


@pytest.mark.parametrize("exchange", ["", Exchange("urgent", "direct")])
def test_priorities(connect: Connect, exchange: Exchange | str) -> None:
    connection = connect()
    bound = {"exchange": exchange, "routing_key": "jobs"} if exchange else {}
    queue = Queue("jobs", max_priority=9, **bound)
    with connection.channel() as channel:
        queue(channel).declare()
    for priority in (0, 3, 9):
        publish(connection, exchange, "jobs", priority=priority)
    reader = Reader(connection, queue, prefetch=1)
    for _ in range(3):
        reader.read(1)
        reader.messages[-1].ack()
    assert [message.properties["priority"] for message in reader.messages] == [9, 3, 0]


def test_who_connects() -> None:
    ssl = {"certfile": "client.pem"}
    transport = Connection("zbus://:secret@example/shop", ssl=ssl).transport
    assert transport.topic("celery") == "shop.celery"
    with pytest.raises(FileNotFoundError):  # a certificate is read where there is one
        transport._make_link()
    link = Connection("zbus://:secret@[::1]:1/").transport._make_link()
    assert link._options.token == "secret"
    assert [str(each) for each in link._exchange.attempts.addresses] == ["::1:1"]


def test_a_fork(connect: Connect) -> None:
    """A child that closes what it inherits gives nothing back that its parent holds."""
    connection = connect()
    reader = Reader(connection, Queue("jobs"))
    publish(connect(), "", "jobs")
    reader.read(1)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            connection.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert Reader(connect(), Queue("jobs")).is_quiet()
    reader.messages[0].ack()


def test_an_acknowledgement_does_not_wait_for_the_loop(connect: Connect) -> None:
    """Celery's loop stands still while a pool ends, for longer than a lease perhaps."""
    connection = connect(visibility_timeout=0.5)
    reader = Reader(connection, Queue("jobs"))
    publish(connect(), "", "jobs")
    reader.read(1)
    connection.transport.register_with_event_loop(None, Hub())
    reader.messages[0].ack()
    assert Reader(connect(), Queue("jobs")).is_quiet(1.0)


def test_a_loop_waits_for_the_next_connection_although_it_has_the_same_number(
    connect: Connect,
) -> None:
    """Else a worker whose broker was killed waits for messages for ever."""
    connection, hub = connect(), Hub()
    connection.transport.register_with_event_loop(connection.connection, hub)
    reader, loop = Reader(connection, Queue("jobs"), no_ack=True), hub.create_loop()
    link, producer = connection.transport.leases.link, Producer(connect().channel())
    numbers: list[int] = []
    for key in "abc":
        producer.publish(key, routing_key="jobs")
        while len(reader.messages) <= len(numbers):
            next(loop)
        numbers.append(link.fileno())
        with socket(fileno=os.dup(link.fileno())) as same:
            same.shutdown(SHUT_RDWR)
        while link.connection_count <= len(numbers):
            link.drive()
    assert [message.payload for message in reader.messages] == ["a", "b", "c"]
    assert len(set(numbers)) == 1
    connection.close()
    hub.close()


def test_a_loop_is_told_that_kombu_has_made_the_connection_again(connect: Connect) -> None:
    """Else a worker whose broker was away while it started waits for messages for ever."""
    connection, hub = connect(), Hub()
    connection.transport.register_with_event_loop(connection.connection, hub)
    reader, loop = Reader(connection, Queue("jobs")), hub.create_loop()
    publish(connect(), "", "jobs")
    while not reader.messages:
        next(loop)
    connection.collect()  # as a request does that is tried again
    assert connection.default_channel
    with pytest.raises(connection.connection_errors, match="made again without its consumers"):
        list(islice(loop, 5))
    next(hub.create_loop())  # it is told once
    connection.collect()
    assert not hub.on_tick
    hub.close()
