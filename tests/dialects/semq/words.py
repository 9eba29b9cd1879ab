"""A node of SEMQ that does what a test tells it, against a platform in one process.

It has no rules of its own: it says what it is told to say, and keeps what it was sent.

    platform = Platform()
    head, branch = platform.node("1:10008"), platform.node("1:56001")
    head.hello()
    head.send("1:56001", 1, b"order")
"""

from __future__ import annotations

from typing import Any

import msgspec

from zbus.dialects.semq.settings import SemqSettings
from zbus.edge.access import Access
from zbus.storage.port import Journal
from zbus.testing.world import Client, Reply, World

A, B, C = "1:10008", "1:56001", "1:77"
EPOCH = "9f00000000000001"
INTERVAL_MS = 15_000
_BEAT_MS = 9_000


def frame(command: str, body: bytes = b"", **fields: Any) -> bytes:
    """A request of a connection."""
    lines = [f"cmd: {command}", *(f"{name}: {value}" for name, value in fields.items())]
    lines.append(f"content-length: {len(body)}")
    return "\r\n".join(("POST /semq HTTP/1.1", *lines, "", "")).encode() + body


def mid_fields(source: str, seq: int | str, **more: Any) -> dict[str, Any]:
    """The parts of a MID, and LK0: its record is the number. Several numbers are `seqs`."""
    several = isinstance(seq, str)
    record = 0 if several else seq
    fields: dict[str, Any] = {"lk0": f"{source}/1/1/{record}", "epoch": EPOCH, "stream": 3}
    fields["seqs" if several else "seq"] = seq
    return {**fields, **more}


def send_fields(source: str, target: str, seq: int, **more: Any) -> dict[str, Any]:
    """What is said of a message; of level 3 and without Ack2, if nothing else is said."""
    level = more.get("savefwd", 3)
    fields = mid_fields(source, seq, stream=3 if level == 3 else 2)
    if level == 1 and not more.get("ack2"):
        fields = {}
    return {
        "src": source,
        "dst": target,
        "topic": f"semq/{target.partition('/')[0]}",
        "savefwd": level,
        **fields,
        **more,
    }


class Platform:
    """A broker, that may be started again."""

    def __init__(
        self,
        settings: SemqSettings | None = None,
        access: Access | None = None,
        journal: Journal | None = None,
        **more: Any,  # of a World
    ) -> None:
        self._settings = settings or SemqSettings()
        self._more = {"access": access, **more}
        self.world = World(journal, dialects={"semq": self._settings}, **self._more)
        self.nodes: list[Node] = []
        self._beat_ms = self.world.now_ms

    def node(self, name: str, token: str = "") -> Node:
        node = Node(self, name, token)
        self.nodes.append(node)
        return node

    def restart(self, crash: bool = False) -> None:
        """All connections are gone. After a crash so is what nobody waited for."""
        world = self.world
        world.broker.check()
        if not crash:
            world.flush()
        self.world = World(
            world.journal, dialects={"semq": self._settings}, now_ms=world.now_ms, **self._more
        )
        self.world.broker.check()
        for node in self.nodes:
            node.connect()

    def wait(self, ms: int) -> None:
        """Time passes; nodes say that they are there."""
        while ms > 0:
            step_ms = min(ms, self._beat_ms + _BEAT_MS - self.world.now_ms)
            self.world.advance(step_ms)
            ms -= step_ms
            if self.world.now_ms >= self._beat_ms + _BEAT_MS:
                self._beat_ms = self.world.now_ms
                for node in self.nodes:
                    if node.greeted:
                        node.say("heartbeat", id="beat")
        self.world.settle()

    def states(self, name: str) -> dict[int, str]:
        """Of the rows that are stored for a node, by the record of LK1."""
        topic = self.world.broker.topic(f"semq.{name}")
        if topic is None:
            return {}
        partition, backlog = topic.partitions[0], topic.groups["semq"].backlogs[0]
        words = {"ready": "SS_INIT", "leased": "SS_SENT", "delayed": "SS_INIT"}
        lives = {o + 1: backlog.life(o).value for o in range(partition.first, partition.end)}
        return {record: words[life] for record, life in lives.items() if life in words}

    def ask(self, data: bytes) -> Reply:
        """Somebody else asks over plain HTTP."""
        return self.world.connect().request(data)

    def document(self, command: str, **fields: Any) -> Any:
        reply = self.ask(frame(command, **fields))
        assert reply.status == 200, reply
        return msgspec.json.decode(reply.body)


