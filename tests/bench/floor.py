"""The floor: what this machine and this loop can do when a broker does nothing at all.

The same shape as the broker's data path (trio, a nested selector, one recv and one send for each
ready connection, no wait while anything is ready), but every blank line counts as a request and
gets one fixed reply, of the size of a reply to a produce. Nothing is parsed, stored or remembered.
A broker is measured against it under the same load generator, on the same machine, in turn.

    python tests/bench/floor.py --port 15700

Requests must have no body, or a body without a blank line in it; or they all end with bytes that
are nowhere else in them: `--end`, in hex.
"""

from __future__ import annotations

import argparse
import gc
import selectors
import socket

import trio

RECEIVE_BYTES = 64 * 1024
BACKLOG = 4096
END = b"\r\n\r\n"
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
REPLY = (
    b"HTTP/1.1 200 OK\r\n"
    b"content-length: 13\r\n"
    b"connection: Keep-Alive\r\n"
    b"offset: 123456789\r\n"
    b"durability: disk\r\n"
    b"id: 5f0c2d7e9a1b4c3d8e6f7a8b9c0d1e2f\r\n"
    b"\r\n"
    b"1763730000000"
)


class Floor:
    """All connections; those in `carried` and `unsent` are the exceptions."""

    def __init__(self, listener: socket.socket, end: bytes = END) -> None:
        self.listener = listener
        self.end = end
        self.selector = selectors.DefaultSelector()
        self.selector.register(listener, READ)  # data None marks it
        self.carried: dict[socket.socket, bytes] = {}  # ends of data that may begin a blank line
        self.unsent: dict[socket.socket, bytes] = {}

    async def run(self) -> None:
        select, carried, unsent = self.selector.select, self.carried, self.unsent
        reply, reply_bytes, end = REPLY, len(REPLY), self.end
        waited = self.selector.fileno()
        while True:
            events = select(0)
            if not events:
                await trio.lowlevel.wait_readable(waited)
                continue
            for key, mask in events:
                if key.data is None:
                    self._accept()
                    continue
                sock, receive, send = key.data
                if mask != READ or carried or unsent:
                    self._handle(sock, mask)
                    continue
                try:
                    data = receive(RECEIVE_BYTES)
                    if not data.endswith(end):
                        self._odd(sock, data)
                        continue
                    count = data.count(end)
                    if count > 1:
                        self._send(sock, reply * count)
                        continue
                    try:
                        sent = send(reply)
                    except BlockingIOError:
                        sent = 0
                    if sent < reply_bytes:
                        self._send(sock, reply[sent:])
                except BlockingIOError:
                    continue
                except OSError:
                    self._close(sock)

    def _accept(self) -> None:
        try:
            sock, _ = self.listener.accept()
        except OSError:
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.selector.register(sock, READ, (sock, sock.recv, sock.send))

    def _handle(self, sock: socket.socket, mask: int) -> None:
        """The slow way, for connections with something left over."""
        try:
            if mask & WRITE:
                self._send(sock, self.unsent.pop(sock, b""))
            if mask & READ:
                self._odd(sock, sock.recv(RECEIVE_BYTES))
        except BlockingIOError:
            pass
        except OSError:
            self._close(sock)

    def _odd(self, sock: socket.socket, data: bytes) -> None:
        """Data that ends within a request, or does not come at all."""
        if not data:
            self._close(sock)
            return
        data = self.carried.pop(sock, b"") + data
        if not data.endswith(self.end):
            self.carried[sock] = data[1 - len(self.end) :]
        self._send(sock, REPLY * data.count(self.end))

    def _send(self, sock: socket.socket, data: bytes) -> None:
        waiting = self.unsent.pop(sock, b"")
        data = waiting + data
        try:
            sent = sock.send(data) if data else 0
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self.unsent[sock] = data[sent:]
        mask = READ | WRITE if sock in self.unsent else READ
        if self.selector.get_key(sock).events != mask:
            self.selector.modify(sock, mask, (sock, sock.recv, sock.send))

    def _close(self, sock: socket.socket) -> None:
        self.selector.unregister(sock)
        self.carried.pop(sock, None)
        self.unsent.pop(sock, None)
        sock.close()


def listen(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def main() -> None:
    parser = argparse.ArgumentParser(description="A server that answers and does nothing else.")
    parser.add_argument("--port", type=int, default=15700, help="0 picks one")
    parser.add_argument("--end", type=bytes.fromhex, default=END, help="of a request, in hex")
    chosen = parser.parse_args()
    listener = listen(chosen.port)
    print("listening on", listener.getsockname()[1], flush=True)
    gc.disable()  # nothing here makes cycles
    try:
        trio.run(Floor(listener, chosen.end).run)
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
