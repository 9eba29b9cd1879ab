"""The consumer of the blocking client: `Consuming` over a `Link` of its own."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Self, Unpack, cast

from zbus.client.documents import GroupInfo
from zbus.client.errors import Forbidden, NotFound, NotLeased, ZbusError
from zbus.client.links.forking import Unpicklable, follow_forks, require_own
from zbus.client.links.link import Link
from zbus.client.links.request_tracker import Call
from zbus.client.messages import Body, Delivery, Held, Labels, Stored
from zbus.client.options import Addresses, Options
from zbus.client.readers.consuming import Consuming, Make
from zbus.client.requests import Request, parse_deliveries
from zbus.wire.responses import Response

LEAVE_S = 5.0
"""How long a consumer that is closed waits for the end of its pull."""

LISTEN_S = 0.01
"""How long the keeper of leases listens for messages that no client has asked for yet."""


class Consumer(Unpicklable):
    """The messages of a group, one after another. Made by `consume`."""

    def __init__(
        self,
        addresses: Addresses,
        options: Options,
        make: Make,
        query: Request[GroupInfo],
        required: bool,
        home: Link,
    ) -> None:
        """`query` asks for the group; if it is `required`, it must not be refused. `home` is the
        client's: messages that cannot be given back are kept there for the next consumer."""
        self._home = home
        self._link = Link(addresses, options)
        self._make = make
        self._query = query
        self._required = required
        self._core: Consuming | None = None
        self._parent = 0  # the process that consumes, and forked this one
        self._lock = threading.Lock()  # of the core: the keeper looks at it too
        self._pull: Call[list[Delivery]] | None = None
        self._sent: deque[Call[Any]] = deque()  # acknowledgements on their way
        self._keeper: threading.Thread | None = None
        self._stop = threading.Event()
        self._managed = False
        self._closed = False
        follow_forks(self)

    def forked(self, parent: int) -> None:
        """What is held is the parent's, which keeps its leases and settles it. One that has not
        begun is as good here as there."""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._keeper = None
        if self._core is not None:
            self._parent = self._parent or parent

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

    def _open(self) -> Consuming:
        require_own("consumer", self._parent)
        core = self._core
        if core is None:
            try:
                info = self._link.run(self._query)
            except Forbidden:
                if self._required:
                    self._link.close()
                    raise
                info = None  # a token may allow consuming and no more
            except BaseException:
                self._link.close()
                raise
            core = self._core = self._make(info)
            core.parse = partial(parse_deliveries, make=partial(Held, self))
            if kept := self._home.take_kept(core.pulling):
                core.took([Held(self, Response(200, one.fields, one.body)) for one in kept])
            if core.leases:
                self._keeper = threading.Thread(target=self._keep, name="zbus-lease", daemon=True)
                self._keeper.start()
        return core

    def next(self) -> Held | None:
        """The next message, and the one before is done; None when `timeout_ms` is over."""
        core = self._open()
        try:
            while True:
                now_s = time.monotonic()
                with self._lock:
                    self._take(core)
                    delivery = core.step(now_s)
                    requests = core.requests(now_s)
                    finished = delivery is None and core.finished(now_s)
                    pull = None if finished else core.pull(now_s)
                for request in requests:
                    self._sent.append(self._link.submit(request))
                if pull is not None:
                    self._pull = self._link.submit(pull)
                if requests or pull is not None:
                    self._link.flush()
                self._check(wait=finished)
                if delivery is not None or finished:
                    return cast("Held | None", delivery)
                self._wait_for_pull()
        except BaseException:
            with self._lock:
                core.unseen()
            raise

    def _wait_for_pull(self, until_s: float | None = None) -> None:
        pull = self._pull
        if pull is not None:
            self._link.wait(pull, until_s)

    def _take(self, core: Consuming) -> None:
        """What the pull brought, if it is done. The lock is held."""
        pull = self._pull
        if pull is not None and pull.done:
            self._pull = None
            core.pull_failed()  # as long as nothing else is known
            core.took(pull.result())

    def ack(self, *deliveries: Delivery) -> None:
        """Acknowledge these messages, without waiting for the next one to be taken. Many are one
        request for each partition. A single one may wait a tenth of a second for others.

        Raises ValueError for a message that is not this consumer's; then none is acknowledged."""
        core = self._open()
        now_s = time.monotonic()
        with self._lock:
            core.require_held(*deliveries)
            for delivery in deliveries:
                core.ack(delivery, now_s)
            requests = core.flush() if len(deliveries) > 1 else core.requests(now_s)
        for request in requests:
            self._sent.append(self._link.submit(request))
        if requests:
            self._link.flush()

    def nack(self, delivery: Delivery, *, delay_ms: int = 0, front: bool = True) -> None:
        """This message is to come again: first, or last (`front=False`), or after `delay_ms`
        milliseconds. Raises ValueError for a message that is not this consumer's."""
        core = self._open()
        with self._lock:
            core.require_held(delivery)
            request = core.nack(delivery, delay_ms, front)
        if request is not None:
            _unless_gone(lambda: self._link.run(request))

    def extend(self, delivery: Delivery, *, lease_ms: int | None = None) -> None:
        """Keep this message for `lease_ms` milliseconds from now, or for the group's own time. The
        consumer does the latter by itself. Raises NotFound if it is not leased any more, ValueError
        for a message that is not this consumer's."""
        core = self._open()
        with self._lock:
            core.require_held(delivery)
            request = core.extend(delivery, lease_ms, time.monotonic())
        if request is not None:
            self._link.run(request)

    def reply_to(
        self, delivery: Delivery, topic: str, body: Body = b"", **labels: Unpack[Labels]
    ) -> Stored | None:
        """Put what was made of this message into a topic, and the message is done: both or neither.
        `labels` are those of `produce`. None if it is not leased any more: then nothing is stored.
        Raises what `produce` does, ValueError for a message that is settled or not held here."""
        core = self._open()
        with self._lock:
            core.require_held(delivery)
            request = core.reply_to(delivery, topic, body, labels)
        try:
            stored = self._link.run(request)
        except NotLeased:
            stored = None
        with self._lock:
            core.replied(delivery)
        return stored

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
            if self._core is not None and not self._parent:
                self._leave(self._core, failed)
        except ZbusError:
            if not quiet:
                raise
        finally:
            self._link.close()
            if self._keeper is not None:
                self._keeper.join()

    def _leave(self, core: Consuming, failed: bool) -> None:
        with self._lock:
            requests = core.close()
        for request in requests:
            self._sent.append(self._link.submit(request))
        self._link.flush()
        if self._pull is not None:
            # Messages may have been on their way to us. If not, no others are wanted.
            self._link.last_time(self._pull)
            self._wait_for_pull(time.monotonic() + LEAVE_S)
            try:
                with self._lock:
                    self._take(core)
            except ZbusError:
                pass
        with self._lock:
            self._home.put_back(core.pulling, core.left())
            requests = core.give_back(failed, time.monotonic())
        calls = [self._link.submit(request) for request in requests]
        self._link.flush()
        self._check(wait=True)
        for call in calls:
            self._link.wait(call)
            _unless_gone(call.result)

    def _check(self, wait: bool) -> None:
        """Whether acknowledgements went well."""
        sent = self._sent
        while sent and (wait or sent[0].done):
            if not sent[0].done:
                self._link.wait(sent[0])
            _unless_gone(sent.popleft().result)

    def _keep(self) -> None:
        """The thread that keeps leases while the user works."""
        core = self._core
        assert core is not None
        while not self._stop.wait(core.keep_every_s):
            # What came between two calls is leased, too.
            self._wait_for_pull(time.monotonic() + LISTEN_S)
            with self._lock:
                try:
                    self._take(core)
                except ZbusError:
                    pass  # the loop asks again
                requests = [*core.flush(), *core.extensions(time.monotonic())]
            for request in requests:
                try:
                    self._link.run(request)
                except ZbusError:
                    pass  # they come again; the loop will notice what is wrong


def _unless_gone(do: Callable[[], object]) -> None:
    """What is not leased any more comes again by itself; what was removed has nothing to settle."""
    try:
        do()
    except NotFound:
        pass
