"""`zbus spark`: the jobs of the data pipeline, and what their commands share.

What a command is told is a class whose fields are its options: each stands with its name, default
and help in one place (`option`), and the command gets an object of it (`takes`). Options that
several have are classes that others inherit from.

Exit codes: 0 done, 1 no broker could be reached, or Spark or Java is not there, 2 the command was
written wrong, 3 messages that were to be read are gone, 4 another client has done it, 5 what was
checked is not as it should be.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import attrs
import click
import msgspec

from zbus.protocol.nearest import did_you_mean
from zbus.spark.errors import NoSpark, SparkProblem, problem_in
from zbus.spark.io import where_options
from zbus.spark.source.location import Where
from zbus.spark.times import duration_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Function = TypeVar("Function", bound=Callable[..., Any])
Made = TypeVar("Made")

FILE: Final = click.Path(dir_okay=False, path_type=Path)
FOLDER: Final = click.Path(file_okay=False, path_type=Path)

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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in JOBS and not (args[0].startswith("-") or ctx.resilient_parsing):
            ctx.fail(f"there is no job {args[0][:40]!a}{did_you_mean(args[0], JOBS)}")
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:  # noqa: ANN401 - click's
        with _own_exit_codes():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's
        with _own_exit_codes():
            return super().invoke(ctx)


@contextmanager
def _own_exit_codes() -> Iterator[None]:
    """A command that is written wrong ends with 2 here, whatever it is a part of."""
    try:
        yield
    except click.UsageError as error:
        error.show()
        raise click.exceptions.Exit(2) from None


@click.group(cls=_Jobs)
def spark() -> None:
    """Archive, search, transform and report what is in topics, with Apache Spark."""


OPTION: Final = "zbus option"
"""Where the metadata of a field has its `_Option`."""


class _Option(NamedTuple):
    flag: str
    keywords: dict[str, Any]  # for click


def option(flag: str, meaning: str, *, default: Any = None, **keywords: Any) -> Any:  # noqa: ANN401
    """A field that is an option of a command: `--name VALUE`, what it means, and what click is told
    more. With the default () it may be repeated, with False it is a flag; NOTHING: it is required.
    """
    flag, _, metavar = flag.partition(" ")
    keywords |= {"help": meaning, "metavar": metavar or None}
    if default is attrs.NOTHING:
        keywords["required"] = True
    else:
        keywords |= {"default": default, "show_default": default not in (None, False, (), "")}
    if default == ():
        keywords["multiple"] = True
    if default is False:
        keywords["is_flag"] = True
    return attrs.field(default=default, metadata={OPTION: _Option(flag, keywords)})


def options_of(kind: type[Any]) -> dict[str, str]:
    """The options of a class: the flag of each field."""
    fields = attrs.fields(kind)
    return {each.name: each.metadata[OPTION].flag for each in fields if OPTION in each.metadata}


def takes(*kinds: type[Any]) -> Callable[[Function], Function]:
    """The command gets `Common` and an object of each of these, and its problems become texts and
    exit codes."""

    def wrap(function: Function) -> Function:
        @functools.wraps(function)
        def run(**given: Any) -> Any:  # noqa: ANN401 - the command's own
            def made(kind: type[Made]) -> Made:
                return kind(**{name: given.pop(name) for name in options_of(kind)})

            common = made(Common)
            try:
                return function(common, *map(made, kinds), **given)
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

        for kind in (Common, *reversed(kinds)):
            run = _with(kind, run)
        return run  # type: ignore[return-value]

    return wrap


def _with(kind: type[Any], function: Function) -> Function:
    """A command with the options of a class before those that it has: first its own, then those
    that it shares with others."""
    wrapped: Any = function
    for field in sorted(attrs.fields(kind), key=lambda each: each.inherited)[::-1]:
        if OPTION in field.metadata:
            flag, keywords = field.metadata[OPTION]
            wrapped = click.option(flag, field.name, **keywords)(wrapped)
    return wrapped  # type: ignore[no-any-return]


@attrs.define(kw_only=True)
class Common:
    """Options of every job."""

    broker: str = option(
        "--broker HOST:PORT",
        "The broker, or its URL.",
        default="127.0.0.1:15555",
        envvar="ZBUS_BROKER",
    )
    token_file: str | None = option(
        "--token-file FILE",
        "It holds the token; with a cluster, on each machine. Else: ZBUS_TOKEN there.",
    )
    tls_ca: str | None = option("--tls-ca FILE", "Whom to trust, if the broker speaks TLS.")
    patience: str | None = option(
        "--patience TIME", "Retry an unreachable broker for this long; default 1m."
    )
    data_dir: str | None = option(
        "--data-dir DIR",
        "Read this data directory of a broker, or a backup of one, instead of a broker.",
    )
    master: str | None = option(
        "--master URL",
        "Where Spark runs: local[4], spark://host:7077, yarn, k8s://...; by default what"
        " spark-submit says, else all cores of this machine.",
    )
    conf: tuple[str, ...] = option("--conf KEY=VALUE", "A setting of Spark.", default=())
    java_home: str | None = option("--java-home DIR", "The Java to use.")
    name: str | None = option("--name TEXT", "What Spark calls the job.")
    dry_run: bool = option("--dry-run", "Print the plan and do nothing.", default=False)
    as_json: bool = option("--json", "Print JSON, for programs.", default=False)
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


@attrs.frozen(kw_only=True)
class Ranged:
    """Which messages, by when they were stored."""

    since: str | None = option(
        "--since TIME", "Messages stored at this time or later: 24h (ago), or a time."
    )
    until: str | None = option("--until TIME", "Messages stored before this time.")


def names(text: str | None) -> tuple[str, ...]:
    """Those of an option that has several, with commas between."""
    return tuple(name for name in (text or "").split(",") if name)


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
