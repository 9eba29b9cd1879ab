"""Two endpoints of SEMQ and their platform, of which one is killed again and again.

    python -m tests.process.semq_kills --messages 1000 --kills 50      (make crash-semq)

Applications at both ends send level 3 messages to each other, each with a body of its own, and take
what comes. Meanwhile a random one of the three is killed with SIGKILL, stays away for a moment or a
little longer, and is started again. What is sent goes directly or by the platform, as it happens;
with `--no-direct` by the platform alone.

Whatever was answered must be handed over in the end, and done once: what is handed over a second
time says so (`again`), and only if nobody had done with it before. Then all stores are empty: both
outboxes, both inboxes, and both mailboxes of the platform.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.limits import WAIT_S
from tests.process.broker import BrokerProcess
from tests.process.endpoint import EndpointProcess, wait_for
from tests.process.kill_ledger import Violation
from zbus.client.errors import ZbusError
from zbus.semq import BlockingSemq, connect_blocking

NODES: Final = ("1:10008", "1:56001")
INTERVAL_MS: Final = 1_000  # so that what is lost is asked for soon
PROGRAM: Final = ("zbus",)


class Application(threading.Thread):
    """It goes on whatever happens to its endpoint."""

    def __init__(self, node: str, path: Path, over: threading.Event) -> None:
        super().__init__(name=f"{type(self).__name__} at {node}", daemon=True)
        self.node = node
        self.path = path
        self.over = over
        self.lost = 0  # connections
        self.problem: Exception | None = None

    def run(self) -> None:
        while not self.over.is_set():
            try:
                with connect_blocking(self.path) as semq:
                    self.work(semq)
            except ZbusError:
                self.lost += 1
                time.sleep(0.02)
            except Exception as problem:  # the campaign tells of it
                self.problem = problem
                return

    def work(self, semq: BlockingSemq) -> None:
        raise NotImplementedError


class Sender(Application):
    """So many messages are answered in the end, and no more than may be by now."""

    def __init__(self, *args: Any, to: str, count: int, may: Callable[[], float]) -> None:
        super().__init__(*args)
        self.to = to
        self.count = count
        self.may = may  # which part of them
        self.sent = 0
        self.answered: set[str] = set()

    def work(self, semq: BlockingSemq) -> None:
        while len(self.answered) < self.count and not self.over.is_set():
            if len(self.answered) >= self.may() * self.count:
                time.sleep(0.005)
                continue
            self.sent += 1
            body = f"{self.node} {self.sent}"
            semq.send(self.to, body, receipt=self.sent % 2 == 0)
            self.answered.add(body)
        self.over.wait(0.1)


class Taker(Application):
    """Everything that comes, and what it knows of it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.new: Counter[str] = Counter()  # handed over, not as something that came again
        self.again = 0
        self.done: Counter[str] = Counter()  # and answered
        self.begun: set[str] = set()  # done was said, and perhaps heard

    def work(self, semq: BlockingSemq) -> None:
        while not self.over.is_set():
            message = semq.take_one(wait_s=0.2)
            if message is None:
                continue
            body = message.text
            if self.done[body]:
                raise Violation(f"{body!r} is handed over, and was done")
            if message.again:
                self.again += 1
            else:
                self.new[body] += 1
            self.begun.add(body)
            message.done()
            self.done[body] += 1


