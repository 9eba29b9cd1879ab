"""The worked example of the page on the disk format: a small log, written by the real journal.

    python -m tests.docs.small_log

prints the blocks of the page.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.core.support import PullProbe, wishing
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.chunk import Chunk
from zbus.core.model.ticket import Silent
from zbus.core.topics.topic import Session
from zbus.core.verbs.declare import GroupWish
from zbus.server.assembly import make_broker
from zbus.storage.format.batch import Batch, iterate
from zbus.storage.local.engine import LocalJournal
from zbus.storage.local.files import Files, OsFiles
from zbus.storage.local.worker import Job

TIME_MS = 1_800_000_000_000
TICK_MS = 10
SEGMENT = Path("orders/0/00000000000000000000.log")


class AtOnce:
    """A worker that does its jobs when they come."""

    def __init__(self, name: str) -> None:
        self.name = name

    def submit(self, job: Job) -> None:
        job()

    def stop(self) -> None:
        pass


def fail(text: str) -> None:
    raise AssertionError(text)


def write_log(data_dir: Path) -> bytes:
    """Declare a topic, put three messages, lease one of them; each in a tick of its own."""
    posted: list[Callable[[], None]] = []
    files: Files = OsFiles()
    journal = LocalJournal(data_dir, posted.append, fail, files, reserve_bytes=0, worker=AtOnce)
    broker = make_broker(journal, iter(()))
    session = Session(b"s", "127.0.0.1:40001")
    moments = itertools.count(TIME_MS, TICK_MS)

    def tick(act: Callable[[], None]) -> None:
        broker.begin(next(moments))
        act()
        broker.finish()
        while posted:
            posted.pop(0)()

    wish = GroupWish("orders", GroupOptions(lease=True))
    tick(lambda: broker.declare(Silent(), "orders", wishing(TopicOptions("orders"), wish)))
    topic = broker.topics["orders"]

    def put() -> None:
        chunk = Chunk()
        chunk.add(b"a-1", b"colour: red\r\n", b"hello", tag=b"eu")
        chunk.add(b"", b"", b"good morning", due_ms=TIME_MS + 60_000)
        chunk.add(b"", b"colour: red\r\n", b"bye")
        broker.put_all(topic.partitions[0], Silent(), chunk)

    tick(put)
    tick(lambda: broker.pull(topic.groups["orders"], PullProbe(session), None))
    tick(lambda: None)  # what the pull changed is written in a later tick
    journal.close()
    return (data_dir / SEGMENT).read_bytes()


def dump(data: bytes, start: int) -> str:
    """As `hexdump -C` prints it."""
    lines = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        left = " ".join(f"{byte:02x}" for byte in row[:8])
        right = " ".join(f"{byte:02x}" for byte in row[8:])
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        lines.append(f"{start + at:08x}  {left:<23}  {right:<23}  |{text}|")
    return "\n".join(lines) + "\n"


def batches(log: bytes) -> list[Batch]:
    walk = iterate(log, 0, 0)
    found = list(walk)
    assert walk.position == len(log), walk.reason
    return found


def page_blocks() -> list[str]:
    """A dump for each batch of the log."""
    with tempfile.TemporaryDirectory() as folder:
        log = write_log(Path(folder) / "data")
    blocks, at = [], 0
    for batch in batches(log):
        blocks.append(dump(batch.raw, at))
        at += len(batch.raw)
    return blocks


if __name__ == "__main__":
    print("\n".join(page_blocks()), end="")
