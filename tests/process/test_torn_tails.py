"""The end of a log is damaged between a kill and a start: what is served is the valid part before.

The damage is done to a copy of what one killed broker left, so that every case begins alike. That
the same holds at every byte is shown without processes, by the tests of the journal.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.process.broker import BrokerProcess, run_serve
from zbus.storage.format.batch import Kind, decode_chunk, inspect

BODIES = [b"message %d of the topic" % n for n in range(30)]
random = Random(7)

DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda tail: tail[: len(tail) // 2],
    "cut to a byte": lambda tail: tail[:1],
    "gone": lambda tail: b"",
    "zeros": lambda tail: bytes(len(tail)),
    "ends in zeros": lambda tail: tail[:50] + bytes(len(tail) - 50),
    "garbage": lambda tail: random.randbytes(len(tail)),
    "one bit": lambda tail: tail[:60] + bytes([tail[60] ^ 4]) + tail[61:],
    "more behind it": lambda tail: tail + random.randbytes(100),
}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a broker left that put 30 messages, one by one, and was killed."""
    data_dir = tmp_path_factory.mktemp("torn") / "data"
    with BrokerProcess(data_dir) as broker:
        broker.get("/T?cmd=declare")
        wire = broker.connect()
        for body in BODIES:
            assert wire.get("/T?cmd=produce", body=body).status == 200
        broker.kill()
    # What is written down as synced cannot be an unfinished write; here nothing is.
    (data_dir / "landmarks").unlink(missing_ok=True)
    return data_dir


def last_data(log: bytes) -> int:
    """Where the last batch of messages begins; nothing may stand behind it."""
    position = last = 0
    while not isinstance(found := inspect(log, position), str):
        if found.kind is Kind.DATA:
            last = position
        position += found.length
    assert decode_chunk(log[last:position]).bodies == BODIES[-1:]
    return last


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_valid_part_is_served(tmp_path: Path, killed: Path, damage: str) -> None:
    data_dir = tmp_path / "data"
    shutil.copytree(killed, data_dir)
    [path] = data_dir.glob("T/0/*.log")
    log = path.read_bytes()
    start = last_data(log)
    path.write_bytes(log[:start] + DAMAGE[damage](log[start:]))
    kept = 30 if damage == "more behind it" else 29
    with BrokerProcess(data_dir) as broker:
        read = json.loads(broker.get("/_log/T?count=100").body)
        assert [m["body"].encode() for m in read] == BODIES[:kept]
        reply = broker.get("/T?cmd=produce", body=b"goes on")
        assert (reply.status, reply.headers["offset"]) == (200, str(kept))
        broker.kill()
    with BrokerProcess(data_dir) as broker:
        read = json.loads(broker.get("/_log/T?count=100").body)
        assert [m["body"].encode() for m in read] == [*BODIES[:kept], b"goes on"]


def test_damage_before_whole_batches_is_no_torn_tail(tmp_path: Path, killed: Path) -> None:
    data_dir = tmp_path / "data"
    shutil.copytree(killed, data_dir)
    [path] = data_dir.glob("T/0/*.log")
    log = bytearray(path.read_bytes())
    log[log.index(BODIES[28])] ^= 1
    path.write_bytes(log)
    ended = run_serve("--port", "0", "--data-dir", str(data_dir))
    assert ended.returncode == 3
    assert path.name in ended.stderr
    assert path.read_bytes() == log, "nothing is repaired in silence"
