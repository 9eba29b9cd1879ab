"""The engine without Spark: it finds what Python finds, whatever is asked and wherever."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import duckdb
import pytest

from tests.limits import checked, share
from tests.spark.search import archived
from tests.spark.search.archived import everything
from tests.spark.search.messages import TABLE, Meaning, conditions, fill, plain
from tests.spark.stored import TIME_MS, MemoryLog
from zbus.spark.archive import ArchiveFile
from zbus.spark.errors import DataLoss, SparkProblem, UnknownTopic, Usage
from zbus.spark.logs import Log
from zbus.spark.search.conditions import Conditions, Wanted
from zbus.spark.search.cursor import Cursor
from zbus.spark.search.local import search
from zbus.spark.search.query import DUCKDB, condition
from zbus.spark.search.results import HEAD_BYTES, Body, Page, place_of
from zbus.spark.search.scope import Scope, Topics, find_scope
from zbus.spark.source.location import Where

Place = tuple[Sequence[ArchiveFile] | None, Where | None]
Places = dict[str, Place]


@attrs.frozen(kw_only=True)
class Here(Where):
    """A log that is already open."""

    log: MemoryLog = attrs.field(eq=False)

    def open(self) -> Log:
        return self.log


@pytest.fixture(scope="module")
def log() -> MemoryLog:
    log = MemoryLog()
    fill(log)
    return log


@pytest.fixture(scope="module")
def places(log: MemoryLog, tmp_path_factory: pytest.TempPathFactory) -> Places:
    """Where it is searched: all archived, nothing, and the first 77 of each partition."""
    folder = tmp_path_factory.mktemp("archive")
    here = Here(log=log)
    return {
        "archive": (archived.archive(folder, log), None),
        "live": (None, here),
        "both": (archived.archive(folder, log, until=77), here),
    }


def found(scope: Scope, wanted: Conditions, body: Body = Body.FULL) -> list[dict[str, Any]]:
    return [row for batch in search(scope, wanted, body, None) for row in batch.to_pylist()]


PLACES = ("archive", "live", "both")


@pytest.mark.parametrize(
    ("said", "meaning", "place"),
    [
        pytest.param(said, meaning, place, id=f"{str(said)[:60]}-{place}")
        for at, (said, meaning) in enumerate(TABLE)
        for place in share(PLACES, at)
    ],
)
def test_what_is_found(
    log: MemoryLog, places: Places, said: dict[str, Any], meaning: Meaning, place: str
) -> None:
    wanted = conditions(said)
    rows = found(find_scope(*places[place], Topics(), wanted), wanted)
    expected = [row for row in everything(log) if meaning(row)]
    assert [plain(row) for row in rows] == [
        {**{name: row[name] for name in rows[0] if name in row}, "size": len(row["body"])}
        | {"ms": row["ms"]}
        for row in expected
    ]


def test_the_table_of_conditions_is_worth_something(log: MemoryLog) -> None:
    rows = list(everything(log))
    hits = [sum(map(meaning, rows)) for _, meaning in TABLE]
    assert sum(not hit for hit in hits) <= 7
    assert sum(0 < hit < len(rows) for hit in hits) >= 30


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("limit", [*checked([1, 7, 100]), 30])
def test_pages_are_the_whole(places: Places, place: str, limit: int) -> None:
    whole = conditions({"tag_filter": "eu.#"})
    expected = found(find_scope(*places[place], Topics(), whole), whole)
    rows: list[dict[str, Any]] = []
    after: Cursor | None = None
    while True:
        wanted = attrs.evolve(whole, after=after)
        scope = find_scope(*places[place], Topics(), wanted)
        page = Page(search(scope, wanted, Body.FULL, limit), limit)
        batches = list(page)
        assert sum(batch.num_rows for batch in batches) == page.rows <= limit
        rows += [row for batch in batches for row in batch.to_pylist()]
        if page.next is None:
            break
        assert page.rows == limit
        after = Cursor.decode(page.next.encode())
    assert rows == expected


def test_a_page_that_is_just_full_has_no_next_one(places: Places) -> None:
    wanted = conditions({"ids": ["id-8"]})
    scope = find_scope(*places["archive"], Topics(), wanted)
    page = Page(search(scope, wanted, Body.NONE, 1), 1)
    (batch,) = page
    assert (page.rows, page.next) == (1, None)
    assert place_of(batch, 0).topic == "orders"


@pytest.mark.parametrize("body", list(Body))
def test_as_much_of_a_body_as_was_asked_for(places: Places, body: Body) -> None:
    wanted = conditions({"contains": ["needle"]})
    row = found(find_scope(*places["archive"], Topics(), wanted), wanted, body)[0]
    assert row["size"] == 3_016
    sizes = {Body.NONE: None, Body.HEAD: HEAD_BYTES, Body.FULL: 3_016}
    assert (len(row["body"]) if "body" in row else None) == sizes[body]


def test_topics(places: Places) -> None:
    wanted = Conditions()
    for place in places.values():
        for topics in (Topics(("pay",)), Topics(pattern="p.*")):
            scope = find_scope(*place, topics, wanted)
            assert scope.topics == {"pay"}
        with pytest.raises(UnknownTopic, match="there is no topic pays"):
            find_scope(*place, Topics(("pays",)), wanted)
    with pytest.raises(Usage, match="an archive, a log"):
        find_scope(None, None, Topics(), wanted)
    with pytest.raises(Usage, match="not a regular expression"):
        find_scope(*places["archive"], Topics(pattern="("), wanted)


def test_sql_is_for_spark(places: Places) -> None:
    wanted = Conditions(where="true")
    with pytest.raises(Usage, match="needs --engine spark"):
        list(
            search(find_scope(*places["archive"], Topics(), Conditions()), wanted, Body.NONE, None)
        )


# -- archive and live tail ------------------------------------------------------------------------


def test_what_is_in_neither_is_said(tmp_path: Path) -> None:
    log = MemoryLog()
    fill(log)
    files = archived.archive(tmp_path, log, until=20)
    log.first["orders", 1] = 33  # retention was faster
    scope = find_scope(files, Here(log=log), Topics(("orders",)), Conditions())
    assert scope.notes == ("orders, partition 1: offsets 20 to 33 are neither archived nor live",)
    offsets = [row["offset"] for row in found(scope, Conditions()) if row["partition"] == 1]
    assert offsets == [*range(20), *range(33, log.spans("orders")[1].end)]


def test_a_topic_that_was_made_again(tmp_path: Path) -> None:
    old, new = MemoryLog(), MemoryLog()
    fill(old, batches=5)
    fill(new, seed=2, batches=5, first=10_000)
    new.incarnations = dict.fromkeys(new.stored, "2")
    files = archived.archive(tmp_path, old)
    rows = found(find_scope(files, Here(log=new), Topics(), Conditions()), Conditions())
    both = [*everything(old), *everything(new)]
    both.sort(key=lambda row: (row["topic"], row["partition"], row["ms"], row["offset"]))
    assert [(row["id"], row["body"]) for row in rows] == [(row["id"], row["body"]) for row in both]


def test_a_topic_that_is_only_archived_by_now(tmp_path: Path) -> None:
    log = MemoryLog()
    fill(log, batches=3)
    files = archived.archive(tmp_path, log)
    del log.stored["pay"]
    scope = find_scope(files, Here(log=log), Topics(("pay",)), Conditions())
    assert scope.topics == {"pay"}


def test_what_goes_while_it_is_searched_is_data_loss() -> None:
    log = MemoryLog()
    fill(log, batches=3)
    scope = find_scope(None, Here(log=log), Topics(), Conditions())
    log.first["orders", 0] = 5
    with pytest.raises(DataLoss, match="offset 0 is not there any more"):
        found(scope, Conditions())


# -- what is read ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "groups"),
    [
        ({}, 10),
        ({"ids": ["id-1234567"]}, 0),
        ({"keys": ["none"]}, 0),
        ({"ids": ["id-40"]}, 1),
        ({"keys": ["key-40"]}, 1),
        ({"ids": ["id-40"], "keys": ["key-41"]}, 0),
        ({"since": str(TIME_MS + 460)}, 1),
        ({"until": str(TIME_MS + 51)}, 2),
        ({"tags": ["zzz"]}, 0),
    ],
)
def test_statistics_and_bloom_filters_spare_row_groups(
    tmp_path: Path, said: dict[str, Any], groups: int
) -> None:
    """DuckDB says how many it has looked at."""
    log = MemoryLog()
    shuffled = [number * 7 % 500 for number in range(500)]  # each group has low and high ones
    for number, each in enumerate(shuffled):
        labels: dict[str, Any] = {
            "ids": [b"id-%d" % each],
            "keys": [b"key-%d" % each],
            "tags": [b"t"],
        }
        log.put("t", [b"x"], time_ms=TIME_MS + number, **labels)
    (file,) = archived.archive(tmp_path, log, rows=500)
    assert file.rows == 500
    where, parameters = condition(conditions(said), DUCKDB)
    with duckdb.connect() as database:
        query = f"EXPLAIN ANALYZE SELECT m.id FROM read_parquet('{file.path}') m WHERE {where}"
        ((_, plan),) = database.execute(query, parameters).fetchall()
    scanned = re.search(r"Row Groups Scanned: (\d+) / (\d+)", plan)
    # If it knows before it reads anything, there is no such line.
    assert (int(scanned[1]) if scanned else 0) == groups


def test_a_file_without_bloom_filters_is_searched(tmp_path: Path) -> None:
    log = MemoryLog()
    fill(log, batches=4)
    files = archived.archive(tmp_path, log, bloom=())
    wanted = conditions({"ids": ["id-8"]})
    assert len(found(find_scope(files, None, Topics(), wanted), wanted)) == 1


@pytest.mark.parametrize("damage", ["gone", "short", "other"])
def test_a_damaged_file_is_named(tmp_path: Path, damage: str) -> None:
    log = MemoryLog()
    fill(log, batches=4)
    files = archived.archive(tmp_path, log)
    path = Path(files[1].path)
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:100] if damage == "short" else b"nothing")
    with pytest.raises(SparkProblem, match=rf"{path.name}.*`archive verify`"):
        found(find_scope(files, None, Topics(), Conditions()), Conditions())


def test_who_stops_taking_results_stops_the_search(places: Places) -> None:
    scope = find_scope(*places["archive"], Topics(), Conditions())
    results = search(scope, Conditions(), Body.NONE, None)
    assert next(results).num_rows
    results.close()


def test_a_time_is_pruned_by_the_table(places: Places) -> None:
    files, _ = places["archive"]
    late = Wanted(since=str(TIME_MS + 10**9)).read(TIME_MS)
    assert find_scope(files, None, Topics(), late).files == ()
    early = Wanted(until=str(TIME_MS)).read(TIME_MS)
    assert find_scope(files, None, Topics(), early).files == ()
