"""Both engines, and what the conditions mean in plain Python: all three find the same messages."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest

from tests.spark.archive import harness
from tests.spark.search.archived import everything
from tests.spark.search.messages import TABLE, Meaning, conditions, fill
from tests.spark.stored import MemoryLog
from zbus.spark.archive.table import Archive
from zbus.spark.archive.writer import Shape
from zbus.spark.errors import SparkProblem, Usage
from zbus.spark.search import frame, query, verdicts
from zbus.spark.search.conditions import Conditions
from zbus.spark.search.cursor import Cursor
from zbus.spark.search.job import Engine, Search, find, plan
from zbus.spark.search.results import Body

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture(scope="module")
def log() -> MemoryLog:
    log = MemoryLog()
    fill(log, seed=3)
    return log


@pytest.fixture(scope="module")
def archive(log: MemoryLog, tmp_path_factory: pytest.TempPathFactory) -> str:
    """As the job makes it: some files, some row groups in each."""
    root = tmp_path_factory.mktemp("engines") / "archive"
    harness.run(root, log, shape=Shape(file_bytes=6_000, group_bytes=2_000))
    files = Archive(root).files()
    assert len(files) >= 6
    return str(root)


def both(search: Search, spark: Any) -> tuple[list[dict[str, Any]], Cursor | None]:
    """What the engines find, which is the same."""
    pages = []
    for engine in (Engine.LOCAL, Engine.SPARK):
        chosen = attrs.evolve(search, engine=engine)
        page = find(chosen, plan(chosen), lambda: spark)
        rows = [row for batch in page for row in batch.to_pylist()]
        pages.append((rows, page.next))
    assert pages[0] == pages[1]
    return pages[0]


def places(rows: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return [(row["topic"], row["partition"], row["offset"]) for row in rows]


def test_each_condition_in_the_words_of_spark(spark: Any, log: MemoryLog, archive: str) -> None:
    """All in one query: a column for each."""
    scope = plan(Search(conditions=Conditions(), archive=archive)).scope
    asked: list[tuple[str, Any, Meaning]] = []
    parameters: dict[str, Any] = {}
    for said, meaning in TABLE:
        where, given = query.condition(conditions(said), query.SPARK)
        if given and not verdicts.tests_of(conditions(said)):
            for name in sorted(given, reverse=True):  # p10 before p1
                where = where.replace(f":{name}", f":q{len(asked)}_{name}")
            parameters |= {f"q{len(asked)}_{name}": value for name, value in given.items()}
            asked.append((where, said, meaning))
    assert len(asked) >= 20
    frame.messages(spark, scope).createOrReplaceTempView("all_of_them")
    columns = ", ".join(f"coalesce({where}, false)" for where, _, _ in asked)
    text = f"SELECT m.topic, m.partition, m.offset, {columns} FROM all_of_them m"
    told = {tuple(row[:3]): row[3:] for row in spark.sql(text, args=parameters).collect()}
    rows = list(everything(log))
    assert len(told) == len(rows)
    for number, (_, said, meaning) in enumerate(asked):
        found = [place for place in places(rows) if told[place][number]]
        assert found == places([row for row in rows if meaning(row)]), said


def mixed(random: Random) -> tuple[dict[str, Any], list[Meaning]]:
    """Some conditions at once."""
    said: dict[str, Any] = {}
    meanings = []
    for more, meaning in random.sample(TABLE, random.randint(1, 3)):
        if said.keys().isdisjoint(more):
            said.update(more)
            meanings.append(meaning)
    return said, meanings


@pytest.mark.parametrize("seed", range(6))
def test_random_conditions(spark: Any, log: MemoryLog, archive: str, seed: int) -> None:
    random = Random(f"search {seed}")
    rows = list(everything(log))
    while True:  # one that finds something
        said, meanings = mixed(random)
        expected = [row for row in rows if all(meaning(row) for meaning in meanings)]
        if 0 < len(expected) < len(rows):
            break
    limit = random.randint(1, 40)
    search = Search(
        conditions=conditions(said), archive=archive, limit=limit, body=random.choice(list(Body))
    )
    found, after = both(search, spark)
    assert places(found) == places(expected[:limit]), said
    assert (after is None) == (len(expected) <= limit)
    if after is not None:
        wanted = attrs.evolve(search.conditions, after=after)
        found, _ = both(attrs.evolve(search, conditions=wanted), spark)
        assert places(found) == places(expected[limit : 2 * limit]), said


def test_more_than_the_driver_takes_at_once(
    spark: Any, log: MemoryLog, archive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame, "BATCH_ROWS", 100)
    search = Search(conditions=Conditions(), archive=archive, limit=None, body=Body.FULL)
    found, after = both(search, spark)
    assert after is None
    assert [row["body"] for row in found] == [row["body"] for row in everything(log)]


def test_a_topic_that_was_made_again_and_one_with_a_comma(spark: Any, tmp_path: Path) -> None:
    log = MemoryLog()
    fill(log, batches=3)
    log.stored["a,b"], log.incarnations["a,b"] = log.stored["pay"], "1"
    root = tmp_path / "archive"
    harness.run(root, log)
    found, _ = both(Search(conditions=Conditions(), archive=str(root)), spark)
    assert places(found) == places(list(everything(log)))


@pytest.mark.parametrize(
    ("where", "offsets"),
    [
        ("partition = 1 AND offset BETWEEN 3 AND 5", [3, 4, 5]),
        ("topic = 'pay' AND offset < 2 OR offset < 0", [0, 1]),
        ("false", []),
    ],
)
def test_sql(spark: Any, archive: str, where: str, offsets: list[int]) -> None:
    search = Search(conditions=Conditions(where=where), archive=archive)
    rows = [row for batch in find(search, plan(search), lambda: spark) for row in batch.to_pylist()]
    assert [row["offset"] for row in rows] == offsets


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("offset >", "--where: .PARSE_SYNTAX_ERROR"),
        ("offset = 1; DROP TABLE x", "--where: .PARSE_SYNTAX_ERROR"),
        ("offset = 1) OR (true", "--where: .PARSE_SYNTAX_ERROR"),
        ("colour = 'red'", "--where: .UNRESOLVED_COLUMN.*colour"),
        ("offset", "--where: .*FILTER_NOT_BOOLEAN"),
        ("count(*) > 1", "--where: "),
        ("nonsense(offset)", "--where: .UNRESOLVED_ROUTINE"),
        ("", "--where: "),
    ],
)
def test_sql_that_is_none(spark: Any, archive: str, where: str, text: str) -> None:
    search = Search(conditions=Conditions(where=where), archive=archive)
    with pytest.raises(Usage, match=f"^{text}"):
        list(find(search, plan(search), lambda: spark))


def test_sql_that_fails_on_the_way(spark: Any, archive: str) -> None:
    search = Search(conditions=Conditions(where="1 / (offset - offset) > 0"), archive=archive)
    with pytest.raises(SparkProblem, match=r"^Spark: .DIVIDE_BY_ZERO"):
        list(find(search, plan(search), lambda: spark))
