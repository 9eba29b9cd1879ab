"""Which shard a topic is in, as everybody computes it.

A topic is put where its *place name* says, so topics that belong together are together:

    orders, Orders                     -> orders      names are the same in any case
    cron.orders                        -> orders      its schedules
    txn.app, txn.app.rows              -> txn.app     what an application stages and decides
    semq.anything                      -> semq        the mailboxes of one platform
    orders{eu}, dead{eu}               -> eu          a text in braces, as in Redis: yours to choose

Nobody has to be asked, and nothing has to be remembered but how many shards there are.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

NODE_PROTOCOL: Final = 1
"""What nodes of a cluster speak with each other. A node speaks that of the version before, too."""


def speaks_with(protocol: int) -> bool:
    """Whether a node that speaks this and this one understand each other."""
    return protocol > 0 and abs(protocol - NODE_PROTOCOL) <= 1


def place_name(topic: str) -> str:
    """Where a topic of this name is, by a name that topics may share."""
    name = topic.lower()
    opened = name.find("{")
    closed = name.find("}", opened + 2)
    if 0 <= opened < closed:
        return name[opened + 1 : closed]
    if name.startswith("cron."):
        return name.removeprefix("cron.")
    if name.startswith("txn."):
        return name.removesuffix(".rows")
    if name == "semq" or name.startswith("semq."):
        return "semq"
    return name


def shard_of(topic: str, shards: int) -> int:
    """The number of its shard, of so many: CRC-32 of the place name's UTF-8."""
    return crc32(place_name(topic).encode("utf-8", "surrogatepass")) % shards
