"""URL against header, and what is decoded where (specification 3.3, 3.4, 16.6, 16.7)."""

import pytest

from tests.conformance.dialogue import cmd, declared, document, http, ok, pull, put, refused


def where(request: bytes) -> str:
    """Which topic and group a query found."""
    _, client = declared("A/A", "A/g", "B/B", "B/g", "A%20b/c%20d")
    reply = client.request(request)
    if reply.status != 200:
        return reply.body.decode()
    info = document(reply)
    if "topicTable" in info:
        return "server"
    return f"{info['topicName']}/{info['groupName']}" if "groupName" in info else info["topicName"]


@pytest.mark.parametrize(
    ("request_bytes", "found"),
    [
        (http("/A?cmd=query"), "A"),
        (http("/A/g?cmd=query"), "A/g"),
        (http("//A///g//?cmd=query"), "A/g"),
        (http("/A/g/more", "cmd: query"), "A/g"),  # in a URL it is a mistake
        (http("/a/G?cmd=QUERY"), "A/g"),
        (http("/?cmd=query&topic=A&consume_group=g"), "A/g"),
        (http("/?cmd=query&topic=A&group=g"), "A/g"),
        (http("/A?&&cmd=query&&&group=g&&"), "A/g"),
        (http("/A%20b/c%20d?cmd=query"), "A b/c d"),
        (http("/%41?cmd=%71uery"), "A"),
        (http("/?cmd=query&topic=A+b&group=c+d"), "A b/c d"),
        (http("/A+b?cmd=query"), "404: Topic(A+b) Not Found"),
        (http("/A%2Fg?cmd=query"), "404: Topic(A/g) Not Found"),
        # The query goes before the path, the header before both.
        (http("/A/g?cmd=query&topic=B"), "B/g"),
        (http("/A/g?cmd=query&group=A"), "A/A"),
        (http("/A/g?cmd=query", "topic: B"), "B/g"),
        (http("/A/g?cmd=query&topic=A", "topic: B", "group: B"), "B/B"),
        (http("/A/g?cmd=query", "consume_group: A"), "A/A"),
        (http("/A?cmd=query&group=g", "consume_group: A"), "A/A"),
        (http("/A?cmd=remove", "cmd: query"), "A"),
        # The long name of the group goes before the short one.
        (http("/A?cmd=query&group=g&consume_group=A"), "A/A"),
        (http("/A?cmd=query", "group: g", "consume_group: A"), "A/A"),
        # `cmd` in the header: the rest is still taken from the URL ...
        (http("/A/g", "cmd: query"), "A/g"),
        (http("/?topic=A&group=g", "cmd: query"), "A/g"),
        (cmd("query"), "server"),
        (http("/A?cmd=remove", "cmd: query", "topic:"), "A"),
        # ... unless the topic is there too: then it may be a proxied URL.
        (http("/A/g?group=g&cmd=remove", "cmd: query", "topic: B"), "B"),
        (http("/x?consume_group=g", "cmd: query", "topic: B"), "B"),
    ],
)
def test_one_request_out_of_two(request_bytes: bytes, found: str) -> None:
    assert where(request_bytes) == found


def test_the_second_segment_is_the_group_for_unconsume_and_ack_too() -> None:
    """Unlike the original, where `/T/g?cmd=ack` is silently about the group T."""
    _, client = declared("T/g?group_mask=64", "T/T")
    put(client, "T", b"x")
    pull(client, "/T/g")
    ok(client, http("/T/g?cmd=ack&offset=0"))
    assert document(client.request(http("/T/g?cmd=query")))["leasedCount"] == 0
    assert refused(client, http("/T/none?cmd=unconsume"))[0] == 404


def test_the_short_name_is_for_commands_on_groups() -> None:
    _, client = declared("T/g")
    put(client, "T", b"x", query="group=application-data")
    assert pull(client, "/T/g").body == b"x"


# What is sent, what it means, and how the broker writes it: a % before two hex digits is encoded.
ENCODED = [
    ("T%31", "T1", "T1"),
    ("%E4%B8%AD", "中", "中"),
    ("a+b", "a+b", "a+b"),
    ("a%2Bb", "a+b", "a+b"),
    ("100%", "100%", "100%"),
    ("%zz%4", "%zz%4", "%zz%4"),
    ("%E4", "%E4", "%25E4"),  # not UTF-8
    ("%2541", "%41", "%2541"),
]


