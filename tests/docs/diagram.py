"""The life-cycle diagram of the architecture page, drawn from the table in the code.

python -m tests.docs.diagram
"""

from __future__ import annotations

from zbus.core.model.message_state import TRANSITIONS, MessageState

BEGINNING = MessageState.READY


def diagram() -> str:
    """A mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {BEGINNING.name}: put"]
    lines += [
        f"    {before.name} --> {after.name}: {step}"
        for (before, step), after in TRANSITIONS.items()
    ]
    left = {
        before for before, step in TRANSITIONS if step != "again"
    }  # what is over may begin anew
    lines += [f"    {life.name} --> [*]" for life in MessageState if life not in left]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(diagram(), end="")
