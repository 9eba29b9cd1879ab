"""The command `zbus`, and `python -m zbus`."""

import gc
import signal
import sys


def main() -> None:
    """Run it."""
    if sys.argv[1:2] == ["serve"]:
        # A broker loads files again at SIGHUP. While it is only being imported there is nothing to
        # load again, yet the signal would end the process: so it is deaf from the first moment.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        gc.disable()  # until it has opened: imports make much and drop nothing, and so does opening
    from zbus.cli import main as zbus  # this takes the while

    zbus(prog_name="zbus")


if __name__ == "__main__":
    main()
