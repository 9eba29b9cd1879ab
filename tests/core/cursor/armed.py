"""Every move of a message is held against the table of its life."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from zbus.core.cursor.backlog import Backlog
from zbus.core.model.message_state import TRANSITIONS, MessageState

MOVERS: dict[str, tuple[str, ...]] = {
    name: method.steps for name, method in vars(Backlog).items() if hasattr(method, "steps")
}

_FINISHED = {MessageState.DONE, MessageState.DEAD, MessageState.DELETED}
"""Which of them it is, a backlog does not tell."""


def rows(steps: tuple[str, ...]) -> set[tuple[MessageState, MessageState]]:
    """From where to where these steps lead, as far as a backlog tells states apart."""
    found = {(before, after) for (before, step), after in TRANSITIONS.items() if step in steps}
    return {
        tuple(MessageState.DONE if one in _FINISHED else one for one in row)  # type: ignore[misc]
        for row in found
    }


def armed(name: str) -> Callable[..., Any]:
    """The method, which fails where it moves a message by no step that it says it takes."""
    method, allowed = getattr(Backlog, name), rows(MOVERS[name])

    @functools.wraps(method)
    def move(self: Backlog, *args: Any) -> Any:
        offset = self.cursor if name == "lease_next" else args[0]
        before = self.life(offset)
        result = method(self, *args)
        after = self.life(offset)
        assert before is after or (before, after) in allowed, f"{name}: {before} to {after}"
        return result

    return move


class ArmedBacklog(Backlog):
    """Fails where a method takes a step that it does not say."""

    __slots__ = ()


for _name in MOVERS:
    setattr(ArmedBacklog, _name, armed(_name))


@contextmanager
def all_armed() -> Iterator[None]:
    """All backlogs of this process are such, as long as this lasts."""
    methods = {name: getattr(Backlog, name) for name in MOVERS}
    for name in MOVERS:
        setattr(Backlog, name, armed(name))
    try:
        yield
    finally:
        for name, method in methods.items():
            setattr(Backlog, name, method)
