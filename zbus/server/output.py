"""What leaves: the replies of a turn, and the connections that wait until they are rid of them."""

from __future__ import annotations

import logging
import socket
from typing import Protocol

from zbus.server.link import Link
from zbus.server.options import LoopLimits
from zbus.server.readiness import READ, WRITE
from zbus.wire.tls import TlsStream

log = logging.getLogger("zbus")


class Connections(Protocol):
    """What the loop does with a connection."""

    def drop(self, link: Link) -> None: ...

    def failed(self, link: Link) -> None:
        """A mistake came to light."""

    def leave(self, link: Link) -> None: ...

    def resume(self, link: Link) -> None:
        """It takes what it is sent again."""

    def wait_for_turn(self, link: Link) -> None:
        """If it has asked for more, that is done when it is its turn."""

    def watch(self, link: Link, events: int) -> None: ...


class Output:
    """See the module."""

    def __init__(self, loop: Connections, limits: LoopLimits) -> None:
        self._loop = loop
        self._bytes_max = limits.output_bytes_max
        self._tickets_max = limits.tickets_per_connection_max
        self._now_ms = 0
        self.ready: list[Link] = []  # have something to send in this turn
        self.held: dict[Link, None] = {}  # not read from until they get rid of something
        # What connections have not taken yet, and how much that may be; 0 = without a bound.
        self.unsent_bytes = 0
        self.unsent_bytes_max = 0

    def forget(self, link: Link) -> None:
        """It is over."""
        self.unsent_bytes -= len(link.unsent)
        self.held.pop(link, None)

    def _encrypt(self, link: Link, tls: TlsStream, data: bytes) -> bytes:
        """What to send for this plaintext; from here on the link's output is counted as it is
        sent."""
        try:
            sealed = tls.encrypt(data)
        except Exception:
            self._loop.failed(link)
            return b""
        link.out_bytes += len(sealed) - len(data)
        if link.out_bytes > self._bytes_max:
            link.stalled = True
        return sealed

    def send(self, now_ms: int) -> None:
        """Send what this turn's links have to say; look after those that are held."""
        self._now_ms = now_ms
        ready = self.ready.copy()
        self.ready.clear()  # the list itself is known to the listeners
        for link in ready:
            try:
                out = link.out
                data = out[0] if len(out) == 1 else b"".join(out)
                out.clear()
                if link.tls is not None or link.unsent or link.closed:
                    held_back = self._hold_back(link, data)
                    if held_back is None:
                        continue
                    data = held_back
                sent = link.send_some(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                self._loop.drop(link)
                continue
            except Exception:
                self._loop.failed(link)
                continue
            link.sent_ms = now_ms
            link.out_bytes -= sent
            if sent < len(data):
                self._keep_unsent(link, memoryview(data)[sent:])
            elif link.closing or link.stalled:
                self.held[link] = None
        if self.held:
            for link in list(self.held):
                try:
                    self._settle(link)
                except Exception:
                    self._loop.failed(link)

    def _hold_back(self, link: Link, data: bytes) -> bytes | None:
        """What is to be sent now for this data; None = nothing is sent to this link now."""
        if link.tls is not None and not link.closed:
            data = self._encrypt(link, link.tls, data)
        if link.closed:
            return None
        if link.unsent:
            self._keep_unsent(link, data)
            return None
        return data

    def _keep_unsent(self, link: Link, data: bytes | memoryview) -> None:
        """The socket does not take it now. If all that is kept so would be too much, those lose who
        leave more behind now."""
        self.held[link] = None
        link.unsent += data
        self.unsent_bytes += len(data)
        if self.unsent_bytes > self.unsent_bytes_max > 0:
            log.warning(
                "cut off, the replies that nobody takes fill the memory for them",
                extra={"peer": link.address, "bytes": len(link.unsent)},
            )
            self._loop.drop(link)

    def flush(self, link: Link) -> None:
        """The socket takes bytes again."""
        sent = link.sock.send(link.unsent) if link.unsent else 0
        if sent:
            link.sent_ms = self._now_ms
            link.taken_bytes += sent
            self.unsent_bytes -= sent
            del link.unsent[:sent]
            link.out_bytes -= sent
        self.held[link] = None

    def _settle(self, link: Link) -> None:
        """Decide what a held link is watched for, and whether it is over."""
        if link.finished and not link.unsent:
            if link.farewell:
                self._loop.leave(link)
                link.part()
            else:
                self._linger(link)
            return
        if link.stalled and 2 * link.out_bytes <= self._bytes_max:
            self._loop.resume(link)
        self._loop.wait_for_turn(link)
        if link.closed:
            return
        crowded = link.crowded(self._tickets_max)
        # A peer that closes while a pull of its waits is noticed; its pull must not get a message.
        deaf = crowded or link.hung_up or (link.closing and not link.open_waits)
        events = 0 if deaf else READ
        if link.unsent:
            events |= WRITE
        if (link.stalled and link.unsent) or not (crowded or link.closing):
            del self.held[link]  # its socket says when there is more to do
        if events & READ > link.interest & READ:
            link.heard_ms = self._now_ms  # from now on it can be heard
        self._loop.watch(link, events)

    def _linger(self, link: Link) -> None:
        """Everything is said. A peer that is still sending must not lose our last words to a
        reset, so its bytes are read and dropped for a moment."""
        if link.tls is not None and not self._say_goodbye(link, link.tls):
            return
        del self.held[link]
        try:
            link.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._loop.drop(link)
            return
        self._loop.leave(link)
        link.linger(self._now_ms)
        self._loop.watch(link, READ)

    def _say_goodbye(self, link: Link, tls: TlsStream) -> bool:
        """End TLS, so that the peer knows that nothing was cut off. False: not all of it is sent,
        or the link is over already."""
        data = tls.close()
        try:
            sent = link.sock.send(data) if data else 0
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._loop.drop(link)
            return False
        link.unsent = bytearray(data[sent:])
        self.unsent_bytes += len(link.unsent)
        link.out_bytes += len(link.unsent)
        if link.unsent:
            self._loop.watch(link, WRITE)
        return not link.unsent