class Node:
    """One connection of a node, and what came over it."""

    def __init__(self, platform: Platform, name: str, token: str = "") -> None:
        self.platform = platform
        self.name = name
        self.token = token
        self.client: Client
        self.pushed: list[Reply] = []
        self.answers: list[Reply] = []
        self.greeted = False
        self._ids = 0
        self.connect()

    def connect(self) -> None:
        """Anew; nothing was said yet."""
        self.client = self.platform.world.connect()
        self.greeted = False
        self.pushed, self.answers = [], []

    def vanish(self) -> None:
        """Its connection breaks."""
        self.client.vanish()
        self.greeted = False
        self.platform.world.settle()

    # -- saying -------------------------------------------------------------------------------

    def say(self, command: str, body: bytes = b"", **fields: Any) -> None:
        """A frame, as it is."""
        self.client.send(frame(command, body, **fields))

    def request(self, command: str, body: bytes = b"", **fields: Any) -> Reply:
        """A frame with an id, and what it is answered."""
        self._ids += 1
        id = f"{self.name}-{self._ids}"
        self.say(command, body, id=id, **fields)
        self.platform.world.settle()
        found = [one for one in self.take_answers() if one.headers.get("id") == id]
        assert len(found) == 1, found
        return found[0]

    def hello(self, **fields: Any) -> Reply:
        """Says hello, which is taken."""
        if self.token:
            fields["token"] = self.token
        reply = self.request("semq_hello", node=self.name, epoch=EPOCH, **fields)
        assert reply.status == 200, reply
        self.greeted = True
        return reply

    def send(self, target: str, seq: int, body: bytes = b"", **more: Any) -> Reply:
        return self.request("semq_send", body, **send_fields(self.name, target, seq, **more))

    def flag(self, target: str, seq: int, body: bytes = b"", **more: Any) -> str:
        """What the platform did with it."""
        reply = self.send(target, seq, body, **more)
        if reply.status != 200:
            return f"{reply.status} {reply.headers['reason']}"
        assert reply.headers["ack_flag"] == "1"
        return {"1": "Ack-Fwd", "2": "Ack-Save"}[reply.headers["flag"]]

    def ack(self, delivered: Reply) -> None:
        """Confirms to the platform what came from its store."""
        record = delivered.headers["lk1"].rpartition("/")[2]
        told = {name: delivered.headers[name] for name in ("lk0", "epoch", "stream", "seq")}
        self.control("semq_ack", ack_flag=1, src_ref_id=record, dest_ref_id=301, **told)

    def control(self, command: str, **fields: Any) -> None:
        """A control message; for the platform, if nothing else is said."""
        self.say(command, **{"src": self.name, "dst": "0:1", **fields})
        self.platform.world.settle()

    # -- hearing ------------------------------------------------------------------------------

    def _hear(self) -> None:
        self.platform.world.settle()
        for reply in self.client.replies():
            (self.pushed if "cmd" in reply.headers else self.answers).append(reply)

    def take_answers(self) -> list[Reply]:
        self._hear()
        found, self.answers = self.answers, []
        return [one for one in found if one.headers.get("id") != "beat"]

    def take(self, command: str) -> list[Reply]:
        """What was pushed of this kind since it was asked last."""
        self._hear()
        found = [one for one in self.pushed if one.headers["cmd"] == command]
        self.pushed = [one for one in self.pushed if one not in found]
        return found

    def take_all(self) -> list[Reply]:
        """Everything that was pushed since then."""
        self._hear()
        found, self.pushed = self.pushed, []
        return found

    def take_one(self, command: str) -> Reply:
        found = self.take(command)
        assert len(found) == 1, found
        return found[0]

    def delivered(self) -> list[bytes]:
        """Bodies that came."""
        return [one.body for one in self.take("semq_deliver")]
