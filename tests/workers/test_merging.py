"""One document of those of several workers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from zbus.dialects.camellia.metrics import merge_metrics as merge_camellia
from zbus.dialects.verbs import merge_lists
from zbus.dialects.zbus.documents.merging import (
    merge_documents,
    merge_histories,
    merge_metrics,
    merge_names,
    merge_pages,
)
from zbus.wire.responses import Response


def answers(*documents: Any) -> list[Response]:
    return [Response(200, {}, msgspec.json.encode(document)) for document in documents]


@pytest.mark.parametrize(
    ("documents", "merged"),
    [
        (({"a": 1}, {"a": 2}), {"a": 3}),
        (({"infoVersion": 7}, {"infoVersion": 5}), {"infoVersion": 7}),
        (({"startTime": 7}, {"startTime": 5}), {"startTime": 5}),
        (({"refusing": ""}, {"refusing": "no disk"}), {"refusing": "no disk"}),
        (({"draining": False}, {"draining": True}), {"draining": True}),
        (({"topicTable": {"a": {"n": 1}}}, {"topicTable": {"b": {}}}),
         {"topicTable": {"a": {"n": 1}, "b": {}}}),
        (({"warnings": [1]}, {"warnings": [2, 1]}), {"warnings": [1, 2]}),
        (({"warnings": [1], "warningCount": 1}, {"warnings": [2, 1], "warningCount": 5}),
         {"warnings": [1, 2], "warningCount": 5}),
        (({"warningKinds": {"idle": {"count": 3, "topics": 2}}},
          {"warningKinds": {"idle": {"count": 1, "topics": 1}, "dead": {"count": 1, "topics": 1}}}),
         {"warningKinds": {"idle": {"count": 4, "topics": 3}, "dead": {"count": 1, "topics": 1}}}),
        (({"x": 1}, {"y": 2}), {"x": 1, "y": 2}),
        (({"syncMs": {"p99": 1.5}}, {"syncMs": {"p99": 0.5}}), {"syncMs": {"p99": 1.5}}),
    ],
)  # fmt: skip
def test_documents(documents: tuple[Any, ...], merged: Any) -> None:
    lines, body = merge_documents(answers(*documents))
    assert not lines
    assert msgspec.json.decode(body) == merged


def test_names() -> None:
    assert merge_names(answers(["b", "a"], [], ["c"])) == (b"", b'["a","b","c"]')


A = {"span": "hour", "start": 30, "stepMs": 10, "in": [1, 2.1, None, 4], "dead": [0, 0, 1, 2]}
B = {"span": "hour", "start": 50, "stepMs": 10, "in": [10, 20.2, 30], "dead": [7, 7, 7]}
NONE = {"span": "hour", "start": 70, "stepMs": 10, "in": [], "dead": []}


@pytest.mark.parametrize(
    ("documents", "start", "rates", "dead"),
    [
        ((A, B), 50, [None, 24.2], [8, 9]),  # one of them did not know, or has told one step less
        ((B, A), 50, [None, 24.2], [8, 9]),
        ((A, A), 30, [2, 4.2, None, 8], [0, 0, 2, 4]),
        ((B, B, B), 50, [30, 60.6, 90], [21, 21, 21]),
        ((A, NONE), 70, [], []),
        ((A,), 30, [1, 2.1, None, 4], [0, 0, 1, 2]),
    ],
)
def test_histories(documents: tuple[Any, ...], start: int, rates: Any, dead: Any) -> None:
    lines, body = merge_histories(answers(*documents))
    assert not lines
    found = {"span": "hour", "start": start, "stepMs": 10, "in": rates, "dead": dead}
    assert msgspec.json.decode(body) == found


def test_pages_go_as_far_as_each_worker_has_told() -> None:
    one = Response(200, {b"next": b"0000b"}, b'[{"id":"0000a"},{"id":"0000b"}]')
    other = Response(200, {}, b'[{"id":"0001a"}]')
    lines, body = merge_pages([one, other])
    assert lines == b"count: 2\r\nnext: 0000b\r\n"
    assert [row["id"] for row in msgspec.json.decode(body)] == ["0000a", "0000b"]


def row(id: str, **more: Any) -> dict[str, Any]:
    return {"id": id, "reads": [], "heldBytes": 1, "waitingRequests": 0, "inBytes": 7} | more


def test_a_client_of_several_workers_is_one_row() -> None:
    """Its own, with what others do for it; the one that it came to says it first."""
    reads = [{"topic": "a", "group": "g"}], [{"topic": "b", "group": "h"}]
    visits = row("0001-x", reads=reads[0], user="eve", waitingRequests=1, inBytes=99)
    own = row("0001-x", reads=reads[1], waitingRequests=1)
    of_itself = row("0001-x", inBytes=98)
    gone = row("0001-z", reads=reads[0])
    _, body = merge_pages(answers([visits, row("0000-z"), gone], [own, of_itself], [row("0002-y")]))
    assert msgspec.json.decode(body) == [
        row("0000-z"),
        row("0001-x", reads=[*reads[1], *reads[0]], user="eve", waitingRequests=1, heldBytes=3),
        row("0002-y"),
    ]


def test_metrics_of_a_process_say_of_which_worker() -> None:
    texts = [
        b"# TYPE process_threads gauge\nprocess_threads %d\n# EOF\n" % number for number in (3, 4)
    ]
    assert merge_metrics([Response(200, {}, text) for text in texts])[1] == (
        b'# TYPE process_threads gauge\nprocess_threads{worker="0"} 3\n'
        b'process_threads{worker="1"} 4\n# EOF\n'
    )


def test_metrics() -> None:
    text = b"""# TYPE zbus_build info
zbus_build_info{version="1"} 1
# TYPE zbus_disk_free_bytes gauge
zbus_disk_free_bytes %d
# TYPE zbus_puts counter
zbus_puts_total{topic="a b"} %d
%b# EOF
"""
    one = Response(200, {}, text % (10, 3, b""))
    other = Response(200, {}, text % (9, 4, b'zbus_puts_total{topic="c"} 0.5\n'))
    assert merge_metrics([one, other])[1] == text % (10, 7, b'zbus_puts_total{topic="c"} 0.5\n')


def test_metrics_of_camellia_are_those_of_one_machine() -> None:
    text = b"""# TYPE info gauge
info{a="b"} 1
# TYPE uptime gauge
uptime %d
# TYPE start_time gauge
start_time %d
# TYPE memory_info gauge
memory_info{type="free_memory"} %d
"""
    pages = [Response(200, {}, text % (5, 10, 3)), Response(200, {}, text % (9, 6, 4))]
    assert merge_camellia(pages) == (b"", text % (9, 6, 7))


@pytest.mark.parametrize(
    ("documents", "merged"),
    [
        (([], [1], [2, 1]), [1, 2, 1]),
        (({"code": 200, "data": [1]}, {"code": 200, "data": [2]}), {"code": 200, "data": [1, 2]}),
        (({"data": {"a": [1], "b": []}}, {"data": {"a": [], "b": [2]}}),
         {"data": {"a": [1], "b": [2]}}),
    ],
)  # fmt: skip
def test_lists(documents: tuple[Any, ...], merged: Any) -> None:
    lines, body = merge_lists(answers(*documents))
    assert not lines
    assert msgspec.json.decode(body) == merged
