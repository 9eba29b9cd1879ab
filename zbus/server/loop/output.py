"""What leaves: the replies of a turn, and the connections that wait until they are rid of them.

Nearly every reply is small, and leaves at the end of its turn. Large ones leave in portions, and
the connections that have some take turns: what is not sent yet is kept as it is, without a copy.
"""

from __future__ import annotations

import logging
import socket
from typing import Protocol

from zbus.config.server import LoopLimits
from zbus.server.loop.readiness import GONE, READ, WRITE
from zbus.server.loop.socket_connection import SocketConnection
from zbus.wire.tls import TlsStream

SMALL_BYTES = 64 << 10
"""Less than this is copied, and sent without waiting for a turn."""

SEND_BYTES_MAX, TURN_BYTES_MAX = 1 << 20, 4 << 20
"""What a connection may be sent of large replies in a turn of the loop, and what all together. The
kernel copies every byte, which takes a millisecond for some megabytes."""

log = logging.getLogger("zbus")


class Connections(Protocol):
    """What the loop does with a connection."""

    def drop(self, link: SocketConnection) -> None: ...

    def failed(self, link: SocketConnection) -> None:
        """A mistake came to light."""

    def leave(self, link: SocketConnection) -> None: ...

    def resume(self, link: SocketConnection) -> None:
        """It takes what it is sent again."""

    def wait_for_turn(self, link: SocketConnection) -> None:
        """If it has asked for more, that is done when it is its turn."""

    def watch(self, link: SocketConnection, events: int) -> None: ...


