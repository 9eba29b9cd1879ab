"""What tests may ask for: the simulation, as users have it (docs/howto/simulate.md)."""

pytest_plugins = ["zbus.testing.fixtures"]
