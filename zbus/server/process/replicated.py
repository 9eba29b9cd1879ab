"""The engine on NATS JetStream as a server needs it: a stream that several servers keep.

Nothing here is imported by a server that keeps its messages in files.
"""

from __future__ import annotations

import logging
import select
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from zbus.config import Config
from zbus.core.api import Topic, recover
from zbus.server.exits import EXIT_FAILED, EXIT_TAKEN, EXIT_WENT_BACK, CannotStart
from zbus.server.loop.clock import Clock
from zbus.server.loop.mailbox import Mailbox
from zbus.server.loop.silence import Ownership
from zbus.server.process.engines import Fail, MaySync, NoEngine
from zbus.server.process.nodes import Nodes
from zbus.server.watch.system_stats import Space
from zbus.storage.jetstream.client import Access, NatsClient
from zbus.storage.jetstream.committer import Failure
from zbus.storage.jetstream.engine import JetStreamJournal
from zbus.storage.jetstream.nats import NatsStream
from zbus.storage.jetstream.ownership import Claimed, WentBack
from zbus.storage.jetstream.presence import Membership
from zbus.storage.jetstream.settings import Cluster, read_identity
from zbus.storage.jetstream.standby import Standby
from zbus.storage.port import Journal, JournalError

_LEAVE_S: Final = 2.0

_EXITS: Final = {Failure.TAKEN: EXIT_TAKEN, Failure.WENT_BACK: EXIT_WENT_BACK}

log = logging.getLogger("zbus")


class ReplicatedEngine:
    """A stream that several NATS servers keep: that of one shard of a cluster. Until it is claimed,
    this process is a standby."""

    def __init__(
        self,
        config: Config,
        mailbox: Mailbox,
        address: str,
        avoid: Mapping[int, float] = MappingProxyType({}),
        known: bytes = b"",
    ) -> None:
        """`avoid` and `known`: see `zbus.storage.jetstream.standby.Standby`. Raises CannotStart for
        options that do not fit."""
        self.mailbox = mailbox
        self._config = config
        access, name = read_access(config)
        self.durability = "replicated" if config.engine_replicas > 1 else "disk"
        self.where = config.engine
        self._client = NatsClient(access, mailbox.post)
        self._answers: list[Claimed | JournalError] = []
        node = node_name(config)
        self.standby = Standby(
            self._client,
            partial(NatsStream, self._client),
            Cluster(name, config.engine_replicas, config.engine_bytes_max, config.shards),
            node,
            address,
            config.engine_timeout_ms,
            self._answers.append,
            avoid=avoid,
            known=known,
            relay=config.relay_listen,
            alike=Alike(config).digests,
        )
        self.nodes = Nodes(self.standby.membership, node)
        self._journal: JetStreamJournal | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether a server has let this process in, and it could claim a shard."""
        return not self._client.problem and self.standby.is_admitted

    @property
    def epoch(self) -> int:
        """Of the claim."""
        claimed = self._answers[0]
        assert isinstance(claimed, Claimed)
        return claimed.owner.epoch

    @property
    def is_decided(self) -> bool:
        """Whether a shard is this process's now, or none ever will be."""
        return bool(self._answers)

    def check(self) -> None:
        """Raises CannotStart if it never will be."""
        if isinstance(answer := self._answers[0], JournalError):
            self._client.close()
            if isinstance(answer, WentBack):
                raise CannotStart(str(answer), EXIT_WENT_BACK)
            raise CannotStart(str(answer))

    @property
    def ownership(self) -> Ownership | None:
        return self._journal

    def open(self, fail: Fail, observe_sync: Callable[[float], None], may_sync: MaySync) -> Journal:
        claimed = self._answers[0]
        assert isinstance(claimed, Claimed)

        def failed(text: str) -> None:
            if self.standby.is_opening:  # there is no loop yet that could end
                self._client.close()
                raise CannotStart(text, self.exit_code())
            fail(text)

        shard = self.standby.shard
        self.nodes.shard = shard.number
        self._journal = journal = JetStreamJournal(
            shard.stream,
            shard.subjects,
            claimed,
            failed,
            timeout_ms=self._config.engine_timeout_ms,
            reserve_bytes=self._config.reserve_bytes,
            observe_commit=observe_sync,
        )
        told = {"shard": shard.number} if self._config.shards > 1 else {}
        log.info("owner", extra={**told, "epoch": claimed.owner.epoch, "engine": self.where})
        return journal

    def recover(self) -> tuple[list[Topic], int]:
        assert self._journal is not None
        try:
            found = recover(self._journal, self._run_posted)
        except JournalError as error:
            self._client.close()
            raise CannotStart(str(error)) from None
        self.standby.opened()
        return found

    def _run_posted(self) -> None:
        self._wait(None)

    def _wait(self, timeout_s: float | None) -> None:
        """Run what is posted, once there is something or this time is over."""
        select.select([self.mailbox.receiver], [], [], timeout_s)
        self.mailbox.run()

    def clock(self, time_ms: int) -> Clock:
        """Not before the latest time in the log, whatever this machine's clock shows."""
        return Clock(time_ms)

    def identity(self) -> str:
        return read_identity(self.standby.shard.config)

    def space(self) -> Space | None:
        if self._journal is None:
            return None
        state = self._journal.state
        if not state.bytes_max:
            return None
        return Space(max(0, state.bytes_max - state.bytes_used), state.bytes_max)

    def figures(self) -> dict[str, Any]:
        journal = self._journal
        return {} if journal is None else {"engine": {"address": self.where, **journal.figures()}}

    def when_quiet_ends(self, call: Callable[[], None]) -> bool:
        assert self._journal is not None
        if not self._journal.is_quiet:
            return False
        self._journal.when_quiet_ends(call)
        return True

    def upkeep(self, now_ms: int) -> None:
        assert self._journal is not None
        self._journal.upkeep(now_ms)
        if self._journal.failure is None:
            self.standby.confirm(self._journal.sequence, self._journal.unconfirmed_ms)

    def exit_code(self) -> int:
        failure = None if self._journal is None else self._journal.failure
        return EXIT_FAILED if failure is None else _EXITS.get(failure, EXIT_FAILED)

    def close(self) -> None:
        """Give the shard up, so that a standby need not wait."""
        journal = self._journal
        if journal is not None:
            released: list[bool] = []
            journal.release(released.append)
            until_s = time.monotonic() + _LEAVE_S
            while not released and (left_s := until_s - time.monotonic()) > 0:
                self._wait(left_s)
            if journal.failure is None:
                self._left(released == [True])
        self._client.close()

    def _left(self, released: bool) -> None:
        """The shard is not this broker's any more, whether the servers have confirmed it or not."""
        if released:
            self.standby.leave(self.nodes.heir)
            told = {"to": self.nodes.heir} if self.nodes.heir else {}
            log.info("ownership given up", extra={"engine": self.where, **told})
        else:
            why = f"no confirmation within {_LEAVE_S:g} s: a standby waits until it has expired"
            log.warning("ownership not given up", extra={"engine": self.where, "why": why})


