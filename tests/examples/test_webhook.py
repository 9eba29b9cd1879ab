"""The receiver of webhooks, with a broker."""

from __future__ import annotations

from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.examples.broker_process import BrokerProcess, Program
from tests.limits import WAIT_S
from zbus.client import connect

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_orders_are_received(tmp_path: Path) -> None:
    receiver = Program("examples/webhook_receiver.py", SECRET, "0")
    try:
        url = receiver.wait_for(r"listening on (\S+)")[1]
        with pytest.raises(HTTPError, match="401"):
            urlopen(Request(url, b"forged"), timeout=WAIT_S)
        with (
            BrokerProcess(tmp_path / "data", 0, "--set", "push_networks=127.0.0.1") as broker,
            connect(broker.url) as bus,
        ):
            bus.declare("orders", "shop", push_url=url, push_secret=SECRET)
            bus.produce("orders", "two chairs")
            receiver.wait_for("order: two chairs")
            bus.produce("orders", "a table")
            receiver.wait_for("order: a table")
            group = bus.query("orders", "shop")
            assert group.push is not None
            assert (group.push.url, group.push.signed, group.push.failed) == (url, True, 0)
    finally:
        receiver.kill()
        receiver.process.wait()
