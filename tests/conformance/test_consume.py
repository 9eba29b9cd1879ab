"""Messages out: waiting, turns, windows, empty answers (specification 5.2, 5.3, 16.11)."""

import pytest

from tests.conformance.dialogue import TYPED, World, cmd, declared, http, ok, pull, put, refused


def ids(client_replies: list) -> list[tuple[str, bytes]]:
    return [(reply.headers["id"], reply.body) for reply in client_replies]


CONSUME = ("topic: T",)


def test_a_pull_waits_without_limit() -> None:
    world, client = declared("T")
    reader = world.connect()
    assert reader.exchange(cmd("consume", *CONSUME, "id: p")) == []
    world.advance(24 * 3_600_000)
    assert reader.replies() == []
    put(client, "T", b"x")
    assert ids(reader.replies()) == [("p", b"x")]


@pytest.mark.parametrize(
    ("lines", "refusal"),
    [
        (("topic: NOPE",), (404, "404: Topic(NOPE) Not Found")),
        (("topic: NOPE", "consume_group: g"), (404, "404: Topic(NOPE) Not Found")),
        (("topic: T", "consume_group: g"), (404, "404: ConsumeGroup(g) Not Found")),
        (("topic: H",), (404, "404: ConsumeGroup(H) Not Found")),
        ((), (400, "400: Bad Format, Missing topic")),
        (("topic: T", "partition: 1"), (404, "404: Partition(1) Not Found")),
    ],
)
@pytest.mark.parametrize("command", ["consume", "unconsume"])
def test_refusals(command: str, lines: tuple[str, ...], refusal: tuple[int, str]) -> None:
    _, client = declared("T", "H/g")
    if command == "unconsume" and "partition: 1" in lines:
        return
    assert refused(client, cmd(command, *lines)) == refusal


def test_ack_off_hides_only_the_missing_topic() -> None:
    _, client = declared("T")
    assert client.exchange(cmd("consume", "topic: NOPE", "ack: 0")) == []
    assert client.request(cmd("consume", "topic: T", "consume_group: g", "ack: 0")).status == 404
    put(client, "T", b"x")
    assert client.request(cmd("consume", "topic: T", "ack: 0")).body == b"x"


def test_a_waiting_pull_blocks_nothing_with_an_id() -> None:
    world, client = declared("T", "U")
    put(client, "U", b"u")
    one = world.connect()
    data = cmd("consume", "topic: T", "id: 1") + cmd("consume", "topic: U", "id: 2")
    data += cmd("produce", "topic: U", "id: 3") + cmd("query", "topic: U", "id: 4")
    assert sorted(reply.headers["id"] for reply in one.exchange(data)) == ["2", "3", "4"]
    put(client, "T", b"t")
    assert ids(one.replies()) == [("1", b"t")]


def test_one_waiting_pull_of_a_session_in_a_group() -> None:
    world, client = declared("T")
    reader = world.connect()
    for id in ("old", "new"):
        assert reader.exchange(cmd("consume", *CONSUME, f"id: {id}")) == []
    put(client, "T", b"1", b"2")
    assert ids(reader.replies()) == [("new", b"1")]
    world.broker.check()


def test_a_replaced_pull_with_a_timeout_is_told() -> None:
    world, _ = declared("T")
    reader = world.connect()
    reader.exchange(cmd("consume", *CONSUME, "id: old", "timeout: 1000"))
    (reply,) = reader.exchange(cmd("consume", *CONSUME, "id: new", "timeout: 1000"))
    assert (reply.status, reply.headers["id"], reply.headers["empty"]) == (204, "old", "replaced")
    world.advance(1000)
    assert [reply.headers["id"] for reply in reader.replies()] == ["new"]


def test_pulls_of_one_session_in_several_groups() -> None:
    world, client = declared("T/g", "T/h", "U")
    reader = world.connect()
    for n, line in enumerate(("topic: T\r\ngroup: g", "topic: T\r\ngroup: h", "topic: U")):
        assert reader.exchange(cmd("consume", line, f"id: {n}")) == []
    put(client, "T", b"t")
    put(client, "U", b"u")
    assert sorted(ids(reader.replies())) == [("0", b"t"), ("1", b"t"), ("2", b"u")]


