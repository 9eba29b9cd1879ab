"""The table of attacks. None needs a right."""

from __future__ import annotations

from typing import Final

from tests.process.pipe import Pipe, ask
from tests.soak import blobs
from tests.soak.attack import Attack, Leaves, Reads, byte_by_byte, declares, endless, once
from tests.soak.frames import HANDSHAKE

TOPICS: Final = 1_000  # of the attacks on documents
KEPT_SHORT: Final = f"{blobs.OS}&retention_bytes=67108864&retention_done=true"
SLOW_HEAD: Final = b"GET /?cmd=ping HTTP/1.1\r\nx-slow: "
SLOW_BODY: Final = b"POST /?cmd=ping HTTP/1.1\r\ncontent-length: 100000\r\n\r\n"

# -- topics -----------------------------------------------------------------------------------


silent = declares(f"silent?{blobs.OS}")


def leased(pipe: Pipe) -> None:
    """20,000 messages, and a group that leases."""
    declares(f"leased?{blobs.OS}", "leased/g?group_mask=64")(pipe)
    for _ in range(2):
        said = pipe.get("/leased?cmd=produce", b"x\n" * blobs.BATCH, blobs.NDJSON)
        assert said.status == 200, said


def large(pipe: Pipe) -> None:
    """A log of 16 MB."""
    declares(f"large?{blobs.OS}")(pipe)
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


def no_partitions(pipe: Pipe, connections: int) -> None:
    """Remove what attackers that left had declared, and not removed yet."""
    pipe.send(b"".join(ask(f"{blobs.partitioned(n)}?cmd=remove") for n in range(connections)))
    for _ in range(connections):
        assert pipe.read().status in (200, 404)


# -- the table ---------------------------------------------------------------------------------

ATTACKS: Final[dict[str, Attack]] = {
    # What a turn does.
    "pings": Attack("pipelines empty pings", endless(blobs.pings)),
    "pings-unread": Attack(
        "the same, and reads no reply", endless(blobs.pings), reads=Reads.NOTHING
    ),
    "new-values": Attack("pipelines heads with new values", endless(blobs.new_values)),
    "new-names": Attack("pipelines heads with new names", endless(blobs.new_names)),
    "many-headers": Attack("pipelines new heads of 92 fields", endless(blobs.many_headers)),
    "query-names": Attack("pipelines heads of 640 query names", endless(blobs.query_names)),
    "refusals": Attack("pipelines requests that are refused", endless(blobs.refusals)),
    "unknown-topics": Attack("pipelines consumes of new names", endless(blobs.unknown_topics)),
    "acks": Attack("pipelines acks of 10,000 offsets", endless(blobs.acks), prepare=leased),
    "scattered-acks": Attack(
        "pipelines acks of 1,500 ranges", endless(blobs.scattered_acks), prepare=leased
    ),
    "chunks": Attack("sends bodies in chunks of a byte", endless(blobs.chunks)),
    "batches": Attack(
        "puts and takes batches of 10,000",
        endless(blobs.batches),
        prepare=declares(f"batches?{KEPT_SHORT}"),
    ),
    "new-keys": Attack(
        "puts under new idempotency keys",
        endless(blobs.new_keys),
        prepare=declares(f"keys?{KEPT_SHORT}"),
    ),
    "memory-puts": Attack(
        "puts into a topic in memory that nobody reads",
        endless(blobs.memory_puts),
        prepare=declares("fleeting?durability=memory"),
    ),
    # Frames.
    "ws-fragments": Attack(
        "WebSocket messages in frames of a byte", endless(blobs.ws_fragments, HANDSHAKE)
    ),
    "ws-empty-fragments": Attack(
        "WebSocket messages with 90,000 empty frames", endless(blobs.ws_empty_fragments, HANDSHAKE)
    ),
    "ws-pings": Attack("empty WebSocket pings", endless(blobs.ws_pings, HANDSHAKE)),
    "ws-http": Attack("WebSocket messages that ping, HTTP", endless(blobs.ws_http, HANDSHAKE)),
    "ws-json": Attack("WebSocket messages that ping, JSON", endless(blobs.ws_json, HANDSHAKE)),
    # What waits.
    "pulls-wait": Attack("waits with 1,023 pulls", once(blobs.pulls_of_empty), prepare=silent),
    "pulls-come-and-go": Attack(
        "comes with 1,023 pulls, and goes",
        once(blobs.pulls_of_empty),
        leaves=Leaves.SENT,
        rest_s=0.3,
        prepare=silent,
    ),
    "pulls-of-partition": Attack(
        "waits in the brisk client's group for another partition", once(blobs.pulls_of_partition)
    ),
    "calls": Attack(
        "calls a service that is not there 1,023 times, and goes",
        once(blobs.calls),
        leaves=Leaves.SENT,
        rest_s=0.3,
        prepare=declares("service?durability=memory&topic_mask=2"),
    ),
    # Connections.
    "bad-heads": Attack("comes with a bad head", once(lambda: b"GET\r\n\r\n"), returns_s=0.0),
    "garbage": Attack("comes with random bytes", once(blobs.garbage), returns_s=0.0),
    "blank-lines": Attack("sends empty lines", endless(lambda: b"\r\n" * 30_000)),
    "handshakes": Attack(
        "begins TLS handshakes", once(blobs.client_hello), leaves=Leaves.ANSWERED, secure=True
    ),
    # What is slow.
    "bodies-under-way": Attack(
        "sends 16 MB less a byte", once(blobs.body_under_way), prepare=silent
    ),
    "slow-heads": Attack(
        "sends a head, a byte each second", byte_by_byte(SLOW_HEAD, b"x"), pause_s=1.0
    ),
    "slow-bodies": Attack(
        "sends a body, a byte each second", byte_by_byte(SLOW_BODY, b"x"), pause_s=1.0
    ),
    "large-replies": Attack(
        "reads 16 MB again and again", endless(blobs.large_replies), prepare=large
    ),
    "slow-readers": Attack(
        "asks for 64 MB, takes a byte each second",
        once(blobs.large_replies),
        reads=Reads.SLOWLY,
        prepare=large,
    ),
    "slow-followers": Attack(
        "follows a log of 16 MB, takes a byte each second",
        once(lambda: blobs.follow("large", "&offset=begin")),
        reads=Reads.SLOWLY,
        prepare=large,
    ),
    "deaf-followers": Attack(
        "follows the brisk client's topic, takes nothing",
        once(lambda: blobs.follow(blobs.VICTIM, "")),
        reads=Reads.NOTHING,
    ),
    # Documents and changes.
    "partitions": Attack(
        "declares and removes 64 partitions",
        lambda number: blobs.partition_changes(number) * 10_000,
        pause_s=0.02,
        restore=no_partitions,
    ),
    "query": Attack(
        "queries 1,000 topics", endless(lambda: blobs.documents("query")), prepare=a_thousand
    ),
    "server": Attack(
        "asks what the server is, with 1,000 topics",
        endless(lambda: blobs.documents("server")),
        prepare=a_thousand,
    ),
    "track-sub": Attack(
        "asks for the tracker document of 1,000 topics",
        endless(lambda: blobs.documents("track_sub")),
        prepare=a_thousand,
    ),
    "followed-changes": Attack(
        "follows the document of 1,000 topics, and changes it",
        endless(blobs.followed_changes),
        prepare=a_thousand,
    ),
}
