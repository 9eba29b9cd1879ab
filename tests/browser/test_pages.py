"""Pages of the operator's own under `/_pages/`, and one out of a file, in a browser."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.process.broker import BrokerProcess

HTML = """<!doctype html><link rel="icon" href="data:,"><title>page</title>
<script src="client.js"></script><script src="main.js"></script>
<script>document.title = 'a script in the page ran'</script><p id="shown">nothing yet</p>"""

# As the original's zbus.js does it: each frame is one HTTP message, sent as bytes.
CLIENT = """
function ask(url, headers, body) {
  return new Promise((done, failed) => {
    const socket = new WebSocket(url)
    socket.binaryType = 'arraybuffer'
    socket.onerror = () => failed(new Error('refused'))
    socket.onopen = () => {
      const bytes = new TextEncoder().encode(body || '')
      const lines = Object.entries({...headers, 'content-length': bytes.length})
      const head = lines.map(([name, value]) => `${name}: ${value}\\r\\n`).join('')
      socket.send(new TextEncoder().encode(`GET / HTTP/1.1\\r\\n${head}\\r\\n${body || ''}`))
    }
    socket.onmessage = event => {
      socket.close()
      done(typeof event.data === 'string' ? event.data : new TextDecoder().decode(event.data))
    }
  })
}
"""

MAIN = """
async function main() {
  const socket = location.origin.replace('http', 'ws') + '/'
  await ask(socket, {cmd: 'declare', topic: 'P', id: 1})
  await ask(socket, {cmd: 'produce', topic: 'P', id: 2}, 'over a socket')
  const delivery = await ask(socket, {cmd: 'consume', topic: 'P', id: 3})
  const put = await fetch('/P', {method: 'POST', body: 'over fetch'})
  const taken = await fetch('/P?cmd=consume&timeout=5000')
  document.getElementById('shown').textContent = [
    delivery.startsWith('HTTP/1.1 200 '), delivery.endsWith('over a socket'),
    put.status, await taken.text(),
  ].join(' ')
}
addEventListener('load', () => main().catch(error => document.title = `${error}`))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "pages"
    (folder / "app").mkdir(parents=True)
    (folder / "app/index.html").write_text(HTML)
    (folder / "app/client.js").write_text(CLIENT)
    (folder / "app/main.js").write_text(MAIN)
    return folder


def test_a_page_of_ones_own_uses_the_broker(page: Page, folder: Path, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", "--set", f"pages={folder}") as broker:
        page.goto(f"http://127.0.0.1:{broker.port}/_pages/app")
        shown = page.locator("#shown")
        expect(shown).to_have_text("true true 200 over fetch", timeout=60_000)
        assert page.title() == "page", "and a script that stands in the page does not run"
        (folder / "app/main.js").write_text("addEventListener('load', () => shown.append(', new'))")
        os.kill(broker.process.pid, signal.SIGHUP)
        answer = broker.get("/_pages/app/main.js")
        for _ in range(1_000):
            if b", new" in answer.body:
                break
            answer = broker.get("/_pages/app/main.js")
        page.reload()
        expect(shown).to_have_text("nothing yet, new")  # and not what the browser remembers


OUT_OF_A_FILE = """async broker => {
  const outcomes = []
  try {
    const reply = await fetch(broker + '/F', {method: 'POST', body: 'x', headers: {tag: 'a'}})
    outcomes.push(reply.status)
  } catch (error) { outcomes.push('refused') }
  outcomes.push(await new Promise(done => {
    const socket = new WebSocket(broker.replace('http', 'ws') + '/')
    socket.onerror = () => done('refused')
    socket.onopen = () => socket.send(JSON.stringify({cmd: 'version', id: 7}))
    socket.onmessage = frame => done(JSON.parse(frame.data).status)
  }))
  return outcomes
}"""


@pytest.mark.parametrize(
    ("options", "outcomes"),
    [(("--set", "cors_origins=null"), [200, 200]), ((), ["refused", "refused"])],
    ids=["listed", "not listed"],
)
def test_a_page_out_of_a_file(
    page: Page, tmp_path: Path, options: tuple[str, ...], outcomes: list[object]
) -> None:
    file = tmp_path / "page.html"
    file.write_text("<!doctype html><title>file</title>")
    with BrokerProcess(tmp_path / "data", *options) as broker:
        assert broker.get("/F?cmd=declare").status == 200
        page.goto(file.as_uri())
        assert page.evaluate(OUT_OF_A_FILE, f"http://127.0.0.1:{broker.port}") == outcomes
