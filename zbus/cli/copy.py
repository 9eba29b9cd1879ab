"""`zbus copy`: move an installation between a data directory and the NATS servers of a cluster."""

from __future__ import annotations

import os
import queue
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from zbus import config
from zbus.cli.broker_options import file_option, settings_option
from zbus.cli.verify import Bar, storage_failures
from zbus.cli.words import Cannot, counted
from zbus.server.process.replicated import read_access
from zbus.storage.copying.directories import DirectorySource, DirectoryTarget
from zbus.storage.copying.lanes import (
    Copied,
    Shards,
    ShardTargets,
    Source,
    Target,
    compare,
    copy_lanes,
)
from zbus.storage.copying.streams import Standing, StreamSource, StreamTarget
from zbus.storage.jetstream.client import NatsClient
from zbus.storage.jetstream.nats import Document, NatsStream
from zbus.storage.jetstream.ownership import Claimed
from zbus.storage.jetstream.settings import Cluster
from zbus.storage.jetstream.standby import Standby
from zbus.storage.jetstream.stream import Unreachable
from zbus.storage.jetstream.subjects import Subjects
from zbus.storage.local.files import OsFiles
from zbus.storage.local.shards import SHARDS_MAX
from zbus.storage.port import JournalError
from zbus.wire.numbers import parse_number

ENGINE_SCHEME: Final = "nats://"
_AGAIN: Final = "Stop it, and run this command again"
_CLAIM_S: Final = 3.5
"""A copy that was killed counts as the stream's owner for two seconds."""
_TURN_S: Final = 0.2


@click.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@file_option
@settings_option
@click.option(
    "--shards",
    type=click.IntRange(1, SHARDS_MAX),
    default=1,
    show_default=True,
    help="How many streams to divide the topics TO, if that is an engine.",
)
def copy(
    source: str, target: str, file: Path | None, settings: dict[str, str], shards: int
) -> None:
    """Copy all topics FROM a data directory TO the NATS servers of an engine, or back.

    An engine is written as for `zbus serve --engine`: nats://host:port,host:port,host:port/cluster.
    A cluster may have another number of shards than what it is copied from, and a directory is
    that of one process. Every batch stays what it is, and is read again and compared at the end. An
    interrupted copy goes on where it ended. Of a broker that is running what is there is copied:
    stop it, and copy again what came since.
    """

    def load(engine: str) -> config.Config:
        try:
            options = {"engine": engine, "shards": str(shards if engine == target else 1)}
            return config.load(file, os.environ, options, settings)
        except config.ConfigError as error:
            raise click.UsageError(str(error)) from None

    is_engine = [text.startswith(ENGINE_SCHEME) for text in (source, target)]
    if not any(is_engine):
        raise click.UsageError("for two directories use `zbus backup` and `zbus restore`")
    began_s = time.perf_counter()
    with storage_failures():
        if is_engine[0]:
            with _connected(load(source)) as servers:
                note = _from_engine(servers, load, target)
        else:
            note = _from_directory(Path(source), load(target))
    click.echo(f"{note} ({time.perf_counter() - began_s:.1f} s)")


def _from_directory(directory: Path, loaded: config.Config) -> str:
    source = DirectorySource(OsFiles(), directory)
    try:
        is_stopped = source.lock()
        with _connected(loaded) as servers:
            streams = servers.claim(source.identity())
            _copy(source, ShardTargets(streams), compared=is_stopped)
            _finish(streams, is_complete=is_stopped)
    finally:
        source.close()
    if not is_stopped:
        raise Cannot(f"not complete: a broker uses {directory}. {_AGAIN}")
    return _complete(loaded)


def _complete(loaded: config.Config) -> str:
    shards = f" --shards {loaded.shards}" if loaded.shards > 1 else ""
    return f"complete: start the brokers with --engine {loaded.engine}{shards}"


def _finish(streams: Sequence[StreamTarget], *, is_complete: bool) -> None:
    for stream in reversed(streams):  # the first one says what the cluster is
        stream.finish(is_complete=is_complete)


def _standings(sources: Sequence[StreamSource]) -> list[Standing]:
    return [source.standing() for source in sources]


def _from_engine(servers: _Servers, load: Callable[[str], config.Config], target: str) -> str:
    sources = servers.sources()
    began = _standings(sources)
    for number, standing in enumerate(began):
        name = servers.subjects(number).stream
        if standing.owner is None:
            raise JournalError(f"the stream {name} is empty")
        if standing.owner.copying:
            raise JournalError(
                f"{name} holds an unfinished copy of {standing.owner.copying} itself"
            )
    name = servers.subjects(0).stream
    source, is_still = Shards(sources), all(standing.is_still for standing in began)
    if target.startswith(ENGINE_SCHEME):
        with _connected(load(target)) as others:
            streams = others.claim(name)
            _copy(source, ShardTargets(streams), compared=is_still)
            is_complete = is_still and _standings(sources) == began
            _finish(streams, is_complete=is_complete)
        if not is_complete:
            raise Cannot(f"not complete: a broker serves {name}. {_AGAIN}")
        return _complete(load(target))
    directory = DirectoryTarget(OsFiles(), Path(target))
    try:
        _copy(source, directory, compared=True)
        directory.finish()
    finally:
        directory.close()
    text = f"complete: start a broker with --data-dir {target}"
    if not is_still or _standings(sources) != began:
        text += f"; a broker serves {name}, and what it takes from now on is missing"
    return text


