"""What the consumers of both clients do alike, and the one that blocks. Each has a link of its own.

`Consuming` says what is next. `ConsumerSteps` sends it and waits, for both. What is left for each
is how it begins, ends, and keeps leases meanwhile.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack, cast

from zbus.client.errors import Forbidden, NotFound, NotLeased, ZbusError
from zbus.client.links.forking import Unpicklable, follow_forks, require_own
from zbus.client.links.link import Link
from zbus.client.links.request_tracker import Call
from zbus.client.links.shared import AnyLink, BlockingLink
from zbus.client.messages import Body, Delivery, Labels, Stored
from zbus.client.options import Addresses, Options
from zbus.client.readers.consuming import Consuming, Opening
from zbus.client.requests import Pulling, Request, parse_deliveries
from zbus.wire.responses import Response

LEAVE_S = 5.0
"""How long a consumer that is closed waits for what is on its way."""

LISTEN_S = 0.01
"""How long the keeper of leases listens for messages that no client has asked for yet."""

P = ParamSpec("P")
T = TypeVar("T")
AnyHeld = TypeVar("AnyHeld", bound=Delivery)


class Home(Protocol):
    """The link of the client: messages that cannot be given back are kept there for the next
    consumer."""

    def take_kept(self, pulling: Pulling) -> list[Delivery]: ...
    def put_back(self, pulling: Pulling, deliveries: list[Delivery]) -> None: ...


class ConsumerSteps(Unpicklable, Generic[AnyHeld]):
    """The messages of a group, one after another."""

    def __init__(
        self,
        link: AnyLink,
        home: Home,
        opening: Opening,
        held: Callable[[Response], AnyHeld],
    ) -> None:
        """`held` makes messages."""
        self._link = link
        self._home = home
        self._opening = opening
        self._held = held
        self._core: Consuming | None = None
        self._pull: Call[list[Delivery]] | None = None
        self._sent: deque[Call[Any]] = deque()  # acknowledgements on their way
        self._parent = 0  # the process that consumes, and forked this one
        follow_forks(self)

    def forked(self, parent: int) -> None:
        """What is held is the parent's, which keeps its leases and settles it. One that has not
        begun is as good here as there."""
        if self._core is not None:
            self._parent = self._parent or parent

    async def _begin(self) -> Consuming:
        """Ask for the group."""
        try:
            info = await self._link.run(self._opening.query)
        except Forbidden:
            if self._opening.required:
                raise
            info = None  # a token may allow consuming and no more
        core = self._core = self._opening.make(info)
        core.parse = partial(parse_deliveries, make=self._held)
        if kept := self._home.take_kept(core.pulling):
            core.took([self._held(Response(200, one.fields, one.body)) for one in kept])
        return core

    def _begun(self) -> Consuming:
        core = self._core
        if core is None:
            raise RuntimeError("a consumer is used with `async with`")
        if self._parent:
            require_own("consumer", self._parent)
        return core

    async def next(self) -> AnyHeld | None:
        """The next message, and the one before is done; None when `timeout_ms` is over."""
        core, link = self._begun(), self._link
        try:
            while True:
                now_s = link.now_s()
                self._take(core)
                delivery = core.step(now_s)
                requests = core.requests(now_s)
                finished = delivery is None and core.finished(now_s)
                pull = None if finished else core.pull(now_s)
                for request in requests:
                    self._sent.append(link.submit(request))
                if pull is not None:
                    self._pull = link.submit(pull)
                if requests or pull is not None:
                    await link.flush()
                if self._sent:
                    await self._check(wait=finished)
                if delivery is not None or finished:
                    return cast("AnyHeld | None", delivery)
                if self._pull is not None:
                    await link.wait(self._pull)  # cancelled here, it goes on: nothing is lost
        except BaseException:
            core.unseen()  # cancelled, mostly
            raise

    def _take(self, core: Consuming) -> None:
        """What the pull brought, if it is done."""
        pull = self._pull
        if pull is not None and pull.done:
            self._pull = None
            core.pull_failed()  # as long as nothing else is known
            core.took(pull.result())

    async def _send(self, requests: list[Request[Any]]) -> None:
        for request in requests:
            self._sent.append(self._link.submit(request))
        if requests:
            await self._link.flush()

    async def ack(self, *deliveries: Delivery) -> None:
        """Acknowledge these messages, without waiting for the next one to be taken. Many are one
        request for each partition. A single one may wait a tenth of a second for others.

        Raises ValueError for a message that is not this consumer's; then none is acknowledged."""
        core = self._begun()
        now_s = self._link.now_s()
        core.require_held(*deliveries)
        for delivery in deliveries:
            core.ack(delivery, now_s)
        await self._send(core.flush() if len(deliveries) > 1 else core.requests(now_s))

    async def nack(self, delivery: Delivery, *, delay_ms: int = 0, front: bool = True) -> None:
        """This message is to come again: first, or last (`front=False`), or after `delay_ms`
        milliseconds. Raises ValueError for a message that is not this consumer's."""
        core = self._begun()
        core.require_held(delivery)
        request = core.nack(delivery, delay_ms, front)
        if request is not None:
            with suppress(NotFound):  # not leased any more: it comes again by itself
                await self._link.run(request)

    async def extend(self, delivery: Delivery, *, lease_ms: int | None = None) -> None:
        """Keep this message for `lease_ms` milliseconds from now, or for the group's own time. The
        consumer does the latter by itself. Raises NotFound if it is not leased any more, ValueError
        for a message that is not this consumer's."""
        core = self._begun()
        core.require_held(delivery)
        request = core.extend(delivery, lease_ms, self._link.now_s())
        if request is not None:
            await self._link.run(request)

    async def reply_to(
        self, delivery: Delivery, topic: str, body: Body = b"", **labels: Unpack[Labels]
    ) -> Stored | None:
        """Put what was made of this message into a topic, and the message is done: both or neither.
        `labels` are those of `produce`. None if it is not leased any more: then nothing is stored.
        Raises what `produce` does, ValueError for a message that is settled or not held here."""
        core = self._begun()
        core.require_held(delivery)
        try:
            stored = await self._link.run(core.reply_to(delivery, topic, body, labels))
        except NotLeased:
            stored = None
        core.replied(delivery)
        return stored

    async def _leave(self, failed: bool, patience_s: float) -> None:
        """Acknowledge what is done, give back what no client has seen, leave the group; after
        `patience_s` seconds at most, messages that are on their way are the broker's to find."""
        core, link = self._begun(), self._link
        await self._send(core.close())
        if self._pull is not None:
            # Messages may have been on their way to us. If not, no others are wanted.
            link.last_time(self._pull)
            await link.wait(self._pull, link.now_s() + patience_s)
            with suppress(ZbusError):
                self._take(core)
        self._home.put_back(core.pulling, core.left())
        calls = [link.submit(request) for request in core.give_back(failed, link.now_s())]
        await link.flush()
        await self._check(wait=True)
        for call in calls:
            await link.wait(call)
            with suppress(NotFound):  # not leased any more: it comes again by itself
                call.result()

    async def _check(self, wait: bool) -> None:
        """Whether acknowledgements went well."""
        sent = self._sent
        while sent and (wait or sent[0].done):
            if not sent[0].done:
                await self._link.wait(sent[0])
            with suppress(NotFound):  # what was removed has nothing to settle
                sent.popleft().result()

    async def _keep_leases(self, core: Consuming) -> None:
        """Keep the leases of all that is held, once. What no client has asked for yet is leased,
        too."""
        with suppress(ZbusError):  # the loop asks again
            self._take(core)
        for request in [*core.flush(), *core.extensions(self._link.now_s())]:
            with suppress(ZbusError):  # they come again; the loop will notice what is wrong
                await self._link.run(request)


