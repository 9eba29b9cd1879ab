"""What a declare says of a webhook: a group whose messages the broker sends to an HTTP endpoint."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any
from urllib.parse import urlsplit

import attrs

from zbus.core.api import PUSH_ENDPOINT_BYTES_MAX as ENDPOINT_BYTES_MAX
from zbus.core.api import PUSH_SECRETS_MAX as SECRETS_MAX
from zbus.core.api import GroupOptions, Push
from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.request.params import BadRequest, Params
from zbus.edge.access import Grant
from zbus.option import listed
from zbus.wire.networks import Reachable, parse_address, parse_networks

_KEY_BYTES = range(24, 65)  # of a secret, as the Standard Webhooks specification says

_URL = re.compile(r"[!-~]+\Z")  # what a request line can say
_HOST = re.compile(r"(?:[0-9A-Za-z_-]{1,63}\.?){1,127}\Z")
_PARAMETERS = (b"push_url", b"push_secret", b"push_concurrency", b"push_timeout")

NONE = "none"


def reachable(push_networks: str) -> Reachable:
    """Where webhooks may lead, by the option of that name."""
    return Reachable(parse_networks(listed(push_networks)))


def url_problem(url: str, reach: Reachable) -> str | None:
    """Why messages cannot be sent there."""
    if len(url) > ENDPOINT_BYTES_MAX or _URL.match(url) is None:
        return f"is at most {ENDPOINT_BYTES_MAX} printable ASCII characters without spaces"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "is no URL"
    if parts.scheme not in ("http", "https") or not host:
        return "is http://host/path or https://host/path, or none"
    if parts.username is not None or parts.password is not None or parts.fragment:
        return "has no user, password or fragment"
    if port == 0:
        return "names no port"
    address = parse_address(host)
    if address is not None:
        problem = reach.problem(address)
        return problem and f"leads to where webhooks may not: {problem}"
    return None if _HOST.match(host) else "names no host"


def secret_keys(secret: str) -> list[bytes]:
    """The keys of secrets; ValueError says what is wrong with one."""
    keys = []
    for one in secret.split(" ") if secret else ():
        try:
            key = base64.b64decode(one.removeprefix("whsec_"), validate=True)
        except binascii.Error:
            key = b""
        if not one.startswith("whsec_") or len(key) not in _KEY_BYTES:
            raise ValueError("is whsec_ and the base64 of 24 to 64 bytes")
        keys.append(key)
    if len(keys) > SECRETS_MAX:
        raise ValueError(f"is at most {SECRETS_MAX} secrets with spaces between")
    return keys


class PushWords:
    """What a declare says of it."""

    __slots__ = ("_changes", "_url")

    def __init__(self, dialect: Context, params: Params) -> None:
        self._url = params.text(b"push_url")
        self._changes: dict[str, Any] = {}
        if params.fields.keys().isdisjoint(_PARAMETERS):
            return
        settings = dialect.settings
        if self._url and self._url != NONE:
            if not settings.push_connections_max:
                raise BadRequest(400, "400: Bad Format, this broker sends no webhooks")
            problem = url_problem(self._url, reachable(settings.push_networks))
            if problem is not None:
                raise BadRequest(400, f"400: Bad Format, push_url {problem}")
        secret = params.text(b"push_secret")
        if secret:
            secret = "" if secret == NONE else secret
            try:
                secret_keys(secret)
            except ValueError as error:  # which never tells the secret
                raise BadRequest(400, f"400: Bad Format, push_secret {error}") from None
            self._changes["secret"] = secret
        given = {
            "concurrency": params.number(b"push_concurrency"),
            "timeout_ms": params.duration(b"push_timeout"),
        }
        self._changes |= {name: value for name, value in given.items() if value}

    def forbidden(self, grant: Grant | None) -> bool:
        """A client that has messages sent somewhere can read them there, so it needs the right."""
        return bool(self._url) and self._url != NONE and not (grant is None or grant.may("consume"))

    def applied(self, options: GroupOptions) -> GroupOptions:
        """The options of a group with what was said. A group that is pushed has acknowledgements,
        unless something says that it has not."""
        if not (self._url or self._changes):
            return options
        if self._url == NONE:
            return attrs.evolve(options, push=None)
        push = options.push or Push("")
        push = attrs.evolve(push, endpoint=self._url or push.endpoint, **self._changes)
        lease = True if options.lease is None else options.lease
        return attrs.evolve(options, push=push, lease=lease)
