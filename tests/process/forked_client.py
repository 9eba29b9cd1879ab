"""Programs that fork with a client in hand; each prints what it saw. Run by `test_forks.py`."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import zbus.client
import zbus.semq
from zbus.client import BlockingClient

CHILDREN = 8
MESSAGES = 1_000


def in_child(work: Callable[[], object]) -> tuple[int, int]:
    """Fork; the number of the child, and the end of a pipe with what `work` returned there."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writable)
        return pid, readable
    try:
        answer = json.dumps(work())
    except BaseException as error:
        answer = json.dumps(f"{type(error).__name__}: {error}")
        if not isinstance(error, RuntimeError | zbus.client.ZbusError):
            traceback.print_exc()
    os.write(writable, answer.encode())
    os._exit(0)


def answer_of(child: tuple[int, int]) -> object:
    pid, readable = child
    with open(readable, "rb") as stream:
        said = stream.read()
    os.waitpid(pid, 0)
    return json.loads(said)


def produce_everywhere(url: str) -> object:
    """All at once, over one client. Which messages each process believes are stored, and where."""
    bus = zbus.client.connect(url)
    bus.declare("Everywhere")
    share = MESSAGES // (CHILDREN + 1) + 1

    def work(first: int) -> list[tuple[str, int, bool]]:
        bodies = [str(number) for number in range(first, min(first + share, MESSAGES))]
        stored = [(body, bus.produce("Everywhere", body)) for body in bodies]
        return [(body, one.offset, one.duplicate) for body, one in stored]

    children = [in_child(partial(work, at * share)) for at in range(1, CHILDREN + 1)]
    return [work(0), *map(answer_of, children)]


def same_body(url: str) -> object:
    """Every child stores the same body: no two of them are one message."""
    bus = zbus.client.connect(url)
    bus.declare("Ticks")

    def work() -> bool:
        return bus.produce("Ticks", "tick").duplicate

    return [answer_of(in_child(work)) for _ in range(5)]


def in_the_middle(url: str) -> object:
    """Threads of the parent wait, send and hold locks while others fork."""
    bus = zbus.client.connect(url)
    bus.declare("Middle")
    ends = threading.Event()
    seen: list[int] = []

    def busy() -> None:
        while not ends.is_set():
            seen.append(bus.produce("Middle", "p" * 10_000).offset)

    waiting = threading.Thread(target=lambda: bus.pull("Middle", "nothing", wait_ms=1_500))
    bus.declare("Middle", "nothing", start="latest", filter="never")
    threads = [waiting, *(threading.Thread(target=busy) for _ in range(3))]
    for thread in threads:
        thread.start()

    def work() -> int:
        return sum(not bus.produce("Middle", "c").duplicate for _ in range(5))

    children = [in_child(work) for _ in range(20)]
    answers = [answer_of(child) for child in children]
    ends.set()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == len(seen)
    return answers


def things_of_the_parent(url: str) -> object:
    """What a child may do with the consumer, the watch, the pipeline and the answers of its
    parent."""
    bus = zbus.client.connect(url)
    bus.declare("Held", "g", ack=True)
    bus.produce_many("Held", ["one", "two", "three"])
    pipe = bus.pipeline()
    pending = pipe.produce("Held", "four")  # not sent yet
    with (
        bus.consume("Held", "g", timeout_ms=200) as messages,
        bus.watch("Held", "earliest", timeout_ms=200) as watch,
    ):
        message = next(iter(messages))
        answers = {
            "next": answer_of(in_child(lambda: messages.next() and None)),
            "ack": answer_of(in_child(message.ack)),
            "close": answer_of(in_child(messages.close)),
            "watch": answer_of(in_child(lambda: watch.next() and None)),
            "close watch": answer_of(in_child(watch.close)),
            "pending": answer_of(in_child(lambda: pending.result().offset)),
            "own": answer_of(in_child(lambda: own(bus))),
        }
        pipe.wait()
        answers["rest"] = [message.text, *(one.text for one in messages)]
        answers["watched"] = [one.text for one in watch]
    answers["left"] = bus.query("Held", "g").message_count
    return answers


