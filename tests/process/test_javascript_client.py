"""The client in JavaScript, in Node: against a broker, over kills of it, against what is none."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.browser.hostile import Site
from tests.docs.pages import DOCS, blocks
from tests.examples.broker_process import Program
from tests.limits import WAIT_S
from tests.process.broker import BrokerProcess
from tests.process.javascript.expected import (
    AFTER_KILLS,
    COUNT,
    EXPECTED,
    FOLDER,
    KILLS,
    LIMITS,
    MODULE,
)
from tests.process.nats import free_ports
from zbus import __version__
from zbus.protocol.parameters import DECLARE, PUT, Declared, Put

ROOT = MODULE.parents[2]
NODE = shutil.which("node") or ""
FLAGS = ("--no-warnings", "--experimental-websocket")
"""Node 22 has a WebSocket without them."""

pytestmark = pytest.mark.skipif(not NODE, reason="node is not installed: `make test` installs it")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", *LIMITS) as process:
        yield process
        assert "Traceback" not in process.log()


def run(*arguments: str | Path | int) -> Any:
    """The last line that a program of Node prints."""
    done = subprocess.run(
        [NODE, *FLAGS, *map(str, arguments)], capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def evaluate(script: str, *arguments: str) -> Any:
    """The value of an expression, in which the module is `zbus`."""
    source = f'import * as zbus from "{MODULE}"; const args = process.argv.slice(1)\n'
    source += """const caught = promise => promise.then(value => ["ok", value ?? null],
      error => [error.name, error.message, error.unknown ?? null])\n"""
    source += f"console.log(JSON.stringify(await ({script})())); process.exit(0)"
    return run("--input-type=module", "-e", source, *arguments)


@pytest.mark.parametrize("scenario", EXPECTED)
def test_a_scenario(broker: BrokerProcess, scenario: str) -> None:
    url = f"http://127.0.0.1:{broker.port}"
    assert run(FOLDER / "run.mjs", MODULE, scenario, url) == EXPECTED[scenario]


def test_over_kills(tmp_path: Path) -> None:
    """A consumer has each message once, and a watch each in its order, without a gap."""
    broker = BrokerProcess(tmp_path / "data")
    url = f"http://127.0.0.1:{broker.port}"
    words = (str(FOLDER / "run.mjs"), str(MODULE), "overKills", url, str(COUNT))
    try:
        with Program(*FLAGS, *words, program=NODE) as program:
            for consumed in KILLS:
                program.wait_for(f"consumed {consumed}")
                broker.kill()
                broker = BrokerProcess(tmp_path / "data", port=broker.port)
            said = program.finish()
    finally:
        broker.kill()
    assert json.loads(said.splitlines()[-1]) == AFTER_KILLS


HOWTO = DOCS / "howto/javascript-client.md"


@pytest.mark.parametrize("number", range(6))
def test_an_example_of_the_page(broker: BrokerProcess, tmp_path: Path, number: int) -> None:
    examples = blocks(HOWTO, "js")
    assert len(examples) == 6
    text = examples[number].text.replace("zbus-client", str(MODULE))
    program = tmp_path / "example.mjs"
    program.write_text(text.replace("127.0.0.1:15555", f"127.0.0.1:{broker.port}"))
    done = subprocess.run([NODE, *FLAGS, program], capture_output=True, text=True, timeout=WAIT_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout or "deadLetter" in text


# -- what is no broker, or does not want us -----------------------------------------------------

OTHER_VERSION = (
    f"This client is of version {__version__}, the broker of {{}}: use URL/_client/zbus.js."
)
OTHERS: dict[str, tuple[tuple[int, dict[str, str], str], list[object]]] = {
    "this version": ((200, {}, __version__), ["ok", {}]),
    "a newer patch": ((200, {}, "0.1.99"), ["ok", {}]),
    "a newer version": (
        (200, {}, "0.2.0"),
        [
            "ProtocolError",
            OTHER_VERSION.format("0.2.0"),
        ],
    ),
    "the next version": (
        (200, {}, "1.0.0"),
        [
            "ProtocolError",
            OTHER_VERSION.format("1.0.0"),
        ],
    ),
    "a page": (
        (200, {}, "<html>" + "x" * 100_000),
        ["ProtocolError", "URL is not a zbus broker: it answered 200 text/html."],
    ),
    "nothing": (
        (200, {}, ""),
        ["ProtocolError", "URL is not a zbus broker: it answered 200 text/html."],
    ),
    "another path": (
        (404, {}, "no such page"),
        ["ProtocolError", "URL is not a zbus broker: it answered 404 text/html."],
    ),
    "an unknown token": ((401, {}, "who is it?"), ["Forbidden", "who is it?"]),
    "a token for other things": (
        (403, {}, "403: not with this token"),
        ["Forbidden", "not with this token"],
    ),
    "another host": ((421, {}, "421: not this host"), ["Refused", "not this host"]),
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_is_no_broker_is_asked_once(case: str) -> None:
    """By `connect`, and by a request, which would go on trying if there was any use in it."""
    reply, expected = OTHERS[case]
    with Site() as site:
        url = f"http://127.0.0.1:{site.port}"
        site.pages["/?cmd=version"] = reply
        script = """async () => {
          const states = []
          const broker = new zbus.Zbus(args[0], {onState: state => states.push(state), retries: 1})
          const found = [await caught(broker.connect())]
          found.push(await caught(broker.query()))
          found.push(await caught(broker.consume("T").next()))
          found.push(await caught(broker.watch("T")))
          return [found, states]
        }"""
        found, states = evaluate(script, url)
    expected = [str(part).replace("URL", url) if part != {} else part for part in expected]
    if expected[0] == "ok":  # this is no broker after all, and has no WebSocket
        assert found[0][:2] == expected
        assert found[1][0] == "ConnectionLost"
        return
    assert [each[:2] for each in found] == [expected] * 4
    # One attempt each; who may not look at a group may perhaps read it.
    assert states == ["lost"] * (4 if expected[0] == "Forbidden" else 3)


def test_a_broker_that_is_not_there_is_tried_as_often_as_wanted() -> None:
    script = """async () => {
      const states = []
      const options = {retries: 2, backoffMs: 1, onState: state => states.push(state)}
      const broker = new zbus.Zbus(args[0], options)
      const found = [await caught(broker.produce("T", "x")), [...states]]
      found.push(await caught(new zbus.Zbus(args[0], {timeoutMs: 100}).query()))
      return found
    }"""
    found = evaluate(script, f"http://127.0.0.1:{free_ports(1)[0]}")
    assert found == [
        ["ConnectionLost", "The broker cannot be reached.", False],
        ["lost"] * 3,
        ["Timeout", "The broker did not answer within 100 ms.", False],
    ]


def test_of_several_addresses_the_next_one_is_tried(broker: BrokerProcess) -> None:
    """When nobody is there, and when the one that answered goes. All fail: as often as wanted."""
    script = """async () => {
      const [dead, url] = args
      const net = await import("node:net")
      const open = new Set()
      const door = net.createServer(socket => {
        const inner = net.connect(new URL(url).port, "127.0.0.1")
        for (const each of [socket, inner]) open.add(each.on("error", () => {}))
        socket.pipe(inner).pipe(socket)
      })
      await new Promise(listening => door.listen(0, "127.0.0.1", listening))
      const broker = new zbus.Zbus([dead, `http://127.0.0.1:${door.address().port}`, url])
      await broker.connect()
      await broker.declare("Doors", "g", {ack: true})
      const offsets = [(await broker.produce("Doors", "a")).offset]
      const readers = [broker.consume("Doors", "g"), await broker.watch("Doors", "earliest")]
      const textOf = async each => (await each.next()).value.text
      const next = () => Promise.all(readers.map(textOf))
      const found = [await next()]
      door.close()
      for (const each of open) each.destroy()
      offsets.push((await broker.produce("Doors", "b")).offset)
      found.push(await next())
      await broker.close()
      const states = []
      const hopeless = {retries: 1, backoffMs: 1, onState: state => states.push(state)}
      found.push(await caught(new zbus.Zbus([dead, dead], hopeless).query()))
      found.push(await caught(new zbus.Zbus([dead, dead]).connect()))
      try { new zbus.Zbus([]) } catch (error) { found.push(error.message) }
      return [offsets, found, states.length]
    }"""
    dead = f"http://127.0.0.1:{free_ports(1)[0]}"
    offsets, found, attempts = evaluate(script, dead, f"http://127.0.0.1:{broker.port}")
    assert offsets == [0, 1]
    assert found[:2] == [["a", "a"], ["b", "b"]]
    assert [each[0] for each in found[2:4]] == ["ConnectionLost"] * 2
    assert found[4] == "There is no URL in the list."
    assert attempts == 4, "two rounds"


def test_tokens(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    digest = sha256(b"good").hexdigest()
    operations = '["produce", "consume", "declare", "query"]'
    entry = (
        f'name = "a"\nsha256 = "{digest}"\noperations = {operations}\n[token.topics]\n"t*" = []\n'
    )
    tokens.write_text(f"[[token]]\n{entry}")
    tokens.chmod(0o600)
    script = """async () => {
      const found = []
      for (const token of ["good", "bad", undefined]) {
        const broker = new zbus.Zbus(args[0], {token})
        found.push((await caught(broker.connect()))[0])
        found.push((await caught(broker.declare("T"))).slice(0, 1))
        found.push((await caught(broker.produce("Other", "x")))[0])
        found.push((await caught(broker.consume("T", "T", {timeoutMs: 1}).next()))[0])
        found.push((await caught(broker.watch("T").then(watch => watch.close())))[0])
      }
      return found.flat()
    }"""
    with BrokerProcess(tmp_path / "data", "--token-file", str(tokens)) as broker:
        found = evaluate(script, f"http://127.0.0.1:{broker.port}")
    assert found == ["ok", "ok", "Forbidden", "ok", "ok"] + ["Forbidden"] * 10


def test_too_much_a_second_is_sent_again_later(tmp_path: Path) -> None:
    """As `retry-after` says, and only what may be repeated."""
    script = """async () => {
      const broker = new zbus.Zbus(args[0])
      await broker.declare("T")
      const one = options => at => broker.produce("T", at, options?.(at))
      const put = options => Promise.all([0, 1, 2, 3].map(one(options)))
      const offsets = (await put()).map(each => each.offset).sort()
      const refused = await caught(put(at => ({id: `own-${at}`})))
      const {messageDepth} = await broker.query("T")
      const hurried = new zbus.Zbus(args[0], {timeoutMs: 500})
      const short = await caught(hurried.produceMany("T", ["1", "2", "3"]))
      return [offsets, refused[0], short]
    }"""
    with BrokerProcess(tmp_path / "data", "--set", "topic_messages_per_s=3") as broker:
        offsets, refused, short = evaluate(script, f"http://127.0.0.1:{broker.port}")
    assert offsets == [0, 1, 2, 3]
    assert refused == "Refused"
    assert short[0] == "Refused", "its time was over before the broker would have taken it"


def test_a_produce_over_a_connection_that_broke(broker: BrokerProcess) -> None:
    """The broker has stored it, and its answer is lost: it is sent again, and stored once. What may
    not be repeated is said to be unknown."""
    script = """async () => {
      let swallowed = -1 // from 0 on replies are lost, and with the fifth the connection
      class Losing extends WebSocket {
        set onmessage(call) {
          super.onmessage = event => {
            if (swallowed < 0) call?.(event)
            else if (++swallowed === 5) super.close((swallowed = -1, 1000))
          }
        }
      }
      const broker = new zbus.Zbus(args[0], {WebSocket: Losing})
      await broker.declare("Broken")
      swallowed = 0
      const produced = [broker.produce("Broken", "a")]
      produced.push(broker.produce("Broken", "b", {idempotencyKey: "k"}))
      produced.push(broker.produceMany("Broken", ["c", "d"]))
      produced.push(caught(broker.produce("Broken", "e", {id: "mine"})))
      const found = await Promise.all([...produced, caught(broker.call("Broken", "f"))])
      return [found.map(each => each.offset ?? each), found.map(each => each.duplicates ?? 0),
        (await broker.query("Broken")).messageDepth]
    }"""
    found, duplicates, depth = evaluate(script, f"http://127.0.0.1:{broker.port}")
    unknown = ["ConnectionLost", "The WebSocket was closed: 1000 ", True]
    assert found == [0, 1, 2, unknown, unknown]
    assert duplicates == [1, 1, 2, 0, 0]
    assert depth == 5


# -- the package --------------------------------------------------------------------------------


def test_its_version_is_that_of_the_broker() -> None:
    assert evaluate("async () => zbus.VERSION") == __version__
    package = json.loads((MODULE.parent / "package.json").read_text())
    assert (package["version"], package.get("dependencies")) == (__version__, None)


def test_every_option_is_known() -> None:
    """Names of the Python client, in camel case, lead to the broker's own."""
    source = MODULE.read_text()
    declared = {
        each.python: each.name for each in DECLARE if each.python in Declared.__annotations__
    }
    declared |= {each.python: each.name for each in PUT if each.python in Put.__annotations__}
    types = (MODULE.parent / "zbus.d.ts").read_text()

    def camel(name: str) -> str:
        return re.sub("_(.)", lambda found: found[1].upper(), name)

    words = {name for line in re.findall(r'"([a-zA-Z ]{60,})"', source) for name in line.split()}
    for python, name in declared.items():
        assert f"  {camel(python)}?: " in types, python
        if name.startswith("group_") or python in Put.__annotations__:
            assert camel(python) in words, python


