"""What the server itself is told: where it listens, what it keeps, how long anything may take.

An option of a broker is a field with a description; its type says what is allowed. Where a text
has to be of a form, the title says what is wrong with one that is not. `zbus.config` collects
these with those of the faces, the wire and the core, checks them, and prints the page.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import attrs
from msgspec import Meta

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
HOUR_MS = 3_600_000

_HOST = r"(?:[^\s:/,\[\]]+|\[[0-9A-Fa-f:.]+\])"
_SERVER_NAME = rf"^(?:{_HOST}(?::\d{{1,5}})?)?\Z"
_PORT = r"(?:0?\d{1,4}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5])"
_ADDRESSES = rf"^(?:{_HOST}:{_PORT}(?:,{_HOST}:{_PORT})*)?\Z"


@attrs.frozen(slots=False, kw_only=True)
class ServerOptions:
    """Where it listens, keeps its bytes, and who may do what."""

    host: Annotated[
        str,
        Meta(
            pattern=r"^.",
            title="{!r} cannot be used",
            description="Address to listen on; `0.0.0.0` is every address.",
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=0, le=65535, description="Port to listen on; 0 lets the system pick one.")
    ] = 15555
    listen: Annotated[
        str,
        Meta(
            description="Every address to listen on, instead of `host` and `port`, separated by "
            "commas: `http://127.0.0.1:15555, https://0.0.0.0:15556, unix:/run/zbus.sock`."
        ),
    ] = ""
    unix_socket_mode: Annotated[
        Literal["0600", "0660", "0666"],
        Meta(description="Who may use a Unix socket: its file permissions."),
    ] = "0600"
    tls_cert_file: Annotated[
        str, Meta(description="Certificate for https, then those that signed it: a PEM file.")
    ] = ""
    tls_key_file: Annotated[
        str, Meta(description="Its key: a PEM file; not set, it is in `tls_cert_file`.")
    ] = ""
    tls_client_ca_file: Annotated[
        str, Meta(description="Who signs the certificates of clients: a PEM file.")
    ] = ""
    tls_client_auth: Annotated[
        Literal["none", "optional", "required"],
        Meta(description="Whether clients over https may, or must, show a certificate."),
    ] = "none"
    server_name: Annotated[
        str,
        Meta(
            pattern=_SERVER_NAME,
            title="{!r} is not of the form host or host:port",
            description="Where clients are told to find it, `host` or `host:port`. If it listens "
            "on every address: that of the default route's interface.",
        ),
    ] = ""
    tracker_list: Annotated[
        str,
        Meta(
            pattern=_ADDRESSES,
            title="{!r} is not of the form host:port,host:port",
            description="Trackers to report to, `host:port`, with commas between.",
        ),
    ] = ""
    tracker_token: Annotated[
        str,
        Meta(
            pattern=r"^[^\x00-\x1f\x7f-\xa0\u2028\u2029]*\Z",
            title="it holds what no header can",  # never the token itself: this goes to a log
            description="The token for `track_pub` there.",
        ),
    ] = ""
    data_dir: Annotated[Path, Meta(description="Folder of the logs; made if missing.")] = (
        attrs.field(default=Path("data"), converter=Path)
    )
    token_file: Annotated[
        str,
        Meta(
            description="Table of tokens and what each may do: a TOML file. Not set, everybody may "
            "everything."
        ),
    ] = ""
    insecure: Annotated[
        bool,
        Meta(description="Let others than this machine reach a broker without `token_file`."),
    ] = False
    connections_max: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Connections open at once.")
    ] = 20_000
    reserve_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=GIB,
            description="Disk space kept for acknowledgements; at most a sixteenth of the file "
            "system.",
        ),
    ] = 64 * MIB
    segment_bytes: Annotated[
        int, Meta(ge=64 * KIB, le=4 * GIB, description="A log begins a new file past this.")
    ] = 64 * MIB
    open_segments_max: Annotated[
        int,
        Meta(
            ge=8,
            le=1_000_000,
            description="Log files open for writing at once; never more than a fifth of the "
            "descriptors.",
        ),
    ] = 10_000
    memory_bytes_max: Annotated[
        int,
        Meta(
            ge=MIB,
            le=1024 * GIB,
            description="Messages of topics kept in memory; past it, they are refused.",
        ),
    ] = GIB
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="Least important log line.")
    ] = "info"
    log_format: Annotated[Literal["text", "json"], Meta(description="Form of a log line.")] = "text"


@attrs.frozen(slots=False, kw_only=True)
class LoopLimits:
    """What one turn of the loop, and one connection, may take."""

    tick_events_max: Annotated[
        int, Meta(ge=1, le=65_536, description="Connections served in one turn of the loop.")
    ] = 1_024
    tickets_per_connection_max: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Unanswered requests of a connection; past it, produces wait, pulls get "
            "a 429.",
        ),
    ] = 1_024
    output_bytes_max: Annotated[
        int,
        Meta(
            ge=4 * KIB,
            le=GIB,
            description="Unsent bytes of a connection; past it, reading from it pauses.",
        ),
    ] = 256 * KIB
    drain_timeout_ms: Annotated[
        int, Meta(ge=0, le=HOUR_MS, description="Longest wait for replies to leave at stop.")
    ] = 5_000


@attrs.frozen(slots=False, kw_only=True)
class Timeouts:
    """How long a connection may take for anything."""

    head_timeout_ms: Annotated[
        int, Meta(ge=100, le=HOUR_MS, description="From first byte to full request head.")
    ] = 10_000
    body_timeout_ms: Annotated[
        int, Meta(ge=100, le=HOUR_MS, description="Longest pause within a request body.")
    ] = 30_000
    idle_timeout_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=24 * HOUR_MS,
            description="A connection without traffic for so long is closed.",
        ),
    ] = 180_000
    stall_timeout_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=HOUR_MS,
            description="A client that takes none of its replies for so long is cut off.",
        ),
    ] = 10_000
    sse_heartbeat_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=HOUR_MS,
            description="A stream of events without an event for so long gets a comment.",
        ),
    ] = 15_000


@attrs.frozen(slots=False, kw_only=True)
class Marks:
    """When disk or memory run short."""

    disk_free_bytes_min: Annotated[
        int,
        Meta(
            ge=0,
            le=1024 * GIB,
            description="With less free on the disk, puts are refused (507). At most a quarter of "
            "it.",
        ),
    ] = GIB
    disk_free_percent_min: Annotated[
        int,
        Meta(
            ge=0,
            le=99,
            description="The same, in percent of the file system; the larger one counts. 0 = none.",
        ),
    ] = 5
    memory_limit_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=1024 * GIB,
            description="With more resident memory, puts are refused (503). 0 = 40 % of what the "
            "cgroup or machine has.",
        ),
    ] = 0
