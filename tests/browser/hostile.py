"""A page that means harm, and a witness between the browser and the broker."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from tests.limits import WAIT_S


class Site:
    """Serves pages by path; a page may be a redirect to where its query says."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[int, dict[str, str], str]] = {}
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                default: tuple[int, dict[str, str], str] = (404, {}, "")
                status, headers, text = site.pages.get(self.path, default)
                body = text.encode()
                self.send_response(status)
                for name, value in ({"content-type": "text/html"} | headers).items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET

            def log_message(self, *_args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Site:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Seen:
    """A request that arrived, and the status that it got."""

    def __init__(self, head: bytes) -> None:
        self.head = head
        self.status = 0

    @property
    def line(self) -> str:
        return self.head.split(b"\r\n", 1)[0].decode()

    def field(self, name: str) -> str:
        for line in self.head.split(b"\r\n")[1:]:
            spelled, _, value = line.partition(b":")
            if spelled.lower() == name.encode():
                return value.strip().decode()
        return ""


REBINDING = b"/before-the-name-leads-here"


class Witness:
    """Passes connections on to a broker, and writes down which requests came and how each was
    answered. Browsers do not pipeline: an answer belongs to the last request.

    An empty page at `REBINDING` is its own: as if the name had led to another server before."""

    def __init__(self, port: int) -> None:
        self._broker = ("127.0.0.1", port)
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        self.seen: list[Seen] = []
        self._changed = threading.Condition()
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]

    def _accept(self) -> None:
        while True:
            try:
                browser, _ = self._door.accept()
            except OSError:
                return
            broker = socket.create_connection(self._broker)
            self._sockets += [browser, broker]
            last: list[Seen] = []
            for job in (
                (browser, broker, lambda data, last=last: self._asked(data, last)),
                (broker, browser, lambda data, last=last: self._answered(data, last)),
            ):
                thread = threading.Thread(target=self._pass_on, args=job)
                self._threads.append(thread)
                thread.start()

    def _pass_on(
        self, source: socket.socket, sink: socket.socket, note: Callable[[bytes], None]
    ) -> None:
        try:
            while data := source.recv(1 << 16):
                if data.startswith(b"GET %b " % REBINDING):
                    source.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n")
                    source.sendall(b"content-length: 6\r\n\r\n<body>")
                    continue
                note(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def _asked(self, data: bytes, last: list[Seen]) -> None:
        head, end, _ = data.partition(b"\r\n\r\n")
        if end and b" HTTP/1.1\r\n" in head:
            with self._changed:
                last[:] = [Seen(head)]
                self.seen += last
                self._changed.notify_all()

    def _answered(self, data: bytes, last: list[Seen]) -> None:
        if data.startswith(b"HTTP/1.1 ") and last and not last[0].status:
            with self._changed:
                last[0].status = int(data[9:12])
                self._changed.notify_all()

    def about(self, word: str) -> list[Seen]:
        """The requests with this word in their first line, as far as they are answered."""
        return [seen for seen in self.seen if word in seen.line and seen.status]

    def wait_for(self, word: str, timeout_s: float = WAIT_S) -> list[Seen]:
        """The same, once there is one; empty if none comes."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self.about(word)), timeout_s)
            return self.about(word)

    def __enter__(self) -> Witness:
        self._threads[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        self._threads[0].join()
        for sock in self._sockets:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self._threads[1:]:
            thread.join()
        for sock in self._sockets:
            sock.close()
