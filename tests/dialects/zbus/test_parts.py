"""Small parts of the zbus face that are easier to show alone than in a dialogue."""

import pytest

from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.errors import BrokerError, Refusal
from zbus.core.topics.outcomes import Routed, Stored
from zbus.dialects.zbus.dialect import COMMANDS, ZbusDialect
from zbus.dialects.zbus.messages.put_tickets import PutReply
from zbus.dialects.zbus.messages.rpc import request_from_url
from zbus.dialects.zbus.replies import Status, error_text, status_of
from zbus.dialects.zbus.request.header_lines import split_lines
from zbus.dialects.zbus.request.legacy_flags import (
    group_mask,
    topic_mask,
    with_group_mask,
    with_topic_mask,
)
from zbus.dialects.zbus.request.params import Params
from zbus.dialects.zbus.request.stored import RequestLines, without_secrets
from zbus.edge.status import STATUS
from zbus.testing.world import World
from zbus.wire.heads.heads import Heads
from zbus.wire.numbers import parse_number, parse_ranges


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        (b"/T", b"/T"),
        (b"/token?a=1", b"/token?a=1"),
        (b"/T?token=s", b"/T"),
        (b"/T?Token=s&a=1", b"/T?a=1"),
        (b"/T?a=1&token=s", b"/T?a=1"),
        (b"/T?a=1&token=s&b=2&token=t", b"/T?a=1&b=2"),
        (b"/T?token", b"/T"),
        (b"/T?tokens=1", b"/T?tokens=1"),
        (b"/T?a=token", b"/T?a=token"),
        (b"/T?to%6Ben=s&a", b"/T?a"),
    ],
)
def test_tokens_do_not_travel(target: bytes, shown: bytes) -> None:
    assert without_secrets(target) == shown


def test_stored_lines_can_be_read_back() -> None:
    fields = {b"x": b" 1\t", b"y": b"%41 \xe9", b"topic": b"T", b"cookie": b"token=1; a=2"}
    said = RequestLines(fields, False, None, 1_000, 0)
    head, own = params(b"/").head, {"x": "1", "y": "%41 é", "origin_method": "GET"}
    assert split_lines(said.of_topic(head, minimal_headers=False)) == own
    assert split_lines(said.of_call(head, tokens=True)) == {**own, "cookie": "a=2"}


def params(target: bytes, *lines: bytes) -> Params:
    raw = b"\r\n".join((b"GET " + target + b" HTTP/1.1", b"host: x", *lines))
    return Params(Heads().read(raw)[0])


@pytest.mark.parametrize("digits", [b"1" * 30, b"0.10", b"1E400", b"-0", b"1e5"])
def test_numbers_in_calls_are_passed_as_written(digits: bytes) -> None:
    request = request_from_url(params(b"/S/m/" + digits), "seed")
    quoted = b'"%b"' % digits
    assert request in (
        b'{"method":"m","module":"","params":[%b]}' % digits,
        b'{"method":"m","module":"","params":[%b]}' % quoted,
    )


@pytest.mark.parametrize(
    ("value", "meaning"),
    [(b"1", True), (b"true", True), (b"True", True), (b"0", False), (b"yes", False), (b"", False)],
)
def test_flags(value: bytes, meaning: bool) -> None:
    assert params(b"/T", b"ack: " + value).flag(b"ack") is meaning
    assert params(b"/T").flag(b"ack") is True


def test_names_of_query_keys_that_are_no_header_names_are_left_out() -> None:
    found = params(b"/T?a%0D%0Ab=1&%20=2&c:=3&d=4")
    assert found.query_names == [b"d"]
    assert b"a\r\nb" not in found.fields


def test_every_refusal_has_a_status_and_a_text() -> None:
    assert set(STATUS) == set(Refusal)
    for refusal, status in STATUS.items():
        text = error_text(BrokerError(refusal, "why"))
        assert text
        assert 400 <= status < 600


def test_every_command_survives_an_empty_request() -> None:
    world = World()
    for name in COMMANDS:
        client = world.connect()
        client.exchange(b"GET / HTTP/1.1\r\ncmd: " + name + b"\r\n\r\n")
        world.broker.check()


@pytest.mark.parametrize("partitions", [1, 3])
def test_the_quick_reply_to_a_put_says_what_the_careful_one_does(partitions: int) -> None:
    world = World()
    client = world.connect()
    declare = b"GET /T?cmd=declare&partitions=%d HTTP/1.1\r\nhost: x\r\n\r\n" % partitions
    client.request(declare)
    raw = b"GET / HTTP/1.1\r\ncmd: produce\r\ntopic: T"
    dialect: ZbusDialect = world.dialect
    quick, careful = (Params(Heads().read(raw)[0]) for _ in range(2))
    careful.plain = False
    sent = []
    for one in (quick, careful):
        reply = PutReply(dialect, one, client.peer, b"id", False)
        reply.offset = 7
        client.peer.out = []
        reply.settle(Stored(world.broker.topics["t"].partitions[-1]))
        (data,) = client.peer.out
        head, _, body = data.partition(b"\r\n\r\n")
        sent.append((sorted(head.split(b"\r\n")), body))
    assert sent[0] == sent[1]


