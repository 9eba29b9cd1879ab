"""A standby: another broker owns the data. It answers requests with 503 and the owner's address, so
that a load balancer or a client with several addresses goes on to the owner. Health checks and
Prometheus hear that it is alive and a standby."""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Final

import msgspec
import trio

from zbus.dialects.openmetrics import CONTENT_TYPE
from zbus.dialects.zbus.documents.metrics import standby_text
from zbus.server.loop.mailbox import Mailbox
from zbus.server.loop.sockets import Listening
from zbus.server.process.certificates import Certificates
from zbus.server.process.replicated import ReplicatedEngine
from zbus.server.process.supervisor import Supervisor

HEAD_BYTES_MAX: Final = 16 << 10
ID_BYTES_MAX: Final = 256
CONNECTIONS_MAX: Final = 1_000
"""More wait until one of these is answered."""
_REQUEST_S: Final = 5.0
_LINGER_S: Final = 1.0
_WATCHDOG_S: Final = 1.0

log = logging.getLogger("zbus")


class Waiting:
    """The time as a standby."""

    def __init__(
        self,
        engine: ReplicatedEngine,
        mailbox: Mailbox,
        listening: Sequence[Listening],
        certificates: Certificates | None,
        supervisor: Supervisor,
    ) -> None:
        self._engine = engine
        self._mailbox = mailbox
        self._listening = listening
        self._certificates = certificates
        self._supervisor = supervisor
        self._stopped = False
        self._limit = trio.CapacityLimiter(CONNECTIONS_MAX)

    async def run(self) -> bool:
        """Whether the data is this broker's now; if not, a signal asks it to end. Raises
        CannotStart if that will never be."""
        self._engine.standby.start()
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._obey, signals, nursery)
                nursery.start_soon(self._keep_supervisor)
                for listening in self._listening:
                    nursery.start_soon(self._serve, listening)
                await self._watch()
                nursery.cancel_scope.cancel()
        if self._stopped:
            return False
        self._engine.check()  # here: what is raised in a nursery comes out as a group
        return True

    async def _watch(self) -> None:
        shown = ""
        while not self._engine.is_decided:
            await trio.lowlevel.wait_readable(self._mailbox.receiver)
            self._mailbox.run()
            if (now := self._reason()) != shown and self._engine.standby.owner is not None:
                shown = now
                log.info("standby", extra={"why": now})

    async def _obey(self, signals: AsyncIterator[int], nursery: trio.Nursery) -> None:
        async for number in signals:
            log.info("stopping", extra={"signal": signal.Signals(number).name})
            self._stopped = True
            nursery.cancel_scope.cancel()

    async def _keep_supervisor(self) -> None:
        self._supervisor.waiting()
        while True:
            self._supervisor.turns()
            await trio.sleep(_WATCHDOG_S)

    # -- what clients get ---------------------------------------------------------------------

    def _reason(self) -> str:
        standby = self._engine.standby
        if standby.problem:
            return f"no answer of {self._engine.where}: {standby.problem}"
        if standby.owner is None:
            return "the owner is not known yet"
        if standby.owner.copying:
            return f"{standby.owner.node} fills the stream with a copy"
        return f"the owner is {standby.owner.address}"

    def _reply(self, head: bytes) -> bytes:
        """To a request with this head. The line `standby` says to clients who answers instead."""
        owner = self._engine.standby.owner
        address = "" if owner is None else owner.address
        first, status = head.partition(b"\r\n")[0], b"503 Service Unavailable"
        kind = b"content-type: application/json\r\n"
        if b" /_metrics" in first:
            status, kind, body = b"200 OK", CONTENT_TYPE, standby_text()
        elif b" /_health" in first:
            if b" /_health/live" in first:
                status = b"200 OK"
            document = {"status": "standby", "owner": address, "reasons": [self._reason()]}
            body = msgspec.json.encode(document)
        else:
            kind = b"content-type: text/plain\r\n"
            body = f"503: this broker is a standby; {self._reason()}".encode()
        lines = [
            b"HTTP/1.1 " + status,
            kind[:-2],
            b"content-length: %d" % len(body),
            b"standby: " + address.encode("ascii", "replace"),
            b"retry-after: 1",
            b"connection: close",
            *_id_lines(head),
        ]
        return b"\r\n".join(lines) + b"\r\n\r\n" + body

    async def _serve(self, listening: Listening) -> None:
        sock = listening.sock.dup()  # the one that is left serves later
        sock.setblocking(False)
        listener: trio.abc.Listener[trio.abc.Stream]
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
        if listening.address.tls and self._certificates is not None:
            context = self._certificates.context
            listener = trio.SSLListener(listener, context, https_compatible=True)
        await trio.serve_listeners(self._answer, [listener])

    async def _answer(self, stream: trio.abc.Stream) -> None:
        """One request, and the end of its connection: what it sends on would be refused as well."""
        async with self._limit, stream:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                with trio.move_on_after(_REQUEST_S):
                    head = b""
                    while b"\r\n\r\n" not in head and len(head) < HEAD_BYTES_MAX:
                        data = await stream.receive_some(HEAD_BYTES_MAX)
                        if not data:
                            return
                        head += data
                    await stream.send_all(self._reply(head))
                if isinstance(stream, trio.SocketStream):
                    await stream.send_eof()
                    with trio.move_on_after(_LINGER_S):  # else the reply may be lost
                        while await stream.receive_some(HEAD_BYTES_MAX):
                            pass


def _id_lines(head: bytes) -> list[bytes]:
    """The id of a request, by which clients that wait for several know the reply."""
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"id" and len(value) <= ID_BYTES_MAX:
            printable = value.isascii() and value.decode().isprintable()
            return [b"id:" + value] if printable else []
    return []
