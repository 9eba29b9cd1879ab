"""What each command sends, and what a broker makes of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.client.peer import Joined
from zbus.client import commands, errors
from zbus.client.messages import Body, Delivery, Message
from zbus.client.options import Address, parse_url, parse_urls
from zbus.client.positions import Start
from zbus.testing.world import EPOCH_MS, World
from zbus.wire.responses import Response


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:15555", ("tcp", "127.0.0.1", 15555)),
        ("http://broker", ("tcp", "broker", 15555)),
        ("http://broker:0/", ("tcp", "broker", 0)),
        ("https://broker:1", ("tls", "broker", 1)),
        ("broker:7", ("tcp", "broker", 7)),
        ("http://[::1]:7", ("tcp", "::1", 7)),
        ("unix:/run/zbus.sock", ("unix", "/run/zbus.sock", 0)),
        ("unix:///run/zbus.sock", ("unix", "/run/zbus.sock", 0)),
        ("unix:zbus.sock", ("unix", "zbus.sock", 0)),
    ],
)
def test_urls(url: str, address: tuple[str, str, int]) -> None:
    assert parse_url(url) == Address(*address)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("zbus://a,b:2", [("tcp", "a", 15555), ("tcp", "b", 2)]),
        ("zbuss://a:1, b:2", [("tls", "a", 1), ("tls", "b", 2)]),
        ("https://a:1,b:2", [("tls", "a", 1), ("tls", "b", 2)]),
        ("a:1,b:2", [("tcp", "a", 1), ("tcp", "b", 2)]),
        ("http://a:1,https://b:2,unix:/c", [("tcp", "a", 1), ("tls", "b", 2), ("unix", "/c", 0)]),
        ("zbus://[::1]:1,[::2]:2", [("tcp", "::1", 1), ("tcp", "::2", 2)]),
        ("unix:/a,b", [("unix", "/a,b", 0)]),
    ],
)
def test_urls_of_a_broker_and_its_standbys(url: str, addresses: list[tuple[str, str, int]]) -> None:
    assert parse_urls(url) == tuple([Address(*address) for address in addresses])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "url", ["", ",", "zbus://", "zbus://a,", "zbus://a,,b", "zbus://a,ftp://b", "zbus://a,u:p@b"]
)
def test_urls_of_several_that_are_none(url: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_urls(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://x",
        "http://",
        "http://x:y",
        "http://x:99999",
        "unix:",
        "http://u:p@x",
        "http://x/topic",
        "http://x?token=1",
    ],
)
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_url(url)


@pytest.mark.parametrize("url", ["http://:s3cret@x:1", "s3cret@x:1", "https://s3cret:p@x:1"])
def test_a_token_in_a_url_is_named_and_not_shown(url: str) -> None:
    with pytest.raises(ValueError, match=r"https?://x:1, and give the token as token=") as raised:
        parse_url(url)
    assert "s3cret" not in str(raised.value)


BAD_VALUES: list[Callable[[], object]] = [
    lambda: commands.produce("T", key="a\nb"),
    lambda: commands.produce("T", headers={"x": "a\0b"}),
    lambda: commands.produce("T", headers={"x": "a\rb"}),
    lambda: commands.produce("T", headers={"x": "a\x1bb"}),
    lambda: commands.produce("T", headers={"x": "a\x7fb"}),
    lambda: commands.produce("T", tag="a\x1bb"),
    lambda: commands.produce("T\r\nx: y"),
    lambda: commands.produce("T", tag="a\r\nb: c"),
    lambda: commands.produce("T", headers={"a b": "c"}),
    lambda: commands.produce("T", headers={"": "c"}),
    lambda: commands.produce("T", headers={"x\r\ny": "c"}),
    lambda: commands.produce("T", headers={"Topic": "U"}),
    lambda: commands.produce("T", headers={"Authorization": "Bearer a"}),
    lambda: commands.produce_many("T", [Message(b"", headers={"cookie": "a=b"})]),
    lambda: commands.produce("T", headers={"content-length": "5"}),
    lambda: commands.produce("T", headers={"transfer-encoding": "chunked"}),
    lambda: commands.produce("T", id=""),
    lambda: commands.produce("T", id="x" * 40),
    lambda: commands.produce("T", id="a b"),
    lambda: commands.produce("T", id="a\r\nb"),
    lambda: commands.produce("T", idempotency_key="a\r\nb"),
    lambda: commands.produce_many("T", [Message(b"", headers={"id": "x"})]),
]


@pytest.mark.parametrize("make", BAD_VALUES)
def test_nothing_slips_into_a_head(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        make()


@pytest.mark.parametrize(
    ("offsets", "text"),
    [
        (3, "3"),
        ([3], "3"),
        ([1, 2, 3], "1-3"),
        ([9, 3, 5, 4, 4, 12], "3-5,9,12"),
        (range(1000), "0-999"),
    ],
)
def test_offsets(offsets: commands.Offsets, text: str) -> None:
    assert commands.encode_offsets(offsets) == text


@pytest.fixture
def bus() -> Joined:
    return Joined(World())


def test_what_the_broker_decodes_is_encoded() -> None:
    lines = commands.produce("T%41", tag="a%42").lines
    assert lines.endswith(b"topic: T%2541\r\ntag: a%2542\r\n")


NAMES = ["Orders", "a b", "é ü 日本", "50%", "a%41b", "x+y", 'q"q', "a;b", "#*"]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_arrives_as_it_is(bus: Joined, name: str) -> None:
    bus.run(commands.declare(name, name, ack=True))
    stored = bus.run(commands.produce(name, "body", tag=name, key=name, headers={"X-Mine": name}))
    assert (stored.offset, stored.partition, stored.durability) == (0, 0, "disk")
    (delivery,) = bus.run(commands.pull(name, name))
    labels = (delivery.topic, delivery.group, delivery.tag, delivery.key)
    assert labels == (name, name, name, name)
    assert delivery.headers["x-mine"] == name
    assert (delivery.text, delivery.id) == ("body", stored.id)
    bus.run(commands.ack(name, name, delivery.offset))
    assert bus.run(commands.query(name, name)).leased_count == 0


def test_a_declaration_says_it_all(bus: Joined) -> None:
    info = bus.run(
        commands.declare(
            "T", "g", ack=True, lease_ms=1234, window=7, filter="a.*", exclusive=True, partitions=3
        )
    )
    assert (info.name, info.mask, info.filter) == ("g", 64 + 16, "a.*")
    assert (info.lease_ms, info.window) == (1234, 7)
    topic = bus.run(commands.declare("T", retention_count=5, dedupe_ms=60_000))
    assert (topic.partitions, topic.retention_count, topic.dedupe_ms) == (3, 5, 60_000)
    assert bus.run(commands.declare("T", "g", order="key")).order == "key"
    assert bus.run(commands.declare("T", "g", order="none")).order == "none"
    assert bus.run(commands.declare("R", rpc=True)).mask == 3
    assert bus.run(commands.declare("M", durability="memory")).durability == "memory"
    assert set(bus.run(commands.query()).topics) == {"T", "R", "M"}


@pytest.mark.parametrize("schema", [{"type": "integer"}, '{ "type": "integer" }'])
def test_a_schema(bus: Joined, schema: dict[str, object] | str) -> None:
    info = bus.run(commands.declare("T", schema=schema, schema_compatibility="full"))
    assert (info.schema_version, info.schema_compatibility) == (1, "full")
    assert bus.run(commands.schema("T")) == {"type": "integer"}
    bus.run(commands.produce("T", json=7))
    with pytest.raises(errors.BadRequest, match="is not of type"):
        bus.run(commands.produce("T", json="7"))
    with pytest.raises(errors.Conflict, match="not full compatible"):
        bus.run(commands.declare("T", schema={"type": "number"}))
    bus.run(commands.declare("T", schema=True, schema_compatibility="none"))
    assert bus.run(commands.schema("T")) is True
    assert bus.run(commands.schema("T", version=1)) == {"type": "integer"}
    assert bus.run(commands.declare("T", schema="none")).schema_version is None
    with pytest.raises(errors.NotFound):
        bus.run(commands.schema("T"))


@pytest.mark.parametrize("name", ["Dead", "50%", "a%41b", "é ü"])
def test_a_declaration_says_what_becomes_of_the_rest(bus: Joined, name: str) -> None:
    bus.run(commands.declare(name))
    info = bus.run(
        commands.declare(
            "T",
            "g",
            ack=True,
            max_attempts=5,
            backoff_ms=(1_000, 60_000),
            dead_letter=name,
            on_loss="front",
            rate=50,
            one_batch=True,
            keep_attempts=True,
        )
    )
    assert (info.max_attempts, info.dead_letter, info.on_loss) == (5, name, "front")
    assert (info.backoff_ms, info.backoff_max_ms) == (1_000, 60_000)
    assert (info.rate, info.one_batch, info.keep_attempts) == (50, True, True)
    info = bus.run(
        commands.declare(
            "T", "g", max_attempts="none", backoff_ms="none", dead_letter="", rate="none"
        )
    )
    assert (info.max_attempts, info.dead_letter, info.rate) == (None, "", None)
    assert (info.backoff_ms, info.backoff_max_ms) == (0, None)
    assert bus.run(commands.declare("T", "g", backoff_ms=7)).backoff_ms == 7
    copied = bus.run(commands.declare(name, name, ack=True))
    assert bus.run(commands.declare(name, "h", start_copy=name)).lease_ms == 10_000
    assert copied.name == name


def test_a_pause_and_a_lease_of_its_own(bus: Joined) -> None:
    bus.run(commands.declare("T", "g", ack=True, lease_ms=60_000))
    bus.run(commands.produce("T", "x"))
    assert bus.run(commands.pause("T", "g")).paused is True
    assert bus.run(commands.pull("T", "g")) == []
    assert bus.run(commands.resume("T", "g")).paused is False
    assert len(bus.run(commands.pull("T", "g", lease_ms=500))) == 1
    bus.world.advance(500)
    assert len(bus.run(commands.pull("T", "g"))) == 1


def test_a_group_may_be_changed_without_touching_its_mask(bus: Joined) -> None:
    bus.run(commands.declare("T", "g", ack=True))
    assert bus.run(commands.declare("T", "g", filter="x")).mask == 64
    assert bus.run(commands.declare("T", "g", ack=False)).mask == 0


def test_a_group_is_moved_by_seek_alone(bus: Joined) -> None:
    bus.run(commands.declare("T", "g", ack=True, temporary=True, paused=False, window=3))
    bus.run(commands.produce_many("T", ["0", "1", "2"]))
    assert len(bus.run(commands.pull("T", "g", batch=2))) == 2
    info = bus.run(commands.declare("T", "g", ack=True, start="earliest"))
    assert (info.leased_count, info.message_count, info.mask) == (2, 1, 96)
    info = bus.run(commands.seek("T", "g", "earliest"))
    assert (info.leased_count, info.message_count) == (0, 3)
    places: list[tuple[Start, int]] = [
        ("latest", 0),
        (1, 2),
        ([2], 1),
        ("time:0", 3),
        ("2027-01-15", 3),
        (datetime(1999, 1, 1), 3),
        (datetime(2999, 1, 1, tzinfo=UTC), 0),
    ]
    for place, left in places:
        assert bus.run(commands.seek("T", "g", place, partition=None)).message_count == left
        name = f"new-{place}"
        info = bus.run(commands.declare("T", name, start=place))
        assert info.message_count == left
    with pytest.raises(errors.NotFound, match="nobody"):
        bus.run(commands.seek("T", "nobody", 0))
    with pytest.raises(errors.BadRequest, match="no message at 4"):
        bus.run(commands.seek("T", "g", 4))
    wrong: list[Start] = ["", "soon", -1, [], 1 << 63, "2020-13-31", "time:soon", "time:", "1-1-1"]
    for place in wrong:
        with pytest.raises(ValueError, match="it starts at"):
            commands.seek("T", "g", place)


def test_labels_times_and_places(bus: Joined) -> None:
    bus.run(commands.declare("T", partitions=2))
    assert bus.run(commands.produce("T", b"x", partition=1, expected_offset=0)).partition == 1
    with pytest.raises(errors.Conflict) as caught:
        bus.run(commands.produce("T", b"x", partition=1, expected_offset=0))
    assert caught.value.next_offset == 1
    (delivery,) = bus.run(commands.pull("T", partition=1))
    assert (delivery.partition, delivery.timestamp_ms, delivery.retry) == (1, EPOCH_MS, 0)
    bus.run(commands.produce("T", json={"a": [1, None]}, delay_ms=500))
    assert bus.run(commands.pull("T")) == []
    bus.world.advance(500)
    (delivery,) = bus.run(commands.pull("T"))
    assert delivery.json() == {"a": [1, None]}
    assert delivery.headers["content-type"] == "application/json"
    bus.run(commands.produce("T", b"", ttl_ms=100, deliver_at_ms=EPOCH_MS + 1_000))
    bus.world.advance(2_000)
    assert bus.run(commands.pull("T")) == []


def test_in_front_and_so_many_times(bus: Joined) -> None:
    bus.run(commands.declare("T", "g", ack=True, on_loss="front"))
    bus.run(commands.produce("T", b"1"))
    bus.run(commands.produce("T", b"0", front=True, max_attempts=1))
    bus.run(commands.produce_many("T", [b"a", b"b"], front=True, max_attempts=1))
    taken = bus.run(commands.pull("T", "g", batch=3, on_loss="keep"))
    assert [delivery.body for delivery in taken] == [b"a", b"b", b"0"]
    assert bus.run(commands.nack("T", "g", [delivery.offset for delivery in taken])) == 3
    (delivery,) = bus.run(commands.pull("T", "g", batch=9))
    assert delivery.body == b"1", "the others are dead"
    bus.run(commands.produce("T", b"2"))
    bus.run(commands.empty("T", "g", keep_leased=True))
    info = bus.run(commands.query("T", "g"))
    assert (info.message_count, info.leased_count, info.dead_count) == (0, 1, 3)


def test_a_batch(bus: Joined) -> None:
    bus.run(commands.declare("T", "g", dedupe_ms=60_000))
    messages: list[Body | Message] = [
        b"a",
        "b",
        Message("c", tag="t", id="i", headers={"x": "y"}),
        Message(b"\r\n\r\n"),
    ]
    stored = bus.run(commands.produce_many("T", messages, tag="all"))
    assert (stored.offset, stored.count, stored.duplicates) == (0, 4, 0)
    found = bus.run(commands.read("T"))
    assert [d.body for d in found] == [b"a", b"b", b"c", b"\r\n\r\n"]
    assert [d.tag for d in found] == ["all", "all", "t", "all"]
    assert (found[2].id, found[2].headers["x"], found[2].group) == ("i", "y", "")
    again = bus.run(commands.produce_many("T", [Message("c", id="i")]))
    assert (again.count, again.duplicates) == (1, 1)


def test_what_the_others_do(bus: Joined) -> None:
    bus.run(commands.declare("T", "g", ack=True))
    for _ in range(4):
        bus.run(commands.produce("T"))
    found = bus.run(commands.pull("T", "g", batch=10))
    assert len(found) == 4
    assert bus.run(commands.extend("T", "g", [0, 1, 2, 3], lease_ms=60_000)) == 4
    assert bus.run(commands.nack("T", "g", [0, 2])) == 2
    assert [d.offset for d in bus.run(commands.pull("T", "g", batch=10))] == [0, 2]
    bus.run(commands.ack("T", "g", range(4)))
    with pytest.raises(errors.NotFound):
        bus.run(commands.nack("T", "g", 1))
    bus.run(commands.empty("T", "g"))
    bus.run(commands.remove("T", "g"))
    with pytest.raises(errors.NotFound):
        bus.run(commands.query("T", "g"))
    bus.run(commands.remove("T"))
    assert bus.run(commands.ping()) == EPOCH_MS
    assert bus.run(commands.version())


def test_a_call_and_its_answer(bus: Joined) -> None:
    bus.run(commands.declare("R", rpc=True))
    call = bus.submit(commands.call("R", "plus", 1, {"a": None}, module="m"))
    bus.settle()
    service = Joined(bus.world)
    (delivery,) = service.run(commands.pull("R"))
    assert delivery.json() == {"method": "plus", "module": "m", "params": [1, {"a": None}]}
    service.submit(commands.route("R", delivery.sender, delivery.id, 200, b'{"x":1}'))
    service.settle()
    bus.settle()
    assert call.result() == {"x": 1}


def test_a_call_to_a_topic_that_is_not_one_of_services(bus: Joined) -> None:
    bus.run(commands.declare("plain"))
    with pytest.raises(errors.BadRequest, match="is not one of services"):
        bus.run(commands.call("plain", "plus", 1, 2))
    assert bus.run(commands.read("plain")) == []


@pytest.mark.parametrize("body", [5, True, 1.5, [65, 66], {"a": 1}, object()])
def test_what_is_no_body(body: Any) -> None:
    for make in (
        lambda: commands.produce("T", body),
        lambda: commands.produce_many("T", [body]),
        lambda: commands.produce_many("T", [Message(body)]),
    ):
        with pytest.raises(TypeError, match="a body is bytes or text"):
            make()


@pytest.mark.parametrize("messages", ["abc", b"abc", bytearray(b"abc")])
def test_one_body_is_no_batch(messages: Any) -> None:
    with pytest.raises(TypeError, match="a list of messages"):
        commands.produce_many("T", messages)


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        "x-app",
        "traceparent",
        "ce-type",
        "content-encoding",
        "connection",
        "upgrade",
        "user-agent",
        "x-forwarded-for",
        "x-accel-redirect",
        "sec-fetch-mode",
    ],
)
def test_a_header_has_the_name_that_was_given(bus: Joined, name: str, batch: bool) -> None:
    """Whatever a name means to HTTP, it is the application's here."""
    bus.run(commands.declare("T"))
    headers = {name.title(): "a\tb"}
    if batch:
        bus.run(commands.produce_many("T", [Message(b"", headers=headers)]))
    else:
        bus.run(commands.produce("T", headers=headers))
    (read,) = bus.run(commands.read("T"))
    assert read.headers[name] == "a\tb"


