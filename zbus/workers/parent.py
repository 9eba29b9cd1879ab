"""The process that makes the workers, watches over them, and owns what they share: sockets, the
data directory and the signals. No message passes it.

A worker that ends is begun again, at once the first time and then after growing pauses; until then
connections wait in its sockets, which stay open here. Its exit code ends the server only if it
could not start at the beginning. Workers are forked: what they have in common is in memory once,
and a new one need not import anything.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import shutil
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Final

import attrs

from zbus.config import Config
from zbus.server.exits import EXIT_FAILED, EXIT_OK, CannotStart
from zbus.server.loop.sockets import Listening, addresses_of
from zbus.server.process import logs
from zbus.server.process.banner import Where, advertised_address, banner
from zbus.server.process.serve import read_certificates, read_tokens
from zbus.server.process.shards import check_workers
from zbus.server.process.supervisor import Supervisor
from zbus.storage.local.reserve import SharedReserves
from zbus.storage.port import JournalError
from zbus.workers.seats import NO_SHARD, READY, Shared
from zbus.workers.socket_directory import make_directory, socket_path

PAUSES_S: Final = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Before a worker is begun again, the more the more often it has ended lately."""
_LATELY_S: Final = 60.0
_LOOK_S: Final = 0.5
_STUCK_S: Final = 10.0
"""A worker's loop says each second that it turns; the supervisor hears no more of this server after
so long without."""
_GRACE_S: Final = 10.0
"""After the time in which it answers what is open, a worker that goes on is killed."""

log = logging.getLogger("zbus")


@attrs.define(eq=False)
class Process:
    """A worker, as the parent knows it."""

    number: int
    said: bytes = b""  # that is not understood yet
    shard: int = NO_SHARD  # of a cluster: the one that it owns
    epoch: int = 0  # of its claim
    lost_s: float = 0.0  # when it was heard that another one has claimed the shard
    pid: int = 0  # 0 = it does not run
    status: int = -1
    ready: bool = False
    ends_s: list[float] = attrs.Factory(list)  # when it ended lately
    begin_s: float = 0.0  # when to begin it
    heard_s: float = 0.0

    def put_off(self, now_s: float) -> float:
        """It has ended, and is begun again after so long."""
        self.ends_s = [*(at for at in self.ends_s if at > now_s - _LATELY_S), now_s]
        pause_s = PAUSES_S[min(len(self.ends_s), len(PAUSES_S)) - 1]
        self.begin_s = now_s + pause_s
        return pause_s


