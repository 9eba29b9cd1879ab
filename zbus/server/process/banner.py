"""What a broker says when it is ready: where it is, and what to try."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

from zbus import __version__
from zbus.config import Config
from zbus.server.loop.addresses import Address
from zbus.server.process.engines import Engine


def banner(
    config: Config, engine: Engine, addresses: Sequence[Address], advertised: str, topics: int
) -> str:
    """Some lines for a person."""
    first, *others = addresses
    if first.kind == "unix":
        url, base, options = str(first), "http://localhost", f"--unix-socket {quote(first.path)} "
        console = ""
    else:
        url = base = f"{'https' if first.tls else 'http'}://{advertised}"
        options = f"--cacert {quote(config.tls_cert_file)} " if first.tls else ""
        console = f"  console         {url}/_console/\n"
    more = "".join(f"  and             {address}\n" for address in others)
    tokens = ""
    if config.token_file:
        tokens = f"  tokens          {config.token_file}\n"
        options += "-H 'token: <token>' "
    return (
        f"zbus {__version__} serves {url}\n{more}"
        f"  {'data directory' if config.engine == 'files' else 'engine        '}  {engine.where}\n"
        f"  durability      {engine.durability or config.durability}\n"
        f"  topics          {topics}\n{console}{tokens}"
        f"try: curl {options}'{base}/MyTopic?cmd=declare'"
    )
