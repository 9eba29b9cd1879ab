"""What an endpoint is sent: a message as one POST, signed as the Standard Webhooks specification
says (https://www.standardwebhooks.com), and what its reply means."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import NamedTuple
from urllib.parse import quote

from zbus.core.api import Chunk, Group, Push
from zbus.dialects.zbus.request.header_lines import is_standard
from zbus.dialects.zbus.topics.webhooks import secret_keys
from zbus.wire.heads.header_names import PREFIX
from zbus.wire.retry_after import parse_retry_after

GONE = 410
"""The status by which an endpoint ends its webhook, as Standard Webhooks and REST hooks have it."""

RETRY_AFTER_MS_MAX = 3_600_000

_OF_ITS_WAY = frozenset((b"sender", b"origin_url", b"origin_method"))
"""Header lines that say how a message came to the broker, which is not the endpoint's business."""

_PRINTABLE = "".join(map(chr, range(0x21, 0x7F))).replace("%", "")

Lines = list[tuple[bytes, bytes]]


class Attempt(NamedTuple):
    """One request to be made."""

    owner: object  # the webhook that gets the outcome
    group: Group
    push: Push
    partition: int
    offset: int
    attempts: int  # this one included; 0 = they are not counted
    time_ms: int  # when the message was put
    id: bytes
    tag: bytes
    key: bytes
    headers: bytes
    body: bytes


class Reply(NamedTuple):
    """What came of it."""

    error: str = ""  # why the message is not delivered; "" = it is
    retry_after_ms: int = 0  # how long the endpoint wants to be left alone
    gone: bool = False  # the endpoint wants to be sent nothing ever again


def attempt_of(
    owner: object, group: Group, push: Push, index: int, chunk: Chunk, at: int, attempts: int
) -> Attempt:
    """The request for a row of a chunk."""
    time_ms = chunk.time_ms if chunk.times is None else chunk.times[at]
    names = chunk.id_of(at, index), chunk.tag_of(at), chunk.key_of(at)
    place = index, chunk.first + at, attempts, time_ms
    return Attempt(owner, group, push, *place, *names, chunk.headers[at], chunk.bodies[at])


def lines_of(attempt: Attempt, time_s: int) -> Lines:
    """Its header lines; `time_s` is now, epoch seconds."""
    topic, push = attempt.group.topic, attempt.push
    made_ms = topic.options.created_ms  # or another topic of the name would have the same ids
    place = attempt.partition, attempt.offset
    id = b"%b-%d-%d-%d" % (quote(topic.name, safe="").encode(), made_ms, *place)
    lines = [
        (b"webhook-id", id),
        (b"webhook-timestamp", b"%d" % time_s),
    ]
    if push.secret:
        signed = signature(push.secret, id, time_s, attempt.body)
        lines.append((b"webhook-signature", signed))
    lines += [
        (b"zbus-topic", _written(topic.name)),
        (b"zbus-group", _written(attempt.group.name)),
        (b"zbus-partition", b"%d" % attempt.partition),
        (b"zbus-offset", b"%d" % attempt.offset),
        (b"zbus-id", _written(attempt.id)),
        (b"zbus-time", b"%d" % attempt.time_ms),
        (b"zbus-attempt", b"%d" % max(attempt.attempts, 1)),
    ]
    if attempt.tag:
        lines.append((b"zbus-tag", _written(attempt.tag)))
    if attempt.key:
        lines.append((b"zbus-key", _written(attempt.key)))
    return lines + _application(attempt.headers)


def _written(text: str | bytes) -> bytes:
    return quote(text, safe=_PRINTABLE).encode()


def signature(secret: str, id: bytes, time_s: int, body: bytes) -> bytes:
    """What the header `webhook-signature` says; one signature for each secret."""
    signed_bytes = b"%b.%d.%b" % (id, time_s, body)
    made = [hmac.new(key, signed_bytes, hashlib.sha256).digest() for key in secret_keys(secret)]
    return b" ".join([b"v1," + base64.b64encode(digest) for digest in made])


def _application(headers: bytes) -> Lines:
    """The producer's header lines as in a plain reply, but the type is told as it is: an endpoint
    is a program that wants it."""
    lines: Lines = []
    kind = b"application/octet-stream"
    for line in headers.split(b"\r\n"):
        name, colon, value = line.partition(b": ")
        if not colon or name in _OF_ITS_WAY:
            continue
        if name == b"content-type":
            kind = value
        elif is_standard(name):
            lines.append((name, value))
        else:
            lines.append((PREFIX + name, value))
    return [(b"content-type", kind), *lines]


def reply_of(status: int, retry_after: bytes, now_s: float) -> Reply:
    """What a status means, and the endpoint's `retry-after`; `now_s` is epoch time."""
    if 200 <= status < 300:
        return Reply()
    wait_s = parse_retry_after(retry_after, now_s) or 0
    error = f"it replied {status}"
    if 300 <= status < 400:
        error += ", and a webhook follows no redirect"
    return Reply(error, min(round(wait_s * 1_000), RETRY_AFTER_MS_MAX), status == GONE)
