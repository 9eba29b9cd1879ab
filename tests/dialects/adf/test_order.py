"""What comes back to the left comes back in its order: leases over HTTP that end in different
turns, connections that end, and both; in virtual time, and over a restart."""

from __future__ import annotations

import json
from random import Random

import pytest

from tests.conformance.dialogue import Client, World, http, ok
from tests.conformance.websocket_client import WebSocketClient, handshake


class Queue:
    """The queue q, and who pulls from it."""

    def __init__(self, count: int = 0) -> None:
        self.world = World()
        self.client = self.world.connect()
        self.ids = 0
        for number in range(1, count + 1):
            self.push(str(number))

    def ask(self, action: str, body: bytes | None = None, **more: object) -> dict[str, object]:
        self.ids += 1
        query = {"queue": "q", "requestid": self.ids, **more}
        target = f"/queue/{action}?" + "&".join(f"{name}={value}" for name, value in query.items())
        method = "GET" if body is None else "POST"
        found: dict[str, object] = json.loads(
            ok(self.client, http(target, body=body or b"", method=method)).body
        )
        assert found["result"] == "ok", found
        return found

    def push(self, body: str, action: str = "rpush") -> None:
        self.ask(action, body.encode())

    def pull(self, id: str, lease_s: int) -> str:
        return str(self.ask("pull", requestid=id, lease=lease_s)["body"])

    def wait(self, seconds: float) -> None:
        self.world.advance(int(seconds * 1_000))

    def restart(self) -> None:
        old = self.world
        old.broker.check()
        self.world = World(old.journal, now_ms=old.now_ms)
        self.client = self.world.connect()
        self.world.settle()

    def holder(self, count: int) -> Client:
        """A WebSocket that has pulled so many, and has read the answers."""
        client = self.world.connect()
        client.send(handshake("/queue/json"))
        self.world.settle()
        client.received = b""
        socket = WebSocketClient(client)
        for number in range(count):
            asked = {"action": "pull", "requestid": str(number), "queue": "q"}
            client.send(socket.frame(json.dumps(asked)))
        self.world.settle()
        assert client.received.count(b'"ok"') == count
        return client

    def rest(self) -> list[str]:
        """All that is ready, from the left."""
        count = self.ask("count")["count"]
        assert isinstance(count, int)
        return [self.pull(f"rest{number}", 60_000) for number in range(count)]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("leases_s", [(2, 4, 6), (6, 4, 2), (4, 2, 6), (2, 6, 4), (3, 3, 3)])
def test_leases_that_end_in_different_turns(leases_s: tuple[int, ...], restarts: bool) -> None:
    queue = Queue(5)
    for number, lease_s in enumerate(leases_s):
        queue.pull(f"p{number}", lease_s)
    for _ in range(4):
        queue.wait(1.5)
        if restarts:
            queue.restart()
    queue.wait(5)
    assert queue.rest() == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("first", [0, 1, 2])
def test_connections_that_end_one_after_another(first: int) -> None:
    queue = Queue(7)
    holders = [queue.holder(2) for _ in range(3)]
    for number in range(3):
        holders[(first + number) % 3].vanish()
        queue.world.settle()
    assert queue.rest() == ["1", "2", "3", "4", "5", "6", "7"]


@pytest.mark.parametrize("late", [False, True])
def test_a_lease_and_a_connection(late: bool) -> None:
    queue = Queue(4)
    queue.pull("p", 2)
    holder = queue.holder(2)
    if late:
        queue.wait(5)
    holder.vanish()
    queue.wait(5)
    assert queue.rest() == ["1", "2", "3", "4"]


@pytest.mark.parametrize("lease_s", [2, 30])
def test_answers_that_were_read_and_answers_that_were_not(lease_s: int) -> None:
    """The first came back by its lease, if that was short, before the connection of others ends."""
    queue = Queue(5)
    queue.pull("p0", lease_s)
    client = queue.world.connect()
    client.takes = False
    for number in (1, 2):
        client.send(http(f"/queue/pull?queue=q&requestid=p{number}&lease=60"))
        queue.world.settle()
    queue.wait(4)
    client.vanish()
    queue.wait(30)
    assert queue.rest() == ["1", "2", "3", "4", "5"]


def test_what_was_pushed_at_the_left_meanwhile_is_behind_what_comes_back() -> None:
    queue = Queue(3)
    queue.pull("a", 2)
    queue.push("left", "lpush")
    queue.wait(5)
    assert queue.rest() == ["1", "left", "2", "3"]


def test_what_was_pulled_again_keeps_its_place() -> None:
    queue = Queue(4)
    for id, lease_s in (("a", 2), ("b", 6)):
        queue.pull(id, lease_s)
    queue.wait(4)
    queue.push("left", "lpush")
    assert [queue.pull("c", 20), queue.pull("d", 9)] == ["left", "1"]
    queue.wait(30)
    assert queue.rest() == ["left", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("settled", "order"),
    [
        (("lcancel b", "lcancel a"), "1 2 3 4"),
        (("lcancel a", "lcancel b"), "2 1 3 4"),
        (("rcancel a", "lcancel b"), "2 3 4 1"),
        (("lcancel a",), "1 2 3 4"),
        (("lcancel b",), "1 2 3 4"),
        (("delete a", "lcancel b"), "2 3 4"),
    ],
)
def test_transactions(settled: tuple[str, ...], order: str) -> None:
    """Who gives something back at the left says so, and has it there; leases end later."""
    queue = Queue(4)
    for id in "abc":
        queue.pull(id, 5)
    for one in settled:
        action, id = one.split()
        queue.ask(action, requestid=id)
    queue.wait(10)
    assert queue.rest() == order.split()


@pytest.mark.parametrize("seed", range(10))
def test_whatever_happens_all_is_there_in_its_order(seed: int) -> None:
    """Pulls with leases of any length, connections that end, and restarts: nothing else."""
    random, queue = Random(seed), Queue(20)
    holders: list[Client] = []
    for number in range(30):
        count = queue.ask("count")["count"]
        what = random.randrange(4)
        if what == 0 and count:
            queue.pull(f"p{number}", random.choice((2, 3, 5, 9)))
        elif what == 1 and isinstance(count, int) and count > 3:
            holders.append(queue.holder(random.randrange(1, 4)))
        elif what == 2 and holders:
            holders.pop(random.randrange(len(holders))).vanish()
            queue.world.settle()
        else:
            queue.wait(random.choice((0.5, 1, 2)))
        if random.random() < 0.05:
            queue.restart()
            holders.clear()
    for holder in holders:
        holder.vanish()
    queue.wait(20)
    assert queue.rest() == [str(number) for number in range(1, 21)]
