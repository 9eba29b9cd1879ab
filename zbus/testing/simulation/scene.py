"""Users' own producers and consumers on a simulated machine.

An actor is a generator function without arguments. It yields requests and is given the replies:

    def packer():
        while True:
            order = yield request("consume", "orders", timeout=1000)
            if order.status == 200:
                pack(order.body)
                yield request("ack", "orders", offset=order.headers["offset"])

If its connection breaks, because the broker died or `disconnect` was called, the actor is over
where it stands, as a program that died, and begins anew with a new connection. One that returns is
done, and does not begin again. Which actor goes on when, how its bytes are cut and how long a sync
takes is up to the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from random import Random

from zbus.testing.simulation.machine import Machine, Options
from zbus.testing.simulation.network import Connection
from zbus.testing.simulation.trace import Trace
from zbus.testing.world import Reply

Actor = Callable[[], Generator[bytes, Reply, None]]
"""Yields the bytes of one request at a time."""


def request(command: str, topic: str, body: bytes = b"", **parameters: str | int | None) -> bytes:
    """The bytes of a request in the zbus dialect; `parameters` are headers, None = not there.

    Those with a dash in their names are passed as `**{"idempotency-key": "k-1"}`.
    """
    _require_bytes(body, "the body of a request is")
    lines = ["POST / HTTP/1.1", f"cmd: {command}", f"topic: {topic}"]
    lines += [f"{name}: {value}" for name, value in parameters.items() if value is not None]
    lines += [f"content-length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


class _Role:
    """An actor, and where it stands."""

    def __init__(self, actor: Actor, connection: Connection, trace: Trace) -> None:
        self.actor = actor
        self.name = _name(actor)
        self.who = trace.introduce(self.name)
        self.over = False
        self._trace = trace
        self.begin(connection)

    def begin(self, connection: Connection) -> None:
        self.connection = connection
        self.asked = self.unsent = b""
        self.play = self.actor()
        if not isinstance(self.play, Generator):
            raise TypeError(f"{self.name} is no generator function: it has to yield requests")
        self._take(None)

    def _take(self, reply: Reply | None) -> None:
        try:
            asked = next(self.play) if reply is None else self.play.send(reply)
        except StopIteration:
            self.over = True
            return
        _require_bytes(asked, f"{self.name} yielded")
        self.asked = self.unsent = asked

    @property
    def busy(self) -> bool:
        """It has something to send, to read, or to begin anew."""
        connection = self.connection
        waits = connection.alive and not connection.socket.outbound and not self.unsent
        return not (self.over or waits)

    def move(self, random: Random) -> None:
        """Send a piece, or take a reply if there is one."""
        if self.unsent:
            count = random.choice((len(self.unsent), random.randint(1, len(self.unsent))))
            self.connection.send(self.unsent[:count])
            self.unsent = self.unsent[count:]
            if not self.unsent:
                self._trace.asks(self.who, self.asked)
            return
        replies = self.connection.replies()
        if not replies:
            return
        assert len(replies) == 1, f"{self.name} asked once and got {replies}"
        self._trace.answered(self.who, replies[0])
        self._take(replies[0])
        if self.over:
            self._trace.note("is done", self.who)


def _require_bytes(value: object, what: str) -> None:
    if not isinstance(value, bytes):
        raise TypeError(f"{what} {type(value).__name__}, and has to be bytes")


def _name(actor: Actor) -> str:
    function = getattr(actor, "func", actor)  # of a partial
    return getattr(function, "__name__", "actor")


class Scene:
    """A machine with actors. Times are milliseconds of its own clock, which stands still outside
    of `run`. Two scenes of one seed that are asked the same do the same."""

    def __init__(self, seed: int, options: Options | None = None) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.machine = Machine(self.random, options=options)
        self.machine.start()
        self.trace = Trace(lambda: self.machine.now_ms)
        self._test = self.trace.introduce("the test")
        self._roles: list[_Role] = []

    @property
    def now_ms(self) -> int:
        return self.machine.now_ms

    def start(self, *actors: Actor) -> None:
        """These actors are there from now on; the same one may be there many times."""
        for actor in actors:
            if not callable(actor):
                raise TypeError(
                    f"start takes a generator function, not a {type(actor).__name__}: "
                    "start(packer), or start(functools.partial(packer, 1)) instead of packer(1), "
                    "because it is called again when its connection broke"
                )
        for actor in actors:
            self._roles.append(_Role(actor, self.machine.connect(), self.trace))

    def connect(self) -> Connection:
        """A connection of your own: `send` bytes, `run`, and look at its `replies`."""
        return self.machine.connect()

    def request(self, data: bytes) -> Reply:
        """Ask at once, on a connection of its own, and wait for the reply while the others go on.

        AssertionError if none comes within a minute.
        """
        connection = self.connect()
        connection.send(data)
        self.trace.asks(self._test, data)
        for _ in range(6_000):
            replies = connection.replies()
            if replies:
                self.trace.answered(self._test, replies[0])
                connection.reset()
                return replies[0]
            self.run(10)
        raise AssertionError("no reply within a minute")

    def run(self, ms: int) -> None:
        """Let that much time pass."""
        end_ms = self.now_ms + ms
        while self.now_ms < end_ms:
            self._step()
            self._pass_time(end_ms)

    def _step(self) -> None:
        random, machine = self.random, self.machine
        for role in random.sample(self._roles, len(self._roles)):
            if role.over:
                continue
            if not role.connection.alive:
                self.trace.note("begins anew", role.who)
                role.begin(machine.connect())
            elif random.random() < 0.5:
                role.move(random)
        for worker in machine.running.workers:
            if random.random() < 0.5:
                worker.run()
        machine.turn()
        if machine.process is None:
            self.trace.note("the broker gave up")
            self._restart()
        machine.broker.check()

    def _pass_time(self, end_ms: int) -> None:
        """A little; or, if there is nothing to do, until there is."""
        machine = self.machine
        process = machine.running
        busy = (
            process.post.signalled
            or bool(process.ready.wait(0, 1))
            or any(worker.jobs for worker in process.workers)
            or any(role.busy for role in self._roles)
        )
        ms = self.random.randint(0, 2)
        if not busy:
            due_ms = machine.broker.next_due()
            next_ms = end_ms if due_ms is None else min(due_ms, end_ms)
            # Once a second the broker looks after its connections and its disk.
            ms = max(min(next_ms - self.now_ms, 1_000), 0)
        machine.jump(min(ms, end_ms - self.now_ms))

    # -- what goes wrong ----------------------------------------------------------------------

    def jump(self, ms: int) -> None:
        """The machine sleeps for this long: the broker finds itself in the future."""
        self.trace.note(f"{ms} ms go by")
        self.machine.jump(ms)

    def disconnect(self) -> None:
        """All connections break."""
        self.trace.note("all connections break")
        for role in self._roles:
            role.connection.reset()

    def kill(self) -> None:
        """The broker is killed and started again."""
        self.trace.note("the broker is killed")
        self.machine.kill()
        self._restart()

    def power_cut(self) -> None:
        """The power fails and comes back: what was not synced may be there, or not, in any mix."""
        self.trace.note("the power fails")
        self.machine.power_cut()
        self._restart()

    def restart(self) -> None:
        """The broker is stopped as it should be, and started again."""
        self.trace.note("the broker is stopped")
        self.machine.stop()
        self._restart()

    def _restart(self) -> None:
        self.machine.start()
        self.trace.note("the broker runs again")

    def fill_disk(self) -> None:
        """From now on the disk is full: new messages are refused."""
        self.trace.note("the disk is full")
        self.machine.disk.capacity_bytes = self.machine.disk.used_bytes

    def free_disk(self) -> None:
        """There is room on the disk."""
        self.trace.note("the disk has room")
        self.machine.disk.capacity_bytes = None

    def story(self) -> str:
        """The last things that happened, for a test that failed."""
        return "\n".join([f"seed {self.seed}", *self.trace.lines()])