def _copy(source: Source, target: Target, *, compared: bool) -> None:
    lanes = source.lanes()
    with Bar() as bar:
        copied = copy_lanes(source, lanes, target, bar.add)
    _report(copied)
    if compared:
        with Bar() as bar:
            compare(source, lanes, target, bar.add)
        click.echo(f"compared: {counted(bar.read, 'byte')} are the same")


def _report(copied: Copied) -> None:
    text = (
        f"{counted(copied.partitions, 'partition')}: {counted(copied.messages, 'message')} copied"
    )
    if copied.removed:
        text += f", {counted(copied.removed, 'partition')} of another history removed"
    click.echo(f"{text} ({counted(copied.bytes, 'byte')})")


class _Servers:
    """A connection to the NATS servers, and the streams of a cluster."""

    def __init__(self, loaded: config.Config) -> None:
        access, self._name = read_access(loaded)
        self._loaded = loaded
        self._posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._client = NatsClient(access, self._posted.put)

    def close(self) -> None:
        self._client.close()

    def subjects(self, shard: int) -> Subjects:
        """Of this shard."""
        return Subjects(self._name, shard)

    def sources(self) -> list[StreamSource]:
        """Its shards, as many as there are. Raises JournalError if that cannot be found out."""
        name, timeout_ms = self.subjects(0).stream, self._loaded.engine_timeout_ms
        text = (self._config(name).get("metadata") or {}).get("zbus-shards", "")
        shards = parse_number(text.encode(), SHARDS_MAX)
        if not shards:
            raise JournalError(f"the stream {name} does not say how many shards there are")
        return [
            StreamSource(NatsStream(self._client, one.stream), one, self._run, timeout_ms)
            for one in map(self.subjects, range(shards))
        ]

    def _config(self, name: str) -> Mapping[str, Any]:
        """How a stream was made."""
        stream = NatsStream(self._client, name)
        until_s = time.monotonic() + self._loaded.engine_timeout_ms / 1_000
        while True:
            answers: list[Document | Unreachable] = []
            stream.ask(f"STREAM.INFO.{name}", {}, answers.append)
            while not answers:
                self._run()
            found = answers[0]
            if isinstance(found, Document) and found.error is None:
                return found.config
            problem = found.text if isinstance(found, Unreachable) else ""
            if isinstance(found, Document) and found.error is not None:
                if found.error.code == 404:
                    raise JournalError(f"there is no stream {name}")
                problem = found.error.description
            if time.monotonic() > until_s:
                raise JournalError(f"{name} gives no answer: {problem}")
            time.sleep(_TURN_S)

    def claim(self, copying: str) -> list[StreamTarget]:
        """Own the streams, made if they are missing, to fill them with a copy of this data."""
        return [self._claim(shard, copying) for shard in range(self._loaded.shards)]

    def _claim(self, shard: int, copying: str) -> StreamTarget:
        answers: list[Claimed | JournalError] = []
        loaded, subjects = self._loaded, self.subjects(shard)
        node, timeout_ms = f"zbus copy on {socket.gethostname()}", loaded.engine_timeout_ms
        stream = NatsStream(self._client, subjects.stream)
        standby = Standby(
            self._client,
            lambda name: stream,
            Cluster(self._name, loaded.engine_replicas, loaded.engine_bytes_max, loaded.shards),
            node,
            "",
            timeout_ms,
            answers.append,
            copying,
            only=shard,
        )
        standby.start()
        began_s, owned_s = time.monotonic(), 0.0
        while not answers:
            now_s, owner = time.monotonic(), standby.owner
            owned_s = owned_s or (now_s if owner is not None else 0.0)
            if owner is not None and now_s - owned_s > _CLAIM_S:
                where = f"{owner.node} {owner.address}".rstrip()
                raise JournalError(
                    f"{where} owns {subjects.stream}: stop all brokers of this cluster first"
                )
            if now_s - began_s > timeout_ms / 1_000 + 2 * _CLAIM_S:
                raise JournalError(f"cannot own {subjects.stream}: {standby.problem}")
            self._run()
        claimed = answers[0]
        if isinstance(claimed, JournalError):
            raise claimed
        return StreamTarget(stream, subjects, claimed, self._run, timeout_ms)

    def _run(self) -> None:
        try:
            self._posted.get(timeout=_TURN_S)()
        except queue.Empty:
            pass


@contextmanager
def _connected(loaded: config.Config) -> Iterator[_Servers]:
    servers = _Servers(loaded)
    try:
        yield servers
    finally:
        servers.close()
