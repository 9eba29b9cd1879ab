"""A whole load run: declare the topic, then each phase, in this process or shared out over several.

Worker processes open their connections first, wait for each other, and start at once; their clocks
are the same monotonic one, so a phase lasts from the first start to the last reply.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from ctypes import Array, c_ulonglong
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier

import attrs

from zbus.cli.bench.generator import Generator
from zbus.cli.bench.options import Options
from zbus.cli.bench.report import Phase, Report
from zbus.cli.remote import Unreachable, request

START_TIMEOUT_S = 60.0
PROGRESS_S = 0.1

Progress = Callable[[str, int], None]
"""Receives the phase and the messages done so far."""


def run_load(options: Options, progress: Progress = lambda _phase, _messages: None) -> Report:
    """Run a load and measure it. Raises `Refused` or `Unreachable` if it cannot begin."""
    options = attrs.evolve(options, batch=min(options.batch, options.messages))
    _declare(options)
    phases: list[Phase] = []
    for name in options.phases:
        # What the first phase could not put, the second need not wait for.
        messages = phases[-1].messages if phases else options.messages
        if messages:
            phases.append(_run_phase(options, name, messages, progress))
    return Report(tuple(phases))


def _declare(options: Options) -> None:
    """Make the topic and, so that it begins before the first message, the group."""
    if options.mode == "consume":
        return
    fields = {
        "cmd": "declare",
        "topic": options.topic,
        "consume_group": options.group or None,
        "durability": options.durability or None,
        "partitions": options.partitions or None,
    }
    request(options.url, fields, token=options.token or None)


def _run_phase(options: Options, name: str, messages: int, progress: Progress) -> Phase:
    # What is put is put in whole batches, and no more of them than are wanted.
    unit = options.batch if name == "produce" else 1
    workers = min(options.processes, options.connections, messages // unit)
    each = [unit * share for share in _shares(messages // unit, workers)]
    shares = list(zip(_shares(options.connections, workers), each, strict=True))
    if workers == 1:
        return Generator(options, name, *shares[0], lambda done: progress(name, done)).run()
    return _run_workers(options, name, shares, progress)


def _shares(total: int, parts: int) -> list[int]:
    return [total // parts + (part < total % parts) for part in range(parts)]


def _run_workers(
    options: Options, name: str, shares: list[tuple[int, int]], progress: Progress
) -> Phase:
    context = multiprocessing.get_context("spawn")  # fork would copy the caller's threads' locks
    barrier = context.Barrier(len(shares))
    counters = context.Array("Q", len(shares), lock=False)
    workers = []
    for index, (connections, messages) in enumerate(shares):
        ours, theirs = context.Pipe(duplex=False)
        arguments = (options, name, connections, messages, index, counters, barrier, theirs)
        process = context.Process(target=_work, args=arguments, daemon=True)
        process.start()
        theirs.close()
        workers.append((process, ours))
    total = Phase(name)
    failure: str | None = None
    for process, results in workers:
        try:
            while not results.poll(PROGRESS_S):
                progress(name, sum(counters))
            result = results.recv()
        except EOFError:
            result = "a load process ended without a result"
        if isinstance(result, Phase):
            total.merge(result)
        else:
            failure = failure or result
        process.join()
        process.close()
        results.close()
    if failure is not None:
        raise Unreachable(failure)
    progress(name, total.messages)
    return total


def _work(
    options: Options,
    name: str,
    connections: int,
    messages: int,
    index: int,
    counters: Array[c_ulonglong],
    barrier: Barrier,
    results: Connection,
) -> None:
    """The life of a worker process."""

    def count(done: int) -> None:
        counters[index] = done  # messages done, one place for each worker, in shared memory

    result: Phase | str
    try:
        generator = Generator(options, name, connections, messages, count)
        barrier.wait(START_TIMEOUT_S)
        result = generator.run()
    except Unreachable as error:
        barrier.abort()  # the others would wait for us
        result = error.message
    except Exception as error:
        barrier.abort()
        result = f"a load process failed: {error!r}"
    results.send(result)
    results.close()
