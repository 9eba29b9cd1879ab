"""What tests may ask for: the broker's simulation, as its users have it (docs/howto/simulate.md)."""

pytest_plugins = ["zbus.testing.fixtures"]
