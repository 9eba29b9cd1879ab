"""What each of the scenarios in `scenarios.mjs` returns, in Node and in a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tests.limits import WHOLE

FOLDER: Final = Path(__file__).parent
MODULE: Final = Path(__file__).parents[3] / "zbus/javascript/zbus.js"

LIMITS: Final = ("--set", "body_bytes_max=262144", "--set", "message_bytes_max=131072")
"""Of the broker."""

_URL: Final = (
    "TypeError: The URL of a broker is http://host:port or https://host:port;"
    " give a token as {token}."
)

EXPECTED: Final[dict[str, Any]] = {
    "bodies": [
        ["", [], ""],
        ["hällo", [104, 195, 164], ""],
        ['{"a":[1,null]}', [123, 34, 97], "application/json"],
        ["7", [55], "application/json"],
        ["false", [102, 97, 108], "application/json"],
        ["?\u0000", [255, 0], ""],
        ["\u0002\u0003", [2, 3], ""],
    ],
    "labels": [
        [[0, 1, 0, "disk"], [1, 3, 0, "disk"]],
        [
            ["mine", "a%43.1", "k", "ü", "", "text/html", 0],
            ["0-1", "a%43.2", "", "", "", "", 0],
            ["0-2", "a%43.3", "q", "", "", "application/json", 0],
            ["0-3", "a%43.2", "", "", "", "", 0],
        ],
    ],
    "urgent": [["of its own", "9"], ["batch", "5"], ["first", "1"]],
    "schemas": [1, "Refused", True, 1],
    "delays": [["at", True], ["later", True], ["now", True]],
    "settling": [
        ["a0", "b0", "c0", "a1", "a2"],
        0,
        ["a"],
        {"messageCount": 0, "leasedCount": 0, "deadCount": 1},
    ],
    "breaking": ["b1", "c1", "d1"],
    "watching": [
        *["new\r\nline\n", "", "old", "new\r\nline\n", "old", True],
        ["NotFound", "Topic(Watching) Not Found"],
        ["NotFound", "Topic(Nothing) Not Found"],
    ],
    "closing": ["Closing%41", "x", 6, 0, 1],
    "calling": [
        *["slow", 3, -1, 15, [255], None],
        ["RpcError", "not today"],
        ["RpcError", "absent method not found"],
        ["RpcError", "constructor method not found"],
        ["RpcError", "toString method not found"],
        ["Refused", "no service answered this call in time"],
        ["NotFound", "Topic(Absent) Not Found"],
        ["ConnectionLost", "This client is closed."],
    ],
    "mistakes": [
        *[_URL, _URL, _URL],
        "TypeError: There is no option 'tokn'.",
        "TypeError: There is no WebSocket here: start Node 20 with --experimental-websocket,"
        " or give {WebSocket}.",
        "TypeError: produce has no option 'dealy'.",
        'TypeError: This cannot be a header line: "tag: a\\r\\ncontent-length: 0"',
        'TypeError: This cannot be a header line: "zbus-header-a b: 1"',
        "Refused: Bad Format, the batch is empty",
        "Refused: Bad Format, zbus-header-a is more than one line",
        "Refused: Bad Format, idempotency-key is 1 to 255 visible ASCII characters,"
        " perhaps in double quotes",
        "TypeError: Do not know how to serialize a BigInt",
        "Refused: Bad Format, unknown parameter 'dealy'",
        "Refused: a message body has at most 131072 bytes",
        "Refused: The WebSocket was closed: 1009 a message has at most 278532 bytes",
        "NotFound: ConsumeGroup(absent) Not Found",
        "Refused: Bad format: command(nonsense) not support",
        200,
    ],
}

KILLS: Final = range(100, 3_000 if WHOLE else 400, 200)
"""The broker is killed when so many messages were consumed."""

COUNT: Final = KILLS[-1] + 200

AFTER_KILLS: Final = {
    "consumed": True,
    "watched": True,
    "messageDepth": COUNT,
    "messageCount": 0,
    "leasedCount": 0,
    "states": ["lost", "open"],
}
