"""The shortcuts against the obviously right way: a fresh judge, and h11 itself.

Whatever was read before, the verdict and every field must be the same.
"""

from __future__ import annotations

from random import Random

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.limits import examples
from tests.wire import head_fuzz
from tests.wire.head_fuzz import ALL_LIMITS, carefully, make, quickly, spoil
from zbus.wire.errors import WireError
from zbus.wire.heads.heads import Heads
from zbus.wire.limits import DEFAULT_LIMITS, WireLimits

seeds = st.integers(0, 1 << 40)
plausible = st.lists(seeds.map(lambda seed: make(Random(seed))), min_size=1, max_size=4)
spoilt = st.lists(seeds, min_size=4, max_size=16)


@given(plausible, spoilt, st.sampled_from(ALL_LIMITS), st.booleans(), seeds)
@examples(400)
def test_memos_never_change_a_verdict(
    raws: list[bytes], changes: list[int], limits: WireLimits, contained: bool, order: int
) -> None:
    """Heads and spoiled copies of them, in any order: the memos get warm on the way."""
    heads = Heads(limits, contained=contained, marks=head_fuzz.MARKS)
    for seed in changes:
        random = Random(seed)
        raws = [*raws, spoil(random, random.choice(raws), limits)]
    raws = raws * 3
    Random(order).shuffle(raws)
    for raw in raws:
        assert quickly(heads, raw) == carefully(raw, limits, contained)


def test_the_loop_of_make_fuzz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["head_fuzz", "--heads", "4000", "--seed", "7"])
    assert head_fuzz.main() == 0


def h11_reads(raw: bytes) -> h11.Request | None:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(raw + b"\r\n\r\n")
    try:
        event = connection.next_event()
    except h11.RemoteProtocolError:
        return None
    return event if isinstance(event, h11.Request) else None


@given(st.lists(seeds.map(lambda seed: spoil(Random(seed), make(Random(seed)), DEFAULT_LIMITS))))
@example([b"GET / HTTP/1.1\r\nHost: a\r\nConnection: a\r\nConnection: b"])
@examples(400)
def test_what_is_accepted_is_what_h11_reads(raws: list[bytes]) -> None:
    heads = Heads()
    for raw in raws * 2:
        try:
            head, id_ = heads.read(raw)
        except WireError:
            continue
        host = b"" if b"host" in head.fields else b"\r\nhost: added"
        event = h11_reads(raw + host)
        assert event is not None
        assert (event.method, event.target) == (head.method, head.target)
        assert event.http_version == (b"1.1" if head.version_11 else b"1.0")
        fields = dict(event.headers)
        for name in (b"connection", b"upgrade"):
            repeated = [value for found, value in event.headers if found == name]
            if repeated:
                fields[name] = b", ".join(repeated)
        if host:
            del fields[b"host"]
        assert fields.pop(b"id", b"") == id_
        assert fields == head.fields
