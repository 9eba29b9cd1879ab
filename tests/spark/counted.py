"""A way to a broker that counts what goes through it."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Self


class Counted:
    """Listens, and passes the bytes of connections on. A client that waits for each answer sends
    its requests one by one, so a piece that it sends is a request."""

    def __init__(self, port: int) -> None:
        self.requests = 0
        self.answered_bytes = 0
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._begin(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for each in self._sockets:
            _shut(each)
        for thread in self._threads:
            thread.join()
        for each in (self._listener, *self._sockets):
            each.close()

    def _begin(self, work: object, *given: object) -> None:
        thread = threading.Thread(target=work, args=given)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(("127.0.0.1", self._to))
            self._sockets += [client, broker]
            self._begin(self._pass, client, broker, True)
            self._begin(self._pass, broker, client, False)

    def _pass(self, source: socket.socket, target: socket.socket, asks: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                if asks:
                    self.requests += 1
                else:
                    self.answered_bytes += len(data)
                target.sendall(data)
        except OSError:
            pass
        _shut(source)
        _shut(target)


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it is by now
