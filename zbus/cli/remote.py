"""Talking to a broker from the command line: one request, one reply, over plain HTTP.

Every command is a `GET /` with the broker's words in headers (`cmd`, `topic`, ...) and perhaps a
body. Nothing else is sent, because what the broker does not know it stores with the message.
A refusal (status 400 and up) and an absent broker are exceptions that click prints on stderr and
turns into the exit codes 1 and 2.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import click

from zbus.cli.words import Failed

DEFAULT_URL = "http://127.0.0.1:15555"
DEFAULT_PORT = 15555
MESSAGES_TYPE = "application/vnd.zbus.messages"
"""Content type of a body that is messages one after the other, each a start line, headers, body."""

CONNECT_TIMEOUT_S = 10.0
GRACE_S = 10.0
"""How much longer than the broker we wait: the broker's answer says more than our own timeout."""

DECODED_HEADERS = frozenset(
    {"topic", "consume_group", "tag", "group_filter", "group_start_copy", "token"}
)
"""Headers in which a broker decodes `%41`, so that a literal one has to be written `%2541`."""

_LOOKS_CODED = re.compile(r"%(?=[0-9A-Fa-f]{2})")

Command = TypeVar("Command", bound=Callable[..., Any])


class Refused(Failed):
    """The broker answered with an error; its text is for people."""

    exit_code = 1

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text or f"the broker answered with status {status}")
        self.status = status
        self._text = text

    def show(self, file: object = None) -> None:
        """Print the broker's text as it came: it may be a service's, and of any form."""
        if self._text:
            click.echo(self._text, err=True)
        else:
            super().show()


class Unreachable(Failed):
    """No broker there, or it stopped talking in the middle."""

    exit_code = 2


class Reply(NamedTuple):
    """A broker's answer; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


_TOKEN = f"{__name__}.token"


def url_option(command: Command) -> Command:
    """Give a command the options `--url` and `--token`. A command is not handed its token: whatever
    it sends through a `Remote` carries it."""
    command = click.option(
        "--token",
        envvar="ZBUS_TOKEN",
        metavar="TEXT",
        expose_value=False,
        callback=_keep_token,
        help="Who asks. Other users may see it here; they do not see ZBUS_TOKEN.",
    )(command)
    return click.option(
        "--url",
        envvar="ZBUS_URL",
        default=DEFAULT_URL,
        show_default=True,
        show_envvar=True,
        help="Where the broker is.",
    )(command)


def _keep_token(context: click.Context, _parameter: click.Parameter, token: str | None) -> None:
    if token is not None and not token.isprintable():
        raise click.BadParameter("a token has no control characters")
    context.meta[_TOKEN] = token or None


def given_token() -> str | None:
    """The token of the command that runs, if it was given one."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(_TOKEN)


def address(url: str) -> tuple[str, int]:
    """The host and port that a URL such as `http://127.0.0.1:15555` or `broker:15555` names."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port if parts.port is not None else DEFAULT_PORT
    except ValueError as error:
        raise click.UsageError(f"--url {url!r}: {error}") from None
    if parts.scheme != "http" or not parts.hostname:
        raise click.UsageError(f"--url {url!r} is not of the form http://host:port")
    return parts.hostname, port


class Remote:
    """One connection to a broker, kept open over several requests."""

    def __init__(self, url: str, token: str | None = None) -> None:
        """`token`: by default that of the command that runs."""
        self.host, self.port = address(url)
        self._token = token or given_token()
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def request(
        self,
        headers: Mapping[str, str | int | None],
        body: bytes | None = None,
        timeout_s: float | None = CONNECT_TIMEOUT_S + GRACE_S,
    ) -> Reply:
        """Send one command and wait for its reply; headers that are None are left out."""
        headers = {**headers, "token": self._token}
        fields = {name: _value(name, value) for name, value in headers.items() if value is not None}
        try:
            reply = self._exchange(self._connected(), fields, body, timeout_s)
        except TimeoutError:
            self.close()
            raise Unreachable(f"the broker at {self.host}:{self.port} did not answer") from None
        except (OSError, http.client.HTTPException) as error:
            self.close()
            what = str(error) or type(error).__name__
            raise Unreachable(
                f"lost the connection to the broker at {self.host}:{self.port}: {what}"
            ) from None
        if reply.status >= 400:
            raise Refused(reply.status, reply.body.decode("utf-8", "replace").strip())
        return reply

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            connection = http.client.HTTPConnection(self.host, self.port, CONNECT_TIMEOUT_S)
            try:
                connection.connect()
            except OSError as error:
                raise Unreachable(
                    f"cannot connect to a broker at {self.host}:{self.port}: "
                    f"{error.strerror or error}"
                ) from None
            self._connection = connection
        return self._connection

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        fields: Mapping[str, bytes],
        body: bytes | None,
        timeout_s: float | None,
    ) -> Reply:
        connection.sock.settimeout(timeout_s)
        connection.putrequest("GET", "/", skip_accept_encoding=True)
        try:
            for name, value in fields.items():
                connection.putheader(name, value)
        except ValueError as error:
            self.close()  # half a request has been prepared on it
            raise click.UsageError(str(error)) from None
        if body is not None:
            connection.putheader("content-length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        content = response.read()
        if response.will_close:
            self.close()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, found, content)


def _value(name: str, value: str | int) -> bytes:
    text = str(value)
    if name in DECODED_HEADERS:
        text = _LOOKS_CODED.sub("%25", text)
    return text.encode()


def split_messages(body: bytes) -> list[Reply]:
    """Take a body of type `MESSAGES_TYPE` apart. A damaged one raises `Unreachable`."""
    messages, position = [], 0
    while position < len(body):
        end = body.find(b"\r\n\r\n", position)
        lines = body[position:end].decode("utf-8", "replace").split("\r\n")[1:]
        fields = {
            name.strip().lower(): value.strip()
            for name, _, value in (s.partition(":") for s in lines)
        }
        length = fields.get("content-length", "0")
        start = end + 4
        if end < 0 or not length.isdecimal() or start + int(length) > len(body):
            raise Unreachable("the broker sent a damaged batch")
        position = start + int(length)
        messages.append(Reply(200, fields, body[start:position]))
    return messages
