"""Options: where they come from, which source wins, what is refused and how."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.cli.commands import LEAVES
from zbus.config import OPTIONS, OTHER_VARIABLES, Config, ConfigError, documentation, load
from zbus.dialects.zbus.settings import ZbusSettings
from zbus.option import DECLARED

REFERENCE = Path(__file__).parent.parent / "docs/reference"
PAGE = REFERENCE / "configuration.md"
COMMAND_LINE = REFERENCE / "command-line.md"


def test_reference_page_is_printed_from_the_options() -> None:
    assert PAGE.read_text(encoding="utf-8") == documentation(), (
        "run: python -m zbus.config > docs/reference/configuration.md"
    )


def test_every_option_is_documented_and_its_default_allowed() -> None:
    for name, option in OPTIONS.items():
        assert getattr(Config(), name) == option.default
        assert option.meaning.endswith("."), name
        assert f"| `{name}` |" in documentation()


def test_an_option_is_declared_once() -> None:
    declared = [
        field.name
        for owner in Config.__bases__
        for field in attrs.fields(owner)
        if DECLARED in field.metadata
    ]
    assert sorted(declared) == sorted(OPTIONS)


def test_who_needs_some_options_is_given_those() -> None:
    config = Config(call_timeout_ms=123, batch_messages_max=4, tickets_per_connection_max=5)
    settings = config.part(ZbusSettings, address="broker:1")
    for name in ZbusSettings.__annotations__.keys() - OPTIONS.keys() - {"address"}:
        assert getattr(settings, name) == getattr(ZbusSettings(), name)
    assert (settings.call_timeout_ms, settings.batch_messages_max) == (123, 4)
    assert (settings.tickets_per_connection_max, settings.address) == (5, "broker:1")


LISTS = [
    ("allowed_hosts", "a.example, http://b.example", "'http://b.example' is not of the form name"),
    ("allowed_hosts", "a b", "'a b' is not of the form name, without a port"),
    ("cors_origins", "https://a, b.example", "'b.example' is not of the form https://host:port"),
]


@pytest.mark.parametrize(("name", "text", "problem"), LISTS)
def test_of_several_the_bad_one_is_named(name: str, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"--set {name}: {problem}")):
        load(settings={name: text})


@pytest.mark.parametrize("text", ["", "a.example", " a.example ,, *,", "été.example,b"])
def test_lists_may_hold_blanks(text: str) -> None:
    assert load(settings={"allowed_hosts": text}).allowed_hosts == text


def test_each_source_overrides_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "zbus.toml"
    file.write_text(
        'port = 1\nhost = "a"\nfields_max = 11\nlog_level = "debug"\n', encoding="utf-8"
    )
    environ = {"ZBUS_PORT": "2", "ZBUS_HOST": "b", "ZBUS_FIELDS_MAX": "12", "PATH": "x"}
    settings = {"port": "3", "host": "c"}
    assert load(file).port == 1
    assert load(file, environ).port == 2
    assert load(file, environ, settings=settings).port == 3
    config = load(file, environ, {"port": "4"}, settings)
    found = (config.port, config.host, config.fields_max, config.log_level, config.topics_max)
    assert found == (4, "c", 12, "debug", 10_000)


@pytest.mark.parametrize(
    ("text", "value"),
    [("65536", 65536), ("64 KiB", 65536), ("1MiB", 1 << 20), (" 1 GiB ", 1 << 30)],
)
def test_sizes_may_have_a_unit(text: str, value: int) -> None:
    assert load(environ={"ZBUS_SEGMENT_BYTES": text}).segment_bytes == value


def test_flags(tmp_path: Path) -> None:
    file = tmp_path / "zbus.toml"
    file.write_text("insecure = true\n", encoding="utf-8")
    assert (load(file).insecure, load().insecure) == (True, False)
    assert load(file, {"ZBUS_INSECURE": "False"}).insecure is False
    assert load(settings={"insecure": " TRUE "}).insecure is True
    assert load(options={"insecure": "true"}).insecure is True


def variables_of_the_shell() -> set[str]:
    """All that commands read from the environment, by what they declare."""
    return {
        name
        for command in LEAVES.values()
        for parameter in command.params
        for name in ([parameter.envvar] if isinstance(parameter.envvar, str) else [])
    }


def test_variables_of_the_command_line_are_left_alone() -> None:
    options = {f"ZBUS_{name.upper()}" for name in OPTIONS}
    assert variables_of_the_shell() - options == set(OTHER_VARIABLES)
    assert load(environ=dict.fromkeys(OTHER_VARIABLES, "x")) == Config()
    page = COMMAND_LINE.read_text(encoding="utf-8")
    for name in variables_of_the_shell():
        assert f"| `{name}` |" in page


BAD_TEXTS = [
    ("port", "many", "expected a whole number, not 'many'"),
    ("port", "", "expected a whole number, not ''"),
    ("port", "1.5", "expected a whole number, not '1.5'"),
    ("port", "65536", "65536 is not between 0 and 65535"),
    ("port", "-1", "-1 is not between 0 and 65535"),
    ("host", "", "'' cannot be used"),
    ("host", "a\0b", "'a\\x00b' cannot be used"),
    ("data_dir", "", "must name a folder"),
    ("durability", "tape", "'tape' is not one of memory, os, disk"),
    ("durability", "DISK", "'DISK' is not one of memory, os, disk"),
    ("rpc_url", "x", "'x' is not one of seed, module-path"),
    ("log_format", "xml", "'xml' is not one of text, json"),
    ("insecure", "yes", "expected true or false, not 'yes'"),
    ("allow_url_token", "1", "expected true or false, not '1'"),
    ("server_name", "a b", "'a b' is not of the form host or host:port"),
    ("server_name", "http://broker:1", "'http://broker:1' is not of the form host or host:port"),
    ("tracker_list", "broker", "'broker' is not of the form host:port,host:port"),
    ("tracker_list", "a:1,", "'a:1,' is not of the form host:port,host:port"),
    ("tracker_list", "a:1,b:70000", "'a:1,b:70000' is not of the form host:port,host:port"),
    ("tracker_token", "a\r\nb", "it holds what no header can"),
    ("body_bytes_max", "3 MB", "expected bytes such as 65536 or 64 KiB, not '3 MB'"),
    ("message_bytes_max", "65 MiB", "68157440 is not between 1 and 67108864"),
    ("topic_messages_per_s", "-1", "-1 is not between 0 and 1000000000"),
    ("topic_messages_per_s", "1 KiB", "expected a whole number, not '1 KiB'"),
    ("topic_bytes_per_s", "2048 GiB", "2199023255552 is not between 0 and 1099511627776"),
    ("topic_bytes_per_s", "much", "expected bytes such as 65536 or 64 KiB, not 'much'"),
    ("connections_per_address_max", "-1", "-1 is not between 0 and 1000000"),
    ("idle_timeout_ms", "1 KiB", "expected a time such as 500 ms, 5s or 7d, not '1 KiB'"),
    ("idle_timeout_ms", "1.5ms", "expected a time such as 500 ms, 5s or 7d, not '1.5ms'"),
    ("idle_timeout_ms", "1e3", "expected a time such as 500 ms, 5s or 7d, not '1e3'"),
    ("connections_max", "1 KiB", "expected a whole number, not '1 KiB'"),
    ("no_such", "1", "unknown option"),
]


@pytest.mark.parametrize(("name", "text", "problem"), BAD_TEXTS)
def test_bad_text_is_refused_with_its_source(name: str, text: str, problem: str) -> None:
    variable = f"ZBUS_{name.upper()}"
    sources: list[tuple[str, dict[str, Any]]] = [
        (f"environment variable {variable}", {"environ": {variable: text}}),
        (f"--set {name}", {"settings": {name: text}}),
    ]
    if name in OPTIONS:
        sources.append((f"option --{name.replace('_', '-')}", {"options": {name: text}}))
    for source, given in sources:
        with pytest.raises(ConfigError) as caught:
            load(**given)
        assert str(caught.value) == f"{source}: {problem}"


BAD_FILES = [
    ("port = 65536", "{file}, key port: 65536 is not between 0 and 65535"),
    ("port = true", "{file}, key port: expected a whole number, not True"),
    ("port = 1.0", "{file}, key port: expected a whole number, not 1.0"),
    ("insecure = 1", "{file}, key insecure: expected true or false, not 1"),
    ("host = 1", "{file}, key host: expected text, not 1"),
    ("data_dir = []", "{file}, key data_dir: expected text, not []"),
    ("[server]\nport = 1", "{file}: unknown option 'server_port'"),
    ("[mqcloud]\nqueue = 1", "{file}: unknown option 'mqcloud_queue'"),
    ("[mqcloud]\nqueues = 0", "{file}, key mqcloud_queues: 0 is not between 1 and 65535"),
    (
        "mqcloud_queues = 1\n[mqcloud]\nqueues = 2",
        "{file}: the option 'mqcloud_queues' is there twice",
    ),
    ("[mqcloud.queues]\na = 1", "{file}, key mqcloud_queues: expected one value, not several"),
    ("[port]\na = 1", "{file}, key port: expected one value, not several"),
    (
        "[mqcloud]\nproducers = 'p=t, q'",
        "{file}, key mqcloud_producers: 'q' is not of the form producer=topic",
    ),
    ("Port = 1", "{file}: unknown option 'Port'"),
    ("port = ", "{file} is not TOML: Invalid value (at end of document)"),
    ("fields_max = '9 KiB'", "{file}, key fields_max: expected a whole number, not '9 KiB'"),
    (
        "line_bytes_max = 32768",
        "head_bytes_max (16384) must not be less than line_bytes_max (32768)",
    ),
    (
        "message_bytes_max = '64 MiB'",
        "body_bytes_max (16777216) must not be less than message_bytes_max (67108864)",
    ),
]


@pytest.mark.parametrize(("content", "problem"), BAD_FILES)
def test_bad_file_is_refused_with_its_key(tmp_path: Path, content: str, problem: str) -> None:
    file = tmp_path / "zbus.toml"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert str(caught.value) == problem.format(file=file)


def test_options_of_a_dialect_may_be_in_a_table(tmp_path: Path) -> None:
    file = tmp_path / "zbus.toml"
    file.write_text(
        "port = 1\n[mqcloud]\nauto_register = true\nproducers = 'p=t'\n[adf]\nauto_create = false\n"
    )
    config = load(file)
    assert (config.port, config.mqcloud_auto_register, config.adf_auto_create) == (1, True, False)
    assert config.mqcloud_producers == "p=t"


MUCH = "9" * 5_000
SLOW = (
    ("allowed_hosts", "*," * 5_000 + ":"),
    ("allowed_hosts", " " * 20_000 + ":"),
    ("cors_origins", " " * 20_000 + ":"),
    ("tracker_list", "a:01," * 5_000 + "!"),
    *((name, MUCH) for name in ("body_bytes_max", "port", "unix_socket_mode")),
    *((name, "a\udcff") for name in ("allowed_hosts", "cors_origins", "tracker_list", "data_dir")),
)


@pytest.mark.parametrize(("name", "text"), SLOW)
def test_no_text_takes_long_or_ends_in_a_traceback(name: str, text: str) -> None:
    with pytest.raises(ConfigError):
        load(settings={name: text})


NESTED = ("port = " + MUCH, "port = 0x" + "f" * 5_000, "port = " + "[" * 50_000)


@pytest.mark.parametrize("content", [*NESTED, "port" + ".a" * 5_000 + " = 1"])
def test_no_file_ends_in_a_traceback(tmp_path: Path, content: str) -> None:
    file = tmp_path / "zbus.toml"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError):
        load(file)


def test_absent_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*absent\.toml: No such file"):
        load(tmp_path / "absent.toml")


def test_values_given_in_code_are_checked_as_well() -> None:
    with pytest.raises(ConfigError, match="port: 70000 is not between"):
        Config(port=70_000)
    assert Config(data_dir=Path("x")).data_dir == Config(data_dir="x").data_dir


def test_shorter_requests_alone_make_shorter_messages() -> None:
    """Who sets one of the two need not know of the other, unless they contradict each other."""
    config = Config(body_bytes_max=1 << 20)
    assert config.body_bytes_max < config.message_bytes_max
