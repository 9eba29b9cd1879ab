"""python -m tests.simulation: see `seeds`."""

import sys

from tests.simulation.seeds import main

# The processes of the pool import this module, too.
if __name__ == "__main__":
    sys.exit(main())
