"""Every option of a broker, where its value comes from, and the page about them.

The reference page `docs/reference/configuration.md` is printed from here
(`python -m zbus.config`), and `zbus serve` makes its options from here. A value comes from, each
overriding the one before: the default, a TOML file, the environment (`ZBUS_PORT`), the command
line. A broker never starts with an option that it did not understand: unknown names and bad
values are a `ConfigError` that says where the value came from.

An option is declared by the part that uses it, beside the field that holds it: `wire`, `core`, a
dialect, the server. This package collects them; of the layers nothing but `server.serve` imports
it. The others are given plain values, so that one process can hold brokers with different limits.
"""

from zbus.config.options import OPTIONS, Config, ConfigError, Option
from zbus.config.page import INTRODUCTION, documentation
from zbus.config.sources import ENVIRONMENT_PREFIX, OTHER_VARIABLES, load

__all__ = [
    "ENVIRONMENT_PREFIX",
    "INTRODUCTION",
    "OPTIONS",
    "OTHER_VARIABLES",
    "Config",
    "ConfigError",
    "Option",
    "documentation",
    "load",
]
