"""What a worker says first on a connection to another: whose requests come.

One line of JSON: the client's address, what its certificate says, and whether it came over TLS.
Only workers can reach the socket, which is in a directory of the server's user.
"""

from __future__ import annotations

import uuid

import msgspec

from zbus.edge.connection import Connection
from zbus.protocol.places import NODE_PROTOCOL


class Introduction(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of a client."""

    address: str
    principal: str = ""
    secure: bool = False
    id: str = ""  # of its session there, if its requests are passed on
    giver: int | None = None  # who has handed the connection over, if it may be given back
    shard: int | None = None  # that it wants; another one may have it by now
    inner: bool = False  # of none: the other worker's broker puts what it has decided
    cluster: str = ""  # of the node that says it
    protocol: int = 0  # that it speaks


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Introduction)


def origin_of(peer: Connection) -> str:
    """Where a client comes from, before any proxy's word, which goes along with each request."""
    return peer.address if peer.source is None else peer.source.address


def encode_introduction(introduction: Introduction, cluster: str = "") -> bytes:
    """`cluster`: that of this node, if it is one."""
    if cluster:
        introduction = msgspec.structs.replace(
            introduction, cluster=cluster, protocol=NODE_PROTOCOL
        )
    return _ENCODER.encode(introduction) + b"\n"


def decode_introduction(line: bytes) -> Introduction:
    """Raises msgspec.DecodeError, or UnicodeDecodeError, if it is none."""
    return _DECODER.decode(line)


def session_id(maker: bytes) -> bytes:
    """Of a connection: a random UUID, of which the first digits say which worker made it."""
    return maker + str(uuid.uuid4()).encode()[len(maker) :]
