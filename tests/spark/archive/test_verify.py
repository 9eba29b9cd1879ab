"""What `archive verify` finds: each kind of damage, and nothing where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.limits import WHOLE
from tests.spark.archive.harness import check, put_numbers, run
from tests.spark.stored import TIME_MS, MemoryLog
from zbus.spark.archive import Archive
from zbus.spark.errors import DataLoss, Unverified
from zbus.spark.logs import Span


@pytest.fixture
def log() -> MemoryLog:
    found = MemoryLog()
    for number in range(8):
        put_numbers(found, 6, time_ms=TIME_MS + number)
    return found


@pytest.fixture
def root(tmp_path: Path, log: MemoryLog) -> Path:
    """Four commits, a file each or more."""
    root = tmp_path / "archive"
    everything = log.stored["orders"][0]
    for count in range(2, 9, 2):
        log.stored["orders"][0] = everything[:count]
        run(root, log)
    return root


def commits(root: Path) -> list[Path]:
    """The first one makes the table."""
    return sorted(root.glob("_delta_log/*.json"))


def data(root: Path) -> list[Path]:
    return [Path(file.path) for file in Archive(root).files()]


def test_nothing_is_wrong(root: Path, log: MemoryLog) -> None:
    found = check(root, log=log)
    assert (found.wrong, found.messages, found.compared, found.gone) == ([], 48, 48, 0)
    assert check(root, quick=True).wrong == []


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


def replace(path: Path, other: Path) -> None:
    path.write_bytes(other.read_bytes().ljust(path.stat().st_size, b"\0"))


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a file is missing": (lambda root: data(root)[1].unlink(), "is missing"),
    "a file is short": (
        lambda root: data(root)[1].write_bytes(data(root)[1].read_bytes()[:-1]),
        "bytes, not",
    ),
    "a file is another one": (
        lambda root: replace(data(root)[1], data(root)[0]),
        "bytes, not|checksum",
    ),
    "a page has another bit": (lambda root: flip(data(root)[0], 60), "checksum"),
    "a footer has another bit": (lambda root: flip(data(root)[0], -9), "checksum"),
    "another program has removed rows": (
        lambda root: DeltaTable(root).delete("offset = 7"),
        "has 11 messages of offsets 0 to 12",
    ),
    "another program has removed a day": (
        lambda root: DeltaTable(root).delete("date = '2027-01-15'"),
        "",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage(root: Path, name: str) -> None:
    damage, said = DAMAGES[name]
    damage(root)
    found = check(root)
    assert len(found.wrong) == bool(said), found.wrong
    if not said:  # nothing is left of the partition
        assert found.lanes == 0
        return
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(found.wrong[0])


def test_any_bit_of_a_file(root: Path) -> None:
    """Of messages, and of what leads to them."""
    path = data(root)[0]
    whole = path.read_bytes()
    for at in range(0, len(whole), 17 if WHOLE else 53):
        flip(path, at)
        assert check(root).wrong, at
        path.write_bytes(whole)


@pytest.mark.parametrize("damage", [b"{", b"nonsense"])
def test_a_table_whose_log_is_damaged(root: Path, log: MemoryLog, damage: bytes) -> None:
    """Who reads refuses it, and who archives."""
    commits(root)[2].write_bytes(damage)
    with pytest.raises(Unverified, match="cannot be read as a Delta table"):
        Archive(root).files()
    put_numbers(log, 6)
    with pytest.raises(Unverified, match="cannot be read as a Delta table"):
        run(root, log)


def test_a_table_whose_log_has_a_hole(root: Path) -> None:
    commits(root)[2].unlink()
    with pytest.raises(Unverified, match="cannot be read as a Delta table"):
        Archive(root).files()


def test_the_log_has_other_messages(root: Path, log: MemoryLog) -> None:
    other = MemoryLog()
    for number in range(8):
        put_numbers(other, 6, time_ms=TIME_MS + number, tags=[b"t"] * 6 if number == 3 else None)
    assert check(root).wrong == []
    (wrong,) = check(root, log=other).wrong
    assert "other messages" in wrong


def test_the_log_has_forgotten_some(root: Path, log: MemoryLog) -> None:
    log.first["orders", 0] = 14
    found = check(root, log=log)
    assert (found.wrong, found.gone, found.compared) == ([], 14, 34)
    found = check(root, log=MemoryLog())
    assert (found.wrong, found.gone, found.compared) == ([], 48, 0)


class Forgetting(MemoryLog):
    """Retention goes on to this offset when somebody reads."""

    def __init__(self, stored: MemoryLog, first: int, incarnation: str = "1") -> None:
        super().__init__()
        self.stored, self.incarnations = stored.stored, dict(stored.incarnations)
        self._then = first, incarnation

    def raw(self, span: Span, start: int, stop: int) -> Iterator[bytes]:
        self.first["orders", 0], self.incarnations["orders"] = self._then
        return super().raw(span, start, stop)


@pytest.mark.parametrize(
    ("first", "incarnation", "compared"), [(14, "1", 34), (48, "1", 0), (0, "2", 0), (0, "1", 48)]
)
def test_retention_goes_on_meanwhile(
    root: Path, log: MemoryLog, first: int, incarnation: str, compared: int
) -> None:
    found = check(root, log=Forgetting(log, first, incarnation))
    assert (found.wrong, found.compared, found.gone) == ([], compared, 48 - compared)


def test_the_log_has_lost_some(root: Path, log: MemoryLog) -> None:
    """Where it says that it has them."""

    class Lossy(MemoryLog):
        def raw(self, span: Span, start: int, stop: int) -> Iterator[bytes]:
            raise DataLoss("damaged")

    lossy = Lossy()
    lossy.stored, lossy.incarnations = log.stored, log.incarnations
    wrong = check(root, log=lossy).wrong
    assert wrong
    assert all("the log has lost what is archived" in text for text in wrong)
