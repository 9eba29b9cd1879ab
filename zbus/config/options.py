"""Every option of a broker, collected from those who declare them, and checked."""

from __future__ import annotations

import re
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import attrs
import msgspec

from zbus.config.engine import EngineOptions
from zbus.config.server import LoopLimits, Marks, ServerOptions, Timeouts
from zbus.core.api import DEFAULT_LIMITS, Limits
from zbus.dialects.adf.settings import AdfOptions
from zbus.dialects.camellia.settings import CamelliaOptions
from zbus.dialects.mqcloud.settings import MqcloudOptions
from zbus.dialects.semq.settings import SemqOptions
from zbus.dialects.zbus.settings import NativeOptions
from zbus.edge.guard import GuardOptions
from zbus.edge.proxies import Proxies, ProxyOptions
from zbus.edge.rights import RightsOptions
from zbus.option import DECLARED, listed
from zbus.wire.limits import WireLimits
from zbus.wire.networks import parse_networks

ORDER: Final = (
    "host",
    "port",
    "listen",
    "unix_socket_mode",
    "tls_cert_file",
    "tls_key_file",
    "tls_client_ca_file",
    "tls_client_auth",
    "server_name",
    "tracker_list",
    "tracker_token",
    "data_dir",
    "durability",
    "engine",
    "engine_user_file",
    "engine_ca_file",
    "engine_cert_file",
    "engine_key_file",
    "engine_replicas",
    "engine_timeout_ms",
    "engine_bytes_max",
    "node",
    "token_file",
    "allow_url_token",
    "insecure",
    "line_bytes_max",
    "head_bytes_max",
    "fields_max",
    "body_bytes_max",
    "message_bytes_max",
    "batch_messages_max",
    "connections_max",
    "connections_per_address_max",
    "message_headers_bytes_max",
    "tickets_per_connection_max",
    "waiting_max",
    "output_bytes_max",
    "head_timeout_ms",
    "body_timeout_ms",
    "idle_timeout_ms",
    "stall_timeout_ms",
    "bytes_per_s_min",
    "drain_timeout_ms",
    "sse_heartbeat_ms",
    "navigation_timeout_ms",
    "call_timeout_ms",
    "push_networks",
    "push_connections_max",
    "metrics_topics_max",
    "disk_free_bytes_min",
    "disk_free_percent_min",
    "reserve_bytes",
    "memory_limit_bytes",
    "bodies_bytes_max",
    "segment_bytes",
    "retention_ms",
    "retention_bytes",
    "open_segments_max",
    "memory_bytes_max",
    "memory_topic_bytes_max",
    "cache_bytes_max",
    "history_bytes_max",
    "topics_max",
    "groups_per_topic_max",
    "partitions_max",
    "topic_messages_per_s",
    "topic_bytes_per_s",
    "txn_ttl_ms",
    "allowed_hosts",
    "cors_origins",
    "trusted_proxies",
    "pages",
    "browser_get",
    "reload_window_ms",
    "rpc_url",
    "camellia_ttl_ms",
    "camellia_max_retry",
    "camellia_ack_timeout_ms",
    "camellia_ended_ms",
    "camellia_batch",
    "camellia_poll_timeout_ms",
    "camellia_monitor_ms",
    "camellia_idle_ms",
    "tick_events_max",
    "log_level",
    "log_format",
    "adf_auto_create",
    "adf_body_bytes_max",
    "adf_requestid_length_max",
    "adf_first_duplications",
    "adf_http_lease_ms",
    "adf_pull_timeout_ms",
    "mqcloud_producers",
    "mqcloud_consumers",
    "mqcloud_auto_register",
    "mqcloud_first",
    "mqcloud_queues",
    "mqcloud_pull_size",
    "mqcloud_consume_timeout_ms",
    "mqcloud_limit_rate",
    "mqcloud_clients_max",
    "semq_nodes",
    "semq_interval_ms",
    "semq_store_always",
    "semq_window",
    "semq_rows_max",
)
"""In the order in which an operator asks: where, who, how much, how long, what is kept."""

_Part = TypeVar("_Part")


