"""Where a client connects next, and when. A broker may have standbys with their own addresses."""

from __future__ import annotations

from typing import Protocol

from zbus.client.options import DEFAULT_PORT, Address, Addresses, Options

HERE = Address("tcp", "127.0.0.1", DEFAULT_PORT)


class Random(Protocol):
    """As `random.Random` has it."""

    def random(self) -> float: ...
    def getrandbits(self, k: int, /) -> int: ...


class Attempts:
    """Connections that failed, in a row. All addresses are tried in turn; then comes a pause, which
    is longer each time. After `retries` rounds it is hopeless."""

    def __init__(self, options: Options, random: Random, addresses: Addresses = (HERE,)) -> None:
        self._options = options
        self._random = random
        self.addresses = addresses
        self._place = 0
        self.failures = 0
        self.retry_at_s = 0.0
        """Not before this is it to be tried."""

    @property
    def address(self) -> Address:
        """The one that is tried, or connected to."""
        return self.addresses[self._place]

    def not_made(self, error: OSError) -> str:
        """Why there is no connection."""
        return f"no connection to {self.address}: {error.strerror or error}"

    def lost(self, why: str) -> str:
        """Why there is none any more."""
        return f"lost the connection to {self.address}: {why or 'it was closed'}"

    def worked(self) -> None:
        """The broker said something."""
        self.failures = 0

    def failed(self, now_s: float) -> bool:
        """The connection was lost, or could not be made. Whether that is hopeless by now."""
        options = self._options
        places = len(self.addresses)
        self._place = (self._place + 1) % places
        self.failures += 1
        rounds, rest = divmod(self.failures - 1, places)
        hopeless = rounds >= options.retries
        if hopeless:
            self.failures, rounds = 1, 0  # who comes next begins anew, without haste
        pause_s = 0.0
        if rest == places - 1:
            pause_s = min(options.backoff_max_s, options.backoff_s * 2.0 ** min(rounds, 30))
        # Half of it is random, so that many clients do not come back at once.
        self.retry_at_s = now_s + pause_s * (0.5 + self._random.random() / 2)
        return hopeless
