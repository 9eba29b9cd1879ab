"""Where messages are: named by the planner, opened by the reader."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import attrs

from zbus.client.blocking import BlockingClient
from zbus.client.options import Options
from zbus.spark.clients import client_of, reported
from zbus.spark.errors import Usage

if TYPE_CHECKING:
    from zbus.spark.logs import Log

TRIED_S: Final = 60.0
ASKED_S: Final = 10.0
TOKEN_VARIABLE: Final = "ZBUS_TOKEN"


@attrs.frozen(kw_only=True)
class Where:
    """A broker, or a directory. It travels to other machines, so it has no secret: a token is in a
    file or in the environment (`ZBUS_TOKEN`) of each of them."""

    broker: str | None = None
    path: str | None = None
    token_file: str | None = None
    tls_ca: str | None = None
    patience_s: float = TRIED_S
    """A broker that cannot be reached is tried again for this long: it may be starting."""

    def open(self) -> Log:
        """The log. Raises Usage, Unreachable."""
        if (self.broker is None) == (self.path is None):
            raise Usage("say either broker (host:port) or path (a data directory or a backup)")
        if self.path is not None:
            from zbus.spark.source.files import FileLog

            return FileLog(self.path)
        from zbus.spark.source.remote import RemoteLog

        assert self.broker is not None
        return RemoteLog(self.broker, self.client_options())

    def impatient(self) -> Where:
        """For what is asked before work begins: a request waits for it, and a name may be wrong."""
        if self.patience_s != TRIED_S:
            return self  # it was said how long
        return attrs.evolve(self, patience_s=ASKED_S)

    def client_options(self) -> Options:
        """Of a client of this broker. It tries again by itself for as long as its patience lasts.
        Raises Usage."""
        return Options(token=self.token(), ca=self.tls_ca, timeout_s=self.patience_s, retries=1_000)

    @contextmanager
    def client(self, topic: str = "") -> Iterator[BlockingClient]:
        """For whatever else is asked of the broker, about a topic or not. Raises SparkProblem for
        all that a client raises."""
        if self.broker is None:
            raise Usage("this needs a running broker: --broker HOST:PORT")
        with reported(self, topic), client_of(self.broker, self.client_options()) as bus:
            yield bus

    def token(self) -> str | None:
        """Parameters for the broker. Raises Usage."""
        if self.token_file is None:
            return os.environ.get(TOKEN_VARIABLE) or None
        try:
            with open(self.token_file, encoding="utf-8") as file:
                return file.read().strip() or None
        except (OSError, UnicodeDecodeError) as error:
            raise Usage(f"the token file {self.token_file} cannot be read: {error}") from error

    def __str__(self) -> str:
        return self.path or self.broker or "nowhere"