def test_plain_pulls_on_one_connection_are_all_answered_in_order() -> None:
    world, client = declared("T")
    reader = world.connect()
    data = http("/T?cmd=consume") * 3 + http("/NOPE?cmd=query")
    assert reader.exchange(data) == []
    put(client, "T", b"1", b"2", b"3")
    assert [(reply.status, reply.body) for reply in reader.replies()] == [
        (200, b"1"),
        (200, b"2"),
        (200, b"3"),
        (404, b"404: Topic(NOPE) Not Found"),
    ]


def test_plain_pulls_with_ids_are_answered_as_they_come() -> None:
    world, client = declared("T", "U")
    reader = world.connect()
    assert reader.exchange(http("/T?cmd=consume&id=1") + http("/U?cmd=consume&id=2")) == []
    put(client, "U", b"u")
    put(client, "T", b"t")
    assert ids(reader.replies()) == [("2", b"u"), ("1", b"t")]


def test_waiting_sessions_take_turns() -> None:
    world, client = declared("T")
    readers = [world.connect() for _ in range(3)]
    for reader in readers:
        reader.exchange(cmd("consume", *CONSUME))
    served = []
    for n in range(9):
        put(client, "T", b"%d" % n)
        for index, reader in enumerate(readers):
            if reader.replies():
                served.append(index)
                reader.exchange(cmd("consume", *CONSUME))
    assert served == [0, 1, 2] * 3


def test_the_pull_of_a_dead_session_takes_nothing() -> None:
    world, client = declared("T")
    for _ in range(2):
        dead = world.connect()
        dead.exchange(cmd("consume", *CONSUME))
        dead.vanish()
    put(client, "T", b"x")
    assert pull(client).body == b"x"


@pytest.mark.parametrize("remove", ["/T?cmd=remove", "/T/g?cmd=remove"])
def test_removing_what_is_waited_for_answers_404(remove: str) -> None:
    world, client = declared("T/g")
    reader = world.connect()
    reader.exchange(cmd("consume", *CONSUME, "group: g", "id: p"))
    ok(client, http(remove))
    (reply,) = reader.replies()
    what = "ConsumeGroup(g)" if "/g" in remove else "Topic(T)"
    assert (reply.status, reply.headers["id"]) == (404, "p")
    assert reply.body.decode() == f"404: {what} Not Found"


class TestWindow:
    def test_a_window_is_credit_for_so_many_messages(self) -> None:
        world, client = declared("T")
        reader = world.connect()
        reader.exchange(cmd("consume", *CONSUME, "consume_window: 3", "id: p"))
        put(client, "T", *[b"%d" % n for n in range(5)])
        assert ids(reader.replies()) == [("p", b"0"), ("p", b"1"), ("p", b"2")]
        replies = reader.exchange(cmd("consume", *CONSUME, "consume_window: 2", "id: q"))
        assert ids(replies) == [("q", b"3"), ("q", b"4")]

    def test_a_new_pull_sets_the_window_anew(self) -> None:
        world, client = declared("T")
        reader = world.connect()
        reader.exchange(cmd("consume", *CONSUME, "consume_window: 3", "id: p"))
        put(client, "T", b"0")
        assert ids(reader.replies()) == [("p", b"0")]
        reader.exchange(cmd("consume", *CONSUME, "consume_window: 1", "id: q"))
        put(client, "T", b"1", b"2")
        assert ids(reader.replies()) == [("q", b"1")]

    @pytest.mark.parametrize("window", ["1", "0", ""])
    def test_no_window_is_one_message(self, window: str) -> None:
        _, client = declared("T")
        put(client, "T", b"0", b"1")
        replies = client.exchange(cmd("consume", *CONSUME, f"consume_window: {window}"))
        assert len(replies) == 1

    def test_two_windows_share_in_turn(self) -> None:
        world, client = declared("T")
        readers = [world.connect() for _ in range(2)]
        for reader in readers:
            reader.exchange(cmd("consume", *CONSUME, "consume_window: 2"))
        put(client, "T", b"0", b"1", b"2", b"3")
        got = [[reply.body for reply in reader.replies()] for reader in readers]
        assert got == [[b"0", b"2"], [b"1", b"3"]]

    def test_plain_http_has_no_window(self) -> None:
        _, client = declared("T")
        put(client, "T", b"0", b"1")
        assert len(client.exchange(http("/T?cmd=consume&consume_window=5"))) == 1

    def test_the_end_of_the_time_ends_the_rest_of_the_window(self) -> None:
        world, client = declared("T")
        reader = world.connect()
        reader.exchange(cmd("consume", *CONSUME, "consume_window: 3", "timeout: 100"))
        put(client, "T", b"0")
        world.advance(100)
        assert [reply.status for reply in reader.replies()] == [200, 204]
        put(client, "T", b"1")
        assert reader.replies() == []


