"""What the disk does wrong, and when."""

from __future__ import annotations

from zbus.testing.disk import Operation


class PowerCut(BaseException):
    """Raised by a fault of the disk: everything stops in the middle of what it was doing.

    No `Exception`, so that nothing on the way takes it for an error that can be dealt with.
    """


class Faults:
    """What the disk does wrong, and when: at a number of operations from now on."""

    def __init__(self, kind: str, names: tuple[str, ...], after: int, how: str = "") -> None:
        self.kind = kind
        self._how = how
        self._names = names
        self._after = after
        self.met = False

    def __call__(self, operation: Operation) -> None:
        if self._names and operation.name not in self._names:
            return
        self._after -= 1
        if self._after == 0:
            self.met = True
            if self.kind == "power":
                # A sync in which a process is killed is a sync that ends, or never began.
                raise PowerCut("cut" if operation.name.startswith("sync") else self._how)
            raise OSError(5, f"simulated failure of {operation.name}")
