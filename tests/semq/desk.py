"""An endpoint between a scripted platform and scripted peers: what it is told, and what it says."""

from __future__ import annotations

import hmac
from random import Random
from typing import Any

from tests.semq.database import open_database
from zbus.semq.endpoint.endpoint import Endpoint, EndpointOptions
from zbus.semq.endpoint.events import (
    Came,
    Close,
    Closed,
    Done,
    Effect,
    Event,
    Frame,
    Left,
    Manage,
    Opened,
    Refused,
    Reported,
    Submit,
    Submitted,
    Take,
    Taken,
    Transmit,
)
from zbus.semq.protocol.words import HEARTBEAT_MS, PLATFORM, read_address

A, B, C = "1:10008", "1:56001", "1:77"
EPOCH = "00000000000000ee"
INTERVAL_MS = 15_000
TICKET_KEY = "ab" * 32


class Desk:
    """See the module. `node` is the endpoint's; time stands still unless it passes."""

    def __init__(self, node: str = A, **options: Any) -> None:
        self.options = EndpointOptions(node=node, **options)
        self.database = open_database()
        self.now_ms = 1_000_000
        self.links = self.asks = self.starts = 0
        self.effects: list[Effect] = []
        self.start()

    def start(self, renewed: bool = False) -> None:
        """The process begins, on what is on the disk."""
        self.starts += 1
        self.endpoint = Endpoint(self.database, self.options, Random(self.starts), renewed)

    def step(self, *events: Event) -> list[Effect]:
        """Gives what is to be done, and keeps it."""
        effects = self.endpoint.step(self.now_ms, events)
        self.effects += effects
        return effects

    def wait(self, ms: int) -> None:
        """Time passes, and a step is made whenever one is due. Whoever is linked is not silent."""
        while ms > HEARTBEAT_MS:
            self.wait(HEARTBEAT_MS)
            ms -= HEARTBEAT_MS
        end_ms = self.now_ms + ms
        for _ in range(1_000):
            due_ms = self.endpoint.next_due()
            if due_ms is None or due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self.step()
        else:
            raise AssertionError(f"it does not come to rest: due {self.endpoint.next_due()}")
        self.now_ms = end_ms
        for link in range(1, self.links + 1):
            self.came(link, cmd="heartbeat")

    # -- links --------------------------------------------------------------------------------

    def platform(self, **more: str) -> int:
        """The platform is reached, and says welcome."""
        self.links += 1
        self.step(Opened(self.links, PLATFORM))
        fields = {"id": "hello", "interval": str(INTERVAL_MS), "ticket_key": TICKET_KEY, **more}
        self.step(Came(self.links, Frame(fields, b"", 200)))
        return self.links

    def direct(self, node: str = B, **more: Any) -> int:
        """That node connects directly, with a ticket of the platform's, which was reached before.
        `more` is in its hello."""
        self.links += 1
        link, nonce = self.links, "0" * 32
        said = f"{node}|{self.options.node}|{self.now_ms + 60_000}"
        ticket = f"{said}|{_sign(TICKET_KEY, said)}"
        self.step(Opened(link, "", True))
        self.came(link, cmd="semq_hello", node=node, ticket=ticket, nonce=nonce, **more)
        hellos = [e.frame.fields for e in self.effects if isinstance(e, Transmit)]
        answer = next(f["nonce"] for f in reversed(hellos) if f.get("cmd") == "semq_hello")
        proof = _sign(_sign(TICKET_KEY, f"key{ticket}"), f"A{nonce}{answer}")
        self.came(link, cmd="semq_hello", node=node, proof=proof)
        assert node in self.manage("stat")["peers"]
        return link

    def close(self, link: int) -> None:
        self.step(Closed(link))

    def came(self, link: int, body: bytes = b"", status: int = 0, **fields: Any) -> None:
        """A frame. Of the platform it has a status."""
        texts = {name: str(value) for name, value in fields.items()}
        self.step(Came(link, Frame(texts, body, status)))

    def deliver(self, link: int, number: int, body: bytes = b"x", **more: Any) -> None:
        """`semq_deliver` of a message from B, level 3."""
        fields: dict[str, object] = {"cmd": "semq_deliver", "src": B, "dst": A, "savefwd": 3}
        fields |= {"lk0": f"{B}/1/1/{number}", "epoch": EPOCH, "stream": 3, "seq": number}
        fields |= {"attempt": 1}
        self.came(link, body, 200, **{**fields, **more})

    # -- what it says -------------------------------------------------------------------------

    def said(self, command: str = "") -> list[Frame]:
        """Frames since the last time, heartbeats and lookups left out; or those of one command."""
        frames = [one.frame for one in self.effects if isinstance(one, Transmit)]
        self.effects = [one for one in self.effects if not isinstance(one, Transmit)]
        usual = [f for f in frames if f.command not in ("heartbeat", "semq_lookup", "semq_hello")]
        return [f for f in usual if f.command == command] if command else usual

    def words(self) -> list[str]:
        """The same in a word each."""
        return [_word(frame) for frame in self.said()]

    def closed(self) -> list[Close]:
        found = [one for one in self.effects if isinstance(one, Close)]
        self.effects = [one for one in self.effects if not isinstance(one, Close)]
        return found

    # -- the application ----------------------------------------------------------------------

    def submit(self, to: str = B, body: bytes = b"x", **more: Any) -> int:
        """Gives the record."""
        answer = self.try_submit(to, body, **more)
        assert isinstance(answer, Submitted), answer
        return answer.record

    def try_submit(self, to: str = B, body: bytes = b"x", **more: Any) -> Submitted | Refused:
        self.asks += 1
        effects = self.step(Submit(self.asks, read_address(to), body, **more))
        answers = [e for e in effects if isinstance(e, Submitted | Refused) and e.ask == self.asks]
        return answers[0]

    def take(self, user: str = "", holder: int = 1) -> Taken:
        self.asks += 1
        effects = self.step(Take(self.asks, user, False, holder))
        return next(e for e in effects if isinstance(e, Taken) and e.ask == self.asks)

    def bodies(self) -> list[bytes]:
        """All there is, taken and done."""
        found = []
        while (taken := self.take()).frame is not None:
            found.append(taken.frame.body)
            self.done(taken.row)
        return found

    def done(self, row: int) -> Reported | Refused:
        self.asks += 1
        effects = self.step(Done(self.asks, row))
        answers = [e for e in effects if isinstance(e, Reported | Refused) and e.ask == self.asks]
        return answers[0]

    def left(self, holder: int = 1) -> None:
        self.step(Left(holder))

    def manage(self, command: str, **fields: object) -> Any:
        self.asks += 1
        texts = {name: str(value) for name, value in fields.items()}
        effects = self.step(Manage(self.asks, command, texts))
        answer = next(
            e for e in effects if isinstance(e, Reported | Refused) and e.ask == self.asks
        )
        return answer.document if isinstance(answer, Reported) else answer

    # -- the disk -----------------------------------------------------------------------------

    def states(self) -> list[str]:
        rows = self.database.execute("SELECT ss_status FROM tb_0031 ORDER BY object_id")
        return [state for (state,) in rows]

    def inbox(self) -> list[str]:
        rows = self.database.execute("SELECT app_state FROM tb_0030 ORDER BY object_id")
        return [state for (state,) in rows]

    def epoch(self) -> str:
        return self.endpoint.epoch


def _sign(key: str, text: str) -> str:
    return hmac.new(key.encode(), text.encode(), "sha256").hexdigest()


def _word(frame: Frame) -> str:
    fields = frame.fields
    word = frame.command.removeprefix("semq_")
    if word in ("ack", "reack"):
        word += fields["ack_flag"]
    if word.startswith("inquiry"):
        word += f" {fields['about']}" + (f" {fields['result']}" if "result" in fields else "")
    return f"{word} {fields['dst']} {fields.get('seqs') or fields.get('seq', '')}".strip()
