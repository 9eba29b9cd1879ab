"""Every option of a broker: type, default, unit, limits and meaning, declared once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
HOUR_MS: Final = 3_600_000

_HOST: Final = r"(?:[^\s:/,\[\]]+|\[[0-9A-Fa-f:.]+\])"
_SERVER_NAME = re.compile(rf"(?:{_HOST}(?::\d{{1,5}})?)?")
_ADDRESSES = re.compile(rf"(?:{_HOST}:\d{{1,5}}(?:,{_HOST}:\d{{1,5}})*)?")

_LISTS: Final = {
    "allowed_hosts": (re.compile(r"[^\s:/]+|\*"), "name, without a port"),
    "cors_origins": (
        re.compile(r"https?://(?:\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+)(?::\d{1,5})?|null|\*"),
        "https://host:port",
    ),
}


def listed(text: str) -> tuple[str, ...]:
    """The items of an option that takes several, separated by commas."""
    return tuple(item.strip() for item in text.split(",") if item.strip())


class ConfigError(Exception):
    """An option is unknown or its value is bad; the text names the option and the source."""


def _text(default: str, meaning: str, *choices: str) -> Any:  # noqa: ANN401 - as attrs.field
    return attrs.field(
        default=default, validator=_check, metadata={"meaning": meaning, "choices": choices}
    )


def _number(default: int, low: int, high: int, meaning: str) -> Any:  # noqa: ANN401 - as attrs.field
    return attrs.field(
        default=default, validator=_check, metadata={"meaning": meaning, "limits": (low, high)}
    )


def _flag(meaning: str) -> Any:  # noqa: ANN401 - as attrs.field
    return attrs.field(default=False, validator=_check, metadata={"meaning": meaning, "flag": True})


def _check(_config: Config, option: attrs.Attribute[Any], value: object) -> None:
    validate(option, value, source=option.name)


@attrs.frozen(kw_only=True)
class Config:
    """All options of one broker."""

    # Where it listens and keeps its bytes
    host: str = _text("127.0.0.1", "Address to listen on; `0.0.0.0` is every address.")
    port: int = _number(15555, 0, 65535, "Port to listen on; 0 lets the system pick one.")
    listen: str = _text(
        "",
        "Every address to listen on, instead of `host` and `port`, separated by commas: "
        "`http://127.0.0.1:15555, https://0.0.0.0:15556, unix:/run/zbus.sock`.",
    )
    unix_socket_mode: str = _text(
        "0600", "Who may use a Unix socket: its file permissions.", "0600", "0660", "0666"
    )
    tls_cert_file: str = _text("", "Certificate for https, then those that signed it: a PEM file.")
    tls_key_file: str = _text("", "Its key: a PEM file; not set, it is in `tls_cert_file`.")
    tls_client_ca_file: str = _text("", "Who signs the certificates of clients: a PEM file.")
    tls_client_auth: str = _text(
        "none",
        "Whether clients over https may, or must, show a certificate.",
        "none",
        "optional",
        "required",
    )
    server_name: str = _text(
        "",
        "Where clients are told to find it, `host` or `host:port`. If it listens on every address: "
        "that of the default route's interface.",
    )
    tracker_list: str = _text("", "Trackers to report to, `host:port`, with commas between.")
    tracker_token: str = _text("", "The token for `track_pub` there.")
    data_dir: Path = attrs.field(
        default=Path("data"),
        converter=Path,
        validator=_check,
        metadata={"meaning": "Folder of the logs; made if missing."},
    )
    durability: str = _text(
        "disk",
        "What a reply waits for, unless the topic says otherwise: nothing, the write, the sync.",
        "memory",
        "os",
        "disk",
    )

    # Who may do what
    token_file: str = _text(
        "", "Table of tokens and what each may do: a TOML file. Not set, everybody may everything."
    )
    allow_url_token: bool = _flag(
        "Take a token from the URL, too, where it stays in histories and in others' logs."
    )
    insecure: bool = _flag("Let others than this machine reach a broker without `token_file`.")

    # What one request may be
    line_bytes_max: int = _number(8 * KIB, 256, MIB, "Longest request line or header line.")
    head_bytes_max: int = _number(16 * KIB, 512, MIB, "Longest request line and headers together.")
    fields_max: int = _number(100, 8, 10_000, "Header fields in one request.")
    body_bytes_max: int = _number(16 * MIB, KIB, GIB, "Longest request body, batches included.")
    message_bytes_max: int = _number(MIB, 1, 64 * MIB, "Longest body of one message.")
    batch_messages_max: int = _number(10_000, 1, 1_000_000, "Messages in one batch request.")

    # What one connection may hold
    connections_max: int = _number(20_000, 1, 1_000_000, "Connections open at once.")
    tickets_per_connection_max: int = _number(
        1024,
        1,
        100_000,
        "Unanswered requests of a connection; past it, produces wait, pulls get a 429.",
    )
    output_bytes_max: int = _number(
        256 * KIB, 4 * KIB, GIB, "Unsent bytes of a connection; past it, reading from it pauses."
    )

    # How long anything may take
    head_timeout_ms: int = _number(10_000, 100, HOUR_MS, "From first byte to full request head.")
    body_timeout_ms: int = _number(30_000, 100, HOUR_MS, "Longest pause within a request body.")
    idle_timeout_ms: int = _number(
        180_000, 100, 24 * HOUR_MS, "A connection without traffic for so long is closed."
    )
    stall_timeout_ms: int = _number(
        10_000, 100, HOUR_MS, "A client that takes none of its replies for so long is cut off."
    )
    drain_timeout_ms: int = _number(5_000, 0, HOUR_MS, "Longest wait for replies to leave at stop.")
    sse_heartbeat_ms: int = _number(
        15_000, 100, HOUR_MS, "A stream of events without an event for so long gets a comment."
    )
    navigation_timeout_ms: int = _number(
        30_000, 100, HOUR_MS, "Longest wait of a browser page that asks for a message."
    )
    call_timeout_ms: int = _number(
        30_000, 100, 24 * HOUR_MS, "Longest wait for an RPC answer, if the call names none."
    )

    # When disk or memory run short
    disk_free_bytes_min: int = _number(
        GIB,
        0,
        1024 * GIB,
        "With less free on the disk, puts are refused (507). At most a quarter of it.",
    )
    disk_free_percent_min: int = _number(
        5, 0, 99, "The same, in percent of the file system; the larger one counts. 0 = none."
    )
    reserve_bytes: int = _number(
        64 * MIB,
        0,
        GIB,
        "Disk space kept for acknowledgements; at most a sixteenth of the file system.",
    )
    memory_limit_bytes: int = _number(
        0,
        0,
        1024 * GIB,
        "With more resident memory, puts are refused (503). "
        "0 = 40 % of what the cgroup or machine has.",
    )
    bodies_bytes_max: int = _number(
        256 * MIB,
        KIB,
        1024 * GIB,
        "Request bodies that have come in part, of all connections; past it, 503 and close.",
    )

    # What it keeps
    segment_bytes: int = _number(64 * MIB, 64 * KIB, 4 * GIB, "A log begins a new file past this.")
    retention_ms: int = _number(
        0,
        0,
        10 * 365 * 24 * HOUR_MS,
        "Topics forget what is older, unless they say otherwise; 0 = never.",
    )
    retention_bytes: int = _number(
        0,
        0,
        1024 * 1024 * GIB,
        "A partition forgets what is beyond, unless its topic says otherwise; 0 = keep all.",
    )
    open_segments_max: int = _number(
        10_000,
        8,
        1_000_000,
        "Log files open for writing at once; never more than a fifth of the descriptors.",
    )
    memory_bytes_max: int = _number(
        GIB, MIB, 1024 * GIB, "Messages of topics kept in memory; past it, they are refused."
    )
    cache_bytes_max: int = _number(128 * MIB, 0, 1024 * GIB, "Recent messages kept in memory.")
    history_bytes_max: int = _number(
        64 * MIB, MIB, 1024 * GIB, "Older messages in memory, as read back for groups behind."
    )
    topics_max: int = _number(10_000, 1, 10_000_000, "Topics.")
    groups_per_topic_max: int = _number(1000, 1, 1_000_000, "Consume groups of one topic.")
    partitions_max: int = _number(64, 1, 4096, "Partitions of one topic.")

    # What browsers may do here
    allowed_hosts: str = _text(
        "",
        "Names that clients know this broker by, separated by commas, beside `localhost`, "
        "addresses, this machine's name, `host` and `server_name`; `*` is any.",
    )
    cors_origins: str = _text(
        "",
        "Pages that may use this broker, separated by commas: `https://app.example.org`; "
        "`null` is those out of files, `*` is any, both without cookies.",
    )
    pages: str = _text(
        "",
        "Folder of files that everybody gets under `/_pages/`: pages of your own. Not set, there "
        "are none.",
    )
    browser_get: str = _text(
        "on",
        "Whether an address that a person opens in a browser may change something.",
        "on",
        "off",
    )
    reload_window_ms: int = _number(
        2_000, 0, HOUR_MS, "A page that is loaded again so soon puts its message once; 0 = never."
    )

    # How it behaves
    rpc_url: str = _text(
        "seed",
        "How a call reads as URL: `/topic/method/args?module=` or `/topic/module/method/args`.",
        "seed",
        "module-path",
    )
    tick_events_max: int = _number(1024, 1, 65_536, "Connections served in one turn of the loop.")
    log_level: str = _text("info", "Least important log line.", "debug", "info", "warning", "error")
    log_format: str = _text("text", "Form of a log line.", "text", "json")

    def __attrs_post_init__(self) -> None:
        _at_least(self, "head_bytes_max", "line_bytes_max")
        _at_least(self, "body_bytes_max", "message_bytes_max")
        _at_least(self, "bodies_bytes_max", "body_bytes_max")


OPTIONS: Final[Mapping[str, attrs.Attribute[Any]]] = {
    option.name: option for option in attrs.fields(Config)
}


def _at_least(config: Config, larger: str, smaller: str) -> None:
    high, low = getattr(config, larger), getattr(config, smaller)
    if high < low:
        raise ConfigError(f"{larger} ({high}) must not be less than {smaller} ({low})")


def validate(option: attrs.Attribute[Any], value: object, source: str) -> None:
    """Refuse a value of the right kind that is outside what the option allows."""
    meta = option.metadata
    if limits := meta.get("limits"):
        if type(value) is not int:
            raise ConfigError(f"{source}: expected a whole number, not {value!r}")
        if not limits[0] <= value <= limits[1]:
            raise ConfigError(f"{source}: {value} is not between {limits[0]} and {limits[1]}")
        return
    if meta.get("flag"):
        if not isinstance(value, bool):
            raise ConfigError(f"{source}: expected true or false, not {value!r}")
        return
    if not isinstance(value, str | Path):
        raise ConfigError(f"{source}: expected text, not {value!r}")
    text = str(value)
    if (choices := meta.get("choices")) and text not in choices:
        raise ConfigError(f"{source}: {text!r} is not one of {', '.join(choices)}")
    if "\0" in text or (option.name == "host" and not text):
        raise ConfigError(f"{source}: {text!r} cannot be used")
    if option.name == "server_name" and not _SERVER_NAME.fullmatch(text):
        raise ConfigError(f"{source}: {text!r} is not of the form host or host:port")
    if option.name == "tracker_list" and not _are_addresses(text):
        raise ConfigError(f"{source}: {text!r} is not of the form host:port,host:port")
    if option.name == "tracker_token" and not text.isprintable():
        raise ConfigError(f"{source}: it holds what no header can")
    if form := _LISTS.get(option.name):
        for item in listed(text):
            if not form[0].fullmatch(item):
                raise ConfigError(f"{source}: {item!r} is not of the form {form[1]}")


def _are_addresses(text: str) -> bool:
    if not _ADDRESSES.fullmatch(text):
        return False
    return all(int(port) <= 65535 for port in re.findall(r":(\d{1,5})(?:,|\Z)", text))