def test_all_that_there_is_has_a_type() -> None:
    script = """async () => Object.entries(zbus).map(([name, value]) =>
      [name, Object.getOwnPropertyNames(value?.prototype ?? {})])"""
    types = (MODULE.parent / "zbus.d.ts").read_text()
    for name, methods in evaluate(script):
        found = re.search(
            rf"^export declare (?:class|function|const) {name}\b(.*?)^(?:\}}|export)|\Z",
            types,
            re.M | re.S,
        )
        assert found is not None, name
        for method in set(methods) - {"constructor"}:
            assert re.search(rf"\b{method}\(", found[1]), (name, method)


def test_the_types_are_those_of_typescript(tmp_path: Path) -> None:
    tsc = ROOT / "build/tsc/node_modules/.bin/tsc"
    if not tsc.exists():
        pytest.skip("tsc is not installed: `make test` brings it where there is npm")
    options = ["--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom"]
    program = tmp_path / "use.mts"
    program.write_text((FOLDER / "use.mts").read_text().replace("zbus-client", str(MODULE)))
    done = subprocess.run(
        [tsc, "--noEmit", *options, program], capture_output=True, text=True, timeout=WAIT_S
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_package_is_imported_by_name(tmp_path: Path) -> None:
    """As npm would install what is published: packed by it where it is there, else copied."""
    installed = tmp_path / "node_modules/zbus-client"
    npm = shutil.which("npm")
    if npm:
        pack = [npm, "pack", "--silent", "--pack-destination", str(tmp_path), str(MODULE.parent)]
        subprocess.run(pack, check=True, capture_output=True, timeout=WAIT_S)
        [packed] = tmp_path.glob("*.tgz")
        shutil.unpack_archive(packed, tmp_path)
        shutil.move(tmp_path / "package", installed)
        names = {path.name for path in installed.iterdir()}
        assert names == {"package.json", "zbus.js", "zbus.d.ts"}
    else:
        shutil.copytree(MODULE.parent, installed)
    program = tmp_path / "program.mjs"
    program.write_text(
        'import { VERSION } from "zbus-client"\nconsole.log(JSON.stringify(VERSION))'
    )
    assert run(program) == __version__
