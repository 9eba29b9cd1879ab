"""`zbus copy`: move an installation between a data directory and the NATS servers of a cluster."""

from __future__ import annotations

import os
import queue
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from zbus import config
from zbus.cli.broker_options import file_option, settings_option
from zbus.cli.verify import Bar, storage_failures
from zbus.cli.words import Cannot, counted
from zbus.server.process.replicated import read_access
from zbus.storage.copying.directories import DirectorySource, DirectoryTarget
from zbus.storage.copying.lanes import Copied, Source, Target, compare, copy_lanes
from zbus.storage.copying.streams import StreamSource, StreamTarget
from zbus.storage.jetstream.client import NatsClient
from zbus.storage.jetstream.nats import Document, NatsStream
from zbus.storage.jetstream.ownership import Claimed
from zbus.storage.jetstream.settings import Cluster
from zbus.storage.jetstream.standby import Standby
from zbus.storage.jetstream.stream import Unreachable
from zbus.storage.jetstream.subjects import Subjects
from zbus.storage.local.files import OsFiles
from zbus.storage.port import JournalError

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
def copy(source: str, target: str, file: Path | None, settings: dict[str, str]) -> None:
    """Copy all topics FROM a data directory TO the NATS servers of an engine, or back.

    An engine is written as for `zbus serve --engine`: nats://host:port,host:port,host:port/cluster.
    Every batch stays what it is, and is read again and compared at the end. An interrupted copy
    goes on where it ended. Of a broker that is running what is there is copied: stop it, and copy
    again what came since.
    """

    def load(engine: str) -> config.Config:
        try:
            return config.load(file, os.environ, {"engine": engine}, settings)
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
            stream = servers.claim(source.identity())
            _copy(source, stream, compared=is_stopped)
            stream.finish(is_complete=is_stopped)
    finally:
        source.close()
    if not is_stopped:
        raise Cannot(f"not complete: a broker uses {directory}. {_AGAIN}")
    return f"complete: start the brokers with --engine {loaded.engine}"


def _from_engine(servers: _Servers, load: Callable[[str], config.Config], target: str) -> str:
    source = servers.source()
    began = source.standing()
    name = servers.subjects.stream
    if began.owner is None:
        raise JournalError(f"the stream {name} is empty")
    if began.owner.copying:
        raise JournalError(f"{name} holds an unfinished copy of {began.owner.copying} itself")
    if target.startswith(ENGINE_SCHEME):
        with _connected(load(target)) as others:
            stream = others.claim(name)
            _copy(source, stream, compared=began.is_still)
            is_complete = began.is_still and source.standing() == began
            stream.finish(is_complete=is_complete)
        if not is_complete:
            raise Cannot(f"not complete: a broker serves {name}. {_AGAIN}")
        return f"complete: start the brokers with --engine {target}"
    directory = DirectoryTarget(OsFiles(), Path(target))
    try:
        _copy(source, directory, compared=True)
        directory.finish()
    finally:
        directory.close()
    text = f"complete: start a broker with --data-dir {target}"
    if not began.is_still or source.standing() != began:
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
    """A connection to the NATS servers, and the stream of a cluster."""

    def __init__(self, loaded: config.Config) -> None:
        access, cluster = read_access(loaded)
        self._loaded = loaded
        self._cluster = Cluster(cluster, loaded.engine_replicas, loaded.engine_bytes_max)
        self.subjects = Subjects(cluster)
        self._posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._client = NatsClient(access, self._posted.put)
        self._stream = NatsStream(self._client, self.subjects.stream)

    def close(self) -> None:
        self._client.close()

    def source(self) -> StreamSource:
        """Raises JournalError for a cluster of several shards."""
        answers: list[Document | Unreachable] = []
        self._stream.ask(f"STREAM.INFO.{self.subjects.stream}", {}, answers.append)
        while not answers:
            self._run()
        if isinstance(answers[0], Document):
            shards = (answers[0].config.get("metadata") or {}).get("zbus-shards", "1")
            if shards != "1":
                text = "it has messages in others, and only clusters of one shard can be copied"
                raise JournalError(f"{self.subjects.stream} is one of {shards} shards: {text}")
        timeout_ms = self._loaded.engine_timeout_ms
        return StreamSource(self._stream, self.subjects, self._run, timeout_ms)

    def claim(self, copying: str) -> StreamTarget:
        """Own the stream, made if it is missing, to fill it with a copy of this data."""
        answers: list[Claimed | JournalError] = []
        node, timeout_ms = f"zbus copy on {socket.gethostname()}", self._loaded.engine_timeout_ms
        standby = Standby(
            self._client,
            lambda name: self._stream,
            self._cluster,
            node,
            "",
            timeout_ms,
            answers.append,
            copying,
        )
        standby.start()
        began_s, owned_s = time.monotonic(), 0.0
        while not answers:
            now_s, owner = time.monotonic(), standby.owner
            owned_s = owned_s or (now_s if owner is not None else 0.0)
            if owner is not None and now_s - owned_s > _CLAIM_S:
                where = f"{owner.node} {owner.address}".rstrip()
                raise JournalError(
                    f"{where} owns {self.subjects.stream}: stop all brokers of this cluster first"
                )
            if now_s - began_s > timeout_ms / 1_000 + 2 * _CLAIM_S:
                raise JournalError(f"cannot own {self.subjects.stream}: {standby.problem}")
            self._run()
        claimed = answers[0]
        if isinstance(claimed, JournalError):
            raise claimed
        return StreamTarget(self._stream, self.subjects, claimed, self._run, timeout_ms)

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