class ConfigError(Exception):
    """An option is unknown or its value is bad; the text names the option and the source."""


@attrs.frozen
class Option:
    """One option, as it was declared."""

    name: str
    kind: Any  # its type
    default: Any
    meta: msgspec.Meta  # what else is checked

    @property
    def meaning(self) -> str:
        return self.meta.description or ""

    @property
    def choices(self) -> tuple[str, ...]:
        """What it may be, if that is one of a few words."""
        return typing.get_args(self.kind)

    def check(self, value: object, source: str) -> None:
        """Refuse what the option does not allow."""
        if not isinstance(value, str | Path) or _is_clean(str(value)):
            try:
                msgspec.convert(value, Annotated[self.kind, self.meta])
                return
            except msgspec.ValidationError:
                pass
        raise ConfigError(f"{source}: {self._refusal(value)}")

    def _refusal(self, value: object) -> str:
        """What is wrong with it, in words."""
        meta = self.meta
        if isinstance(value, int) and value.bit_length() > 64:
            return "the number is too large"
        if isinstance(value, dict | list) and value:
            return "expected one value, not several"
        if isinstance(value, Path):
            return f"{str(value)!r} cannot be used"
        if self.kind is bool:
            return f"expected true or false, not {value!r}"
        if self.kind is int:
            if type(value) is not int:
                return f"expected a whole number, not {value!r}"
            return f"{value} is not between {meta.ge} and {meta.le}"
        if not isinstance(value, str):
            return f"expected text, not {value!r}"
        if self.choices:
            return f"{value!r} is not one of {', '.join(self.choices)}"
        wrong = (item for item in listed(value) if not re.search(meta.pattern or "", item))
        title = meta.title or "{!r} cannot be used"
        return title.format(value, item=next(wrong, value))


@attrs.frozen(slots=False, kw_only=True)
class Config(
    ServerOptions,
    EngineOptions,
    LoopLimits,
    Timeouts,
    Marks,
    WireLimits,
    Limits,
    GuardOptions,
    ProxyOptions,
    RightsOptions,
    NativeOptions,
    AdfOptions,
    CamelliaOptions,
    MqcloudOptions,
    SemqOptions,
):
    """All options of one broker. It is given as it is to those who declare some of them."""

    def __attrs_post_init__(self) -> None:
        for name, option in OPTIONS.items():
            option.check(getattr(self, name), name)
        _at_least(self, "head_bytes_max", "line_bytes_max")
        if self.message_bytes_max != DEFAULT_LIMITS.message_bytes_max:  # else the body's holds, too
            _at_least(self, "body_bytes_max", "message_bytes_max")
        _at_least(self, "bodies_bytes_max", "body_bytes_max")
        try:
            name = "push_networks"
            parse_networks(listed(self.push_networks))
            name = "trusted_proxies"
            Proxies(self.trusted_proxies)
        except ValueError as error:
            raise ConfigError(f"{name}: {error}") from None

    def part(self, kind: type[_Part], **more: object) -> _Part:
        """An object of this class: of the options, and of what else is known, what it has a field
        of the same name for."""
        names = {field.name for field in attrs.fields(kind)}  # type: ignore[arg-type]  # of attrs
        given = {name: getattr(self, name) for name in names & OPTIONS.keys()}
        return kind(**given, **{name: more[name] for name in names & more.keys()})


def _declared() -> dict[str, Option]:
    hints, fields = typing.get_type_hints(Config), attrs.fields_dict(Config)
    declared = {name for name, field in fields.items() if DECLARED in field.metadata}
    assert declared == set(ORDER), declared ^ set(ORDER)
    return {
        name: Option(name, hints[name], fields[name].default, fields[name].metadata[DECLARED])
        for name in ORDER
    }


OPTIONS: Final[Mapping[str, Option]] = _declared()


def _at_least(config: Config, larger: str, smaller: str) -> None:
    high, low = getattr(config, larger), getattr(config, smaller)
    if high < low:
        raise ConfigError(f"{larger} ({high}) must not be less than {smaller} ({low})")


def _is_clean(text: str) -> bool:
    """Bytes that are no text, or end one, come from files and the environment."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False
