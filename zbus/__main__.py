"""`python -m zbus` is the command `zbus`."""

from zbus.cli import main

if __name__ == "__main__":
    main(prog_name="zbus")
