"""Rows of other brokers: streams and lists of Redis, queues of RabbitMQ. They stay there."""

from __future__ import annotations

import base64
import binascii
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import click
import httpcore
import msgspec

from zbus.cli.importing.files import json_message
from zbus.cli.importing.rows import BadRow, Fields, Row, Sequence
from zbus.cli.words import Cannot, counted
from zbus.client import Message
from zbus.documents import NOT_JSON
from zbus.wire.numbers import parse_number

TIMEOUT_S = 60.0
READ_MAX = 100
"""Entries that are read from Redis at once."""
ANSWER_BYTES_MAX = 1 << 30
"""Of RabbitMQ's answer, which is a whole queue."""

_SEQUENCE_BITS = 20
_TIME_DIGITS_MIN = 12  # an id may be any number; fewer digits are no time since 1973


# -- Redis ----------------------------------------------------------------------------------------


class RedisKey:
    """A key of a Redis server: a stream or a list. Raises click.UsageError for a bad URL, Cannot
    without the package, the server or the key, and when the server is gone later."""

    def __init__(self, url: str, password: str | None, key: str) -> None:
        try:
            import redis
        except ModuleNotFoundError:
            text = "redis is not installed here: pip install 'zbus-broker[redis]'"
            raise Cannot(text) from None
        options: dict[str, Any] = {"password": password} if password else {}
        options |= {"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S}
        try:
            self._redis: Any = redis.Redis.from_url(url, **options)
        except ValueError as error:
            raise click.UsageError(f"the URL of Redis: {error}") from None
        self._key = key
        self._where = url.rpartition("@")[2]
        self._error = redis.RedisError
        with self._failures():
            kind: Any = self._redis.type(key)
        if kind not in (b"stream", b"list"):
            found = "no key" if kind == b"none" else f"no stream or list, but a {kind.decode()}, at"
            raise Cannot(f"Redis at {self._where} has {found} {key!r}")
        self.is_stream = kind == b"stream"
        self.identity = f"redis {self._where} {key}"

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except self._error as error:
            raise Cannot(f"Redis at {self._where}: {error}") from None

    def stream_rows(self, fields: Fields, after: int | None) -> Iterator[Row]:
        """Entries behind this place. The fields of each are a JSON object."""
        start = "-"
        if after is not None:
            start = f"({after >> _SEQUENCE_BITS}-{after & (1 << _SEQUENCE_BITS) - 1}"
        while True:
            with self._failures():
                entries = self._redis.xrange(self._key, min=start, count=READ_MAX)
            for id, values in entries:
                at, place = f"entry {id.decode()}", _place_of(id)
                try:
                    yield Row(at, place, _entry(id, values, fields))
                except BadRow as bad:
                    yield Row(at, place, None, str(bad))
            if not entries:
                return
            start = f"({entries[-1][0].decode()}"

    def list_rows(self, fields: Fields, oldest: str) -> Iterator[Row]:
        """Elements from the oldest one on, which is at this end."""
        sequence, at = Sequence(), 0
        with self._failures():
            length = self._redis.llen(self._key)
        while True:
            first, last = (at, at + READ_MAX - 1) if oldest == "left" else (-at - READ_MAX, -at - 1)
            with self._failures():
                elements = self._redis.lrange(self._key, first, last)
            if oldest == "right":
                elements.reverse()
            for element in elements:
                at += 1
                sequence.add(element)
                try:
                    found = json_message(element, fields) if fields.named else Message(element)
                    yield sequence.row(f"element {at}", found)
                except BadRow as bad:
                    yield sequence.row(f"element {at}", None, str(bad))
            if len(elements) < READ_MAX:
                break
        if at != length:
            changed = f"the list had {length} elements at first, and {at} were read"
            click.echo(f"zbus: {changed}: stop those who use it, and import again", err=True)


def _place_of(id: bytes) -> int:
    time, _, number = id.partition(b"-")
    time_ms = parse_number(time, (1 << 63 - _SEQUENCE_BITS) - 1)
    sequence = parse_number(number, (1 << _SEQUENCE_BITS) - 1)
    if time_ms is None or sequence is None:
        text = f"entry {id.decode()}: it has too large an id; use a stream with ids by time"
        raise Cannot(text)
    return time_ms << _SEQUENCE_BITS | sequence


def _entry(id: bytes, values: dict[bytes, bytes], fields: Fields) -> Message:
    record: dict[str, str | bytes] = {"id": id.decode()}
    if len(time := id.partition(b"-")[0]) >= _TIME_DIGITS_MIN:
        record["time"] = time
    texts: dict[str, str] = {}
    for name, value in values.items():
        field = name.decode("utf-8", "backslashreplace")
        record[field] = value
        try:
            texts[field] = value.decode()
        except UnicodeDecodeError:
            if not fields.body:
                raise BadRow(f"the field {field!r} is not UTF-8; --body FIELD takes one") from None
    return fields.message(record.get, msgspec.json.encode(texts), {})


# -- RabbitMQ -------------------------------------------------------------------------------------

_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


class _Item(msgspec.Struct):
    payload: str
    payload_encoding: str
    routing_key: str = ""
    exchange: str = ""
    message_count: int = 0
    properties: dict[str, Any] | list[Any] = {}  # a list if it is empty


_item = msgspec.json.Decoder(_Item).decode


def rabbitmq_rows(
    url: str, password: str | None, vhost: str, queue: str, count: int, fields: Fields
) -> Iterator[Row]:
    """The first messages of a queue, by the management API, which puts them back at once. Raises
    click.UsageError for a bad URL, and Cannot for what the API answers instead."""
    body = _get(url, password, vhost, queue, count)
    try:
        raws = _items(body)
    except NOT_JSON:
        shown = ascii(body[:40].decode("utf-8", "replace"))
        text = f"RabbitMQ answered with {shown}: is {urlsplit(url).netloc.rpartition('@')[2]} its"
        raise Cannot(f"{text} management API? Its port is 15672 mostly") from None
    sequence, left = Sequence(), 0
    for at, raw in enumerate(raws, 1):
        try:
            item = _item(raw)
            left = item.message_count
            sequence.add(f"{item.payload} {item.routing_key} {item.properties}".encode())
            yield sequence.row(f"message {at}", _queued(item, fields))
        except (*NOT_JSON, BadRow, binascii.Error) as error:
            yield sequence.row(f"message {at}", None, str(error))
    if left:
        text = f"{counted(left, 'message')} more in the queue: --count {len(raws) + left}"
        click.echo(f"zbus: there is {text} takes them, too", err=True)


def _queued(item: _Item, fields: Fields) -> Message:
    properties = dict(item.properties) if isinstance(item.properties, dict) else {}
    headers = properties.pop("headers", None) or {}
    if isinstance(seconds := properties.get("timestamp"), int):
        properties["timestamp"] = seconds * 1_000
    own = {name: _shown(value) for name, value in dict(headers).items()}
    record = {name: _shown(value) for name, value in properties.items()}
    named = {**own, **record, "routing_key": item.routing_key, "exchange": item.exchange}
    type = {"content-type": record["content_type"]} if record.get("content_type") else {}
    own |= {
        name.replace("_", "-"): record[name]
        for name in ("content_encoding", "correlation_id", "reply_to", "type", "app_id")
        if record.get(name)
    }
    payload = item.payload.encode()
    if item.payload_encoding == "base64":
        payload = base64.b64decode(payload, validate=True)
    return fields.message(named.get, payload, own, type)


def _shown(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _get(url: str, password: str | None, vhost: str, queue: str, count: int) -> bytes:
    """The answer of the management API."""
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url:
        raise click.UsageError("the URL of RabbitMQ is of the form http://user@host:15672")
    user = unquote(parts.username or "guest")
    secret = password or unquote(parts.password or "guest")
    host = parts.netloc.rpartition("@")[2]
    path = f"/api/queues/{quote(vhost, safe='')}/{quote(queue, safe='')}/get"
    wanted = {"count": count, "ackmode": "ack_requeue_true", "encoding": "auto"}
    login = base64.b64encode(f"{user}:{secret}".encode()).decode()
    headers: dict[bytes | str, bytes | str] = {"host": host, "authorization": f"Basic {login}"}
    headers["content-type"] = "application/json"
    waits = dict.fromkeys(("connect", "read", "write", "pool"), TIMEOUT_S)
    context = ssl.create_default_context() if parts.scheme == "https" else None
    try:
        with (
            httpcore.ConnectionPool(ssl_context=context) as pool,
            pool.stream(
                "POST",
                f"{parts.scheme}://{host}{parts.path.rstrip('/')}{path}",
                headers=headers,
                content=msgspec.json.encode(wanted),
                extensions={"timeout": waits},
            ) as response,
        ):
            _check(response.status, user, vhost, queue, host)
            body = bytearray()
            for piece in response.iter_stream():
                body += piece
                if len(body) > ANSWER_BYTES_MAX:
                    raise Cannot(f"the queue has more than {ANSWER_BYTES_MAX} bytes: use --count")
            return bytes(body)
    except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
        raise Cannot(f"RabbitMQ at {host}: {error or type(error).__name__}") from None


def _check(status: int, user: str, vhost: str, queue: str, host: str) -> None:
    if status in (401, 403):
        text = (
            f"user {user!r} may not read it (status {status}); ZBUS_SOURCE_PASSWORD has a password"
        )
        raise Cannot(f"RabbitMQ at {host}: {text}")
    if status == 404:
        raise Cannot(f"RabbitMQ at {host}: there is no queue {queue!r} in the vhost {vhost!r}")
    if status != 200:
        raise Cannot(f"RabbitMQ at {host} answered with status {status}")
