"""What tests may ask for: the simulation, as users have it (docs/howto/simulate.md)."""

import gc

pytest_plugins = ["zbus.testing.fixtures"]


def pytest_collection_finish() -> None:
    """Eight thousand tests are a million objects that stay: no collection goes through them."""
    gc.collect()
    gc.freeze()
