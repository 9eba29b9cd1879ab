"""Options of where messages are kept: the files of this machine, or a stream of NATS JetStream."""

from __future__ import annotations

import attrs

from zbus.option import number, option

HOUR_MS = 3_600_000


@attrs.frozen(slots=False, kw_only=True)
class EngineOptions:
    """The engine, and how to reach its servers."""

    engine: str = option(
        "files",
        "Where messages are kept: `files` in `data_dir`, or three NATS servers with JetStream and "
        "the name of a cluster, `nats://host:port,host:port,host:port/cluster` "
        "([replicated](../howto/replicated.md)).",
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