def _finished(
    steps: Callable[Concatenate[ConsumerSteps[Held], P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Consumer, P], T]:
    """The method that does these steps, one after another."""

    @functools.wraps(steps)
    def method(self: Consumer, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self._steps._core is None:
            self._open()
        return self._blocking.finish(steps(self._steps, *args, **kwargs))

    return method


class Consumer(Unpicklable):
    """The messages of a group, one after another. Made by `consume`."""

    ack = _finished(ConsumerSteps.ack)
    nack = _finished(ConsumerSteps.nack)
    extend = _finished(ConsumerSteps.extend)
    reply_to = _finished(ConsumerSteps.reply_to)

    def __init__(
        self,
        addresses: Addresses,
        options: Options,
        opening: Opening,
        home: Link,
    ) -> None:
        self._link = Link(addresses, options)
        self._blocking = BlockingLink(self._link)
        held = functools.partial(Held, self)
        self._steps = ConsumerSteps(self._blocking, home, opening, held)
        self._keeper: threading.Thread | None = None
        self._stop = threading.Event()
        self._managed = False
        self._closed = False
        follow_forks(self)

    def forked(self, parent: int) -> None:
        """In a child there is no keeper, and nobody's turn."""
        self._blocking.forked()
        self._stop = threading.Event()
        self._keeper = None

    def next(self) -> Held | None:
        """The next message, and the one before is done; None when `timeout_ms` is over."""
        if self._steps._core is None:
            self._open()
        return self._blocking.finish(self._steps.next())

    def __enter__(self) -> Self:
        self._managed = True
        self._open()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._close(kind is not None, quiet=kind is not None)

    def __iter__(self) -> Iterator[Held]:
        self._open()
        try:
            while (delivery := self.next()) is not None:
                yield delivery
        except BaseException:
            # After GeneratorExit it is unknown whether the body came to its end: it is done again.
            if not self._managed:
                self._close(failed=True, quiet=True)
            raise
        if not self._managed:
            self.close()

    def _open(self) -> None:
        """Once, before the first step."""
        steps = self._steps
        require_own("consumer", steps._parent)
        if steps._core is not None:
            return
        try:
            core = self._blocking.finish(steps._begin())
        except BaseException:
            self._link.close()
            raise
        if core.leases:
            self._keeper = threading.Thread(
                target=self._keep, args=[core], name="zbus-lease", daemon=True
            )
            self._keeper.start()

    def close(self) -> None:
        """Acknowledge what is done, give back what no client has seen, leave the group."""
        self._close(failed=False, quiet=False)

    def _close(self, failed: bool, quiet: bool) -> None:
        """`quiet`: another error is on its way already."""
        if self._closed:
            return
        self._closed = True
        self._stop.set()
        try:
            if self._steps._core is not None and not self._steps._parent:
                self._blocking.finish(self._steps._leave(failed, LEAVE_S))
        except ZbusError:
            if not quiet:
                raise
        finally:
            self._link.close()
            if self._keeper is not None:
                self._keeper.join()

    def _keep(self, core: Consuming) -> None:
        """The thread that keeps leases while the user works."""
        while not self._stop.wait(core.keep_every_s):
            pull = self._steps._pull
            if pull is not None:  # what came between two calls is leased, too
                self._link.wait(pull, time.monotonic() + LISTEN_S)
            self._blocking.finish(self._steps._keep_leases(core))


class Held(Delivery):
    """A message that a blocking consumer holds. Settling it twice does nothing more, and neither
    does settling one of a group without acknowledgements."""

    __slots__ = ("_consumer",)

    def __init__(self, consumer: Consumer, response: Response) -> None:
        super().__init__(response)
        self._consumer = consumer

    def ack(self) -> None:
        """Acknowledge it: soon, together with others."""
        self._consumer.ack(self)

    def nack(self, *, delay_ms: int = 0, front: bool = True) -> None:
        """It is to come again: first, or last (`front=False`), or after `delay_ms` milliseconds."""
        self._consumer.nack(self, delay_ms=delay_ms, front=front)

    def extend(self, *, lease_ms: int | None = None) -> None:
        """Keep it for `lease_ms` milliseconds from now, or the group's own time. Raises NotFound
        if it is not leased any more, so that another client may have it."""
        self._consumer.extend(self, lease_ms=lease_ms)

    def reply_to(self, topic: str, body: Body = b"", **labels: Unpack[Labels]) -> Stored | None:
        """Put what was made of it into a topic, and it is done: both or neither. `labels` are those
        of `produce`. None if it is not leased any more: nothing is stored, since another client has
        it, or since an earlier attempt of this was done and its answer lost."""
        return self._consumer.reply_to(self, topic, body, **labels)
