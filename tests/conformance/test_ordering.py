"""Which replies come in order, which by id; and that no split of the bytes changes any of them."""

import pytest

from tests.conformance.dialogue import World, cmd, conversation, declared, http, ok
from tests.limits import checked
from zbus.storage.port import ALL_DURABLE
from zbus.testing.world import HeldJournal

MESSAGES = "content-type: application/vnd.zbus.messages"


def setup(world: World) -> None:
    client = world.connect()
    ok(client, http("/T?cmd=declare"))
    ok(client, http("/A/g?cmd=declare&group_mask=64"))
    ok(client, http("/S?cmd=declare&topic_mask=2"))
    ok(client, http("/F/g?cmd=declare&group_filter=a.*"))


CONVERSATIONS = {
    "stock produce and consume": cmd("produce", "topic: T", "id: m", "tag: a", body=b"hello")
    + cmd("consume", "topic: T", "id: p"),
    "consume first": cmd("consume", "topic: T", "id: p")
    + cmd("produce", "topic: T", "id: m", body=b"\r\n\r\n"),
    "browser": http("/?cmd=version")
    + http("/A?body=a%20b&tag=x")
    + http("/A/g?cmd=consume&timeout=0"),
    "404, declare, consume": cmd("consume", "topic: N", "id: 1")
    + cmd("declare", "topic: N", "id: 2")
    + cmd("query", "topic: N", "id: 3"),
    "lease and ack": http("/A", body=b"x")
    + http("/A/g?cmd=consume")
    + http("/A?cmd=ack&group=g&offset=7"),
    "a call to oneself": cmd("produce", "topic: S", "id: c", "ack: 0", body=b"{}")
    + cmd("consume", "topic: S", "id: p")
    + cmd("route", "recver: session-2", "id: c", "origin_status: 600", body=b"no"),
    "a batch": http("/T", MESSAGES, body=b"POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\n\r\n" * 2)
    + http("/T?cmd=consume&batch=5", "accept: application/vnd.zbus.messages"),
    "chunks": b"POST /T HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    b"2\r\nab\r\n3;x=1\r\n\r\nc\r\n0\r\n\r\n" + http("/T?cmd=consume"),
    "windows": cmd("consume", "topic: F", "group: g", "consume_window: 2", "id: w")
    + cmd("produce", "topic: F", "tag: a.1", "ack: 0", body=b"1")
    + cmd("produce", "topic: F", "tag: b.1", "ack: 0", body=b"2")
    + cmd("produce", "topic: F", "tag: a.2", "ack: 0", body=b"3"),
    "refusals": cmd("foo", "id: 1")
    + cmd("produce", "topic: NOPE", "id: 2")
    + cmd("declare", "topic: T", "topic_mask: x", "id: 3")
    + http("/T?cmd=consume&timeout=0"),
    "a broken end": http("/T", body=b"x") + b"GET / HTTP/9.9\r\n\r\n",
    "puts of one head, some with an id": http("/T", "id: 1", body=b"a")
    + http("/T", body=b"b")
    + http("/T", body=b"c")
    + http("/T", "id: 4", body=b"d")
    + http("/T?cmd=consume&timeout=0")
    + http("/T", body=b"e")
    + http("/T?cmd=ping"),
    "a put before what is answered at once": http("/T", body=b"a")
    + http("/T?cmd=consume&timeout=0")
    + http("/T", body=b"b")
    + http("/T?cmd=consume&timeout=0")
    + http("/T?cmd=consume&timeout=0"),
    "connection: close": http("/T", "connection: close", body=b"x") + http("/T", body=b"y"),
}


@pytest.mark.parametrize("every", [8, *checked([1])])
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_no_split_changes_the_replies(name: str, every: int) -> None:
    """Without `make check` one split of eight, and that into single bytes, which has all."""
    data = CONVERSATIONS[name]
    whole = conversation(setup, data, ())
    assert whole
    for cut in range(1, len(data), every):
        assert conversation(setup, data, (cut,)) == whole, f"cut at {cut}"
    assert conversation(setup, data, tuple(range(1, len(data)))) == whole, "byte by byte"


def test_plain_replies_keep_the_order_of_their_requests() -> None:
    _, client = declared("T", "S?topic_mask=2")
    requests = http("/T?cmd=query") + http("/T", body=b"1") + http("/T?cmd=consume")
    requests += http("/NOPE") + http("/T?cmd=ping") + http("/?cmd=foo")
    replies = client.exchange(requests)
    assert [reply.status for reply in replies] == [200, 200, 200, 404, 200, 400]
    assert replies[2].body == b"1"


