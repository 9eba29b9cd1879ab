"""`zbus semq`: run an endpoint of SEMQ, and ask one that runs."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from zbus.cli.messages.files import read_body
from zbus.cli.remote import failures, json_option
from zbus.cli.units import DURATION, NON_NEGATIVE, POSITIVE, SIZE, SOME_TIME
from zbus.cli.words import Cannot, Failed, Nothing, counted, print_json
from zbus.client import options as client_options
from zbus.semq.app.blocking import BlockingSemq
from zbus.semq.app.protocol import SOCKET, Received

if TYPE_CHECKING:
    from zbus.semq.program.start import Settings

FILE = click.Path(dir_okay=False, path_type=Path)

Function = TypeVar("Function", bound=Callable[..., Any])


@click.group()
def semq() -> None:
    """Send messages that must arrive: a store beside the application, which forwards."""


def _socket_option(function: Function) -> Function:
    return click.option(
        "--socket",
        envvar="ZBUS_SEMQ_SOCKET",
        default=SOCKET,
        show_default=True,
        show_envvar=True,
        help="Unix socket of the endpoint that runs.",
    )(function)


@contextmanager
def _endpoint(path: str) -> Iterator[BlockingSemq]:
    """The endpoint that runs; errors end the command."""
    with failures(), BlockingSemq(path) as endpoint:
        yield endpoint


def _place(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> tuple[str, int] | None:
    if text is None:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise click.BadParameter(f"{text!r} is not of the form HOST:PORT")
    return host.strip("[]"), int(port)


@semq.command()
@click.option("--database", type=FILE, required=True, help="File of the endpoint's database.")
@click.option("--node", required=True, help="Who this is: <type>:<id>, such as 1:10008.")
@click.option(
    "--platform", required=True, metavar="URL", help="The broker: HOST:PORT or https://HOST:PORT."
)
@click.option(
    "--token",
    envvar="ZBUS_TOKEN",
    help="Access token. Visible in the process list; prefer ZBUS_TOKEN.",
)
@click.option("--ca", envvar="ZBUS_CA", help="Certificates to trust, PEM; the system's otherwise.")
@click.option("--cert", envvar="ZBUS_CERT", help="Certificate and key to show the broker, PEM.")
@click.option(
    "--socket",
    envvar="ZBUS_SEMQ_SOCKET",
    type=click.Path(path_type=Path),
    default=SOCKET,
    show_default=True,
    help="Unix socket to make for applications; it is for this user alone.",
)
@click.option(
    "--listen", metavar="HOST:PORT", callback=_place, help="Let other endpoints connect there."
)
@click.option(
    "--advertise",
    metavar="HOST:PORT",
    multiple=True,
    help="The address that other nodes use, if it differs from --listen; may be repeated.",
)
@click.option("--listen-cert", type=FILE, help="Speak TLS there: certificate and key, PEM.")
@click.option("--no-direct", is_flag=True, help="Send through the broker only.")
@click.option(
    "--certificates",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of others' certificates, to encrypt for them: 1-56001.pem is that of 1:56001.",
)
@click.option(
    "--key",
    "keys",
    type=FILE,
    multiple=True,
    help="Private key with its certificate, PEM, to decrypt with; repeatable.",
)
@click.option(
    "--stores", type=POSITIVE, help="Split the outgoing messages over this many stores; default 1."
)
@click.option("--window", type=POSITIVE, help="Messages under way on a link; default 100.")
@click.option("--interval", type=SOME_TIME, help="Ask what became of a message after this time.")
@click.option("--outbox-bytes", type=SIZE, help="Refuse messages when this much waits; 1GiB.")
@click.option(
    "--body-bytes",
    "body_bytes_max",
    type=SIZE,
    default="16MiB",
    show_default=True,
    help="Largest message body, from applications and from direct links.",
)
@click.option("--attempts", type=NON_NEGATIVE, help="Give a message up after these; 0: never.")
@click.option(
    "--restored",
    is_flag=True,
    help="The database was restored from a backup: begin a new epoch, once.",
)
@click.option(
    "--log-level",
    type=click.Choice(("debug", "info", "warning", "error")),
    default="info",
    show_default=True,
    help="Log level on stderr.",
)
def run(platform: str, token: str | None, ca: str | None, cert: str | None, **given: Any) -> None:  # noqa: ANN401
    """Run an endpoint until SIGINT or SIGTERM."""
    from zbus.semq.program.sockets import Platform  # here: other commands need no event loop
    from zbus.semq.program.start import Settings
    from zbus.server.process.logs import set_up

    try:
        options = client_options.Options(token=token or None, ca=ca, cert=cert)
        addresses, options = client_options.resolve(platform, options)
    except ValueError as error:
        raise click.UsageError(f"--platform: {error}") from None
    except OSError as error:
        why = error.strerror or error
        raise click.UsageError(f"cannot use the certificates: {why}") from None
    set_up(given["log_level"], "text")
    os.umask(0o077)  # messages are in the files
    more = {
        "stores": given["stores"],
        "window": given["window"],
        "interval_ms": given["interval"],
        "outbox_bytes_max": given["outbox_bytes"],
        "attempts_max": given["attempts"],
        "direct": False if given["no_direct"] else None,
    }
    same = (
        "database",
        "node",
        "socket",
        "listen",
        "advertise",
        "listen_cert",
        "certificates",
        "body_bytes_max",
    )
    settings = Settings(
        platform=Platform(addresses=addresses, options=options),
        keys=given["keys"],
        renewed=given["restored"],
        more={name: value for name, value in more.items() if value is not None},
        **{name: given[name] for name in same},
    )
    _serve(settings)


def _serve(settings: Settings) -> None:
    import anyio

    from zbus.semq.program.start import CannotStart, opened

    async def serve() -> None:
        async with opened(settings) as running:
            direct = f", directly at {', '.join(running.direct)}" if running.direct else ""
            listening = f"{settings.node} listens at {settings.socket}{direct}"
            click.echo(f"{listening}; platform {settings.platform}")
            sys.stdout.flush()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_stop_on_signal, running.program.stop)
                await running.program.run()
                tasks.cancel_scope.cancel()

    try:
        anyio.run(serve, backend="trio")
    except CannotStart as error:
        raise Cannot(str(error)) from None


async def _stop_on_signal(stop: Callable[[], None]) -> None:
    import anyio

    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            stop()


@semq.command()
@click.argument("destination")
@click.argument("body", required=False)
@click.option(
    "--level",
    type=click.IntRange(1, 3),
    default=3,
    show_default=True,
    help="1: forward or forget; 2: store if the destination is offline; 3: it must arrive.",
)
@click.option(
    "--receipt",
    is_flag=True,
    help="Request a receipt when the message is durable at its destination.",
)
@click.option("--ordered", is_flag=True, help="Hand it over after all that was sent before it.")
@click.option("--unreliable", is_flag=True, help="It may be lost; for level 1.")
@click.option("--app-key", default="", help="Which business record it is about; not encrypted.")
@click.option("--ttl", type=SOME_TIME, help="Give it up if it is not delivered in this time.")
@click.option(
    "--route",
    type=click.Choice(("auto", "platform", "direct")),
    default="auto",
    show_default=True,
    help="Which way it goes.",
)
@click.option("--priority", type=NON_NEGATIVE, default=0, help="Larger ones go first.")
@click.option("--user", default="", help="Who of this node sends it.")
@click.option("--encrypt", is_flag=True, help="Let only its destination read the body.")
@json_option
@_socket_option
def send(
    destination: str,
    body: str | None,
    ttl: int | None,
    unreliable: bool,
    as_json: bool,
    socket: str,
    **wishes: Any,  # noqa: ANN401 - those of `Wishes`
) -> None:
    """Send BODY to DESTINATION; "-", or no BODY and a pipe, reads it from standard input.

    DESTINATION is a node (1:56001), a user of one (1:56001/bob) or a topic of the broker
    (0:1/orders). The message is durable when this returns: its record and its id are printed.
    """
    content = read_body(body)
    expires_ms = 0 if ttl is None else time.time_ns() // 1_000_000 + ttl
    with _endpoint(socket) as endpoint:
        sent = endpoint.send(
            destination, content, reliable=not unreliable, expires_ms=expires_ms, **wishes
        )
    if as_json:
        print_json({"record": sent.record, "mid": sent.mid})
    else:
        click.echo(f"{sent.record} {sent.mid}".strip())


@semq.command()
@click.option("--user", default="", help="Take messages for this user of the node.")
@click.option(
    "--count",
    type=NON_NEGATIVE,
    default=1,
    show_default=True,
    help="Stop after this many messages; 0: never.",
)
@click.option("--timeout", type=DURATION, help="Stop if nothing comes for this time.")
@click.option("--done", "acks", is_flag=True, help="Mark messages done once they are printed.")
@click.option("-v", "--verbose", is_flag=True, help="Print each message's fields, too.")
@json_option
@_socket_option
def take(
    user: str,
    count: int,
    timeout: int | None,
    acks: bool,
    verbose: bool,
    as_json: bool,
    socket: str,
) -> None:
    """Take messages, and print the body of each on a line.

    Without --done they are there again when this ends.
    """
    wait_s = None if timeout is None else timeout / 1_000
    taken, faults = 0, 0
    with _endpoint(socket) as endpoint:
        for message in endpoint.take(user, wait_s):
            _print(message, verbose, as_json)
            if message.fault:
                faults += 1
                click.echo(f"zbus: message {message.row}: {message.fault}", err=True)
            elif acks:
                message.done()
            taken += 1
            if taken == count:
                break
    if not taken:
        raise Nothing(f"nothing came within {timeout} ms")
    if faults:
        raise Failed(f"{counted(faults, 'message')} could not be decrypted, and stay")


def _print(message: Received, verbose: bool, as_json: bool) -> None:
    if as_json:
        try:
            body: dict[str, object] = {"body": message.text}
        except UnicodeDecodeError:
            body = {"body_base64": message.body}
        print_json({"row": message.row, "mid": message.mid, **message.fields, **body})
        return
    if verbose:
        for name, value in message.fields.items():
            click.echo(f"{name}: {value}")
        click.echo()
    if not message.fault:
        sys.stdout.buffer.write(message.body + b"\n")
    sys.stdout.flush()


@semq.command()
@click.argument("rows", type=POSITIVE, nargs=-1, required=True)
@json_option
@_socket_option
def done(rows: tuple[int, ...], as_json: bool, socket: str) -> None:
    """Mark messages done, by the numbers that `take` shows."""
    with _endpoint(socket) as endpoint:
        for row in rows:
            endpoint.done(row)
    _print_count(len(rows), as_json)


def _print_count(count: int, as_json: bool) -> None:
    if as_json:
        print_json({"count": count})
    else:
        click.echo(counted(count, "message"))


@semq.command()
@json_option
@_socket_option
def stat(as_json: bool, socket: str) -> None:
    """Show the state of the endpoint: links and waiting messages."""
    with _endpoint(socket) as endpoint:
        found = endpoint.manage("stat")
    if as_json:
        print_json(found)
        return
    state = "connected" if found["platform"] else "not connected"
    click.echo(f"{found['node']}  platform {state}, epoch {found['epoch']}")
    if found["peers"]:
        click.echo(f"direct links: {', '.join(found['peers'])}")
    click.echo(f"outbox: {found['outbox_bytes']} bytes")
    for node, one in sorted(found["outbox"].items()):
        states = ", ".join(f"{name} {one[name]}" for name in sorted(one) if name.startswith("SS_"))
        error = f"; {one['error']}" if one["error"] else ""
        click.echo(f"  {node}  {states}, oldest {one['oldest_ms'] // 1_000} s{error}")
    states = ", ".join(f"{name} {count}" for name, count in sorted(found["inbox"].items()))
    click.echo(f"inbox: {states or 'empty'}")
    for node, count in sorted(found["held"].items()):
        click.echo(f"  {node}  {counted(count, 'message')} wait for those before them")
    click.echo(f"dead: {found['dead']}")
    for complaint in found["complaints"][-10:]:
        click.echo(f"complaint: {complaint['node']}: {complaint['text']}")


@semq.command("list")
@click.option("--in", "inbox", is_flag=True, help="Show the inbox instead of the outbox.")
@click.option("--dead", is_flag=True, help="What could not be delivered.")
@click.option("--node", default="", help="Only messages to or from this node.")
@click.option("--state", default="", help="Only messages in this state, such as SS_INIT.")
@click.option("--count", type=POSITIVE, default=100, show_default=True, help="Show at most these.")
@json_option
@_socket_option
def list_rows(
    inbox: bool, dead: bool, node: str, state: str, count: int, as_json: bool, socket: str
) -> None:
    """Show messages that are not finished, a line each."""
    fields = {"box": "in" if inbox else "", "node": node, "state": state, "count": str(count)}
    with _endpoint(socket) as endpoint:
        rows = endpoint.manage("dead" if dead else "list", fields)
    for row in rows:
        if as_json:
            print_json(row)
            continue
        shown = {name: value for name, value in row.items() if name != "row" and value != ""}
        click.echo(f"{row['row']}  " + " ".join(f"{name}={shown[name]}" for name in shown))


@semq.command()
@click.option("--node", default="", help="Only messages to this node.")
@click.option("--row", type=POSITIVE, help="Only the message with this number.")
@json_option
@_socket_option
def retry(node: str, row: int | None, as_json: bool, socket: str) -> None:
    """Retry now: send waiting messages, and ask about unconfirmed ones."""
    with _endpoint(socket) as endpoint:
        found = endpoint.manage("retry", {"node": node, "row": str(row or "")})
    _print_count(found["changed"], as_json)


@semq.command()
@click.option("--from", "node", required=True, help="Who sent what waits.")
@json_option
@_socket_option
def release(node: str, as_json: bool, socket: str) -> None:
    """Release ordered messages that wait for missing ones.

    What they wait for was lost with a disk, say. If it comes all the same, it is not handed over.
    """
    with _endpoint(socket) as endpoint:
        found = endpoint.manage("release", {"node": node})
    _print_count(found["changed"], as_json)