def test_parse_number_is_not_int() -> None:
    for value in (b"+1", b"-1", b"1_0", b" 1", b"1 ", b"", "\uff11".encode(), b"1\n"):
        assert parse_number(value) is None


@pytest.mark.parametrize(
    ("value", "count_max", "ranges"),
    [
        (b"7", 1, [range(7, 8)]),
        (b"3,5-9,12", 7, [range(3, 4), range(5, 10), range(12, 13)]),
        (b"3,5-9,12", 6, None),
        (b"0-0", 1, [range(1)]),
        (b"1,1", 2, [range(1, 2), range(1, 2)]),
        (b"1,1", 1, None),
        (b"", 1, None),
        (b"1-9223372036854775807", 10_000, None),
        (b"," * 100_000, 10_000, None),
    ],
)
def test_ranges(value: bytes, count_max: int, ranges: list[range] | None) -> None:
    assert parse_ranges(value, count_max) == ranges


@pytest.mark.parametrize("mask", [*range(256), 1 << 20, (1 << 31) - 1])
def test_a_mask_is_given_back_as_it_was_sent(mask: int) -> None:
    assert topic_mask(with_topic_mask(TopicOptions("T"), mask)) == mask
    assert group_mask(with_group_mask(GroupOptions(), mask)) == mask


@pytest.mark.parametrize(
    ("options", "mask"),
    [
        (TopicOptions("T", paused=True), 8),
        (TopicOptions("T", lease=True, exclusive=True, temporary=True), 64 + 16 + 32),
        (TopicOptions("T", calls=True, competing=True), 4),
        (TopicOptions("T", b'{"of":"another"}', paused=True), 8),
        (TopicOptions("T", b"64", paused=True), 8),
        (TopicOptions("T", b"66", calls=True), 66),
        (TopicOptions("T", b"66"), 0),
    ],
)
def test_the_mask_of_options_that_another_dialect_chose(options: TopicOptions, mask: int) -> None:
    assert topic_mask(options) == mask


@pytest.mark.parametrize(
    ("options", "mask"),
    [
        (GroupOptions(lease=True), 64),
        (GroupOptions(b"64", lease=False, paused=True), 8),
        (GroupOptions(b"[64]", exclusive=True), 16),
        (GroupOptions(), 0),
    ],
)
def test_the_mask_of_such_a_group(options: GroupOptions, mask: int) -> None:
    assert group_mask(options) == mask


@pytest.mark.parametrize(
    ("failed", "opaque", "status"),
    [
        (False, None, 200),
        (True, None, 500),
        (True, Status(404), 404),
        (True, 404, 500),
        (False, b"404", 200),
    ],
)
def test_the_status_of_what_another_dialect_routed(
    failed: bool, opaque: object, status: int
) -> None:
    assert status_of(Routed(b"1", b"s", b"", b"", failed, opaque)) == status


MOST = (1 << 63) - 1
RANGES = {
    b"7": [range(7, 8)],
    b"3,5-9,12": [range(3, 4), range(5, 10), range(12, 13)],
    b"1,2,3-5,6": [range(1, 7)],
    b"0,0,1": [range(1), range(2)],
    b"5,4,3": [range(5, 6), range(4, 5), range(3, 4)],
    b"2-2": [range(2, 3)],
    b"0007": [range(7, 8)],
    b"0-9": [range(10)],
    b"0-10": None,
    b"0,1,2,3,4,5,6,7,8,9": [range(10)],
    b"0,1,2,3,4,5,6,7,8,9,10": None,
    b"0,0,0,0,0,0,0,0,0,0,0": None,
    b"%d" % MOST: [range(MOST, MOST + 1)],
    b"%d" % (MOST + 1): None,
    b"99999999999999999999": None,
    b"5-4": None,
    **dict.fromkeys([b"", b",", b"1,", b",1", b"1,,2", b"-", b"1-", b"-1", b"1-2-3"]),
    **dict.fromkeys([b"+1", b" 1", b"1 ", b"1_0", b"1\n", b"x", b"1,x", b"\xd9\xa1", b"1." * 9]),
}


@pytest.mark.parametrize("text", RANGES)
def test_numbers_and_ranges(text: bytes) -> None:
    assert parse_ranges(text, 10) == RANGES[text]
