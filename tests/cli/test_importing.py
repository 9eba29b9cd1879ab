"""Rows of files, before there is a broker: what each line becomes, and what is refused and why."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO

import click
import pytest

from zbus.cli.importing.files import csv_rows, message_rows, ndjson_rows, sqs_rows
from zbus.cli.importing.rows import BODY_BYTES_MAX, Fields, Row

KEYED = Fields(key="k", timestamp="t", headers=(("colour", "c"),))
WHOLE = Fields()
SQS = Fields(key="MessageGroupId", id="MessageId", timestamp="SentTimestamp")
LONG = b'"%b"' % (b"x" * BODY_BYTES_MAX)


def told(rows: Iterator[Row]) -> list[tuple[object, ...]]:
    """Of a row its line and body, key and own headers; or its line and what is wrong with it."""
    found: list[tuple[object, ...]] = []
    places = [0]
    for row in rows:
        places.append(row.place)
        line = int(row.at.removeprefix("line "))
        if row.message is None:
            found.append((line, row.problem))
            continue
        own = {n: v for n, v in (row.message.headers or {}).items() if n != "content-type"}
        found.append((line, row.message.body, *filter(None, (row.message.key, own))))
    assert places == sorted(set(places))
    return found


@pytest.mark.parametrize(
    ("content", "fields", "expected"),
    [
        (b"", WHOLE, []),
        (b'{"a":1}\n\n \r\n[2]\r\n"x"', WHOLE, [(1, b'{"a":1}'), (4, b"[2]"), (5, b'"x"')]),
        (b'\xef\xbb\xbf{"a":1}\n', WHOLE, [(1, b'{"a":1}')]),
        (b'1\n{"a":\n2', WHOLE, [(1, b"1"), (2, "it is not a JSON text"), (3, b"2")]),
        (b'"\xff"\n1\n', WHOLE, [(1, "it is not UTF-8"), (2, b"1")]),
        (LONG + b"\n1\n", WHOLE, [(1, f"a line has at most {BODY_BYTES_MAX} bytes"), (2, b"1")]),
        (LONG, WHOLE, [(1, f"a line has at most {BODY_BYTES_MAX} bytes")]),
        (b"[" * 5_000, WHOLE, [(1, "it is not a JSON text")]),
        (b"[1]\n", KEYED, [(1, "it is not a JSON object")]),
        (
            b'{"k":12345678901234567890123}',
            KEYED,
            [(1, b'{"k":12345678901234567890123}', "12345678901234567890123")],
        ),
        (b'{"k":null,"c":{"r":1}}', KEYED, [(1, b'{"k":null,"c":{"r":1}}', {"colour": '{"r":1}'})]),
        (b'{"t":"tomorrow"}', KEYED, [(1, "the time in 't' ")]),
        (
            b'{"k":"\\u00fc","t":"2027-01-15T08:00:00Z"}',
            KEYED,
            [
                (
                    1,
                    b'{"k":"\\u00fc","t":"2027-01-15T08:00:00Z"}',
                    "ü",
                    {"source-timestamp": "1800000000000"},
                )
            ],
        ),
        (b'{"b":"x"}\n{"b":[1]}\n{}', Fields(body="b"), [(1, b"x"), (2, b"[1]"), (3, "it has no")]),
    ],
)
def test_json_lines(content: bytes, fields: Fields, expected: list[tuple[object, ...]]) -> None:
    _compare(told(ndjson_rows(BytesIO(content), fields)), expected)


def _compare(found: list[tuple[object, ...]], expected: list[tuple[object, ...]]) -> None:
    """A problem begins as expected."""
    assert len(found) == len(expected), found
    for one, wanted in zip(found, expected, strict=True):
        if isinstance(wanted[1], str):
            assert one[0] == wanted[0]
            assert str(one[1]).startswith(wanted[1]), one
        else:
            assert one[: len(wanted)] == wanted, one


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"k,n\n", []),
        (b'k,n\r\na,1\r\n\r\nb,"x\ny"\r\nc,', [(2, "a"), (4, "b"), (6, "c")]),
        (b"k,n\n1\n1,2,3\nd,4\n", [(2, "it has 1 columns"), (3, "it has 3 columns"), (4, "d")]),
        (b"k,n\n\xff,2\ne,5\n", [(2, "it is not UTF-8"), (3, "e")]),
        (b'k,n\nf,6\ng,"7', [(2, "f"), (3, "it is not CSV: unexpected end of data")]),
        (b'k,n\ng,"7"8\nh,8\n', [(2, "it is not CSV"), (3, "h")]),
        (b"k,n\ni,%b\nj,1\n" % LONG, [(2, "a line has at most"), (3, "j")]),
        (
            b'k,n\nk,"%b' % ((b"x" * 999_999 + b"\n") * 17),
            [(2, "it is not CSV: field larger")],
        ),
    ],
)
def test_csv(content: bytes, expected: list[tuple[int, str]]) -> None:
    rows = list(csv_rows(BytesIO(content), Fields(key="k"), ","))[: len(expected) or None]
    found = [(each.at, each.message.key if each.message else each.problem) for each in rows]
    assert len(found) == len(expected), found
    for (at, text), (line, wanted) in zip(found, expected, strict=True):
        assert (at, (text or "")[: len(wanted)]) == (f"line {line}", wanted)


def test_a_row_of_csv_is_json() -> None:
    (row,) = csv_rows(BytesIO(b'k;n\na;"1;\n2"'), Fields(), ";")
    assert row.message is not None
    assert (row.message.body, row.message.headers) == (
        b'{"k":"a","n":"1;\\n2"}',
        {"content-type": "application/json"},
    )
    (row,) = csv_rows(BytesIO(b"k,n\na,1"), Fields(body="n"), ",")
    assert row.message is not None
    assert (row.message.body, row.message.headers) == (b"1", {})


@pytest.mark.parametrize(
    ("head", "text"),
    [
        (b"kk,n\n", "there is no column 'k'; did you mean kk?"),
        (b"k,k\n", "line 1 names a column twice"),
        (b"\xff,n\n", "line 1 does not name the columns: it is not UTF-8"),
        (b'"k', "line 1 does not name the columns: it is not CSV: unexpected end of data"),
    ],
)
def test_columns_that_cannot_be(head: bytes, text: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        list(csv_rows(BytesIO(head), Fields(key="k"), ","))
    assert caught.value.message == text


ONE = (
    b'{"MessageId":"1","Body":"x","Attributes":{"MessageGroupId":"g",'
    b'"SentTimestamp":"1795270469628"}}'
)
OTHER = (
    b'{"Messages":[{"Body":"y","MessageAttributes":{"Id":{"StringValue":"7"},'
    b'"B":{"BinaryValue":"eA=="}}}]}'
)
PRINTED = b"""{
    "Messages": [
        {"MessageId": "1", "Body": "x"},
        {"Body": 3}
    ]
}
"""


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"{}\n\n" + ONE, [(3, b"x", "g", {"source-timestamp": "1795270469628"})]),
        (OTHER, [(1, b"y", {"source-Id": "7", "B": "eA=="})]),
        (PRINTED, [(1, b"x"), (1, "it is no message of receive-message: Expected `str`")]),
        (ONE + b"\n" + PRINTED, [(1, b"x"), (2, ""), (2, "it is no message")]),
        (PRINTED[:40], [(1, "the document is cut short")]),
        (b"<html>\n" + ONE, [(1, "it is no answer of receive-message"), (2, b"x")]),
        (b'{"Messages":3}', [(1, "it is no answer of receive-message")]),
        (b"{\n" + LONG + b"\n}\n" + ONE, [(1, "a line has at most"), (3, "it is no"), (4, b"x")]),
    ],
)
def test_sqs(content: bytes, expected: list[tuple[object, ...]]) -> None:
    _compare(told(sqs_rows(BytesIO(content), SQS)), expected)


STORED = Fields(key="key", tag="tag", id="id")
READ = (
    b'{"id":"0-7","topic":"T","partition":0,"offset":7,"timestamp":1795270469628,"tag":"a.b",'
    b'"key":"k","headers":{"x-shop":"north","idempotency-key":"i","sender":"s","origin_url":"/T"},"body":"\\u00e4\\n"}'
)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"body":"x"}', [(1, b"x")]),
        (b'{"id":"1","body":""}\n\n{"body":"y"}', [(1, b""), (3, b"y")]),
        (b'{"body_base64":"/wA=","key":"k"}', [(1, b"\xff\x00", "k")]),
        (
            READ,
            [(1, "ä\n".encode(), "k", {"x-shop": "north", "source-idempotency-key": "i"})],
        ),
        (b'{"body_base64":"/wA"}', [(1, "it is no message of a broker: ")]),
        (b'{"body_base64":"/w A="}', [(1, "it is no message of a broker: ")]),
        (b'{"body":3}', [(1, "it is no message of a broker: Expected `str`")]),
        (b'{"body":"x","headers":{"a":1}}', [(1, "it is no message of a broker")]),
        (
            b'{"n":1}\n{"body":"x"}',
            [(1, "it is no message of a broker: it has no body"), (2, b"x")],
        ),
        (b"[" * 100_000, [(1, "it is no message of a broker")]),
        (b"\xff", [(1, "it is no message of a broker")]),
        (LONG, [(1, "a line has at most")]),
    ],
)
def test_messages(content: bytes, expected: list[tuple[object, ...]]) -> None:
    rows = list(message_rows(BytesIO(content), STORED))
    _compare(told(iter(rows)), expected)
    if content is READ:
        message = rows[0].message
        assert message is not None
        assert (message.id, message.tag) == ("0-7", "a.b")


def test_a_place_says_whether_it_is_the_same_file() -> None:
    def places(content: bytes) -> list[int]:
        return [row.place for row in ndjson_rows(BytesIO(content), WHOLE)]

    cut, whole = places(b"1\n2"), places(b"1\r\n2\n3\n")
    assert whole[:2] == cut  # a file may grow, and lines end in either way
    assert not set(places(b"2\n1\n3\n")) & set(whole)
    assert not set(places(b"12\n3\n")) & set(whole)
