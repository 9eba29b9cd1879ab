"""The table of attacks. None needs a right; each is legal, or is answered with a refusal at once.

Topics are shared by all connections of an attack; the one of the first brisk client is `VICTIM`.
"""

from __future__ import annotations

import ssl
from random import Random
from typing import Final

from tests.process.pipe import Pipe, ask
from tests.soak.attack import (
    Attack,
    Leaves,
    Reads,
    byte_by_byte,
    declares,
    endless,
    many,
    once,
    request,
)
from tests.soak.frames import HANDSHAKE, empty_ping, fragmented, in_bytes, message

VICTIM: Final = "brisk0"
TOPICS: Final = 1_000  # of the attacks on documents
OS: Final = "durability=os"
GET: Final = b"GET %b HTTP/1.1\r\nhost: localhost\r\n\r\n"
PING: Final = GET % b"/?cmd=ping"
BODY_BYTES_MAX: Final = 16 << 20
BATCH: Final = 10_000
SSE: Final = b"accept: text/event-stream\r\n"
NDJSON: Final = b"content-type: application/x-ndjson\r\n"


# -- what is sent -----------------------------------------------------------------------------


def pings() -> bytes:
    return many(2_000, PING)


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


# -- topics -----------------------------------------------------------------------------------


def leased(pipe: Pipe) -> None:
    """20,000 messages, and a group that leases."""
    declares(f"leased?{OS}", "leased/g?group_mask=64")(pipe)
    for _ in range(2):
        said = pipe.get("/leased?cmd=produce", b"x\n" * BATCH, NDJSON)
        assert said.status == 200, said


def large(pipe: Pipe) -> None:
    """A log of 16 MB."""
    declares(f"large?{OS}")(pipe)
    for _ in range(16):
        said = pipe.get("/large?cmd=produce", b"x" * 1_000_000)
        assert said.status == 200, said


def a_thousand(pipe: Pipe) -> None:
    """In memory, because all that counts is that they are."""
    pipe.send(
        b"".join(ask(f"/topic{number}?cmd=declare&durability=memory") for number in range(TOPICS))
    )
    for _ in range(TOPICS):
        assert pipe.read().status == 200


def partitioned(number: int) -> tuple[bytes, bytes]:
    """Declare and remove; a little later again."""
    path = f"/partitioned{number}"
    return (
        request(f"{path}?cmd=declare&partitions=64&{OS}"),
        request(f"{path}?cmd=remove"),
    )


SILENT: Final = declares(f"silent?{OS}")
KEPT_SHORT: Final = f"{OS}&retention_bytes=67108864&retention_done=true"
SLOW_HEAD: Final = b"GET /?cmd=ping HTTP/1.1\r\nx-slow: "
SLOW_BODY: Final = b"POST /?cmd=ping HTTP/1.1\r\ncontent-length: 100000\r\n\r\n"

ATTACKS: Final[dict[str, Attack]] = {
    # What a turn does.
    "pings": Attack("pipelines empty pings", endless(pings)),
    "pings-unread": Attack("the same, and reads no reply", endless(pings), reads=Reads.NOTHING),
    "new-values": Attack("pipelines heads with new values", endless(new_values)),
    "new-names": Attack("pipelines heads with new names", endless(new_names)),
    "many-headers": Attack("pipelines new heads of 92 fields", endless(many_headers)),
    "query-names": Attack("pipelines heads of 640 query names", endless(query_names)),
    "refusals": Attack("pipelines requests that are refused", endless(refusals)),
    "unknown-topics": Attack("pipelines consumes of new names", endless(unknown_topics)),
    "acks": Attack("pipelines acks of 10,000 offsets", endless(acks), prepare=leased),
    "scattered-acks": Attack(
        "pipelines acks of 1,500 ranges", endless(scattered_acks), prepare=leased
    ),
    "chunks": Attack("sends bodies in chunks of a byte", endless(chunks)),
    "batches": Attack(
        "puts and takes batches of 10,000",
        endless(batches),
        prepare=declares(f"batches?{KEPT_SHORT}"),
    ),
    "new-keys": Attack(
        "puts under new idempotency keys",
        endless(new_keys),
        prepare=declares(f"keys?{KEPT_SHORT}"),
    ),
    # Frames.
    "ws-fragments": Attack(
        "WebSocket messages in frames of a byte", endless(ws_fragments, HANDSHAKE)
    ),
    "ws-empty-fragments": Attack(
        "WebSocket messages with 90,000 empty frames", endless(ws_empty_fragments, HANDSHAKE)
    ),
    "ws-pings": Attack("empty WebSocket pings", endless(ws_pings, HANDSHAKE)),
    "ws-http": Attack("WebSocket messages that ping, HTTP", endless(ws_http, HANDSHAKE)),
    "ws-json": Attack("WebSocket messages that ping, JSON", endless(ws_json, HANDSHAKE)),
    # What waits.
    "pulls-wait": Attack("waits with 1,023 pulls", once(pulls_of_empty), prepare=SILENT),
    "pulls-come-and-go": Attack(
        "comes with 1,023 pulls, and goes",
        once(pulls_of_empty),
        leaves=Leaves.SENT,
        rest_s=0.3,
        prepare=SILENT,
    ),
    "pulls-of-partition": Attack(
        "waits in the brisk client's group for another partition", once(pulls_of_partition)
    ),
    # Connections.
    "bad-heads": Attack("comes with a bad head", once(lambda: b"GET\r\n\r\n"), returns_s=0.0),
    "garbage": Attack("comes with random bytes", once(garbage), returns_s=0.0),
    "blank-lines": Attack("sends empty lines", endless(lambda: b"\r\n" * 30_000)),
    "handshakes": Attack(
        "begins TLS handshakes", once(client_hello), leaves=Leaves.ANSWERED, secure=True
    ),
    # What is slow.
    "bodies-under-way": Attack("sends 16 MB less a byte", once(body_under_way), prepare=SILENT),
    "slow-heads": Attack(
        "sends a head, a byte each second", byte_by_byte(SLOW_HEAD, b"x"), pause_s=1.0
    ),
    "slow-bodies": Attack(
        "sends a body, a byte each second", byte_by_byte(SLOW_BODY, b"x"), pause_s=1.0
    ),
    "large-replies": Attack("reads 16 MB again and again", endless(large_replies), prepare=large),
    "slow-readers": Attack(
        "asks for 64 MB, takes a byte each second",
        once(large_replies),
        reads=Reads.SLOWLY,
        prepare=large,
    ),
    "slow-followers": Attack(
        "follows a log of 16 MB, takes a byte each second",
        once(lambda: follow("large", "&offset=begin")),
        reads=Reads.SLOWLY,
        prepare=large,
    ),
    "deaf-followers": Attack(
        "follows the brisk client's topic, takes nothing",
        once(lambda: follow(VICTIM, "")),
        reads=Reads.NOTHING,
    ),
    # Documents and changes.
    "partitions": Attack(
        "declares and removes 64 partitions",
        lambda number: partitioned(number) * 10_000,
        pause_s=0.02,
    ),
    "query": Attack(
        "queries 1,000 topics", endless(lambda: documents("query")), prepare=a_thousand
    ),
    "server": Attack(
        "asks what the server is, with 1,000 topics",
        endless(lambda: documents("server")),
        prepare=a_thousand,
    ),
    "track-sub": Attack(
        "asks for the tracker document of 1,000 topics",
        endless(lambda: documents("track_sub")),
        prepare=a_thousand,
    ),
    "followed-changes": Attack(
        "follows the document of 1,000 topics, and changes it",
        endless(followed_changes),
        prepare=a_thousand,
    ),
}
