"""Talking to a broker from the command line: the options that say where it is, and one request
after another over `zbus.client`.

What goes wrong is an exception that click prints on stderr and turns into an exit code: 1 for a
refusal (status 400 and up), 2 for a broker that cannot be reached or stops talking.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from shlex import quote
from typing import Any, TypeVar

import click

from zbus import client
from zbus.cli.words import Failed, keep_json
from zbus.client.links.link import Link
from zbus.client.messages import read_container
from zbus.client.options import DEFAULT_URL, Options, parse_url, parse_urls, resolve
from zbus.client.requests import line
from zbus.wire.responses import Response

MESSAGES_TYPE = "application/vnd.zbus.messages"
"""Content type of a body that is messages one after the other, each a start line, headers, body."""

CONNECT_TIMEOUT_S = 10.0
GRACE_S = 10.0
"""How much longer than the broker we wait: the broker's answer says more than our own timeout."""

FOR_EVER_S = 1e6
"""For requests that wait until they are interrupted."""

UNREPEATED = frozenset(("produce", "consume", "route", "cancel", "fire", "reschedule", "redrive"))
"""Commands that are not sent twice: if the answer is lost, it stays unknown whether they were done.
(A produce may be a call, which takes no idempotency key; with one of the user's it is safe.)"""

Command = TypeVar("Command", bound=Callable[..., Any])
T = TypeVar("T")


_NO_TOPIC = re.compile(r"404: Topic\((.*)\) Not Found")
_NO_GROUP = re.compile(r"404: ConsumeGroup\((.*)\) Not Found")
_SOURCES = ("ndjson", "csv", "sqs", "redis", "rabbitmq")  # of `import`
_TAKEN = re.compile(r"ConsumeGroup\((.*)\) exclusive, forb?bidden")


class Refused(Failed):
    """The broker answered with an error; its text is for people."""

    exit_code = 1

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text or f"the broker answered with status {status}")
        self.status = status
        self._text = text
        context = click.get_current_context(silent=True)
        self._command = (context and context.info_name) or ""
        if context is not None and context.parent is not None and self._command in _SOURCES:
            self._command = context.parent.info_name or ""
        self._topic = str(context.params.get("topic", "")) if context is not None else ""

    def report(self) -> None:
        """Print the broker's text as it came: it may be a service's, and of any form."""
        if not self._text:
            super().report()
            return
        click.echo(self._text, err=True)
        if advice := self._advice():
            click.echo(f"zbus: {advice}", err=True)

    def _advice(self) -> str:
        """The command that helps; "" if none is known to."""
        if self.status == 403 and self._text.startswith("403: Command("):
            return "the token is unknown or lacks this right; give another: --token or ZBUS_TOKEN"
        if self._command not in ("produce", "consume", "tail", "import"):
            return ""
        if missing := _NO_TOPIC.fullmatch(self._text):
            return f"`zbus declare {quote(missing[1])}` makes it"
        if missing := _NO_GROUP.fullmatch(self._text):
            return f"`zbus declare {quote(self._topic)} {quote(missing[1])}` makes it"
        if self._command == "consume" and _TAKEN.fullmatch(self._text):
            return "--standby waits until the other has left"
        return ""

    def document(self) -> dict[str, object]:
        sentence = self.format_message().removeprefix(f"{self.status}: ")
        return {**super().document(), "error": sentence, "status": self.status}


class Unreachable(Failed):
    """No broker there, or it stopped talking in the middle."""

    exit_code = 2


_ACCESS = f"{__name__}.access"
"""Who asks, and whom to trust: `token`, `ca` and `cert`, as far as the command was given them."""


_KEPT = (
    ("--cert", "FILE", "This client's certificate and key, PEM, for a broker that asks for one."),
    ("--ca", "FILE", "Certificates to trust, PEM; the system's otherwise."),
    ("--token", "TEXT", "Access token. Visible in the process list; prefer ZBUS_TOKEN."),
)


def url_option(command: Command) -> Command:
    """Give a command the options that say where the broker is and who asks. A command is handed its
    URL alone: `connect` knows the rest. `--json` is kept for errors."""
    for name, kind, text in _KEPT:
        variable = f"ZBUS_{name.removeprefix('--').upper()}"
        command = click.option(
            name, envvar=variable, metavar=kind, expose_value=False, callback=_keep, help=text
        )(command)
    return click.option(
        "--url",
        envvar="ZBUS_URL",
        default=DEFAULT_URL,
        show_default=True,
        show_envvar=True,
        help="Where the broker is: http://, https://, unix:/path, or zbus://a,b with its standbys.",
    )(command)


def json_option(command: Command) -> Command:
    """Give a command `--json`; errors are then JSON, too."""
    return click.option(
        "--json", "as_json", is_flag=True, callback=keep_json, help="Print JSON, errors included."
    )(command)


