"""First words."""

from zbus.testing.world import HeldJournal, World


def get(target: bytes, *lines: bytes, body: bytes = b"") -> bytes:
    head = b"GET " + target + b" HTTP/1.1\r\nhost: localhost\r\n"
    for line in lines:
        head += line + b"\r\n"
    if body:
        head += b"content-length: %d\r\n" % len(body)
    return head + b"\r\n" + body


def test_no_reply_before_the_sync() -> None:
    journal = HeldJournal()
    world = World(journal)
    client = world.connect()
    assert client.exchange(get(b"/T?cmd=declare")) == []
    journal.release()
    world.settle()
    assert [reply.status for reply in client.replies()] == [200]
    waiting = world.connect()
    assert waiting.exchange(get(b"/T?cmd=consume")) == []
    assert client.exchange(get(b"/T", body=b"hello")) == []
    assert waiting.replies() == [], "nor is the message handed out"
    journal.release()
    world.settle()
    assert client.replies()[0].headers["durability"] == "disk"
    assert waiting.replies()[0].body == b"hello"
    world.broker.check()


def test_recovery() -> None:
    world = World()
    client = world.connect()
    client.request(get(b"/T/g?cmd=declare&group_mask=64"))
    for n in range(5):
        client.request(get(b"/T", body=b"%d" % n))
    first = client.request(get(b"/T/g?cmd=consume"))
    assert first.body == b"0"
    again = World(world.journal, now_ms=world.now_ms)
    reader = again.connect()
    assert reader.request(get(b"/T/g?cmd=consume")).body == b"1"
    again.advance(10_000)
    reply = reader.request(get(b"/T/g?cmd=consume"))
    assert (reply.body, reply.headers["retry"]) == (b"0", "1")
