"""`zbus import`: the sources, their options, and what a run says at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import IO, Any, TypeVar

import attrs
import click
from click.core import ParameterSource

from zbus.cli.completion import complete_topic
from zbus.cli.importing import files, servers
from zbus.cli.importing.load import Importer
from zbus.cli.importing.rows import Fields, Row
from zbus.cli.remote import json_option, opened, url_option
from zbus.cli.units import POSITIVE
from zbus.cli.words import counted, print_json

Function = TypeVar("Function", bound=Callable[..., Any])

_LABELS = {
    "key": "its key: messages of one key are in one partition, in order.",
    "tag": "its tag.",
    "id": "its id.",
    "timestamp": "its header source-timestamp: epoch milliseconds or ISO 8601.",
    "body": "its body, instead of all fields as JSON.",
}


@click.group(name="import")
def import_() -> None:
    """Store the rows of files and of other brokers as messages, each once.

    Run it again after whatever ended it, or when the source has grown: it goes on behind the last
    row that is stored.
    """


def _headers(
    _context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    pairs = (each.partition("=") for each in given)
    return tuple((name.lower(), field or name) for name, _, field in pairs)


def _source(**defaults: str) -> Callable[[Function], click.Command]:
    """A command that imports: the options of all, and which field is which label."""

    def give(function: Function) -> click.Command:
        command: Any = url_option(json_option(function))
        for option in reversed(_OF_RUN):
            command = option(command)
        command = click.option(
            "--header",
            "headers",
            metavar="NAME[=FIELD]",
            multiple=True,
            callback=_headers,
            help="A field that is a header of the message; may be repeated.",
        )(command)
        for name, text in reversed(_LABELS.items()):
            default = defaults.get(name, "")
            command = click.option(
                f"--{name}",
                metavar="FIELD",
                default=default,
                show_default=bool(default),
                help=f"The field that is {text}",
            )(command)
        return import_.command()(click.argument("topic", shell_complete=complete_topic)(command))

    return give


_OF_RUN = (
    click.option(
        "--on-error",
        type=click.Choice(["stop", "skip"]),
        default="stop",
        show_default=True,
        help="At a row that can be no message: stop, or report it and go on.",
    ),
    click.option(
        "--name", help="Of this import; made of TOPIC and the source's first row if absent."
    ),
    click.option(
        "--rate",
        type=POSITIVE,
        metavar="N",
        help="Store at most this many messages a second.",
    ),
    click.option("--progress", is_flag=True, help="Print each second how far it is, on stderr."),
)
_FILE = click.argument("file", type=click.File("rb"))
_SECRET = click.option(
    "--password",
    envvar="ZBUS_SOURCE_PASSWORD",
    help="Of the source. Visible in the process list; prefer ZBUS_SOURCE_PASSWORD.",
)


def _fields(options: dict[str, Any]) -> Fields:
    return Fields(**{each.name: options.pop(each.name) for each in attrs.fields(Fields)})


def _run(
    rows: Callable[[int | None], Iterator[Row]],
    *,
    topic: str,
    on_error: str,
    name: str | None,
    rate: int | None,
    progress: bool,
    as_json: bool,
    url: str,
    identity: str = "",
    is_sequence: bool = True,
) -> None:
    """`rows`: those of the source, from a place on if it is no sequence. `identity`: where it is; a
    file may be anywhere, and has that of its first row."""
    found = iter(()) if identity else rows(None)
    first = list(islice(found, 1))
    with opened(url) as bus:
        importer = Importer(bus, topic, on_error == "skip", rate or 0, progress)
        last = importer.begin(identity or str([each.place for each in first]), name)
        found = rows(last) if identity else chain(first, found)
        loaded = importer.load(found, last, is_sequence)
    if as_json:
        print_json({**attrs.asdict(loaded), "rate": round(loaded.rate)})
        return
    notes = [f"{counted(loaded.stored, 'message')} ({loaded.rate:,.0f}/s)"]
    notes += [f"{loaded.known} known"] if loaded.known else []
    notes += [f"{loaded.refused} refused"] if loaded.refused else []
    click.echo(", ".join(notes))
    if last is not None:
        text = f"went on with {loaded.name}; another --name imports all rows again"
        click.echo(f"zbus: {text}", err=True)


@_source()
@_FILE
def ndjson(file: IO[bytes], **options: Any) -> None:  # noqa: ANN401 - those of all sources
    """Import JSON lines: each line of FILE (- is stdin) is the body of a message into TOPIC."""
    fields = _fields(options)
    _run(lambda _: files.ndjson_rows(file, fields), **options)


@_source(key="key", tag="tag", id="id")
@_FILE
def messages(file: IO[bytes], **options: Any) -> None:  # noqa: ANN401
    """Import messages of a broker: FILE (- is stdin) is what `read` gives as JSON lines, or what
    the console downloads, into TOPIC.

    They have the ids, keys, tags, headers and bodies that they had.
    """
    fields = _fields(options)
    _run(lambda _: files.message_rows(file, fields), **options)


@_source()
@_FILE
@click.option(
    "--delimiter", default=",", show_default=True, help="Between the columns: one character."
)
def csv(file: IO[bytes], delimiter: str, **options: Any) -> None:  # noqa: ANN401
    """Import CSV: each row of FILE (- is stdin) is a message into TOPIC, as JSON.

    The first line names the columns. Text is UTF-8.
    """
    delimiter = delimiter.replace("\\t", "\t")
    if len(delimiter) != 1:
        raise click.UsageError("--delimiter is one character, or \\t")
    fields = _fields(options)
    _run(lambda _: files.csv_rows(file, fields, delimiter), **options)


@_source(key="MessageGroupId", id="MessageId", timestamp="SentTimestamp")
@_FILE
def sqs(file: IO[bytes], **options: Any) -> None:  # noqa: ANN401
    """Import messages of Amazon SQS: FILE (- is stdin) is what `aws sqs receive-message` printed,
    again and again.

    Message attributes are headers. A message that was received twice is stored once.
    """
    fields = _fields(options)
    _run(lambda _: files.sqs_rows(file, fields), **options)


@_source(id="id", timestamp="time")
@click.argument("source", metavar="URL")
@click.argument("redis_key", metavar="KEY")
@click.option(
    "--oldest",
    type=click.Choice(["left", "right"]),
    default="right",
    show_default=True,
    help="The end of a list where its oldest element is: right, if LPUSH fills it.",
)
@_SECRET
def redis(
    source: str,
    redis_key: str,
    oldest: str,
    password: str | None,
    **options: Any,  # noqa: ANN401
) -> None:
    """Import a stream or a list of Redis: KEY at URL (redis://host:6379/0) into TOPIC.

    The fields of a stream's entry are a JSON object; the fields id and time are those of its id. An
    element of a list is a body, and its members are fields if it is JSON.
    """
    given, fields = servers.RedisKey(source, password, redis_key), _fields(options)
    if given.is_stream:
        options |= {"identity": given.identity, "is_sequence": False}
        _run(lambda last: given.stream_rows(fields, last), **options)
    else:
        fields, options["identity"] = _of_list(fields), f"{given.identity} {oldest}"
        _run(lambda _: given.list_rows(fields, oldest), **options)


def _of_list(fields: Fields) -> Fields:
    """Elements of a list have no id and no time, unless options say which."""
    source = click.get_current_context().get_parameter_source
    return attrs.evolve(
        fields,
        id="" if source("id") is ParameterSource.DEFAULT else fields.id,
        timestamp="" if source("timestamp") is ParameterSource.DEFAULT else fields.timestamp,
    )


@_source(tag="routing_key", id="message_id", timestamp="timestamp")
@click.argument("source", metavar="URL")
@click.argument("queue")
@click.option("--vhost", default="/", show_default=True, help="Where the queue is.")
@click.option(
    "--count",
    type=POSITIVE,
    default=100_000,
    show_default=True,
    help="Ask for at most this many messages.",
)
@_SECRET
def rabbitmq(
    source: str,
    queue: str,
    vhost: str,
    count: int,
    password: str | None,
    **options: Any,  # noqa: ANN401
) -> None:
    """Import a queue of RabbitMQ into TOPIC, by its management API: URL is http://user@host:15672.

    The queue keeps its messages. Their headers are headers; properties and routing_key are fields.
    """
    fields = _fields(options)
    options["identity"] = f"rabbitmq {source.rpartition('@')[2]} {vhost} {queue}"
    _run(lambda _: servers.rabbitmq_rows(source, password, vhost, queue, count, fields), **options)
