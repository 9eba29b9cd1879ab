"""Clients that Node brings: `fetch`, `WebSocket` and `EventSource`. They are no browsers: they say
`Sec-Fetch-Mode`, and neither a site nor an origin."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import playwright
import pytest

from tests.process.broker import BrokerProcess

# Playwright, which drives the browser tests, brings a Node of its own: no other need be there.
NODE = Path(playwright.__file__).parent / "driver/node"
OPTIONS = ("--no-warnings", "--experimental-websocket", "--experimental-eventsource")
TIMEOUT_S = 60

FETCH = """
const put = await fetch(`${broker}/T`, {method: 'POST', body: 'from node'})
const taken = await fetch(`${broker}/T?cmd=consume&timeout=5000`)
const named = await fetch(broker, {headers: {cmd: 'query', topic: 'T'}})
return [put.status, taken.status, await taken.text(), named.status]
"""

SOCKET = """
const socket = new WebSocket(broker.replace('http', 'ws'))
return await new Promise((done, failed) => {
  socket.onerror = event => failed(new Error(event.message))
  socket.onopen = () => socket.send(JSON.stringify({cmd: 'version', id: 7}))
  socket.onmessage = frame => { socket.close(); done([JSON.parse(frame.data).status]) }
})
"""

EVENTS = """
await fetch(`${broker}/T`, {method: 'POST', body: 'an event'})
const source = new EventSource(`${broker}/T?cmd=consume&offset=0`)
return await new Promise((done, failed) => {
  source.onerror = () => failed(new Error('refused'))
  source.onmessage = event => { source.close(); done([event.data]) }
})
"""


@pytest.mark.parametrize(
    ("script", "outcome"),
    [(FETCH, [200, 200, "from node", 200]), (SOCKET, [200]), (EVENTS, ["an event"])],
    ids=["fetch", "websocket", "eventsource"],
)
def test_a_client_of_node(script: str, outcome: list[object], tmp_path: Path) -> None:
    program = tmp_path / "client.mjs"
    program.write_text(
        f"const broker = process.argv[2]\n"
        f"const run = async () => {{ {script} }}\n"
        f"console.log(JSON.stringify(await run()))\n"
        f"process.exit(0)\n"
    )
    with BrokerProcess(tmp_path / "data") as broker:
        assert broker.get("/T?cmd=declare").status == 200
        command = [str(NODE), *OPTIONS, str(program), f"http://127.0.0.1:{broker.port}"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == outcome