@pytest.mark.parametrize(
    ("lines", "headers"),
    [
        ({b"zbus-header-x-a": b"1"}, {"x-a": "1"}),
        ({b"zbus-header-zbus-header-x-a": b"1"}, {"zbus-header-x-a": "1"}),
        ({b"zbus-header-offset": b"1", b"offset": b"2"}, {"offset": "2"}),
        ({b"x-a": b"%41 %ff"}, {"x-a": "%41 %ff"}),
        ({b"tag": b"%2541", b"topic": b"%C3%A4"}, {"tag": "%41", "topic": "ä"}),
        ({b"zbus-header-tag": b"%2541"}, {"tag": "%2541"}),
        # Lines about the reply, and headers of a message that have the same names.
        ({b"cache-control": b"no-store", b"connection": b"Keep-Alive"}, {}),
        ({b"content-length": b"1", b"date": b"Thu", b"x-accel-buffering": b"no"}, {}),
        (
            {b"cache-control": b"no-store", b"zbus-header-cache-control": b"private"},
            {"cache-control": "private"},
        ),
        ({b"date": b"Thu", b"zbus-header-date": b"Fri"}, {"date": "Fri"}),
    ],
)
def test_headers_as_they_were_sent(lines: dict[bytes, bytes], headers: dict[str, str]) -> None:
    assert Delivery(Response(200, lines, b"")).headers == headers