class Output:
    def __init__(self, loop: Connections, limits: LoopLimits) -> None:
        self._loop = loop
        self._bytes_max = limits.output_bytes_max
        self._tickets_max = limits.tickets_per_connection_max
        self._now_ms = 0
        self.ready: list[SocketConnection] = []  # have something to send in this turn
        # Not read from until they get rid of something.
        self.held: dict[SocketConnection, None] = {}
        # May take more of what is unsent; they have turns.
        self._takers: dict[SocketConnection, None] = {}
        # What connections have not taken yet, and how much that may be; 0 = without a bound.
        self.unsent_bytes = 0
        self.unsent_bytes_max = 0

    def forget(self, link: SocketConnection) -> None:
        """It is over."""
        self.unsent_bytes -= link.unsent_bytes
        self.held.pop(link, None)
        self._takers.pop(link, None)

    def _encrypt(self, link: SocketConnection, tls: TlsStream, data: bytes) -> bytes:
        """What to send for this plaintext; from here on the link counts what it sends."""
        unsaid_bytes = tls.unsaid_bytes
        try:
            sealed = tls.encrypt(data)
        except Exception:
            self._loop.failed(link)
            return b""
        link.out_bytes += len(sealed) - len(data) + tls.unsaid_bytes - unsaid_bytes
        if link.out_bytes > self._bytes_max and link.may_stall:
            link.stalled = True
        return sealed

    def send(self, now_ms: int) -> None:
        """Send what this turn's links have to say; look after those that are held."""
        self._now_ms = now_ms
        ready = self.ready.copy()
        self.ready.clear()  # the list itself is known to the listeners
        for link in ready:
            try:
                if link.stalled or link.tls is not None or link.unsent or link.closed:
                    self._put_by(link)
                    continue
                out = link.out
                data = out[0] if len(out) == 1 else b"".join(out)
                out.clear()
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
            link.sent_bytes += sent
            link.out_bytes -= sent
            if sent < len(data):
                self._keep(link, memoryview(data)[sent:])
                self._cut_off(link)
            elif link.closing or link.stalled:
                self.held[link] = None
        if self._takers:
            self._send_portions()
        if self.held:
            for link in list(self.held):
                try:
                    self._settle(link)
                except Exception:
                    self._loop.failed(link)

    def _put_by(self, link: SocketConnection) -> None:
        """What is not sent at once, or not as it is: what is large or encrypted, or comes behind
        what is unsent."""
        pieces = link.out.copy()
        link.out.clear()
        if link.tls is not None and not link.closed:
            pieces = [self._encrypt(link, link.tls, b"".join(pieces))]
        if link.closed:
            return
        waits = bool(link.unsent)
        for piece in pieces:
            self._keep(link, piece)
        self.held[link] = None
        if not waits:
            link.sent_ms = self._now_ms
            if link.unsent_bytes <= SMALL_BYTES:
                self._try_to_send(link)
            elif link.unsent:
                self._takers[link] = None
        if not link.closed:
            self._cut_off(link)

    def _keep(self, link: SocketConnection, data: bytes | memoryview) -> None:
        """For later."""
        size, unsent = len(data), link.unsent
        if not size:
            return
        if size > SMALL_BYTES:
            unsent.append(memoryview(data))
        elif unsent and type(unsent[-1]) is bytearray:
            unsent[-1] += data
        else:
            unsent.append(bytearray(data))
        link.unsent_bytes += size
        self.unsent_bytes += size
        self.held[link] = None

    def _cut_off(self, link: SocketConnection) -> None:
        """If all that is kept would be too much, those lose who leave more behind now."""
        if self.unsent_bytes > self.unsent_bytes_max > 0 and link.unsent:
            log.warning(
                "cut off: unread replies use all their memory",
                extra={"peer": link.address, "bytes": link.unsent_bytes},
            )
            self._loop.drop(link)

    def flush(self, link: SocketConnection) -> None:
        """The socket takes bytes again: it is sent some when it is its turn."""
        if link.unsent:
            self._takers[link] = None
        self.held[link] = None

    def _send_portions(self) -> None:
        """Those who had none for the longest time come first."""
        takers, left = self._takers, TURN_BYTES_MAX
        while takers and left > 0:
            link = next(iter(takers))
            del takers[link]
            left -= self._try_to_send(link)

    def _try_to_send(self, link: SocketConnection) -> int:
        """Send some of what is unsent; how much was."""
        try:
            return self._send_some(link)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._loop.drop(link)
        except Exception:
            self._loop.failed(link)
        return 0

    def _send_some(self, link: SocketConnection) -> int:
        unsent, left = link.unsent, SEND_BYTES_MAX
        self.held[link] = None
        while unsent and left > 0:
            piece = unsent[0]
            size = min(len(piece), left)
            with memoryview(piece) as view, view[:size] as portion:
                sent = link.send_some(portion)
            left -= sent
            if sent == len(piece):
                del unsent[0]
            elif type(piece) is bytearray:
                del piece[:sent]
            else:
                rest = piece[sent:]  # a small one must not keep the whole
                unsent[0] = bytearray(rest) if len(rest) <= SMALL_BYTES else rest
            link.sent_ms = self._now_ms
            link.taken_bytes += sent
            link.unsent_bytes -= sent
            link.out_bytes -= sent
            self.unsent_bytes -= sent
            if sent < size:
                break
        return SEND_BYTES_MAX - left

    def _settle(self, link: SocketConnection) -> None:
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
        if crowded and link.only_waits:
            events = GONE
        if link.unsent:
            events |= WRITE
        if (link.stalled and link.unsent) or not (crowded or link.closing):
            del self.held[link]  # its socket says when there is more to do
        if events & READ > link.interest & READ:
            link.heard_ms = self._now_ms  # from now on it can be heard
        self._loop.watch(link, events)

    def _linger(self, link: SocketConnection) -> None:
        """Everything is said. A peer that is still sending must not lose our last words to a
        reset, so its bytes are read and dropped for a moment."""
        if link.tls is not None and not self._send_goodbye(link, link.tls):
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

    def _send_goodbye(self, link: SocketConnection, tls: TlsStream) -> bool:
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
        link.out_bytes += len(data) - sent
        self._keep(link, data[sent:])
        if link.unsent:
            self._loop.watch(link, WRITE)
        return not link.unsent
