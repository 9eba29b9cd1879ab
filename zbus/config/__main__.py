"""`python -m zbus.config` prints the reference page."""

from __future__ import annotations

import sys

from zbus.config.page import documentation

if __name__ == "__main__":
    sys.stdout.write(documentation())
