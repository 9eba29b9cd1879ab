"""`zbus serve`: put the parts together, run them, take them apart in the right order."""

from __future__ import annotations

import itertools
import logging
import os
import resource
import select
import signal
import socket
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import monotonic

import attrs
import trio

from zbus import __version__
from zbus.config import Config
from zbus.dialects.plan_names import name_of
from zbus.dialects.registry import SETTINGS
from zbus.dialects.zbus.topics.webhooks import reachable
from zbus.edge.guard import GuardSettings
from zbus.server.assembly import Assembly, make_broker, restore
from zbus.server.exits import EXIT_OK, CannotStart
from zbus.server.loop import faults
from zbus.server.loop.clock import Clock
from zbus.server.loop.faults import each
from zbus.server.loop.loop import Loop
from zbus.server.loop.mailbox import Mailbox
from zbus.server.loop.sampling import Sampler
from zbus.server.loop.silence import Silence
from zbus.server.loop.sockets import Address, Listening, addresses_of, exposed
from zbus.server.process import logs
from zbus.server.process.banner import Where, advertised_address, banner
from zbus.server.process.certificates import Certificates, check_options
from zbus.server.process.connection_limits import ConnectionLimits
from zbus.server.process.engines import Engine, FileEngine
from zbus.server.process.listener import Listener
from zbus.server.process.memory import GcControl, keep_freed_memory
from zbus.server.process.pages import PageFolder, read_own
from zbus.server.process.reporter import Reporter
from zbus.server.process.running import RunningServer
from zbus.server.process.supervisor import Supervisor
from zbus.server.process.tokens import TokenFile
from zbus.server.push.pushing import Pushing, Sender, Told
from zbus.server.watch.debug_loop import DebugLoop
from zbus.server.watch.history_file import HistoryFile
from zbus.server.watch.pressure import (
    OUTPUT_SHARE,
    MemoryUsage,
    Pressure,
    memory_max,
    within,
)
from zbus.server.watch.system_stats import OsStats, SystemStats
from zbus.storage.local.files import Files, OsFiles
from zbus.storage.local.reserve import SharedReserves
from zbus.storage.port import Journal

log = logging.getLogger("zbus")


class Stopped(Exception):
    """A signal asked a standby to end."""


def _ids() -> Iterator[bytes]:
    """Message ids: 32 hex digits, unique over broker runs."""
    prefix = uuid.uuid4().hex[:20].encode()
    return map((prefix + b"%012x").__mod__, itertools.count(1))  # without a frame for each


