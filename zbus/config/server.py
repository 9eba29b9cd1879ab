"""Options of the server itself: where it listens, where it keeps what, how long anything may take.

The dialects, the wire and the core declare theirs. `zbus.config` collects them all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import attrs
from msgspec import Meta

from zbus.option import DECLARED, HOST, number, option

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
HOUR_MS = 3_600_000

_SERVER_NAME = rf"^(?:{HOST}(?::\d{{1,5}})?)?\Z"


@attrs.frozen(slots=False, kw_only=True)
class ServerOptions:
    """Where it listens, keeps its bytes, and who may do what."""

    host: str = option(
        "127.0.0.1",
        "Address to listen on; `0.0.0.0` is every address.",
        r"^.",
        "{!r} cannot be used",
    )
    port: int = number(15555, 0, 65535, "Port to listen on; 0 lets the system pick one.")
    listen: str = option(
        "",
        "Every address to listen on, instead of `host` and `port`, separated by commas: "
        "`http://127.0.0.1:15555, https://0.0.0.0:15556, unix:/run/zbus.sock`.",
    )
    unix_socket_mode: Literal["0600", "0660", "0666"] = option(
        "0600", "Who may use a Unix socket: its file permissions."
    )
    tls_cert_file: str = option("", "Certificate for https, then those that signed it: a PEM file.")
    tls_key_file: str = option(
        "",
        "Private key of the certificate: a PEM file. Without it, the key is read from "
        "`tls_cert_file`.",
    )
    tls_client_ca_file: str = option("", "Who signs the certificates of clients: a PEM file.")
    tls_client_auth: Literal["none", "optional", "required"] = option(
        "none", "Whether clients over https may, or must, show a certificate."
    )
    server_name: str = option(
        "",
        "Address that the broker gives to clients, `host` or `host:port`. Default if it listens on "
        "every address: that of the default route's interface.",
        _SERVER_NAME,
        "{!r} is not of the form host or host:port",
    )
    data_dir: Path = attrs.field(
        default=Path("data"),
        converter=Path,
        metadata={DECLARED: Meta(description="Folder of the logs; made if missing.")},
    )
    pages: str = option(
        "",
        "Folder of files that everybody gets under `/_pages/`: pages of your own. Without it there "
        "are none.",
    )
    token_file: str = option(
        "", "TOML file of tokens and their rights. Without it every client has full access."
    )
    insecure: bool = option(
        False, "Allow a broker without `token_file` to listen where other machines can reach it."
    )
    connections_max: int = number(20_000, 1, 1_000_000, "Connections open at once.")
    connections_per_address_max: int = number(
        1_000,
        0,
        1_000_000,
        "Connections open at once from one address; not over Unix sockets. 0 = all.",
    )
    reserve_bytes: int = number(
        64 * MIB,
        0,
        GIB,
        "Disk space kept for acknowledgements; at most a sixteenth of the file system.",
    )
    segment_bytes: int = number(
        64 * MIB,
        64 * KIB,
        4 * GIB,
        "A log begins a new file when the current one is larger than this.",
    )
    open_segments_max: int = number(
        10_000,
        8,
        1_000_000,
        "Log files open for writing at once; never more than a fifth of the descriptors.",
    )
    memory_bytes_max: int = number(
        GIB,
        MIB,
        1024 * GIB,
        "Messages of all topics kept in memory; past it, the oldest of the largest go.",
    )
    memory_topic_bytes_max: int = number(
        64 * MIB,
        MIB,
        1024 * GIB,
        "Messages of one topic kept in memory; past it, its oldest go, read or not.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = option(
        "info", "Least important log line."
    )
    log_format: Literal["text", "json"] = option("text", "Form of a log line.")


@attrs.frozen(slots=False, kw_only=True)
class EngineOptions:
    """The engine, and how to reach its servers."""

    engine: str = option(
        "files",
        "Where messages are kept: `files` in `data_dir`, or [replicated](../howto/replicated.md) "
        "in three NATS servers: their addresses and the name of a cluster, "
        "`nats://host:port,host:port,host:port/cluster`.",
        r"^(?:files|nats://[^/@\s]{1,1000}/[A-Za-z0-9-]{1,32})\Z",
        "{!r} is neither files nor nats://host:port,host:port,host:port/cluster; user and password "
        "belong in engine_user_file",
    )
    engine_user_file: str = option(
        "",
        "File with user and password for the NATS servers on two lines, or with a token on one.",
    )
    engine_ca_file: str = option(
        "", "Who signs the certificates of the NATS servers, a PEM file; TLS is used with it."
    )
    engine_cert_file: str = option("", "Certificate for the NATS servers: a PEM file.")
    engine_key_file: str = option(
        "", "Private key of `engine_cert_file`; without it, the key is read from that file."
    )
    engine_replicas: int = number(3, 1, 5, "Servers that must keep each message.")
    engine_timeout_ms: int = number(
        15_000,
        3_000,
        HOUR_MS,
        "How long the NATS servers may not answer: then requests get a 503, and the broker waits "
        "as a standby. At the start it ends without an answer for so long.",
    )
    engine_bytes_max: int = number(
        0,
        0,
        1 << 50,
        "Size of the stream, if the broker makes it; past it, messages are refused. 0 = no limit.",
    )
    node: str = option("", "Name of this broker among others; default: that of the machine.")


@attrs.frozen(slots=False, kw_only=True)
class ClusterOptions:
    """[Several machines](../howto/cluster.md) that share out the topics (preview)."""

    shards: int = number(
        1,
        1,
        256,
        "Parts that the topics are divided into, each with a stream and an owner (preview); fixed "
        "when the first stream is made. Only with NATS servers: files have a shard for each of "
        "`workers`.",
    )
    relay_listen: str = option(
        "",
        "Where other nodes of a cluster with several shards reach this one, `host:port`: the owner "
        "of a shard listens at the port with the number of the shard added. Without it this node "
        "is alone.",
        rf"^(?:{HOST}:\d{{1,5}})?\Z",
        "{!r} is not of the form host:port",
    )
    hold_ms: int = number(
        5_000,
        0,
        HOUR_MS,
        "How long requests wait for an owner of their shard, if it has none; then they get a 503.",
    )
    relay_ca_file: str = option(
        "", "Who signs the certificates of the nodes, and of nobody else: a PEM file."
    )
    relay_cert_file: str = option("", "Certificate of this node for the others: a PEM file.")
    relay_key_file: str = option(
        "", "Private key of `relay_cert_file`; without it, the key is read from that file."
    )
    spares: int = number(
        1, 1, 16, "Processes that own no shard and wait to take one over, if there are several."
    )


@attrs.frozen(slots=False, kw_only=True)
class WorkerOptions:
    """How many processes serve."""

    workers: int = number(
        1,
        1,
        64,
        "Processes that share out the topics (preview); a data directory belongs to one number.",
    )


@attrs.frozen(slots=False, kw_only=True)
class LoopLimits:
    """What one turn of the loop, and one connection, may take."""

    tick_events_max: int = number(1_024, 1, 65_536, "Connections served in one turn of the loop.")
    tickets_per_connection_max: int = number(
        1_024,
        1,
        100_000,
        "Unanswered requests of a connection; past it, produces wait, pulls get a 429.",
    )
    output_bytes_max: int = number(
        256 * KIB, 4 * KIB, GIB, "Unsent bytes of a connection; past it, reading from it pauses."
    )
    drain_timeout_ms: int = number(5_000, 0, HOUR_MS, "Longest wait for replies to leave at stop.")


@attrs.frozen(slots=False, kw_only=True)
class Timeouts:
    """How long a connection may take for anything."""

    head_timeout_ms: int = number(10_000, 100, HOUR_MS, "From first byte to full request head.")
    body_timeout_ms: int = number(30_000, 100, HOUR_MS, "Longest pause within a request body.")
    idle_timeout_ms: int = number(
        180_000, 100, 24 * HOUR_MS, "Close connections idle for this long."
    )
    stall_timeout_ms: int = number(
        10_000, 100, HOUR_MS, "Cut off a client that reads none of its replies for this long."
    )
    bytes_per_s_min: int = number(
        500,
        0,
        1 << 30,
        "A client that sends a body, or takes replies, more slowly than this for `body_timeout_ms` "
        "or `stall_timeout_ms` is cut off; 0 = however slowly.",
    )
    sse_heartbeat_ms: int = number(
        15_000, 100, HOUR_MS, "Send a comment on an event stream that is silent for this long."
    )


@attrs.frozen(slots=False, kw_only=True)
class Marks:
    """When disk or memory run short."""

    disk_free_bytes_min: int = number(
        GIB,
        0,
        1024 * GIB,
        "With less free on the disk, puts are refused (507). Counts as at most a quarter of the "
        "file system.",
    )
    disk_free_percent_min: int = number(
        5, 0, 99, "The same, in percent of the file system; the larger one counts. 0 = none."
    )
    memory_limit_bytes: int = number(
        0,
        0,
        1024 * GIB,
        "With more resident memory, puts are refused (503), and no kind of thing may take more "
        "than its share of it. 0 = 40 % of what the cgroup or machine has.",
    )