def own(bus: BlockingClient) -> list[str]:
    """A child may have a consumer of its own."""
    bus.declare("Held", "h", start="earliest")
    with bus.consume("Held", "h", timeout_ms=50) as messages:
        return [message.text for message in messages]


def asynchronous(url: str, backend: str) -> object:
    """The parent's event loop does not go on in a child, and is not disturbed by it."""
    import anyio

    idle = zbus.client.connect_async(url)

    async def use(bus: zbus.client.Client) -> int:
        async with bus:
            return (await bus.produce("Loop", "own")).offset

    async def main() -> list[object]:
        async with zbus.client.connect_async(url) as bus:
            await bus.declare("Loop")

            def forbidden() -> None:
                bus.run(None).send(None)  # type: ignore[arg-type]

            answers = [answer_of(in_child(forbidden))]
            answers.append((await bus.produce("Loop", "parent")).offset)
        return answers

    answers = anyio.run(main, backend=backend)
    answers.append(answer_of(in_child(lambda: anyio.run(use, idle, backend=backend))))
    return answers


def fresh(url: str, queue: multiprocessing.SimpleQueue[int]) -> None:
    """What a spawned child does: it connects by itself."""
    with zbus.client.connect(url) as bus:
        queue.put(bus.produce("Spawned", "spawned").offset)


def inherited(queue: multiprocessing.SimpleQueue[int]) -> None:
    queue.put(MODULE.produce("Spawned", "forked").offset)


def over_tls(url: str, authority: str) -> object:
    """Children end with the parent's connection at hand; it is not closed by that, on either side
    of the encryption."""
    bus = zbus.client.connect(url, ca=authority, token="ADMIN-SECRET", retries=0)
    bus.declare("Secret")

    def close() -> None:
        bus.close()

    def exchange() -> list[int]:
        return [bus.produce("Secret", "c" * 50_000).offset for _ in range(3)]

    seen = []
    for work in (close, exchange, close, exchange):
        child = in_child(work)
        seen += [bus.produce("Secret", "parent").offset, answer_of(child)]
        seen.append(bus.produce("Secret", "parent").offset)
    return seen


def over_semq(path: str) -> object:
    """A child's requests to its endpoint, and its parent's."""
    semq = zbus.semq.connect_blocking(path)
    semq.send("1:1", "one")
    message = semq.take_one(wait_s=10)
    assert message is not None

    def work() -> list[str]:
        semq.send("1:1", "two")
        taken = semq.take_one(wait_s=10)
        assert taken is not None
        taken.done()
        return [taken.text]

    answers = [message.text, answer_of(in_child(work))]
    message.done()
    return [*answers, semq.manage("list", {"box": "in"})]


MODULE: BlockingClient


def started(url: str, method: Literal["fork", "spawn", "forkserver"]) -> object:
    """`multiprocessing` with each way to start a process."""
    global MODULE
    MODULE = zbus.client.connect(url)
    MODULE.declare("Spawned")
    context: Any = multiprocessing.get_context(method)
    queue: multiprocessing.SimpleQueue[int] = context.SimpleQueue()
    processes = [
        context.Process(target=inherited, args=(queue,))
        if method == "fork"
        else context.Process(target=fresh, args=(url, queue))
        for _ in range(2)
    ]
    for process in processes:
        process.start()
    offsets = [queue.get() for _ in processes]
    for process in processes:
        process.join()
    try:
        pickle.dumps(MODULE)
        refused = ""
    except TypeError as error:
        refused = str(error)
    return [sorted([*offsets, MODULE.produce("Spawned", "parent").offset]), refused]


if __name__ == "__main__":
    print("saw", json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