class Parent:
    """What it does whatever its workers keep. Raises CannotStart."""

    shared: Shared
    processes: list[Process]

    def __init__(self, config: Config) -> None:
        self.config = config
        self.exit_code = EXIT_OK
        self.stop_s = 0.0  # when it was told to end
        self.told = False
        self._supervisor = Supervisor()
        self._listening: list[Listening] = []
        check_workers(config)
        if config.tracker_list:  # each would take the place of the others
            raise CannotStart("reports to other servers are made by one process: no --tracker-list")
        read_tokens(config)  # what is wrong with them is said before anything is made
        read_certificates(config)
        self.directory = make_directory()
        self._life, self._alive = socket.socketpair()
        self._signals, self._signal = os.pipe()
        os.set_blocking(self._signal, False)
        os.set_blocking(self._signals, False)
        try:
            self.prepare()
        except (JournalError, CannotStart) as error:
            self._unshare()
            raise CannotStart(str(error)) from None

    def prepare(self) -> None:
        """Make what workers share, and say which there are. Raises CannotStart and JournalError."""
        raise NotImplementedError

    def work(self, process: Process, life: socket.socket, told: int) -> int:
        """What a worker does, in its process; returns the exit code."""
        raise NotImplementedError

    def where(self) -> Where:
        """What the greeting says of the data."""
        raise NotImplementedError

    def share(self, shards: int, reserves: SharedReserves | None = None) -> Shared:
        """What all workers have in common."""
        return Shared(
            [each.address for each in self._listening],
            [socket_path(self.directory, "asked", shard) for shard in range(shards)],
            [socket_path(self.directory, "given", shard) for shard in range(shards)],
            os.urandom(32),
            reserves,
        )

    def open_doors(self, count: int) -> list[list[socket.socket]]:
        """Sockets of all addresses, for so many workers. Raises CannotStart."""
        config = self.config
        doors: list[list[socket.socket]] = [[] for _ in range(count)]
        for address in addresses_of(config):
            for number in range(count):
                if number and address.kind == "unix":
                    doors[number].append(doors[0][-1].dup())
                    continue
                try:
                    if not number and address.kind != "unix":
                        # Another server of workers would share its port with this one.
                        Listening(address).close()
                    made = Listening(address, int(config.unix_socket_mode, 8), shared=True)
                except OSError as error:
                    text = f"cannot listen on {address.authority}: {error.strerror or error}"
                    raise CannotStart(text) from None
                address = made.address  # with the port that the system picked
                doors[number].append(made.sock)
                if not number:
                    self._listening.append(made)
        return doors

    def _unshare(self) -> None:
        for listening in self._listening:
            listening.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    # -- workers --------------------------------------------------------------------------

    def _begin(self, process: Process) -> None:
        try:
            status, told = (sock.detach() for sock in socket.socketpair())
        except OSError as error:
            self._put_off(process, error)
            return
        _flush()
        try:
            pid = os.fork()
        except OSError as error:
            os.close(status)
            os.close(told)
            self._put_off(process, error)
            return
        if not pid:
            code = EXIT_FAILED
            try:
                self._become()
                code = self.work(process, self._life, told)
            except BaseException:
                log.exception("a worker failed")
            finally:
                _flush()
                logging.shutdown()
                os._exit(code)
        os.close(told)
        os.set_blocking(status, False)
        process.pid, process.status, process.heard_s = pid, status, time.monotonic()

    def _put_off(self, process: Process, error: OSError) -> None:
        """The system has no process or descriptor to spare. The others go on."""
        log.error("a worker cannot be begun", extra={"worker": process.number, "why": error})
        process.begin_s = time.monotonic() + PAUSES_S[-3]

    def _become(self) -> None:
        """In the new process: nothing of the parent's is left but what workers share."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        self._alive.close()
        os.close(self._signals)
        os.close(self._signal)
        for other in self.processes:
            if other.status >= 0:
                os.close(other.status)
        os.environ.pop("NOTIFY_SOCKET", None)  # the parent speaks to the supervisor

    def _reap(self) -> None:
        for process in list(self.processes):
            if not process.pid:
                continue
            pid, status = os.waitpid(process.pid, os.WNOHANG)
            if pid:
                self._ended(process, os.waitstatus_to_exitcode(status))

    def _ended(self, process: Process, code: int) -> None:
        os.close(process.status)
        process.pid, process.status = 0, -1
        if self.stop_s:
            self.exit_code = self.exit_code or max(code, 0)
        elif code and not self.told:
            self.exit_code = max(code, EXIT_FAILED)  # it has said why
            self.stop()
        else:
            process.ready = False
            self.replace(process, code)

    def replace(self, process: Process, code: int) -> None:
        """A worker has ended: it is begun again."""
        pause_s = process.put_off(time.monotonic())
        fields = {"worker": process.number, "code": code, "againInS": pause_s}
        say = log.error if code else log.info
        say("a worker has ended and is begun again", extra=fields)

    def _hear(self) -> None:
        for process in list(self.processes):
            if process.status < 0:
                continue
            try:
                said = os.read(process.status, 64 << 10)
            except (BlockingIOError, ConnectionResetError):
                continue
            process.heard_s = time.monotonic()
            self.heard(process, said)
        if not self.told and all(process.ready for process in self.processes):
            self.told = True
            self._announce()

    def heard(self, process: Process, said: bytes) -> None:
        """A worker tells how it does."""
        process.ready = process.ready or READY in said

    def _announce(self) -> None:
        config, addresses = self.config, self.shared.addresses
        first = addresses[0]
        name = advertised_address(config.server_name, first.host, first.port)
        print(banner(config, self.where(), addresses, name), flush=True)
        self._supervisor.ready(0)

    # -- running --------------------------------------------------------------------------

    def run(self) -> int:
        signal.set_wakeup_fd(self._signal)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, lambda number, frame: None)
        gc.collect()
        gc.freeze()  # what workers share stays shared
        try:
            while self._turn():
                pass
        finally:
            for process in self.processes:
                if process.pid:
                    os.kill(process.pid, signal.SIGKILL)
                    os.waitpid(process.pid, 0)
            self._unshare()
        return self.exit_code

    def _turn(self) -> bool:
        """Look after everything once; whether to go on."""
        now_s = time.monotonic()
        if self.stop_s:
            if not any(process.pid for process in self.processes):
                return False
            limit_s = self.config.drain_timeout_ms / 1_000 + _GRACE_S
            if now_s > self.stop_s + limit_s:
                return False
        else:
            # What is wrong with the options is said once, by the first.
            first = self.processes[0]
            for process in self.processes if first.ready or self.told else [first]:
                if not process.pid and now_s >= process.begin_s:
                    self._begin(process)
        looked_at = select.poll()  # `select.select` takes no descriptors above 1,023
        for file in (self._signals, *(p.status for p in self.processes if p.status >= 0)):
            looked_at.register(file, select.POLLIN)
        looked_at.poll(int(_LOOK_S * 1_000))
        try:
            numbers = os.read(self._signals, 4_096)
        except BlockingIOError:
            numbers = b""
        self._hear()
        self._reap()
        for number in numbers:
            if number == signal.SIGHUP:
                self._supervisor.reloading()
                self._send(signal.SIGHUP)
                self._supervisor.ready(0)
            elif number != signal.SIGCHLD:
                self.stop()
        if all(p.ready and now_s - p.heard_s < _STUCK_S for p in self.processes):
            self._supervisor.turns()
        return True

    def stop(self) -> None:
        """All workers answer what is open, and end."""
        if not self.stop_s:
            self.stop_s = time.monotonic()
            self._supervisor.stopping()
            self._send(signal.SIGTERM)

    def _send(self, number: signal.Signals) -> None:
        for process in self.processes:
            if process.pid:
                os.kill(process.pid, number)


def _flush() -> None:
    """What was said leaves once, and not again in a process that is forked."""
    for file in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError):  # it is closed, or nobody reads it
            file.flush()


def run(config: Config, kind: type[Parent]) -> int:
    """Run a server of several workers; returns the exit code of the process."""
    logs.set_up(config.log_level, config.log_format)
    try:
        parent = kind(config)
    except CannotStart as error:
        print(f"zbus: {error}", file=sys.stderr)
        return error.exit_code
    return parent.run()
