"""An application for gunicorn with a client that is made before its workers are forked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import zbus.client

bus = zbus.client.connect(os.environ["BROKER_URL"])
bus.declare("Web")


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Store the body; who did it, and where it is."""
    body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
    stored = bus.produce("Web", body)
    assert not stored.duplicate
    start_response("200 OK", [("content-type", "text/plain")])
    return [b"%d %d" % (os.getpid(), stored.offset)]
