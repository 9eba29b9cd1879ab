"""A web server that takes webhooks of zbus, with nothing but Python's own library.

    python examples/webhook_receiver.py SECRET [PORT]

Start a broker that may send to this machine, and have the messages of a group sent here:

    $ zbus serve --set push_networks=127.0.0.1
    $ zbus declare orders shop --push-url http://127.0.0.1:8000/ --push-secret SECRET
    $ zbus produce orders 'two chairs'

What is not signed with the secret is refused. A message may come twice, with the same `webhook-id`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import sys
import time
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def is_signed(secret: str, head: Message, body: bytes) -> bool:
    """Whether the broker has sent this, lately."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    id, sent = head["webhook-id"] or "", head["webhook-timestamp"] or "0"
    expected = hmac.new(key, f"{id}.{sent}.".encode() + body, hashlib.sha256).digest()
    signatures = (head["webhook-signature"] or "").split()
    known = "v1," + base64.b64encode(expected).decode()
    lately = sent.isdecimal() and abs(time.time() - int(sent)) < 300
    return lately and any(hmac.compare_digest(one, known) for one in signatures)


class Receiver(BaseHTTPRequestHandler):
    """Prints what it is sent."""

    protocol_version = "HTTP/1.1"
    secret = ""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        status = 204 if is_signed(self.secret, self.headers, body) else 401
        if status == 204:
            print("order:", body.decode(), flush=True)
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()


def main(secret: str, port: str = "8000") -> None:
    Receiver.secret = secret
    server = ThreadingHTTPServer(("127.0.0.1", int(port)), Receiver)
    print(f"listening on http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