def test_a_slow_sync_delays_plain_replies_behind_it() -> None:
    journal = HeldJournal()
    world = World(journal)
    client = world.connect()
    client.send(http("/T?cmd=declare"))
    world.settle()
    journal.release()
    world.settle()
    assert len(client.replies()) == 1
    assert client.exchange(http("/T", body=b"1") + http("/?cmd=ping")) == []
    replies = client.exchange(http("/?cmd=ping", "id: quick"))
    assert [reply.headers["id"] for reply in replies] == ["quick"]
    journal.release()
    world.settle()
    first, second = client.replies()
    assert (first.headers["offset"], second.body.isdigit()) == ("0", True)


def test_a_waiting_plain_pull_holds_back_plain_replies_only() -> None:
    world, client = declared("T")
    reader = world.connect()
    assert reader.exchange(http("/T?cmd=consume") + http("/?cmd=ping")) == []
    assert len(reader.exchange(cmd("ping"))) == 1
    ok(client, http("/T", body=b"x"))
    assert reader.replies()[0].body == b"x"


def test_messages_of_one_connection_keep_their_order() -> None:
    _, client = declared("T")
    client.exchange(b"".join(http("/T", body=b"%d" % n) for n in range(300)))
    replies = client.exchange(http("/T?cmd=consume") * 300)
    assert [reply.body for reply in replies] == [b"%d" % n for n in range(300)]


def test_a_message_is_acknowledged_before_or_with_its_delivery() -> None:
    """And never handed out before it is durable."""
    journal = HeldJournal()
    world = World(journal)
    client, reader = world.connect(), world.connect()
    client.exchange(http("/T?cmd=declare"))
    journal.release()
    world.settle()
    assert reader.exchange(cmd("consume", "topic: T")) == []
    client.replies()
    assert client.exchange(http("/T", body=b"x")) == []
    assert reader.replies() == []
    journal.release()
    world.settle()
    assert [reply.body for reply in reader.replies()] == [b"x"]
    assert client.replies()[0].headers["durability"] == "disk"


def test_a_memory_topic_waits_for_no_sync() -> None:
    journal = HeldJournal()
    client = World(journal).connect()
    ok(client, http("/M?cmd=declare&topic_mask=1"))
    ok(client, http("/M", body=b"x"))
    assert ok(client, http("/M?cmd=consume")).body == b"x"
    assert journal.held == []


def test_a_put_of_many_peers_that_goes_on_with_something_else() -> None:
    """Puts of one head are settled together; who asks more meanwhile is answered in order."""
    world = World(HeldJournal())
    clients = [world.connect() for _ in range(4)]
    assert isinstance(world.journal, HeldJournal)
    clients[0].send(http("/T?cmd=declare"))
    world.settle()
    world.journal.release()
    world.settle()
    assert clients[0].replies()[0].status == 200
    for client in clients:
        client.send(http("/T", "id: known", body=b"x"))
        client.send(http("/T", body=b"x"))
    clients[1].send(http("/?cmd=ping"))
    clients[2].send(http("/T", body=b"y"))
    clients[3].vanish()
    world.settle()
    assert [client.replies() for client in clients] == [[], [], [], []]
    world.journal.release()
    world.settle()
    given = [[reply.headers.get("id") for reply in client.replies()] for client in clients[:3]]
    assert given[0] == ["known", "0-1"]
    assert given[1][:2] == ["known", "0-3"]
    assert len(given[1]) == 3
    assert given[2] == ["known", "0-5", "0-8"]
    world.broker.check()


def test_a_put_with_an_id_that_is_answered_while_one_without_is_stored() -> None:
    """What is answered at once waits for the one without."""
    journal = HeldJournal()
    world = World(journal)
    client = world.connect()
    client.exchange(http("/T?cmd=declare"))
    journal.release()
    world.settle()
    client.replies()
    assert client.exchange(http("/T", "id: known", body=b"x")) == []
    assert client.exchange(http("/T", body=b"y")) == []
    journal.held.pop(0)(ALL_DURABLE)
    world.settle()
    assert [reply.headers["id"] for reply in client.replies()] == ["known"]
    assert client.exchange(http("/T?cmd=nonsense")) == []
    journal.release()
    world.settle()
    assert [reply.status for reply in client.replies()] == [200, 400]


def test_puts_of_one_ticket_keep_their_own_ids() -> None:
    """Those without an id, behind one that has it in its query, are answered by where they went,
    also if something else is to be answered in between."""
    _, client = declared("T")
    puts = [http(target, method="POST", body=b"x") for target in ("/T?id=a", "/T", "/T?id=b", "/T")]
    replies = client.exchange(b"".join([*puts, http("/?cmd=ping")]))
    assert sorted(reply.headers["id"] for reply in replies[:4]) == ["0-1", "0-3", "a", "b"]