class TestPercentInHeaders:
    """Exactly six headers are decoded."""

    @pytest.mark.parametrize(("sent", "meant", "shown"), ENCODED)
    def test_topic_and_group(self, sent: str, meant: str, shown: str) -> None:
        _, client = declared()
        reply = ok(client, cmd("declare", f"topic: {sent}", f"consume_group: {sent}"))
        info = document(reply)
        assert (info["topicName"], info["groupName"]) == (meant, meant)
        ok(client, cmd("produce", f"topic: {sent}", body=b"x"))
        reply = ok(client, cmd("consume", f"topic: {sent}", f"consume_group: {sent}"))
        assert (reply.headers["topic"], reply.headers["consume_group"]) == (shown, shown)

    @pytest.mark.parametrize(("sent", "meant", "shown"), ENCODED)
    def test_tag(self, sent: str, meant: str, shown: str) -> None:
        _, client = declared("T")
        ok(client, cmd("produce", "topic: T", f"tag: {sent}"))
        assert pull(client).headers["tag"] == shown

    @pytest.mark.parametrize("filter", ["a.%2A", "a.%23", "b%3Ba.*", "%61.b"])
    def test_filter_as_zbuspy_sends_it(self, filter: str) -> None:
        _, client = declared("T")
        ok(client, cmd("declare", "topic: T", "consume_group: g", f"group_filter: {filter}"))
        ok(client, cmd("produce", "topic: T", "tag: a.b", body=b"x"))
        assert pull(client, "/T/g").body == b"x"

    def test_start_copy(self) -> None:
        _, client = declared("T/%E4%B8%AD", "T/other")
        put(client, "T", b"0", b"1")
        pull(client, "/T/%E4%B8%AD")
        ok(client, cmd("declare", "topic: T", "group: h", "group_start_copy: %E4%B8%AD"))
        assert pull(client, "/T/h").body == b"1"

    @pytest.mark.parametrize("name", ["x-app", "id", "key"])
    def test_no_other(self, name: str) -> None:
        _, client = declared("T")
        ok(client, cmd("produce", "topic: T", f"{name}: %E4%B8%AD"))
        name = {"id": "origin_id"}.get(name, name)
        reply = ok(client, cmd("consume", "topic: T"))
        assert reply.headers[name] == "%E4%B8%AD"

    def test_raw_utf_8_is_as_good(self) -> None:
        _, client = declared()
        ok(client, cmd("declare", "topic: 队列"))
        assert document(ok(client, http("/%E9%98%9F%E5%88%97?cmd=query")))["topicName"] == "队列"


@pytest.mark.parametrize(
    ("request_bytes", "name"),
    [
        (http("/T?cmd=foo"), "foo"),
        (http("/T?cmd="), ""),
        (http("/T?cmd"), ""),
        (cmd("", "topic: T"), ""),
        (http("/T", "cmd:"), ""),
        (cmd("QUERY"), "QUERY"),
        (cmd("Produce", "topic: T"), "Produce"),
        (cmd("rpc", "topic: T"), "rpc"),
        (cmd("track_all"), "track_all"),
        (cmd("T", "topic: T"), "T"),
        (http("/T?cmd=%3Cscript%3E"), "&lt;script&gt;"),
        (cmd("x" * 1000), "x" * 40),
    ],
)
def test_unknown_commands(request_bytes: bytes, name: str) -> None:
    _, client = declared("T")
    status, text = refused(client, request_bytes)
    text, _, _hint = text.partition("; did you mean ")
    assert (status, text) == (400, f"Bad format: command({name}) not support")
    assert client.request(request_bytes).headers["content-type"] == "text/html"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("cancle", "; did you mean cancel?"),
        ("CONSUME", "; did you mean consume?"),
        ("qurey", "; did you mean query?"),
        ("txn-commit", "; did you mean txn_commit?"),
        ("foo", ""),
        ("x" * 1000, ""),
    ],
)
def test_a_command_that_is_misspelt_is_named(name: str, hint: str) -> None:
    _, client = declared("T")
    _, text = refused(client, cmd(name, "topic: T"))
    assert text == f"Bad format: command({name[:40]}) not support{hint}"


@pytest.mark.parametrize("prefix", ["queue", "camellia", "mq", "_nothing"])
def test_reserved_paths(prefix: str) -> None:
    _, client = declared()
    assert client.request(http(f"/{prefix}?cmd=declare")).status == 404
    ok(client, cmd("declare", f"topic: {prefix}"))
    ok(client, http("/", f"topic: {prefix}", body=b"x"))
    assert ok(client, cmd("consume", f"topic: {prefix}")).body == b"x"


def test_old_urls_are_topics() -> None:
    _, client = declared("T")
    assert refused(client, http("/query/T")) == (404, "404: Topic(query) Not Found")