def _descriptors() -> int:
    """How many descriptors this process may have, after asking for all there are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        return soft
    return hard if hard != resource.RLIM_INFINITY else 1 << 20


def _shares(descriptors: int) -> tuple[int, int]:
    """How many of them are for connections, and how many for open segments. The rest is for what
    is opened for a moment: reading, syncing directories, landmarks."""
    return descriptors * 3 // 4 if descriptors >= 1_024 else descriptors // 2, descriptors // 5


def read_tokens(config: Config, parts: int = 1) -> TokenFile | None:
    """Who may do what; None = everybody everything, which is for this machine alone. Each of so
    many processes counts its part of quotas."""
    if config.token_file:
        return TokenFile(Path(config.token_file), parts)
    outside = exposed(addresses_of(config))
    if outside and not config.insecure:
        raise CannotStart(
            f"{outside[0].authority} is reachable from other machines, and without tokens "
            "every client has full access: set --token-file, listen on 127.0.0.1, or allow it "
            "with --insecure"
        )
    return None


def read_certificates(config: Config) -> Certificates | None:
    """Those of TLS; None if no address has it. Raises CannotStart."""
    tls = any(address.tls for address in addresses_of(config))
    check_options(config, tls)
    return Certificates(config) if tls else None


class Server:
    """One broker with its journal and its listening socket."""

    disk_part = 16  # of which the reserve takes one, at most

    def __init__(
        self,
        config: Config,
        files: Files | None = None,
        gauges: SystemStats | None = None,
        engine: Engine | None = None,
    ) -> None:
        """`files` is how a test gets between the journal and the disk; `gauges` tell how much is
        left of disk and memory; `engine` is one whose data is this process's already."""
        self._gauges: SystemStats = gauges or OsStats()
        self.config = config = within(config, memory_max(self._gauges, config))
        self.holdings = MemoryUsage()
        self.collector = GcControl()
        self.mailbox = Mailbox() if engine is None else engine.mailbox
        self.supervisor = Supervisor()
        self.reloads: list[Callable[[], None]] = []
        """What SIGHUP loads again; what one of them raises is logged."""
        self.tokens = self._read_tokens()
        self.pages = PageFolder(Path(config.pages)) if config.pages else None
        self.certificates: Certificates | None = None
        self._listening: list[Listening] = []
        self._listen()
        history_file = None
        if config.engine == "files":
            history_file = HistoryFile(files or OsFiles(), config.data_dir)
        self.running = RunningServer(
            self._gauges, self._reserve_bytes(), self.holdings, self.mailbox, history_file
        )
        try:
            self.engine = engine or self._find_engine(files)
            observe_sync = self.running.timings.sync.observe
            journal = self.engine.open(self._fail, observe_sync, lambda: self.loop.may_sync)
            topics, time_ms = self.engine.recover()
        except BaseException:
            self._listen_no_more()
            raise
        clock = self.engine.clock(time_ms)
        if clock.warning:
            log.warning(clock.warning)
        self._build(journal, clock)
        restore(self.broker, topics, clock.now_ms(), partial(self._answered, monotonic() + 10))
        self.broker.hold_deliveries(self.engine.when_quiet_ends(self._deliver))

    def _find_engine(self, files: Files | None) -> Engine:
        """The engine, once its data is this process's. Raises CannotStart, and Stopped if a signal
        came first."""
        config = self.config
        if config.engine == "files":
            segments_max = min(config.open_segments_max, _shares(_descriptors())[1])
            reserve_bytes = self._reserve_bytes()
            return FileEngine(
                config,
                self.mailbox,
                self._gauges,
                files,
                reserve_bytes,
                segments_max,
                self._shared_reserves(),
            )
        # Most brokers need neither, and a client and trio's TLS take long to import.
        from zbus.server.process.replicated import ReplicatedEngine
        from zbus.server.process.standby import Waiting

        engine = ReplicatedEngine(config, self.mailbox, self.address)
        waiting = Waiting(engine, self.mailbox, self._listening, self.certificates, self.supervisor)
        if not trio.run(waiting.run):
            engine.close()
            raise Stopped
        return engine

    def _answered(self, until_s: float) -> bool:
        """Take the engine's answers before the loop runs; whether there may be more."""
        ringing = select.poll()
        ringing.register(self.mailbox.receiver, select.POLLIN)
        ringing.poll(100)
        self.mailbox.run()
        return not self.loop.failure and monotonic() < until_s

    def _deliver(self) -> None:
        self.broker.hold_deliveries(False)

    def _listen(self) -> None:
        """Open every address, or none and raise CannotStart."""
        config = self.config
        self.certificates = read_certificates(config)
        if self.certificates is not None:
            self.reloads.append(self.certificates.reload)
        self._listening = self._open_addresses(addresses_of(config))
        first = self._listening[0].address  # the advertised one
        if first.kind == "unix" and not config.server_name:
            self.address = first.path
        else:
            self.address = advertised_address(config.server_name, first.host, first.port)
        self.port = first.port  # 0 for a Unix socket

    def _open_addresses(self, addresses: Sequence[Address]) -> list[Listening]:
        return open_all(addresses, self.config)

    def _secret(self) -> bytes:
        """What signs the sessions of the console."""
        return os.urandom(32)

    def _keeps(self, topic: str) -> bool:
        """Whether a topic of this name is kept by this process, if there are several."""
        return True

    def _shared_reserves(self) -> SharedReserves | None:
        """Those of all processes that keep messages on this disk; None if there is only this."""
        return None

    def _read_tokens(self) -> TokenFile | None:
        return read_tokens(self.config)

    def _session_id(self) -> bytes:
        return str(uuid.uuid4()).encode()

    def _listen_no_more(self) -> None:
        for listening in self._listening:
            listening.close()

    def _build(self, journal: Journal, clock: Clock) -> None:
        config = self.config
        self.broker = make_broker(
            journal,
            _ids(),
            config,
            segment_bytes=config.segment_bytes,
            memory_bytes_max=config.memory_bytes_max,
            memory_topic_bytes_max=config.memory_topic_bytes_max,
        )
        self._assembly = assembly = Assembly(
            self.broker,
            settings=self._settings(),
            wire_limits=config,
            access=None if self.tokens is None else self.tokens.access,
            allow_url_token=config.allow_url_token,
            guard=GuardSettings.of(config, self._names()),
            trusted_proxies=config.trusted_proxies,
        )
        self.broker.faults.report = faults.report
        self.front = assembly.front
        self.reloads.append(self._reload_tokens)
        self._reporters = [
            Reporter(report.address, report.request, self.broker.changes)
            for report in self.front.reports()
        ]
        self.loop = assembly.loop(
            self.mailbox,
            clock,
            config,
            config,
            self._now_and_then,
            kind=DebugLoop if config.log_level == "debug" else Loop,
        )
        if self.engine.ownership is not None:
            self.loop.silence = Silence(self.engine.ownership)
        if self.engine.nodes is not None:
            self.engine.nodes.give_up = partial(self.mailbox.post, self.leave)
        self.running.loop, self.running.engine = self.loop, self.engine
        self.pushing = Pushing(
            self.broker, self.mailbox.post, self._courier, config.push_connections_max
        )
        self.loop.sampler = Sampler(self.running.timings, name_of)
        self._accept(assembly, self._connection_limits())
        for kind, bytes_used in assembly.holds(self.loop).items():
            self.holdings.add(kind, bytes_used)
        if self.loop.sweep is not None:
            most = memory_max(self._gauges, config) // OUTPUT_SHARE
            self.loop.output.unsent_bytes_max = self.loop.sweep.output_bytes_max = most
        self.pressure = self.running.pressure = Pressure(
            self.broker,
            self._gauges,
            self.engine.space,
            config,
            self._give_way,
            self.holdings,
            self.collector.tidy,
        )

    def _connection_limits(self) -> ConnectionLimits:
        config, most = self.config, _shares(_descriptors())[0]
        each = config.connections_per_address_max
        return ConnectionLimits(config.connections_max, each, self.loop.links, most)

    def _accept(self, assembly: Assembly, limits: ConnectionLimits) -> None:
        """A listener for each socket; all of them share the limits on connections."""
        self.listeners = []
        for listening in self._listening:
            certificates = self.certificates if listening.address.tls else None
            listener = Listener(
                listening,
                assembly,
                self.loop,
                limits,
                self._session_id,
                certificates,
            )
            self.listeners.append(listener)
            self.loop.open_acceptor(listener, listening.sock)

    def _courier(self, done: Told) -> Sender:
        """What sends webhooks. Most brokers need none, and a client takes long to import."""
        from zbus.server.push.courier import Courier

        config = self.config
        reach = reachable(config.push_networks)
        return Courier(reach, config.push_connections_max, f"zbus/{__version__}", done)

    def _give_way(self) -> None:
        """Memory is short: what is remembered for speed alone goes."""
        self._assembly.heads.forget()
        self.collector.press()

    def _settings(self) -> dict[str, object]:
        """Settings of each dialect, from the options and of this server."""
        known = {
            "address": self.address,
            "tls": self.addresses[0].tls,
            "certificate": self._certificate,
            "memory_used": self._gauges.memory_used,
            "cpu_count": os.cpu_count() or 1,
            "keeps": self._keeps,
            "held": self.holdings.bytes_used,
            "running": self.running,
            "version": __version__,
            "secret": self._secret(),
            "identity": self.engine.identity(),
            "storage_durability": self.engine.durability,
        }
        parts: dict[str, object] = {
            name: self.config.part(kind, **known) for name, kind in SETTINGS.items()
        }
        own = {"console": read_own("console"), "client": read_own("javascript")}
        return {**parts, **own, "pages": self.pages and self.pages.pages}

    @property
    def addresses(self) -> list[Address]:
        """Where it listens, with the ports that the system picked."""
        return [listening.address for listening in self._listening]

    def _certificate(self) -> str:
        return "" if self.certificates is None else self.certificates.text

    def _names(self) -> list[str]:
        """What clients may call it."""
        names = [address.host for address in self.addresses]
        return [*names, self.address.rpartition(":")[0].strip("[]"), socket.gethostname()]

    def _reserve_bytes(self) -> int:
        """What is kept for acknowledgements: not more than a part of a small file system."""
        path = self.config.data_dir
        while not path.exists() and path != path.parent:
            path = path.parent
        space = self._gauges.disk(path)
        reserve_bytes = self.config.reserve_bytes
        return reserve_bytes if space is None else min(reserve_bytes, space.total // self.disk_part)

    def _now_and_then(self) -> None:
        parts = [
            *[listener.resume for listener in self.listeners],
            self.pressure.look,
            self.running.look,
            self.pushing.look,
            self._upkeep_collector,
            self._assembly.upkeep,
            self._upkeep_engine,
            self.front.upkeep,
            self.supervisor.turns,
        ]
        each(parts if self.tokens is None else [self.tokens.look, *parts])

    def _upkeep_collector(self) -> None:
        self.collector.removed(self.broker.partitions_removed())
        if freed_bytes := self.collector.look():
            self.broker.free_scattered(freed_bytes)

    def _upkeep_engine(self) -> None:
        self.engine.upkeep(self.loop.now_ms)

    def _reload_tokens(self) -> None:
        if self.tokens is not None:
            self.tokens.reload()
            self.front.upkeep()

    def _fail(self, text: str) -> None:
        self.loop.fail(text)

    async def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until a signal or a failure of the journal. `ready` is called when signals are
        heard: a request that waits for it may send one. SIGHUP loads files again."""
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            ready()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._obey_signals, signals, nursery)
                for reporter in self._reporters:
                    nursery.start_soon(reporter.run)
                await self.loop.run()
                nursery.cancel_scope.cancel()

    async def _obey_signals(self, signals: AsyncIterator[int], nursery: trio.Nursery) -> None:
        async for number in signals:
            if number == signal.SIGHUP:
                self.mailbox.post(self.reload)
                nursery.start_soon(self._reload_pages)
            else:
                log.info("stopping", extra={"signal": signal.Signals(number).name})
                if self.engine.nodes is not None:
                    self.engine.nodes.stops = True  # it does not come back as a standby
                self.supervisor.stopping()
                self.mailbox.post(self.stop_serving)

    def stop_serving(self) -> None:
        """Answer what is open, and end."""
        self.loop.stop()
        self.pushing.stop()

    def leave(self) -> None:
        """Answer what is open, and give the shard up."""
        assert self.engine.nodes is not None
        self.engine.nodes.leaves = not self.engine.nodes.stops
        self.stop_serving()

    async def _reload_pages(self) -> None:
        """Beside all else: they may be many, and on a disk that does not answer."""
        if self.pages is None:
            return
        try:
            await trio.to_thread.run_sync(self.pages.reload, abandon_on_cancel=True)
        except Exception as error:
            log.error("reloading pages failed, the old stay", extra={"why": error})

    def reload(self) -> None:
        """Load again what may change under a running broker; what is bad stays as it was."""
        self.supervisor.reloading()
        failed = 0
        for reload in self.reloads:
            try:
                reload()
            except Exception as error:
                failed += 1
                log.error("reloading failed, the old stays", extra={"why": error})
        if not failed:
            log.info("reloaded")
        self.supervisor.ready(len(self.broker.topics))

    def start_again(self) -> int:
        """Become a standby; the exit code if another process does."""
        os.execv(sys.executable, sys.orig_argv)

    def close(self) -> None:
        self.pushing.close()
        self.loop.close()
        self.running.close()
        self.engine.close()
        self.mailbox.close()


def open_all(addresses: Sequence[Address], config: Config) -> list[Listening]:
    """Listen on every address, or on none and raise CannotStart."""
    found: list[Listening] = []
    for address in addresses:
        try:
            found.append(Listening(address, int(config.unix_socket_mode, 8)))
        except OSError as error:
            for listening in found:
                listening.close()
            text = f"cannot listen on {address.authority}: {error.strerror or error}"
            if address.kind == "tcp":
                text += "; is another broker running? Choose another port with --port"
            raise CannotStart(text) from None
    return found


@attrs.frozen
class Start:
    """What a process runs: how its server is made, and what is said when it is ready."""

    make: Callable[[], Server]
    tell: Callable[[Server], None]


def run(config: Config) -> int:
    """Run a broker; returns the exit code of the process."""

    def tell(server: Server) -> None:
        engine = server.engine
        where = Where(engine.where, engine.durability, "topics", len(server.broker.topics))
        print(banner(config, where, server.addresses, server.address), flush=True)

    return serve(config, Start(lambda: Server(config), tell))


def serve(config: Config, start: Start) -> int:
    """Run a server; returns the exit code of the process."""
    hung_up: list[int] = []  # SIGHUP came before it could be obeyed
    signal.signal(signal.SIGHUP, lambda number, _frame: hung_up.append(number))
    logs.set_up(config.log_level, config.log_format)
    keep_freed_memory()
    try:
        server = start.make()
    except CannotStart as error:
        print(f"zbus: {error}", file=sys.stderr)
        return error.exit_code
    except Stopped:
        log.info("stopped")
        return EXIT_OK
    server.collector.settle()
    # A thread that reads history must not keep the loop waiting long after each of its calls.
    sys.setswitchinterval(0.0005)

    def ready() -> None:
        if hung_up:  # what is loaded may be older than what it was sent for
            signal.raise_signal(signal.SIGHUP)
        start.tell(server)
        server.pressure.look()
        for address in server.addresses:
            log.info("listening", extra={"address": address})
        server.supervisor.ready(len(server.broker.topics))

    try:
        trio.run(server.run, ready)
    finally:
        server.close()
    failure = server.loop.failure
    if failure:
        log.critical("the journal failed; nothing more is acknowledged", extra={"why": failure})
        return server.engine.exit_code()
    if server.loop.is_over:  # it was late
        where = {"engine": server.engine.where}
        log.error("the engine does not answer; starting again, as a standby", extra=where)
        return server.start_again()
    nodes = server.engine.nodes
    if nodes is not None and nodes.leaves and not nodes.stops:
        return server.start_again()
    log.info("stopped")
    return EXIT_OK
