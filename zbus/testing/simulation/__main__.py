"""python -m zbus.testing.simulation: see `seeds`."""

import sys

from zbus.testing.simulation.seeds import main

# The processes of the pool import this module, too.
if __name__ == "__main__":
    sys.exit(main())
