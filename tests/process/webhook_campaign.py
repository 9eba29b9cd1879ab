"""Webhooks against an endpoint that fails at random: `python -m tests.process.webhook_campaign`
(`make crash-webhooks`).

Every message is delivered at least once or is a dead letter, never both missing; a dead letter is
there once, and it is exactly what the endpoint refused as often as the group allows; messages of
one key are taken in order. With `--kills` the broker is killed meanwhile and started again: then
some attempts are counted that the endpoint never saw.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import msgspec

from tests.process.broker import BrokerProcess
from tests.process.hook_endpoint import Answer, Bad, Endpoint, Received

ATTEMPTS_MAX = 4
KEYS = 200
BATCH = 1_000
TIMEOUT_MS = 1_000
"""Of a request. On a machine that is too busy to answer in time, some that the endpoint took count
as failed, and its books do not agree with the broker's: then choose more."""

_BAD: tuple[tuple[float, Answer], ...] = (
    (0.04, 500),
    (0.01, 503),
    (0.01, Bad.RESET),
    (0.002, 302),
    (0.002, Bad.GARBAGE),
    (0.001, Bad.HANG),
)


class Books:
    """What the endpoint saw."""

    def __init__(self, seed: int, poison: int) -> None:
        self._random = random.Random(seed)
        self._poison = poison
        self.taken: Counter[int] = Counter()
        self.refused: Counter[int] = Counter()
        self.by_key: dict[int, list[int]] = {}

    def answer(self, received: Received) -> Answer:
        number = msgspec.json.decode(received.body)
        answer: Answer = 200
        if self._poison and number % self._poison == 0:
            answer = 500
        else:
            chance = self._random.random()
            for part, bad in _BAD:
                chance -= part
                if chance < 0:
                    answer = bad
                    break
        if answer == 200:
            self.taken[number] += 1
            self.by_key.setdefault(number % KEYS, []).append(number)
        else:
            self.refused[number] += 1
        return answer


def campaign(
    data_dir: Path,
    count: int,
    seed: int,
    kills: int,
    ordered: bool,
    timeout_ms: int = TIMEOUT_MS,
) -> dict[str, object]:
    """Runs one, and asserts what has to be; gives figures."""
    books = Books(seed, poison=499)
    options = ("--durability", "disk", "--set", "push_networks=127.0.0.0/8")
    with Endpoint(books.answer) as endpoint:
        broker = BrokerProcess(data_dir, *options)
        broker.get("/dead?cmd=declare")
        order = "&group_order=key" if ordered else ""
        told = broker.get(
            f"/T/g?cmd=declare&push_url={endpoint.url}&push_concurrency=50{order}"
            f"&push_timeout={timeout_ms}&group_max_attempts={ATTEMPTS_MAX}"
            "&group_backoff=20,100&group_dead_letter=dead"
        )
        assert told.status == 200, told.body
        began_s = time.monotonic()
        for first in range(0, count, BATCH):
            parts = [
                b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nkey: k%d\r\n\r\n%d"
                % (len(str(number)), number % KEYS, number)
                for number in range(first, min(first + BATCH, count))
            ]
            put = broker.get(
                "/T?cmd=produce", "content-type: application/vnd.zbus.messages",
                body=b"".join(parts),
            )  # fmt: skip
            assert put.status == 200, put.body
        put_s = time.monotonic() - began_s
        last_s, killed = began_s, 0
        while True:
            if killed < kills and len(books.taken) > count * (killed + 1) // (kills + 1):
                killed += 1
                broker.kill()
                broker = BrokerProcess(data_dir, *options)
            info = msgspec.json.decode(broker.get("/T/g?cmd=query").body)
            if not (info["messageCount"] + info["leasedCount"] + info["delayedCount"]):
                break
            now_s = time.monotonic()
            if now_s - last_s > 10:
                last_s = now_s
                print(info["messageCount"], info["delayedCount"], info["push"], flush=True)
            assert now_s - began_s < 120 + count / 50, info
            time.sleep(0.2)
        took_s = time.monotonic() - began_s
        dead = _dead(broker)
        assert broker.stop() == 0
        broker.process.wait()
    return _judged(books, dead, count, kills, ordered) | {
        "seconds": round(took_s, 1),
        "put s": round(put_s, 1),
        "deliveries/s": round(sum((books.taken + books.refused).values()) / took_s),
        "open at once": endpoint.open_max,
    }


def _dead(broker: BrokerProcess) -> list[int]:
    found: list[int] = []
    while True:
        target = f"/dead?cmd=read&offset={len(found)}&count=1000"
        reply = broker.get(target, "accept: application/json")
        if reply.status != 200:
            return found
        rows = msgspec.json.decode(reply.body)
        if not rows:
            return found
        found += [int(row["body"]) for row in rows]


def _judged(
    books: Books, dead: list[int], count: int, kills: int, ordered: bool
) -> dict[str, object]:
    twice = [number for number, times in Counter(dead).items() if times > 1]
    assert not twice, f"dead twice: {twice[:10]}"
    lost = set(range(count)) - set(books.taken) - set(dead)
    assert not lost, f"lost: {sorted(lost)[:10]}"
    if not kills:
        worn = {n for n, times in books.refused.items() if times == ATTEMPTS_MAX}
        assert worn == set(dead), sorted(worn ^ set(dead))[:10]
        assert max(books.refused.values()) <= ATTEMPTS_MAX
    for numbers in books.by_key.values() if ordered else ():
        first_taken = list(dict.fromkeys(numbers))
        assert first_taken == sorted(first_taken), first_taken[:20]
    return {
        "messages": count,
        "requests": sum((books.taken + books.refused).values()),
        "refused": sum(books.refused.values()),
        "taken twice": sum(times > 1 for times in books.taken.values()),
        "dead": len(dead),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deliveries", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--unordered", action="store_true")
    parser.add_argument("--timeout-ms", type=int, default=TIMEOUT_MS)
    args = parser.parse_args()
    threading.current_thread().name = "campaign"
    with tempfile.TemporaryDirectory() as folder:
        figures = campaign(
            Path(folder) / "data",
            args.deliveries,
            args.seed,
            args.kills,
            not args.unordered,
            timeout_ms=args.timeout_ms,
        )
    print(figures)


if __name__ == "__main__":
    main()
