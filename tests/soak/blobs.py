"""What attackers send, made once: large blocks of bytes, which a connection sends again and again.

The topic of the first brisk client is `VICTIM`.
"""

from __future__ import annotations

import ssl
from random import Random
from typing import Final

from tests.soak.attack import many, request
from tests.soak.frames import empty_ping, fragmented, in_bytes, message

VICTIM: Final = "brisk0"
OS: Final = "durability=os"
BODY_BYTES_MAX: Final = 16 << 20
BATCH: Final = 10_000
SSE: Final = b"accept: text/event-stream\r\n"
NDJSON: Final = b"content-type: application/x-ndjson\r\n"


def pings() -> bytes:
    return many(2_000, request("/?cmd=ping"))


def ws_fragments() -> bytes:
    """A ping with a body of 60,000 bytes."""
    return in_bytes(b"GET /?cmd=ping HTTP/1.1\r\ncontent-length: 60000\r\n\r\n" + b"x" * 60_000)


def ws_empty_fragments() -> bytes:
    return fragmented([b"GET /?cmd=ping HTTP/1.1\r\n\r\n", *[b""] * 90_000])


def ws_pings() -> bytes:
    return many(5_000, empty_ping())


def ws_http() -> bytes:
    return many(2_000, message(b"GET /?cmd=ping HTTP/1.1\r\n\r\n"))


def ws_json() -> bytes:
    return many(2_000, message(b'{"cmd":"ping"}'))


def acks() -> bytes:
    return many(1_000, request("/leased/g?cmd=ack&offset=0-9999"))


def scattered_acks() -> bytes:
    """Every second offset, as many as a line takes."""
    offsets = ",".join(str(offset) for offset in range(0, 3_000, 2))
    return many(20, request(f"/leased/g?cmd=ack&offset={offsets}"))


def new_values() -> bytes:
    """More heads than are remembered."""
    return b"".join(request("/?cmd=ping", b"x-of: %d\r\n" % number) for number in range(10_000))


def new_names() -> bytes:
    return b"".join(request("/?cmd=ping", b"x-%d: 1\r\n" % number) for number in range(10_000))


def many_headers() -> bytes:
    """As many fields as a head may have, and each head is new."""
    lines = b"".join(b"x-field-%d: of-this-head\r\n" % number for number in range(90))
    return b"".join(
        request("/?cmd=ping", lines + b"x-of: %d\r\n" % number) for number in range(1_500)
    )


def query_names() -> bytes:
    names = "".join(f"&name{number:03d}=1" for number in range(640))
    return b"".join(request(f"/?cmd=ping&of={number}{names}") for number in range(1_100))


def refusals() -> bytes:
    return b"".join(request(f"/{VICTIM}?cmd=consume&timeout=x{number}") for number in range(20_000))


def unknown_topics() -> bytes:
    return b"".join(request(f"/nowhere{number}?cmd=consume") for number in range(20_000))


def waiting_pulls(target: str) -> bytes:
    """As many as a connection may have open."""
    return b"".join(request(target, b"id: %d\r\n" % number) for number in range(1_023))


def calls() -> bytes:
    """As many as a connection may have open; each is over soon."""
    return b"".join(
        request("/service?timeout=200", b"id: %d\r\n" % number, b"x" * 1_000)
        for number in range(1_023)
    )


def memory_puts() -> bytes:
    return many(100, request("/fleeting", body=b"x" * 1_000))


def pulls_of_empty() -> bytes:
    return waiting_pulls("/silent?cmd=consume")


def pulls_of_partition() -> bytes:
    return waiting_pulls(f"/{VICTIM}?cmd=consume&partition=1")


def body_under_way() -> bytes:
    return b"POST /silent HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%b" % (
        BODY_BYTES_MAX,
        b"x" * (BODY_BYTES_MAX - 1),
    )


def chunks() -> bytes:
    head = b"POST /?cmd=ping HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"1\r\nx\r\n" * 200_000 + b"0\r\n\r\n"


def batches() -> bytes:
    body = b"a small message\n" * BATCH
    return request("/batches?cmd=produce", NDJSON, body) + request(
        f"/batches?cmd=consume&batch={BATCH}&timeout=0", b"accept: application/x-ndjson\r\n"
    )


def new_keys() -> bytes:
    return b"".join(
        request("/keys?cmd=produce", b"idempotency-key: %d\r\n" % number, b"x")
        for number in range(20_000)
    )


def documents(command: str) -> bytes:
    """Of all topics."""
    return many(20, request(f"/?cmd={command}"))


def followed_changes() -> bytes:
    """Follow the document, and change it again and again."""
    change = request("/topic0/coming?cmd=declare") + request("/topic0/coming?cmd=remove")
    return b"GET / HTTP/1.1\r\ncmd: track_sub\r\n\r\n" + many(100, change)


def large_replies() -> bytes:
    return many(4, request("/large?cmd=read&bytes=16777216"))


def follow(topic: str, query: str) -> bytes:
    return request(f"/{topic}?cmd=consume{query}", SSE)


def client_hello() -> bytes:
    """The first flight of a handshake: the broker answers with its signature, which is dear."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    try:
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def garbage() -> bytes:
    return Random(1).randbytes(1 << 16)


def partitioned(number: int) -> str:
    """The path of the topic that this connection declares and removes."""
    return f"/partitioned{number}"


def partition_changes(number: int) -> tuple[bytes, bytes]:
    """Declare and remove."""
    path = partitioned(number)
    return request(f"{path}?cmd=declare&partitions=64&{OS}"), request(f"{path}?cmd=remove")
