"""The data path: one trio task over a selector of its own.

Sockets are registered in a nested selector whose own descriptor is awaited through trio, so that
trio sees one descriptor however many connections there are. Everything that is ready is gathered
and makes one turn of the broker:

    gather -> apply -> commit -> dispatch -> send

A connection that fails, in whatever way, costs that connection. What only a timer can notice (half
a request, a peer that takes nothing, silence) is noticed by a sweep once a second.
"""

from __future__ import annotations

import gc
import logging
import socket
import time
from collections import deque
from contextlib import suppress
from typing import Final

import trio

from zbus.config.server import LoopLimits
from zbus.core.api import Broker, InDoubt
from zbus.server.loop.clock import Clock
from zbus.server.loop.fair_queue import HEAVY_BELOW, QUANTUM, SMALL_BYTES, TURN_WORK, FairQueue
from zbus.server.loop.faults import FaultyLinks
from zbus.server.loop.mailbox import Mailbox
from zbus.server.loop.output import Output
from zbus.server.loop.readiness import GONE, READ, WRITE, Events, Readiness
from zbus.server.loop.sampling import Sampler
from zbus.server.loop.silence import PAUSE_S, Silence
from zbus.server.loop.socket_connection import SocketConnection
from zbus.server.loop.sockets import Acceptor
from zbus.server.loop.timeouts import ConnectionTimeouts
from zbus.wire.errors import WireError
from zbus.wire.tls import TlsStream
from zbus.wire.websocket import GOING_AWAY

_RECEIVE_BYTES = 64 << 10
_GATHERS_PER_TURN = 4
FEW, MANY = 4, 64
"""Connections of a turn that may sync by itself what it writes: the sync keeps hardly anybody
waiting, or is a small part of what the turn takes."""
_ENDS_PER_TURN = 500
_HANDSHAKE_WORK = 400  # of each step of TLS before it is established
YIELD_AFTER_S: Final = 0.02
"""The task gives way to trio's others (signals, reports) at least this often. After work it waits
as long for more by itself: to wait in trio costs as much as several requests."""

log = logging.getLogger("zbus")