class Campaign:
    """See the module. `patience_s` is how long is waited for the end."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        program: tuple[str, ...] = PROGRAM,
        patience_s: float = WAIT_S,
        direct: bool = True,
    ) -> None:
        self.folder = folder
        self.direct = direct
        self.random = Random(seed)
        self.program = program  # of the endpoints
        self.patience_s = patience_s
        self.kills: Counter[str] = Counter()
        self.broker = self._broker(0)
        self.endpoints = {node: self._endpoint(node) for node in NODES}

    def _broker(self, port: int) -> BrokerProcess:
        """It knows the nodes: nobody is told that there is none of this name."""
        settings = f"semq_interval_ms={INTERVAL_MS}", f"semq_nodes={','.join(NODES)}"
        options = [word for setting in settings for word in ("--set", setting)]
        return BrokerProcess(self.folder / "data", *options, port=port)

    def _endpoint(self, node: str) -> EndpointProcess:
        folder = self.folder / node.replace(":", "-")
        port, program = self.broker.port, self.program
        return EndpointProcess(folder, node, port, direct=self.direct, program=program)

    def run(self, messages: int, kills: int, pause_s: tuple[float, float]) -> dict[str, Any]:
        """So many messages, half of them each way, and so many kills with pauses between them."""
        over, taken = threading.Event(), threading.Event()

        def may() -> float:
            return (self.kills.total() + 1) / max(kills, 1)

        senders, takers = [], []
        for node, to in (NODES, NODES[::-1]):
            path = self.endpoints[node].socket
            senders.append(Sender(node, path, over, to=to, count=messages // 2, may=may))
            takers.append(Taker(node, path, taken))
        try:
            for one in (*senders, *takers):
                one.start()
            while self.kills.total() < kills:
                time.sleep(self.random.uniform(*pause_s))
                self._kill_one(pause_s)
            enough = wait_for(
                lambda: all(len(one.answered) >= one.count for one in senders), self.patience_s
            )
            wait_for(lambda: not _missing(senders, takers), self.patience_s)
            empty = wait_for(self._all_empty, self.patience_s)
            over.set()
            taken.set()
            for one in (*senders, *takers):
                one.join(WAIT_S)
            return self._compare(senders, takers, enough, empty)
        finally:
            over.set()
            taken.set()
            for process in (self.broker, *self.endpoints.values()):
                process.kill()

    def _kill_one(self, pause_s: tuple[float, float]) -> None:
        victim = self.random.choice(("platform", *NODES))
        self.kills[victim] += 1
        away_s = self.random.choice((0, 0, self.random.uniform(*pause_s)))
        if victim == "platform":
            self.broker.kill()
            time.sleep(away_s)
            self.broker = self._broker(self.broker.port)
        else:
            self.endpoints[victim].kill()
            time.sleep(away_s)
            self.endpoints[victim] = self._endpoint(victim)

    def _all_empty(self) -> bool:
        answer = self.broker.get("/semq/?cmd=semq_stat")
        nodes = json.loads(answer.body)["nodes"]
        stored = sum(node["init"] + node["sent"] for node in nodes)
        return not stored and all(one.is_empty() for one in self.endpoints.values())

    def _compare(
        self, senders: list[Sender], takers: list[Taker], enough: bool, empty: bool
    ) -> dict[str, Any]:
        for one in (*senders, *takers):
            if one.problem is not None:
                raise Violation(f"{one.name}: {one.problem}") from one.problem
        if not enough:
            raise Violation("not all could be sent")
        lost = _missing(senders, takers)
        if lost:
            raise Violation(f"{len(lost)} messages were answered and not handed over: {lost[:3]}")
        new = sum((one.new for one in takers), Counter[str]())
        twice = [body for body, count in new.items() if count > 1]
        if twice:
            raise Violation(f"{len(twice)} messages were handed over twice: {twice[:3]}")
        sent = {f"{one.node} {number}" for one in senders for number in range(1, one.sent + 1)}
        if not set(new) <= sent:
            raise Violation(f"nobody sent {sorted(set(new) - sent)[:3]}")
        if not empty:
            stats = [one.stat() for one in self.endpoints.values()]
            raise Violation(f"something is left: {stats} {self.broker.get('/semq/?cmd=semq_stat')}")
        return {
            "kills": dict(self.kills),
            "answered": sum(len(one.answered) for one in senders),
            "handed over": sum(len(one.begun) for one in takers),
            "again": sum(one.again for one in takers),
            "lost connections": sum(one.lost for one in (*senders, *takers)),
        }


def _missing(senders: list[Sender], takers: list[Taker]) -> list[str]:
    taken = set().union(*(one.begun for one in takers))
    return sorted(set().union(*(one.answered for one in senders)) - taken)


def main() -> None:
    parser = argparse.ArgumentParser(description="kill -9 endpoints of SEMQ and their platform")
    parser.add_argument("--messages", type=int, default=1_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--no-direct", action="store_true", help="all by the platform")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="zbus-semq-"))
    print(f"seed {chosen.seed}, {chosen.kills} kills in {folder}", flush=True)
    campaign = Campaign(folder, chosen.seed, direct=not chosen.no_direct)
    began_s = time.monotonic()
    try:
        figures = campaign.run(chosen.messages, chosen.kills, (0.2, 1.5))
    except BaseException as problem:
        print(f"after {campaign.kills}: {problem}", file=sys.stderr)
        print(f"everything is kept: {folder}", file=sys.stderr)
        raise
    shutil.rmtree(folder)
    print(json.dumps({**figures, "seconds": round(time.monotonic() - began_s, 1)}))


if __name__ == "__main__":
    main()
