"""Durations and sizes with units, in options of the shell and of a broker."""

from __future__ import annotations

import pytest

from tests.cli.conftest import FakeBroker, Zbus
from zbus import config
from zbus.units import parse_bytes, parse_ms

DURATIONS = {
    "0": 0,
    "250": 250,
    "250ms": 250,
    "5s": 5_000,
    "5 s": 5_000,
    " 5s ": 5_000,
    "1.5s": 1_500,
    "0.001s": 1,
    "2m": 120_000,
    "1.5h": 5_400_000,
    "7d": 604_800_000,
    "7 d": 604_800_000,
    "2w": 1_209_600_000,
}
SIZES = {
    "0": 0,
    "65536": 65_536,
    "12B": 12,
    "64KiB": 65_536,
    "10 MiB": 10 << 20,
    "1.5 GiB": 3 << 29,
    "2TiB": 2 << 40,
}
NEITHER = [
    "",
    " ",
    "s",
    ".5s",
    "5.",
    "5.s",
    "1.5",
    "1.5.5s",
    "-5s",
    "+5s",
    "5x",
    "5S",
    "5 s s",
    "1e3s",
    "0.0001s",
    "\N{ARABIC-INDIC DIGIT FIVE}s",
    "5\0s",
    "9" * 31,
    "5s5",
    "0x5",
    "1_000",
    "1,5s",
]


@pytest.mark.parametrize(("text", "ms"), DURATIONS.items())
def test_durations(text: str, ms: int) -> None:
    assert parse_ms(text) == ms


@pytest.mark.parametrize(("text", "size"), SIZES.items())
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", NEITHER)
def test_what_is_neither(text: str) -> None:
    assert (parse_ms(text), parse_bytes(text)) == (None, None)


ASKED = [
    (["produce", "T", "x", "--delay", "5s", "--ttl", "7d"], {"delay": "5000", "ttl": "604800000"}),
    (["produce", "T", "x", "--delay-ms", "5", "--ttl-ms", "7"], {"delay": "5", "ttl": "7"}),
    (["produce", "T", "x", "--delay-ms", "5s"], {"delay": "5000"}),
    (["call", "T", "m", "--timeout", "2s"], {"timeout": "2000"}),
    (["call", "T", "m"], {"timeout": "30000"}),
    (
        ["declare", "T", "--retention", "7d", "--retention-bytes", "10 MiB", "--dedupe", "1h"],
        {"retention_ms": "604800000", "retention_bytes": "10485760", "dedupe_ms": "3600000"},
    ),
    (["declare", "T", "g", "--ack-timeout", "1m"], {"group_lease": "60000"}),
]


@pytest.mark.parametrize(("args", "headers"), ASKED)
def test_options(zbus: Zbus, broker: FakeBroker, args: list[str], headers: dict[str, str]) -> None:
    assert zbus(*args).exit_code == 0
    (asked,) = broker.asked
    assert {name: asked.headers.get(name) for name in headers} == headers


def test_a_pause_that_was_long_enough_is_told_as_it_was_written(zbus: Zbus) -> None:
    result = zbus("consume", "T", "--timeout", "0.01s")
    assert (result.exit_code, result.stderr) == (3, "zbus: nothing in T within 10 ms\n")


@pytest.mark.parametrize(
    "args",
    [
        ["produce", "T", "x", "--delay", "soon"],
        ["produce", "T", "x", "--delay", "-5s"],
        ["produce", "T", "x", "--ttl", "0s"],
        ["consume", "T", "--timeout", "5 years"],
        ["declare", "T", "--retention", "7MiB"],
        ["declare", "T", "--retention-bytes", "7d"],
        ["call", "T", "m", "--timeout", "0"],
    ],
)
def test_bad_ones_are_refused(zbus: Zbus, broker: FakeBroker, args: list[str]) -> None:
    result = zbus(*args)
    assert result.exit_code == 64
    assert result.stderr.splitlines()[-1].startswith("zbus: Invalid value for '--")
    assert not broker.asked


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("idle_timeout_ms", "3m", 180_000),
        ("retention_ms", "7d", 604_800_000),
        ("retention_bytes", "1.5 GiB", 3 << 29),
        ("memory_bytes_max", "2 GiB", 2 << 30),
    ],
)
def test_options_of_a_broker(name: str, text: str, value: int) -> None:
    assert getattr(config.load(settings={name: text}), name) == value
    assert getattr(config.load(environ={f"ZBUS_{name.upper()}": text}), name) == value
