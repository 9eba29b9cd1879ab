"""What the schema of a topic costs each put, and that one without a schema pays nothing.

    python -m tests.bench.schema_cost [COMMIT] [--rounds 40]

Processor time of the broker for a put of 1 KiB of JSON, into a topic without a schema and into one
whose schema has ten fields, by turns (`tests/bench/lockstep.py`). With a commit from before there
were schemas, the plain put beside that version's, too: the median of the pairs of rounds counts.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import repeat
from pathlib import Path
from statistics import median
from typing import Final

from tests.bench.lockstep import Line, costs
from tests.bench.measure import Server, checkout, show
from tests.process.broker import BrokerProcess, request

KINDS: Final = ("string", "integer", "number", "boolean")
VALUES: Final = ("x" * 300, 4_711, 47.11, True)
NAMES: Final = [f"field{number}" for number in range(10)]
SCHEMA: Final = json.dumps(
    {
        "type": "object",
        "required": NAMES,
        "properties": {name: {"type": KINDS[n % 4]} for n, name in enumerate(NAMES)},
        "additionalProperties": False,
    }
)
BODY: Final = json.dumps({name: VALUES[n % 4] for n, name in enumerate(NAMES)}).encode()


class Put(Line):
    """A put of that body."""

    def requests(self) -> Iterator[bytes]:
        return repeat(request(f"/{self.topic}", body=BODY))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", default="")
    parser.add_argument("--rounds", type=int, default=40)
    chosen = parser.parse_args()
    plain, checked = Put("plain", "Plain", "produce"), Put("checked", "Checked", "produce")
    alone = Put("plain, one a turn", "Alone", "produce", connections=1)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zbus-schema-")))
        before = stack.enter_context(checkout(chosen.commit)) if chosen.commit else None
        servers = []
        for number, files in enumerate([None, before] if before else [None]):
            broker = BrokerProcess(folder / f"{number}", "--durability", "os", checkout=files)
            stack.enter_context(broker)
            for name in ("Plain", "Checked", "Alone"):
                assert broker.get(f"/{name}?cmd=declare").status == 200
            servers.append(Server.of(broker))
            if not number:
                target = "/Checked?cmd=declare&schema=body"
                assert broker.get(target, body=SCHEMA.encode()).status == 200
        new, old = servers[0], servers[-1]
        taken = costs(chosen.rounds, (plain, alone), lambda _: new, lambda _: old)
        for name, (now, then) in taken.items():
            pairs = [one.us / other.us for one, other in zip(now, then, strict=True)]
            least, other_us = min(now).us, min(then).us
            show(line=name, us=least, before_us=other_us, ratio=least / other_us)
            show(line=name, median_of_pairs=median(pairs))
        both = costs(chosen.rounds, (plain, checked), lambda _: new)
        us = {name: median([one.us for one in found]) for name, (found,) in both.items()}
        show(plain_us=us["plain"], checked_us=us["checked"], ratio=us["checked"] / us["plain"])


if __name__ == "__main__":
    main()