class Watcher(NoEngine):
    """The engine of a process that owns nothing: it only hears who owns which shard."""

    def __init__(self, config: Config) -> None:
        """Raises CannotStart for options that do not fit."""
        super().__init__()
        access, name = read_access(config)
        self._client = NatsClient(access, self.mailbox.post)
        stream = NatsStream(self._client, "")
        cluster = Cluster(name, shards=config.shards)
        self.membership = Membership(self._client, cluster, stream.now_ms)
        self.membership.listen()
        self.nodes = Nodes(self.membership, node_name(config))

    def close(self) -> None:
        self._client.close()


def node_name(config: Config) -> str:
    """What this machine is called in the cluster."""
    return config.node or socket.gethostname()


class Alike:
    """Files that should be the same on all nodes, and digests of what they contain now."""

    def __init__(self, config: Config) -> None:
        self._paths = {
            name: Path(path)
            for name in ("token_file", "relay_ca_file")
            if (path := getattr(config, name))
        }
        self._read: dict[str, tuple[tuple[int, int], str]] = {}

    def digests(self) -> dict[str, str]:
        """By the names of their options."""
        return {name: self._digest(name, path) for name, path in self._paths.items()}

    def _digest(self, name: str, path: Path) -> str:
        try:
            found = path.stat()
            state = found.st_mtime_ns, found.st_size
            if name not in self._read or self._read[name][0] != state:
                digest = blake2b(path.read_bytes(), digest_size=8).hexdigest()
                self._read[name] = state, digest
        except OSError:
            return "unreadable"
        return self._read[name][1]


def read_access(config: Config) -> tuple[Access, str]:
    """Servers and credentials, and the name of the cluster. Raises CannotStart."""
    servers, _, cluster = config.engine.removeprefix("nats://").partition("/")
    found = []
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port[:6]) < 65_536:
            raise CannotStart(f"engine: {server!r} is not of the form host:port")
        found.append((host.strip("[]"), int(port)))
    user, password, token = _credentials(config.engine_user_file)
    return Access(found, user, password, token, _tls(config)), cluster


def _credentials(path: str) -> tuple[str, str, str]:
    """User and password on two lines of a file, or a token on one."""
    if not path:
        return "", "", ""
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise CannotStart(f"engine_user_file {path}: {error}") from None
    lines = [line.strip() for line in lines if line.strip()]
    if len(lines) == 1:
        return "", "", lines[0]
    if len(lines) != 2:
        raise CannotStart(
            f"engine_user_file {path}: user and password on two lines are expected, or a token on"
            f" one; it has {len(lines)} lines"
        )
    return lines[0], lines[1], ""


def _tls(config: Config) -> ssl.SSLContext | None:
    if not config.engine_ca_file:
        if config.engine_cert_file:
            raise CannotStart("engine_cert_file needs engine_ca_file: TLS is used with both")
        return None
    try:
        context = ssl.create_default_context(cafile=config.engine_ca_file)
        if config.engine_cert_file:
            key_file = config.engine_key_file or config.engine_cert_file
            context.load_cert_chain(config.engine_cert_file, key_file)
    except (OSError, ssl.SSLError) as error:
        raise CannotStart(f"engine_ca_file, engine_cert_file, engine_key_file: {error}") from None
    return context
