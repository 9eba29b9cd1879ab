"""Random dialogues: connections break, frames are lost, and the platform crashes. What it has said
it stores arrives, and what it lets go of has arrived."""

from __future__ import annotations

from random import Random

import pytest

from tests.dialects.semq.words import A, B, Platform, mid_fields
from tests.limits import checked
from zbus.dialects.semq.settings import SemqSettings
from zbus.testing.world import Reply

STEPS = 200


class Dialogue:
    """A sends; B keeps all that comes, and loses some of what it says and is asked."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(f"semq platform {seed}")
        settings = SemqSettings(
            semq_store_always=random.random() < 0.3, semq_interval_ms=2_000, semq_nodes=B
        )
        self.platform = Platform(settings)
        self.head, self.branch = self.platform.node(A), self.platform.node(B)
        self.window = random.choice((1, 3, 100))
        self.loss = random.choice((0.0, 0.2, 0.6))
        self.seq = 0
        self.saved: set[int] = set()  # A was told that they are stored
        self.open: set[int] = set()  # sent, and nothing was told
        self.kept: set[int] = set()  # with B
        self.head.hello()

    def run(self) -> None:
        for _ in range(STEPS):
            act = self.random.choice(
                (
                    self.send,
                    self.send,
                    self.send,
                    self.send_again,
                    self.listen,
                    self.listen,
                    self.listen,
                    self.come,
                    self.go,
                    self.wait,
                    self.restart,
                    self.retry,
                )
            )
            act()
            self.check()
        self.loss = 0.0
        for _ in range(60):
            self.come()
            self.send_again()
            self.listen()
            self.platform.wait(20_000)
            if not self.platform.states(B) and not self.open:
                break
        self.listen()
        self.check()
        assert self.platform.states(B) == {}
        assert self.saved <= self.kept
        self.platform.world.broker.check()

    def check(self) -> None:
        """What was stored, and is not any more, is with B."""
        topic = self.platform.world.broker.topic(f"semq.{B}")
        assert topic is not None
        rows = self.platform.document("semq_list", node=B, count=1_000)["rows"]
        there = {int(row["mid"].rpartition("/")[2]) for row in rows}
        assert self.saved <= there | self.kept

    # -- A ------------------------------------------------------------------------------------

    def send(self) -> None:
        self.seq += 1
        self._send(self.seq)

    def send_again(self) -> None:
        for seq in sorted(self.open)[:5]:
            self._send(seq)

    def _send(self, seq: int) -> None:
        self.open.add(seq)
        reply = self.head.send(B, seq, b"%d" % seq)
        assert reply.status == 200
        if self._lost():
            return
        self.open.discard(seq)
        if reply.headers["flag"] == "2":
            self.saved.add(seq)

    # -- B ------------------------------------------------------------------------------------

    def _lost(self) -> bool:
        return self.random.random() < self.loss

    def come(self) -> None:
        if not self.branch.greeted:
            self.branch.connect()
            self.branch.hello(window=self.window)

    def go(self) -> None:
        if self.branch.greeted:
            self.branch.vanish()

    def listen(self) -> None:
        if not self.branch.greeted:
            return
        for one in self.branch.take_all():
            if self._lost():
                continue
            if one.headers["cmd"] == "semq_deliver":
                self._keep(one)
            elif one.headers["cmd"] == "semq_inquiry":
                self._answer(one)

    def _keep(self, came: Reply) -> None:
        seq = int(came.headers["seq"])
        assert came.body == b"%d" % seq
        self.kept.add(seq)
        if "lk1" in came.headers and not self._lost():
            if self.random.random() < 0.2:
                asked = mid_fields(A, seq, about="ack", ref_id=came.headers["lk1"][4:])
                self.branch.control("semq_inquiry", **asked)
            else:
                self.branch.ack(came)

    def _answer(self, asked: Reply) -> None:
        said = asked.headers
        seqs = said.get("seqs", said.get("seq", ""))
        numbers: set[int] = set()
        for part in seqs.split(","):
            first, _, last = part.partition("-")
            numbers |= set(range(int(first), int(last or first) + 1))
        told = {name: said[name] for name in ("lk0", "epoch", "stream", "attempt", "about")}
        for result, found in ((1, numbers & self.kept), (0, numbers - self.kept)):
            if found:
                text = ",".join(map(str, sorted(found)))
                self.branch.control("semq_inquiry_resp", result=result, seqs=text, **told)

    # -- the world ----------------------------------------------------------------------------

    def wait(self) -> None:
        self.platform.wait(self.random.choice((10, 1_000, 5_000, 60_000)))

    def restart(self) -> None:
        if self.random.random() < 0.3:
            self.platform.restart(crash=self.random.random() < 0.5)
            self.head.hello()

    def retry(self) -> None:
        if self.random.random() < 0.2:
            self.platform.document("semq_retry", node=B)


@pytest.mark.parametrize("seed", [*range(3), *checked(range(3, 25))])
def test_what_is_stored_arrives(seed: int) -> None:
    Dialogue(seed).run()