class TestEmpty:
    @pytest.mark.parametrize(
        ("declaration", "before", "reason"),
        [
            ("T/g", (), "drained"),
            ("T/g?group_filter=a", (http("/T?tag=b"),), "filtered"),
            ("T/g?group_filter=a", (http("/T"),), "filtered"),
            ("T/g?group_mask=64", (http("/T"), http("/T/g?cmd=consume")), "leased"),
            (
                "T/g?group_mask=64&group_ack_window=1",
                (http("/T"), http("/T"), http("/T/g?cmd=consume")),
                "leased",
            ),
            ("T/g", (http("/T?delay=60000"),), "delayed"),
            ("T/g?group_mask=8", (http("/T"),), "paused"),
            ("T/g?topic_mask=8", (http("/T"),), "paused"),
        ],
    )
    @pytest.mark.parametrize("timeout_ms", [0, 1, 5_000])
    def test_why(
        self, declaration: str, before: tuple[bytes, ...], reason: str, timeout_ms: int
    ) -> None:
        world, client = declared(declaration)
        for request in before:
            ok(client, request)
        reader = world.connect()
        reader.send(http(f"/T/g?cmd=consume&timeout={timeout_ms}", "id: p"))
        world.settle()
        if timeout_ms:
            assert reader.replies() == []
            world.advance(timeout_ms - 1)
            assert reader.replies() == []
            world.advance(1)
        (reply,) = reader.replies()
        assert (reply.status, reply.headers["id"], reply.body) == (204, "p", b"")
        assert reply.headers["empty"] == reason

    def test_a_message_in_time_is_delivered(self) -> None:
        world, client = declared("T")
        reader = world.connect()
        reader.exchange(http("/T?cmd=consume&timeout=100"))
        world.advance(99)
        put(client, "T", b"x")
        assert reader.replies()[0].body == b"x"
        world.advance(1000)
        assert reader.replies() == []

    @pytest.mark.parametrize(
        ("lines", "ends"),
        [
            (TYPED, True),
            (("sec-fetch-site: same-origin", "sec-fetch-mode: cors"), False),
            ((), False),
        ],
    )
    def test_a_browsers_page_waits_for_30_seconds(self, lines: tuple[str, ...], ends: bool) -> None:
        world, _ = declared("T")
        reader = world.connect()
        reader.exchange(http("/T?cmd=consume", *lines))
        world.advance(29_999)
        assert reader.replies() == []
        world.advance(1)
        assert [reply.status for reply in reader.replies()] == [204] * ends

    def test_a_browsers_page_may_choose(self) -> None:
        world, _ = declared("T")
        reader = world.connect()
        reader.exchange(http("/T?cmd=consume&timeout=60000", *TYPED))
        world.advance(59_999)
        assert reader.replies() == []

    def test_stopping_ends_the_wait(self) -> None:
        world, _ = declared("T")
        reader = world.connect()
        reader.exchange(cmd("consume", *CONSUME))
        world.broker.stop()
        world.settle()
        assert reader.replies()[0].headers["empty"] == "stopping"


class TestRandomRead:
    def test_an_offset_reads_without_changing_anything(self) -> None:
        _, client = declared("T/g?group_mask=64&group_filter=no.such.tag")
        put(client, "T", b"0", b"1")
        for _ in range(2):
            reply = ok(client, http("/T/g?cmd=consume&offset=1", "id: p"))
            assert (reply.body, reply.headers["offset"], reply.headers["id"]) == (b"1", "1", "p")
            assert reply.headers["consume_group"] == "g"
            assert "retry" not in reply.headers
        info = ok(client, http("/T/g?cmd=query")).body
        assert b'"leasedCount":0' in info
        assert b'"messageCount":2' in info
        assert b'"consumerCount":1' in info, "but the session is registered"

    @pytest.mark.parametrize("offset", [2, 5, 1 << 40, (1 << 63) - 1])
    def test_an_unknown_offset(self, offset: int) -> None:
        _, client = declared("T")
        put(client, "T", b"0", b"1")
        text = f"404: Message Not Found: offset={offset}"
        assert refused(client, http(f"/T?cmd=consume&offset={offset}")) == (404, text)

    def test_it_does_not_get_around_an_exclusive_group(self) -> None:
        world, client = declared("T/g?group_mask=16")
        put(client, "T", b"0", b"1")
        holder = world.connect()
        ok(holder, http("/T/g?cmd=consume"))
        other = world.connect()
        assert other.request(http("/T/g?cmd=consume&offset=0")).status == 401
        assert other.request(http("/T/g?cmd=consume")).status == 401
        assert ok(holder, http("/T/g?cmd=consume&offset=0")).body == b"0"


