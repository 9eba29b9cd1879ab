"""`zbus spark`: the jobs of the data pipeline, and what their commands share.

Exit codes: 0 done, 1 no broker could be reached, or Spark or Java is not there, 2 the command was
written wrong, 3 messages that were to be read are gone, 4 another client has done it, 5 what was
checked is not as it should be.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
import click
import msgspec

from zbus.spark.errors import NoSpark, SparkProblem, problem_in
from zbus.spark.io import where_options
from zbus.spark.source.location import Where
from zbus.spark.times import duration_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Function = TypeVar("Function", bound=Callable[..., Any])

JOBS: Final[tuple[str, ...]] = ("archive", "dedup", "dlq", "etl", "replay", "report", "search")
"""Each has its command in `zbus.spark.<job>.command`, which is imported when it is used."""


class _Jobs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in JOBS:
            return None
        try:
            command = getattr(import_module(f"zbus.spark.{cmd_name}.command"), cmd_name)
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("zbus"):
                raise
            click.echo(
                f"zbus: {error.name} is not installed here: pip install 'zbus-broker[spark]'",
                err=True,
            )
            raise click.exceptions.Exit(NoSpark.exit_code) from None
        assert isinstance(command, click.Command)
        return command

    def make_context(self, *args: Any, **extra: Any) -> click.Context:  # noqa: ANN401 - click's
        with _own_exit_codes():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's
        with _own_exit_codes():
            return super().invoke(ctx)


class _own_exit_codes:
    """A command that is written wrong ends with 2 here, whatever it is a part of."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, click.UsageError):
            error.show()
            raise click.exceptions.Exit(2) from None


@click.group(cls=_Jobs)
def spark() -> None:
    """Archive, search, transform and report what is in topics, with Apache Spark."""


@attrs.define(kw_only=True)
class Common:
    """Options of every job."""

    broker: str
    token_file: str | None = None
    tls_ca: str | None = None
    data_dir: str | None = None
    master: str | None = None
    conf: tuple[str, ...] = ()
    java_home: str | None = None
    name: str | None = None
    dry_run: bool = False
    as_json: bool = False
    patience: str | None = None
    _session: SparkSession | None = attrs.field(default=None, init=False)
    _quiet: ExitStack = attrs.field(factory=ExitStack, init=False)

    def where(self) -> Where:
        """Where messages are read: files if a directory is named, else a broker."""
        return self.sink() if self.data_dir is None else Where(path=self.data_dir)

    def sink(self) -> Where:
        """Where messages are written: the broker, wherever they are read."""
        where = Where(broker=self.broker, token_file=self.token_file, tls_ca=self.tls_ca)
        if self.patience is None:
            return where
        return attrs.evolve(where, patience_s=duration_ms(self.patience, "--patience") / 1_000)

    def options(self) -> dict[str, str]:
        """The same, as options of the format `zbus`."""
        return where_options(self.where())

    def session(self) -> SparkSession:
        """Begun when it is first asked for; `close` ends it. Raises NoSpark and Usage."""
        from zbus.spark.session import quieten, read_conf, running, start, without_a_log

        name = self.name or f"zbus spark {click.get_current_context().info_name}"
        conf = read_conf(self.conf)
        own = running() is None
        session = start(name, master=self.master, conf=conf, java_home=self.java_home)
        if own:
            self._session = session
            self._quiet.enter_context(without_a_log())
            quieten(session)
        return session

    def close(self) -> None:
        """End the session, if it was begun here."""
        if self._session is not None:
            self._session.stop()
            self._session = None
            self._quiet.close()


_OPTIONS: Final = (
    click.option("--broker", default="127.0.0.1:15555", show_default=True,
        envvar="ZBUS_BROKER", metavar="HOST:PORT", help="The broker, or its URL."),
    click.option("--token-file", metavar="FILE",
        help="It holds the token; with a cluster, on each machine. Else: ZBUS_TOKEN there."),
    click.option("--tls-ca", metavar="FILE", help="Whom to trust, if the broker speaks TLS."),
    click.option("--patience", metavar="TIME",
        help="Retry an unreachable broker for this long; default 1m."),
    click.option("--data-dir", metavar="DIR",
        help="Read this data directory of a broker, or a backup of one, instead of a broker."),
    click.option("--master", metavar="URL",
        help="Where Spark runs: local[4], spark://host:7077, yarn, k8s://...; by default what"
        " spark-submit says, else all cores of this machine."),
    click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark."),
    click.option("--java-home", metavar="DIR", help="The Java to use."),
    click.option("--name", metavar="TEXT", help="What Spark calls the job."),
    click.option("--dry-run", is_flag=True, help="Print the plan and do nothing."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs."),
)  # fmt: skip


def range_options(function: Function) -> Function:
    """`since` and `until`: of which times."""
    since = click.option(
        "--since",
        metavar="TIME",
        help="Messages stored at this time or later: 24h (ago), or a time.",
    )
    until = click.option("--until", metavar="TIME", help="Messages stored before this time.")
    return since(until(function))


_STREAM_OPTIONS: Final = (
    click.option("--checkpoint", metavar="DIR", help="Go on for ever, and here after a restart."),
    click.option("--once", is_flag=True,
        help="Of a stream: end when all that was there at the start is done."),
    click.option("--interval", metavar="TIME", help="Of a stream: a batch each 30s, 5m."),
    click.option("--rate", metavar="BYTES/s", help="Stream: limit of the read rate, as 20MiB/s."),
    click.option("--batch-bytes", metavar="SIZE",
        help="Stream: approximate size of a batch, such as 256MiB."),
    click.option("--group", metavar="GROUP",
        help="Of a stream: a consumer group that shows in the broker how far it is."),
)  # fmt: skip


def stream_options(function: Function) -> Function:
    """Options for `zbus.spark.etl.pace`."""
    wrapped: Any = function
    for option in reversed(_STREAM_OPTIONS):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]


def emit(text: str) -> None:
    """How far it is, on stderr."""
    click.echo(text, err=True)


def show(document: Any, common: Common) -> None:  # noqa: ANN401 - what JSON can have
    """What came of it, on stdout: JSON if that was asked for, else a line for each thing."""
    if common.as_json or not isinstance(document, dict):
        click.echo(msgspec.json.encode(document))
        return
    for name, value in document.items():
        shown = msgspec.json.encode(value).decode() if isinstance(value, dict | list) else value
        click.echo(f"{name.replace('_', ' ')}: {shown}")


def common_options(function: Function) -> Function:
    """The command gets `common`, and its problems become texts and exit codes."""

    @functools.wraps(function)
    def run(**given: Any) -> Any:  # noqa: ANN401 - the command's own
        names = [field.name for field in attrs.fields(Common) if field.init]
        common = Common(**{name: given.pop(name) for name in names})
        try:
            return function(common=common, **given)
        except click.exceptions.ClickException:
            raise
        except Exception as error:
            problem = error if isinstance(error, SparkProblem) else problem_in(error)
            if problem is None:
                raise
            click.echo(f"zbus: {problem}", err=True)
            raise click.exceptions.Exit(problem.exit_code) from None
        finally:
            common.close()

    wrapped: Any = run
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]
