"""1,000 messages a second through a page: how long is its main thread blocked?

    python -m tests.process.page_rate

A page of Chromium consumes a group with acknowledgements, and another watches the same topic, while
a client in Python produces. Each says how many messages came, the longest time between two frames
of its animation, and the longest task of its main thread (the browser tells those from 50 ms on).
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.chromium import OPTIONS, QUICK
from tests.process.broker import BrokerProcess
from tests.process.javascript.expected import FOLDER
from zbus.client import connect

RATE = 1_000
SECONDS = 10

READ = """async how => {
  const { Zbus } = await import("/_client/zbus.js")
  const broker = new Zbus()
  const watches = how === "watch"
  const reader = watches ? await broker.watch("Rate", "latest") : broker.consume("Rate", "g")
  const state = window.state = { count: 0, frameMs: 0, taskMs: 0, lateMs: 0 }
  let last = 0
  const frame = now => {
    if (last && state.count) state.frameMs = Math.max(state.frameMs, now - last)
    last = now
    requestAnimationFrame(frame)
  }
  requestAnimationFrame(frame)
  new PerformanceObserver(list => {
    for (const task of list.getEntries()) state.taskMs = Math.max(state.taskMs, task.duration)
  }).observe({ type: "longtask" })
  const read = async () => {
    for await (const message of reader) {
      state.count++
      state.lateMs = Math.max(state.lateMs, Date.now() - message.timestampMs)
      document.title = message.text
    }
  }
  read()
}"""


def begin(browser: Browser, url: str, how: str) -> Page:
    page = browser.new_context().new_page()
    page.goto(f"{url}/_pages/page.html")
    page.evaluate(READ, how)
    return page


def wait_for(page: Page, count: int) -> dict[str, Any]:
    deadline_s = time.monotonic() + 30
    while (state := page.evaluate("state"))["count"] < count and time.monotonic() < deadline_s:
        page.wait_for_timeout(100)
    return dict(state)


def main(rate: int = RATE) -> None:
    program = next(filter(None, map(shutil.which, QUICK)))
    flags = [each for each in OPTIONS if "--js-flags" not in each]  # code is compiled as for users
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        options = ("--set", f"pages={FOLDER}")
        with BrokerProcess(Path(folder) / "data", *options) as broker:
            url = f"http://127.0.0.1:{broker.port}"
            with connect(url) as bus:
                bus.declare("Rate", "g", ack=True, window=1_000)
                pages = {how: begin(browser, url, how) for how in ("consume", "watch")}
                begun_s = time.monotonic()
                each = rate // 20
                for turn in range(SECONDS * 20):
                    bus.produce_many("Rate", [f"{turn}-{at}" for at in range(each)])
                    time.sleep(max(0.0, begun_s + (turn + 1) / 20 - time.monotonic()))
                took_s = time.monotonic() - begun_s
            count = each * SECONDS * 20
            print(f"{count / took_s:,.0f} messages a second were produced")
            for how, page in pages.items():
                found = wait_for(page, count)
                print(
                    f"{how}: {found['count']:,} of {count:,} messages, at most {found['lateMs']} ms"
                    f" old; longest frame {found['frameMs']:.0f} ms, longest task"
                    f" {found['taskMs'] or '< 50'} ms"
                )
        browser.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