class TestUnconsume:
    def test_it_forgets_the_pull_and_says_nothing(self) -> None:
        world, client = declared("T")
        reader = world.connect()
        data = cmd("consume", *CONSUME) + cmd("unconsume", *CONSUME, "ack: 1", "id: u")
        assert reader.exchange(data) == []
        assert b'"consumerCount":0' in ok(client, http("/T/T?cmd=query")).body
        put(client, "T", b"x")
        assert reader.replies() == []
        assert pull(client).body == b"x"

    @pytest.mark.parametrize("lines", [(), ("id: u",)])
    def test_plain_http_is_answered_to_both(self, lines: tuple[str, ...]) -> None:
        _, client = declared("T")
        data = http("/T?cmd=consume", *lines) + http("/T?cmd=unconsume", *lines)
        assert [reply.status for reply in client.exchange(data)] == [204, 204]

    def test_it_leaves_one_group_only(self) -> None:
        world, client = declared("T/g", "T/h")
        reader = world.connect()
        for group in "gh":
            reader.exchange(cmd("consume", *CONSUME, f"group: {group}", f"id: {group}"))
        reader.exchange(cmd("unconsume", *CONSUME, "consume_group: g"))
        put(client, "T", b"x")
        assert ids(reader.replies()) == [("h", b"x")]

    def test_it_may_end_the_pull_alone(self) -> None:
        """`stay`: nothing is handed to it any more, and it is a reader all the same."""
        world, client = declared("T")
        reader = world.connect()
        data = cmd("consume", "topic: T", "timeout: 60000", "id: p")
        data += cmd("unconsume", *CONSUME, "stay: 1", "id: u")
        (ended,) = reader.exchange(data)
        assert (ended.status, ended.headers["id"], ended.headers["empty"]) == (204, "p", "left")
        assert b'"consumerCount":1' in ok(client, http("/T/T?cmd=query")).body
        put(client, "T", b"x")
        assert reader.replies() == []
        assert pull(client).body == b"x"


def test_too_many_open_pulls_on_a_connection() -> None:
    world, _ = declared("T")
    world.dialect.settings = type(world.dialect.settings)(tickets_per_connection_max=3)
    reader = world.connect()
    for _ in range(3):
        assert reader.exchange(http("/T?cmd=consume", "id: p")) == []
    assert reader.request(http("/T?cmd=consume", "id: q")).status == 429
    assert world.connect().exchange(http("/T?cmd=consume")) == [], "others are not concerned"


def test_group_and_topic_are_found_whatever_their_case() -> None:
    _, client = declared("MyTopic/MyGroup")
    put(client, "mytopic", b"x")
    reply = pull(client, "/MYTOPIC/MYGROUP")
    assert (reply.body, reply.headers["consume_group"]) == (b"x", "MyGroup")


def test_a_consumer_that_found_nothing_declares_and_goes_on() -> None:
    """How every stock client begins."""
    client = World().connect()
    lines = ("topic: T", "consume_group: g")
    assert client.request(cmd("consume", *lines)).status == 404
    ok(client, cmd("declare", *lines))
    assert client.exchange(cmd("consume", *lines, "id: p")) == []
    replies = client.exchange(cmd("produce", "topic: T", "id: m", "ack: 0", body=b"x"))
    assert ids(replies) == [("p", b"x")]


def test_a_pull_that_closes_its_connection_still_waits_for_its_message() -> None:
    world, client = declared("T")
    reader = world.connect()
    assert reader.exchange(http("/T?cmd=consume", "connection: close")) == []
    assert not reader.closed
    put(client, "T", b"x")
    (reply,) = reader.replies()
    assert (reply.body, reply.headers["connection"]) == (b"x", "close")
    assert reader.closed