class Loop:
    def __init__(
        self,
        broker: Broker,
        mailbox: Mailbox,
        limits: LoopLimits,
        clock: Clock,
        readiness: Readiness | None = None,
    ) -> None:
        """`readiness` is how a simulation says which of its sockets are ready."""
        self._clock = clock
        self._broker = broker
        asked = broker.request_clock
        asked.received_ms, asked.ahead_ms = clock.received_ms, clock.ahead_ms
        asked.drift_ms = clock.drift_ms
        faulty = FaultyLinks(self.drop, broker.faults)
        self.failed = faulty.failed
        broker.drop_sessions_by(faulty.drop)
        self._mailbox = mailbox
        self.limits = limits
        self._readiness = Readiness() if readiness is None else readiness
        self._readiness.watch(mailbox.receiver.fileno(), READ, None)
        self.links: dict[SocketConnection, None] = {}
        self.output = Output(self, limits)
        self.ready = self.output.ready
        self._held = self.output.held
        self._ring = FairQueue(self._serve_in_turn)
        self._queue = self._ring.links
        self.resume = broker.resume
        # Are gone, and the broker does not know all of it.
        self._leaving: deque[SocketConnection] = deque()
        self._ends_left = _ENDS_PER_TURN  # of their pulls and calls, in this turn
        self._acceptors: list[Acceptor] = []
        self.sweep: ConnectionTimeouts | None = None
        self.sampler: Sampler | None = None
        self.silence: Silence | None = None  # None: nobody else can take the log over
        self.stopping = False
        self.failure = ""  # why nothing may be acknowledged any more
        self._tickets_max = limits.tickets_per_connection_max
        self._turn = 0  # its number
        self._served = 0  # connections that were read from in this turn, as they were ready
        self.now_ms = 0  # monotonic; for connections, not for messages

    # -- acceptors and links ------------------------------------------------------------------

    def open_acceptor(self, acceptor: Acceptor, sock: socket.socket) -> None:
        self._acceptors.append(acceptor)
        self.watch_acceptor(acceptor, sock, True)

    def watch_acceptor(self, acceptor: Acceptor, sock: socket.socket, watch: bool) -> None:
        """Pause or resume accepting."""
        self._readiness.watch(sock.fileno(), READ if watch else 0, acceptor)

    def add(self, link: SocketConnection) -> None:
        self.links[link] = None
        self._broker.join(link)
        self.watch(link, READ)

    def attach(self, link: SocketConnection) -> None:
        """The same for one that is no client's."""
        self.links[link] = None
        self.watch(link, READ)

    def drop(self, link: SocketConnection) -> None:
        """The connection is over."""
        if link.closed:
            return
        link.closed = True
        self.output.forget(link)
        self.watch(link, 0)
        self.links.pop(link, None)
        if link.tls is not None and not link.unsent:
            with suppress(OSError):
                link.sock.send(link.tls.close())  # the peer may still be there
        link.close()
        self.leave(link)

    def leave(self, link: SocketConnection) -> None:
        """The broker forgets it: it may have a thousand pulls, so that is not done at once. One
        that left when it sent no more leaves again when it is closed, for who waits for that."""
        if not link.leaving or (link.closed and link.left):
            self._leaving.append(link)
            self._see_off()

    def _see_off(self) -> None:
        """Go on with those that leave, as far as this turn may."""
        leaving = self._leaving
        while leaving and self._ends_left > 0:
            before = leaving[0].open_waits
            if self._broker.leave(leaving[0], self._ends_left):
                link = leaving.popleft()
                self._ends_left -= 1 + before - link.open_waits
            else:
                self._ends_left = 0

    def watch(self, link: SocketConnection, events: int) -> None:
        if events != link.interest:
            self._readiness.watch(link.sock.fileno(), events, link)
            link.interest = events

    # -- the turn -------------------------------------------------------------------------

    async def run(self) -> None:
        """Turn until stopped and drained, or until the journal failed."""
        wait, events_max = self._readiness.wait, self.limits.tick_events_max
        yielded = time.monotonic()
        worked = False
        drain_until_ms = 0
        while not self.is_over:
            # Right after work the next is near: wait for it here for a moment, without trio.
            idle_s = self.idle_s()
            lingers = worked and idle_s > 0
            events = wait(min(idle_s, YIELD_AFTER_S) if lingers else 0, events_max)
            now = time.monotonic()
            if not events and idle_s > (YIELD_AFTER_S if lingers else 0):
                await self._wait()
                yielded = now = time.monotonic()
                events = wait(0, events_max)
            elif now - yielded > YIELD_AFTER_S:
                await trio.lowlevel.checkpoint()
                yielded = now = time.monotonic()
            worked = bool(events)
            self.now_ms = int(now * 1000)
            if self.silence is not None and self.silence.needed:
                self.silence.begin(self.now_ms)
                await trio.sleep(PAUSE_S)
                self._stay_silent(self.silence)
                if self.stopping:
                    return
                continue
            self.turn(events)
            if self.sampler is not None:
                self.sampler.turned(now)
            if self.stopping:
                drain_until_ms = drain_until_ms or self.now_ms + self.limits.drain_timeout_ms
                if self.drained() or self.now_ms >= drain_until_ms:
                    return

    def idle_s(self) -> float:
        """How long there is nothing to do, unless something comes; at most until the next sweep."""
        sweep = self.sweep
        if self.ready or self._queue or self._leaving or (sweep is not None and sweep.left):
            return 0.0
        seconds = 0.05 if self.stopping else 1.0
        due_ms = self._broker.next_due()
        if due_ms is not None:
            seconds = min(seconds, max(0.0, (due_ms - self._clock.now_ms()) / 1000))
        return seconds

    async def _wait(self) -> None:
        """Until something is ready, a timer of the broker ends, or it is time to sweep."""
        with trio.move_on_after(self.idle_s()):
            await trio.lowlevel.wait_readable(self._readiness.fileno())

    def turn(self, events: Events) -> None:
        """One turn over what is ready. If the journal fails in it, nothing of it is told. What else
        goes wrong is dealt with where it does (`zbus.core.model.containment`)."""
        broker = self._broker
        try:
            broker.begin(self._clock.now_ms())
            if self._ends_left != _ENDS_PER_TURN:
                self._ends_left = _ENDS_PER_TURN
            if self._leaving:
                self._see_off()
            if self._mailbox.signalled:
                self._mailbox.run()
            self._gather(events)
            if self.sweep is not None:
                self.sweep.run(self.now_ms)
            broker.finish()
        except InDoubt as error:
            self.fail(str(error))
        if self.silence is not None and self.silence.needed:
            self.silence.withhold(self.ready)
        elif not self.failure:
            self.output.send(self.now_ms)
            broker.sent()

    def _stay_silent(self, silence: Silence) -> None:
        """Take the engine's answers, and nothing else."""
        if self._mailbox.signalled:
            self._mailbox.run()
        if self.failure:
            return
        if not silence.needed:
            silence.end(self.now_ms)
            return
        for link in silence.give_up(self.links):
            self.drop(link)
        if silence.gave_up:
            self.output.send(self.now_ms)

    def _gather(self, events: Events) -> None:
        """Do what has come, and what came meanwhile: a turn has its price, so the more it does the
        better. But no link is read twice: a client that pipelines gets its replies first. Where one
        link came alone twice, nothing more is expected in this turn, and it saves a look.

        The ring comes first, so that it is not between a light request and its reply; who comes
        into an empty one need not wait for the next turn."""
        self._turn = turn = self._turn + 1
        self._ring.used = 0
        sampler = self.sampler
        if sampler is not None and self.now_ms >= sampler.next_ms and events:
            sampler.begin(events[0][0], self.now_ms)
        last, self._served, seen = self._served, 0, 0
        ran = bool(self._queue)
        if ran:
            self._ring.run()
            seen = -1
        for _ in range(_GATHERS_PER_TURN):
            for target, mask in events:
                if isinstance(target, SocketConnection):
                    if target.turn != turn:
                        target.turn = turn
                        self._served += 1
                        self._serve(target, mask)
                elif target is None:
                    self._mailbox.rang = True
                else:
                    self._accept(target)
            if self._served == seen or last == self._served == 1:
                break
            seen = self._served
            events = self._readiness.wait(0, self.limits.tick_events_max)
        if self._queue and not ran:
            self._ring.run()
        if self._ring.used >= TURN_WORK:
            # Python does it by itself when more was made than was freed: not while a crowd comes
            # and another goes. Then it stops for what was made in a hundred turns.
            gc.collect(0)

    @property
    def may_sync(self) -> bool:
        """A sync that is quick costs others little in this turn."""
        return not (FEW < self._served < MANY or self._ring.used)

    def _accept(self, acceptor: Acceptor) -> None:
        if acceptor not in self._acceptors:  # closed since it was found ready
            return
        try:
            acceptor.accept()
        except Exception:
            log.exception("accepting failed")

    def _serve(self, link: SocketConnection, mask: int) -> None:
        """A link is ready. Whatever goes wrong here ends this link and nothing else."""
        try:
            if (
                mask != READ
                or link.work < HEAVY_BELOW
                or link.tls is not None
                or link.stalled
                or link.closing
                or link.closed
            ):
                return self._serve_with_care(link, mask)
            data = link.recv(_RECEIVE_BYTES)
            if not data:
                return self._hung_up(link)
            link.heard_ms = self.now_ms
            link.in_bytes += len(data)
            spent = self._ring.used >= TURN_WORK and len(data) > SMALL_BYTES
            link.work = 0 if spent else QUANTUM
            link.receive(data)
            if link.open_tickets > self._tickets_max or link.held_bytes or link.closing:
                self._held[link] = None
            if link.work <= 0:
                self._ring.used -= link.work
                self.wait_for_turn(link)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.drop(link)
        except Exception:
            self.failed(link)

    def receive(self, link: SocketConnection, data: bytes) -> None:
        """What another process has read of a new link."""
        link.work = QUANTUM
        try:
            link.receive(data)
            self._hold(link)
        except Exception:
            self.failed(link)
        self.wait_for_turn(link)

    def _serve_with_care(self, link: SocketConnection, mask: int) -> None:
        """The whole of it, the usual case included."""
        if link.closed:
            return
        if mask & WRITE:
            self.output.flush(link)
        if mask & GONE:
            return self._hung_up(link)
        if mask == WRITE or link.queued:
            return
        if link.stalled and mask == READ and not link.closing:
            return  # so what it asks for is not done: enough of it in this turn
        if link.work < HEAVY_BELOW:
            self._ring.add(link)
            return
        link.work = QUANTUM
        self._read(link, large_waits=self._ring.used >= TURN_WORK)
        if link.work < 0:
            self._ring.used -= link.work
        self.wait_for_turn(link)

    def _serve_in_turn(self, link: SocketConnection) -> None:
        """It is the turn of a link in the ring."""
        link.turn = self._turn
        try:
            if link.has_requests:
                link.resume()
                self._hold(link)
                self._end_of_tls(link)
            elif not link.stalled or link.closing:
                self._hold(link)  # its requests may wait for replies by now
                self._read(link)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.drop(link)
        except Exception:
            self.failed(link)

    def _end_of_tls(self, link: SocketConnection) -> None:
        """The peer said goodbye behind requests: they are done now, if none is left."""
        if link.tls is not None and link.tls.over and not (link.has_requests or link.closed):
            self._hung_up(link)

    def wait_for_turn(self, link: SocketConnection) -> None:
        """What it has asked for beyond its work is done when it is its turn."""
        if link.has_requests and not link.closed:
            self._ring.add(link)

    def _hold(self, link: SocketConnection) -> None:
        if link.open_tickets > self._tickets_max or link.held_bytes or link.closing:
            self._held[link] = None

    def _read(self, link: SocketConnection, *, large_waits: bool = False) -> None:
        """Do what has come on a link of any kind; `large_waits`: if it is much, in its turn."""
        tls = link.tls
        data = link.sock.recv(_RECEIVE_BYTES)
        over = not data
        link.in_bytes += len(data)
        if tls is not None and data and not link.hung_up:
            data = self._decrypt(link, tls, data)
            over = tls.over
        if data and not link.closing:  # what comes after the last request is dropped
            link.heard_ms = self.now_ms
            if large_waits and len(data) > SMALL_BYTES:
                link.work = 0
            link.receive(data)
            self._hold(link)
        elif data and link.linger_until_ms:
            link.linger(self.now_ms)
        if over and not (link.closed or link.has_requests):
            self._hung_up(link)

    def _decrypt(self, link: SocketConnection, tls: TlsStream, data: bytes) -> bytes:
        """The plaintext of what came. What TLS has to say to it leaves at the end of the turn."""
        link.heard_ms = self.now_ms
        shaking = not tls.established
        if shaking:
            link.work -= _HANDSHAKE_WORK
        data = tls.receive(data)
        if shaking and tls.established:
            link.principal = tls.principal
            link.half_head_since_ms = 0
        if tls.error:
            log.info("TLS failed", extra={"peer": link.address, "why": tls.error})
        if tls.speaks:
            link.write(b"")
        return data

    def _hung_up(self, link: SocketConnection) -> None:
        """The peer sends no more. It may still read: replies that are on their way go out, but no
        new message is handed to it."""
        link.hung_up = True
        link.forget_requests()
        self.leave(link)
        if link.linger_until_ms or not (link.open_tickets or link.out or link.unsent):
            self.drop(link)
        else:
            link.closing = True
            self._held[link] = None

    # -- the end --------------------------------------------------------------------------

    def stop(self) -> None:
        """Take no more connections and no more work; `run` returns when the replies are out."""
        if self.stopping:
            return
        self.stopping = True
        self._close_acceptors()
        self._broker.stop()
        for link in self.links:
            if link.framing is not None and not link.broken:
                link.refuse(WireError(GOING_AWAY, "the broker is stopping"))

    def fail(self, text: str) -> None:
        """The journal cannot be trusted any more: nothing is answered from here on."""
        self.failure = text

    @property
    def is_over(self) -> bool:
        """Nothing more can be acknowledged, or the engine has been late for too long."""
        return bool(self.failure) or (self.silence is not None and self.silence.gave_up)

    def drained(self) -> bool:
        """Everything that was to be said after `stop` is said."""
        return not (
            self._broker.has_unwritten()
            or self.ready
            or any(
                link.unsent or link.farewell or link.open_tickets > link.open_waits
                for link in self.links
            )
        )

    def _close_acceptors(self) -> None:
        for acceptor in self._acceptors:
            acceptor.close()
        self._acceptors.clear()

    def close(self) -> None:
        """Let go of everything; nothing more is sent."""
        self._close_acceptors()
        for link in list(self.links):
            self.drop(link)
        self._readiness.close()