def _keep(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    name = str(parameter.name)
    if value is not None and not value.isprintable():
        raise click.BadParameter(f"a {name} has no control characters")
    context.meta.setdefault(_ACCESS, {})[name] = value or None


def given_access() -> dict[str, str | None]:
    """What the command that runs was given of `_ACCESS`."""
    context = click.get_current_context(silent=True)
    return {} if context is None else context.meta.get(_ACCESS, {})


def address(url: str) -> tuple[str, int]:
    """The host and port of a URL such as `http://127.0.0.1:15555` or `broker:15555`, for those who
    speak plain HTTP alone."""
    try:
        kind, host, port = parse_url(url)
    except ValueError as error:
        raise click.UsageError(f"--url: {error}") from None
    if kind != "tcp":
        raise click.UsageError(f"--url {url!r} is not of the form http://host:port")
    return host, port


def _spelled(status: int, text: str) -> str:
    """A refusal for people. To a client of its protocol the broker speaks like the original, whose
    word for `forbidden` has a slip of the pen in it."""
    if status not in (401, 403):
        return text
    return text[:-9] + text[-9:].replace("orbbiden", "orbidden")


@contextmanager
def failures() -> Iterator[None]:
    """Turn what a client raises into what a command ends with."""
    try:
        yield
    except client.Refused as error:
        raise Refused(error.status, _spelled(error.status, error.text)) from None
    except client.RpcError as error:
        raise Refused(error.status, error.text.strip()) from None
    except client.ZbusError as error:
        raise Unreachable(str(error)) from None
    except ValueError as error:  # cannot be sent as it stands
        raise click.UsageError(str(error)) from None


def _reach(url: str, options: Mapping[str, Any], connect: Callable[[str, Options], T]) -> T:
    """Connect to the broker at `url`, for the token and certificates that the command was given.
    What goes wrong later is for `failures` to catch."""
    try:
        parse_urls(url)
    except ValueError as error:
        raise click.UsageError(f"--url: {error}") from None
    given = {"connect_timeout_s": CONNECT_TIMEOUT_S, **given_access(), **options}
    with failures():
        try:
            return connect(url, Options(**given))
        except client.ConnectionLost as error:
            why = str(error).removeprefix("no connection to ")
            raise Unreachable(f"cannot connect to a broker at {why}") from None
        except OSError as error:
            why = f"cannot use the certificates: {error.strerror or error}"
            import ssl  # here: it takes a while, and plain connections do without

            if isinstance(error, ssl.SSLError) and given.get("cert"):
                why += "; --cert is one file with certificate and key: cat a.pem a.key > both.pem"
            raise click.UsageError(why) from None


def _link(url: str, options: Options) -> Link:
    link = Link(*resolve(url, options))
    link.open()
    return link


def connect(url: str, **options: Any) -> client.BlockingClient:  # noqa: ANN401 - of `Options`
    """A client of the broker at `url`."""
    return _reach(url, options, lambda url, options: client.BlockingClient(url, options).open())


@contextmanager
def opened(url: str, **options: Any) -> Iterator[client.BlockingClient]:  # noqa: ANN401
    """The same for a `with`; errors end the command."""
    with connect(url, **options) as bus, failures():
        yield bus


def command(
    fields: Mapping[str, str | int | None],
    parse: Callable[[Response], T],
    body: bytes = b"",
    timeout_s: float | None = None,
) -> client.Request[T]:
    """A request with these headers; those that are None are left out."""
    given = {name: value for name, value in fields.items() if value is not None}
    id = str(given.pop("id", ""))
    lines = b"".join(line(name.encode(), value) for name, value in given.items())
    word = given.get("cmd")
    return client.Request(
        b"GET / HTTP/1.1\r\n" + lines,
        parse,
        body,
        safe=word not in UNREPEATED or "idempotency-key" in given,
        waits=word in UNREPEATED,
        id=id.encode(),
        timeout_s=FOR_EVER_S if timeout_s is None else timeout_s,
    )


def as_deliveries(response: Response) -> list[client.Delivery]:
    """The messages of an answer: none, one, or a container of many."""
    if response.status == 204:
        if response.fields.get(b"empty") == b"stopping":
            raise client.ConnectionLost("the broker stopped")
        return []
    if response.fields.get(b"content-type", b"") == MESSAGES_TYPE.encode():
        return read_container(response.body)
    return [client.Delivery(response)]


def request(
    url: str,
    fields: Mapping[str, str | int | None],
    body: bytes = b"",
    timeout_s: float = CONNECT_TIMEOUT_S + GRACE_S,
    **options: Any,  # noqa: ANN401 - as `connect`
) -> Response:
    """The answer to one command with these headers, over a connection of its own; those that are
    None are left out."""
    with closing(_reach(url, options, _link)) as link, failures():
        return link.run(command(fields, lambda response: response, body, timeout_s))


def ask(
    url: str,
    word: str,
    topic: str | None = None,
    group: str | None = None,
    **fields: str | int | None,
) -> Response:
    """The same, of a command about a topic or a group."""
    return request(url, {"cmd": word, "topic": topic, "consume_group": group, **fields})
