"""An endpoint program from its settings: the database, the sockets, the keys."""

from __future__ import annotations

import os
import random
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import attrs
from anyio.abc import Listener, SocketAttribute, SocketStream

from zbus.semq.endpoint.endpoint import Endpoint, EndpointOptions, StoreError
from zbus.semq.endpoint.schema import open_file
from zbus.semq.program.encryption import Sealing, SealingError, load_keys, require
from zbus.semq.program.frames import BODY_BYTES_MAX
from zbus.semq.program.program import Outside, Program
from zbus.semq.program.sockets import Platform, server_context
from zbus.semq.protocol.words import Malformed, read_node

_PATH_BYTES_MAX: Final = 107
"""Of a Unix socket: that much room the system has for it."""

_ANYWHERE: Final = ("0.0.0.0", "::", "")


class CannotStart(Exception):
    """The program cannot begin; the text says why."""


@attrs.frozen(kw_only=True)
class Settings:
    """Options of an endpoint program."""

    database: Path
    node: str
    platform: Platform | None = None
    socket: Path
    """Where applications connect."""
    listen: tuple[str, int] | None = None
    """Where other endpoints connect directly."""
    advertise: tuple[str, ...] = ()
    """The addresses that others use, host:port each; default: those of `listen`."""
    listen_cert: Path | None = None
    """Certificate and key for TLS there, PEM."""
    certificates: Path | None = None
    """Folder with the certificates of those for whom messages are encrypted."""
    keys: tuple[Path, ...] = ()
    """Private keys of this node, each with its certificate, PEM."""
    renewed: bool = False
    """The database was restored from a backup."""
    body_bytes_max: int = BODY_BYTES_MAX
    """Of what applications and other endpoints send."""
    more: Mapping[str, Any] = attrs.field(factory=dict)
    """Options for `EndpointOptions`."""


@attrs.frozen
class Running:
    """A program that can be run, and where it listens."""

    program: Program
    direct: tuple[str, ...]


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Running]:
    """Everything that a program needs, for as long as it is needed. Raises CannotStart."""
    async with AsyncExitStack() as stack:
        try:
            read_node(settings.node)
        except Malformed as error:
            raise CannotStart(str(error)) from None
        if settings.node.startswith("0:"):
            raise CannotStart(f"{settings.node} is a platform; an endpoint is 1:, 2: or 3:")
        sealing = _sealing(settings)
        try:
            database, lock = open_file(settings.database)
        except OSError as error:
            raise CannotStart(f"{settings.database}: {error.strerror}") from None
        except StoreError as error:
            raise CannotStart(str(error)) from None
        stack.callback(os.close, lock)
        stack.callback(database.close)
        context, fingerprint = _tls(settings)
        endpoints, direct = await _listen(settings, stack)
        options = EndpointOptions(
            node=settings.node,
            listen=direct,
            fingerprint=fingerprint,
            body_bytes_max=settings.body_bytes_max,
            **settings.more,
        )
        try:
            endpoint = Endpoint(database, options, random.SystemRandom(), settings.renewed)
        except StoreError as error:
            raise CannotStart(f"{settings.database}: {error}") from None
        applications = await _listen_locally(settings.socket, stack)
        outside = Outside(
            platform=settings.platform,
            endpoints=endpoints,
            tls=context,
            applications=applications,
            body_bytes_max=settings.body_bytes_max,
        )
        yield Running(Program(endpoint, settings.node, outside, sealing), direct)


def _sealing(settings: Settings) -> Sealing:
    try:
        if settings.certificates is not None:
            require()
            if not settings.certificates.is_dir():
                raise CannotStart(f"{settings.certificates} is no folder of certificates")
        return Sealing(settings.certificates, load_keys(settings.keys))
    except SealingError as error:
        raise CannotStart(str(error)) from None


def _tls(settings: Settings) -> tuple[ssl.SSLContext | None, str]:
    if settings.listen_cert is None:
        return None, ""
    try:
        return server_context(settings.listen_cert)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        text = f"{settings.listen_cert} is no certificate with its key: {why}"
        raise CannotStart(text) from None


async def _listen(
    settings: Settings, stack: AsyncExitStack
) -> tuple[Listener[SocketStream] | None, tuple[str, ...]]:
    """For direct links, and how others reach it."""
    if settings.listen is None:
        return None, ()
    host, port = settings.listen
    if host in _ANYWHERE and not settings.advertise:
        raise CannotStart(f"others cannot connect to {host!r}: say how they reach this machine")
    try:
        listener = await anyio.create_tcp_listener(local_host=host or None, local_port=port)
    except OSError as error:
        raise CannotStart(f"cannot listen at {host}:{port}: {error.strerror}") from None
    stack.push_async_callback(listener.aclose)
    bound = listener.extra(SocketAttribute.local_port)
    shown = f"[{host}]" if ":" in host else host
    return listener, settings.advertise or (f"{shown}:{bound}",)


async def _listen_locally(path: Path, stack: AsyncExitStack) -> Listener[SocketStream]:
    """For applications. What another program has left there is removed; another program is not."""
    _check_free(path)
    try:
        listener = await anyio.create_unix_listener(path, mode=0o600)
    except OSError as error:
        raise CannotStart(f"cannot listen at {path}: {error.strerror}") from None
    stack.callback(path.unlink, missing_ok=True)
    stack.push_async_callback(listener.aclose)
    return listener


def _check_free(path: Path) -> None:
    if len(os.fsencode(path)) > _PATH_BYTES_MAX:
        text = f"the path of a Unix socket has at most {_PATH_BYTES_MAX} bytes, not {path}"
        raise CannotStart(text)
    if path.exists() and not path.is_socket():
        raise CannotStart(f"{path} is there, and is no socket")
    if _is_served(path):
        raise CannotStart(f"another program listens at {path}")


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return False
    return True
