"""What a load run measured: rates, latencies, errors; as values, as text, as JSON.

Latencies are kept in a histogram with buckets that grow with their value: 128 to each power of
two, so that a percentile is at most one part in 128 above the truth, in a few kilobytes, and the
histograms of several processes add up. `max` is exact to a microsecond.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs
import msgspec

TICK_SHIFT = 10
"""Samples come as nanoseconds >> 10: units of 1.024 µs."""
TICK_NS = 1 << TICK_SHIFT
PRECISION_BITS = 7
PERCENTILES = (50.0, 90.0, 99.0, 99.9)


class Histogram:
    """How often each latency was seen."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}  # bucket number: samples
        self.largest = 0  # in ticks

    def add(self, samples: Mapping[int, int]) -> None:
        """Take in samples: ticks to their number."""
        counts = self.counts
        for ticks, number in samples.items():
            bucket = _bucket(ticks)
            counts[bucket] = counts.get(bucket, 0) + number
        self.largest = max(self.largest, max(samples, default=0))

    def merge(self, other: Histogram) -> None:
        for bucket, number in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + number
        self.largest = max(self.largest, other.largest)

    def percentile_us(self, percent: float) -> float:
        """The smallest latency that that many percent of the samples do not exceed."""
        left = sum(self.counts.values()) * percent / 100
        for bucket in sorted(self.counts):
            left -= self.counts[bucket]
            if left <= 1e-9:  # what floating point leaves of an exact zero
                return min(_bucket_end(bucket), self.largest + 1) * TICK_NS / 1000
        return 0.0

    @property
    def largest_us(self) -> float:
        return (self.largest + 1) * TICK_NS / 1000 if self.counts else 0.0


def _bucket(ticks: int) -> int:
    shift = max(0, ticks.bit_length() - PRECISION_BITS - 1)
    return (shift << PRECISION_BITS) + (ticks >> shift)


def _bucket_end(bucket: int) -> int:
    """The first value past a bucket."""
    shift = max(0, (bucket >> PRECISION_BITS) - 1)
    return ((bucket - (shift << PRECISION_BITS)) + 1) << shift


@attrs.define
class Phase:
    """One phase of a run, of one process or of all together."""

    name: str
    messages: int = 0  # acknowledged, or received
    requests: int = 0  # replies that came, whatever their status
    sent_bytes: int = 0
    received_bytes: int = 0
    started_ns: int = 0
    ended_ns: int = 0
    cpu_ns: int = 0  # of the generator itself
    statuses: dict[int, int] = attrs.Factory(dict)
    failures: dict[str, int] = attrs.Factory(dict)  # what was not a reply: lost connections, ...
    latency: Histogram = attrs.Factory(Histogram)

    def fail(self, what: str, times: int = 1) -> None:
        self.failures[what] = self.failures.get(what, 0) + times

    def merge(self, other: Phase) -> None:
        """Add what another process measured at the same time."""
        self.messages += other.messages
        self.requests += other.requests
        self.sent_bytes += other.sent_bytes
        self.received_bytes += other.received_bytes
        self.started_ns = min(self.started_ns or other.started_ns, other.started_ns)
        self.ended_ns = max(self.ended_ns, other.ended_ns)
        self.cpu_ns += other.cpu_ns
        for status, number in other.statuses.items():
            self.statuses[status] = self.statuses.get(status, 0) + number
        for what, number in other.failures.items():
            self.fail(what, number)
        self.latency.merge(other.latency)

    @property
    def seconds(self) -> float:
        return max(self.ended_ns - self.started_ns, 1) / 1e9

    @property
    def messages_per_second(self) -> float:
        return self.messages / self.seconds

    @property
    def requests_per_second(self) -> float:
        return self.requests / self.seconds

    @property
    def megabytes_per_second(self) -> float:
        """Both directions, heads included: what went over the sockets."""
        return (self.sent_bytes + self.received_bytes) / 1e6 / self.seconds

    @property
    def cpu_share(self) -> float:
        """Processor time of the generator per second; near its processes, it is the bottleneck."""
        return self.cpu_ns / 1e9 / self.seconds

    @property
    def errors(self) -> int:
        refused = sum(number for status, number in self.statuses.items() if status >= 400)
        return refused + sum(self.failures.values())

    def as_dict(self) -> dict[str, object]:
        percentiles = {f"p{p:g}": round(self.latency.percentile_us(p), 1) for p in PERCENTILES}
        return {
            "phase": self.name,
            "messages": self.messages,
            "requests": self.requests,
            "seconds": round(self.seconds, 6),
            "messages_per_second": round(self.messages_per_second, 1),
            "requests_per_second": round(self.requests_per_second, 1),
            "megabytes_per_second": round(self.megabytes_per_second, 3),
            "latency_us": percentiles | {"max": round(self.latency.largest_us, 1)},
            "statuses": {str(status): number for status, number in sorted(self.statuses.items())},
            "failures": self.failures,
            "generator_cpu_share": round(self.cpu_share, 3),
        }


@attrs.frozen
class Report:
    """All phases of a run."""

    phases: tuple[Phase, ...]

    def phase(self, name: str) -> Phase:
        return next(phase for phase in self.phases if phase.name == name)

    @property
    def errors(self) -> int:
        return sum(phase.errors for phase in self.phases)

    def as_json(self, options: Mapping[str, object]) -> bytes:
        document = {"options": options, "phases": [phase.as_dict() for phase in self.phases]}
        return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"

    def as_text(self) -> str:
        return "\n\n".join(_text(phase) for phase in self.phases)


def _text(phase: Phase) -> str:
    latency = phase.latency
    times = [(f"p{p:g}", latency.percentile_us(p)) for p in PERCENTILES]
    rows = [
        ("messages", f"{phase.messages:,} in {phase.seconds:.3f} s"),
        ("rate", f"{phase.messages_per_second:,.0f} messages/s"),
        ("requests", f"{phase.requests:,}, {phase.requests_per_second:,.0f}/s"),
        ("traffic", f"{phase.megabytes_per_second:,.2f} MB/s"),
        ("latency", _join(f"{name} {_time(us)}" for name, us in times)),
        ("", f"max {_time(latency.largest_us)}"),
        ("statuses", _join(f"{s}: {n:,}" for s, n in sorted(phase.statuses.items())) or "none"),
        ("generator", f"{phase.cpu_share * 100:.0f} % of a core"),
    ]
    if phase.failures:
        rows.append(("failures", _join(f"{what}: {n:,}" for what, n in phase.failures.items())))
    return "\n".join([phase.name, *(f"  {name:<10} {value}" for name, value in rows)])


def _join(parts: Iterable[str]) -> str:
    return "  ".join(parts)


def _time(us: float) -> str:
    return f"{us:.0f} µs" if us < 1000 else f"{us / 1000:.2f} ms"
