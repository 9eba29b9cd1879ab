"""The Autobahn test suite against the broker's WebSocket, and what it found, counted.

    python -m tests.process.autobahn PATH_OF_WSTEST [case ...]

Everything but compression (12, 13), which is not offered. Ends with 1 if any case is worse than
OK or informational; NON-STRICT is worse.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

GOOD = {"OK", "INFORMATIONAL"}


def run(wstest: str, cases: list[str]) -> dict[str, str]:
    """What became of each case."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.process.echo_websocket"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        found = re.search(r"\d+", server.stdout.readline())
        assert found is not None
        with tempfile.TemporaryDirectory() as folder:
            spec = {
                "outdir": folder,
                "servers": [{"agent": "zbus", "url": f"ws://127.0.0.1:{found[0]}"}],
                "cases": cases,
                "exclude-cases": ["12.*", "13.*"],
                "exclude-agent-cases": {},
            }
            path = Path(folder) / "spec.json"
            path.write_text(json.dumps(spec))
            command = [wstest, "-m", "fuzzingclient", "-s", str(path)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            report = json.loads((Path(folder) / "index.json").read_text())["zbus"]
    finally:
        server.terminate()
        server.wait()
    return {
        case: result["behavior"] if result["behaviorClose"] in GOOD else "BAD CLOSE"
        for case, result in report.items()
    }


def main() -> int:
    results = run(sys.argv[1], sys.argv[2:] or ["*"])
    for case, behavior in results.items():
        if behavior not in GOOD:
            print(f"{case}: {behavior}")
    print(f"{len(results)} cases:", dict(Counter(results.values())))
    return 0 if set(results.values()) <= GOOD else 1


if __name__ == "__main__":
    sys.exit(main())
