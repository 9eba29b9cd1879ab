"""Plans: exactly which dead letters are sent back or dropped, written down before it is done.

A plan is a file of JSON. It names each message by partition, offset and id, and says where it
goes. Its *token* is a hash of all that, and applying it needs the token: another plan, or
this one changed by hand, has another token. The token also names the transaction,
so a plan that is applied again after a crash does nothing twice.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from zbus.spark.errors import Usage

MESSAGES_MAX: Final = 100_000
"""Of one plan."""

REDRIVES_MAX: Final = 3
"""How often a message is sent back, if nothing else is said."""

Action = Literal["redrive", "drop"]


class Letter(NamedTuple):
    """A dead letter, as far as a plan goes."""

    partition: int
    offset: int
    id: str
    origin: str | None
    redrives: int


class Entry(NamedTuple):
    """What becomes of one."""

    partition: int
    offset: int
    id: str
    target: str | None  # None: it is dropped
    redrives: int  # with this time


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """It is kept as JSON, with its token."""

    v: Literal[1] = 1
    action: Action
    topic: str
    group: str  # of the dead-letter topic: there the messages are done then
    incarnations: tuple[str, ...]  # of the topic, by partition
    entries: tuple[Entry, ...]
    where: str | None = None  # which were asked for
    audit: str | None = None  # the topic of the audit trail
    left: dict[str, int] = {}  # how many stay, by why
    made_ms: int = 0

    @property
    def token(self) -> str:
        """What confirms it."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:16]

    def text(self) -> str:
        """As it is in a file: a line for each message."""
        document = {**msgspec.structs.asdict(self), "token": self.token}
        entries = document.pop("entries")
        head = msgspec.json.format(msgspec.json.encode(document), indent=1).decode()
        lines = ",\n  ".join(msgspec.json.encode(entry).decode() for entry in entries)
        return f'{head[:-2]},\n "entries": [\n  {lines}\n ]\n}}\n'

    def targets(self) -> Counter[str]:
        """How many go where."""
        return Counter(entry.target for entry in self.entries if entry.target is not None)


def choose(
    found: Iterable[Letter],
    action: Action,
    *,
    open_offsets: Mapping[int, set[int]],
    to: str | None = None,
    count_max: int = MESSAGES_MAX,
    redrives_max: int = REDRIVES_MAX,
) -> tuple[tuple[Entry, ...], dict[str, int]]:
    """What is in a plan, and how many are not, by why. In order of partition and offset."""
    entries: list[Entry] = []
    left: Counter[str] = Counter()
    for letter in sorted(found):
        why = _why_not(letter, action, open_offsets, to, redrives_max)
        if why is None and len(entries) >= count_max:
            why = "more than --max"
        if why is not None:
            left[why] += 1
            continue
        target = None if action == "drop" else (to or letter.origin)
        redrives = letter.redrives + (action == "redrive")
        entries.append(Entry(letter.partition, letter.offset, letter.id, target, redrives))
    return tuple(entries), dict(sorted(left.items()))


def _why_not(
    letter: Letter,
    action: Action,
    open_offsets: Mapping[int, set[int]],
    to: str | None,
    redrives_max: int,
) -> str | None:
    if letter.offset not in open_offsets.get(letter.partition, ()):
        return "done already, or with a consumer"
    if action == "redrive" and letter.redrives >= redrives_max:
        return f"sent back {redrives_max} times or more"
    if action == "redrive" and to is None and not letter.origin:
        return "no origin: give --to TOPIC"
    return None


def write(plan: Plan, path: Path) -> None:
    """Into a new file. Raises Usage."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(plan.text())
    except FileExistsError:
        raise Usage(f"the plan file {path} exists already: name another one") from None
    except OSError as error:
        raise Usage(f"the plan file {path} cannot be written: {error}") from error


def read(path: Path) -> Plan:
    """Raises Usage; also if the file was changed since."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(f"the plan file {path} cannot be read: {error}") from error
    return parse(text, str(path))


def parse(text: str, name: str = "the plan") -> Plan:
    """The same, of its text."""
    try:
        written = msgspec.json.decode(text, type=_Written)
    except msgspec.MsgspecError as error:
        raise Usage(f"{name} is no plan of zbus spark dlq: {error}") from error
    plan = Plan(**{field: getattr(written, field) for field in Plan.__struct_fields__})
    if plan.token != written.said:
        raise Usage(f"{name} was changed after it was made: make a new plan")
    return plan


class _Written(Plan, frozen=True, kw_only=True):
    """A plan in a file."""

    said: str = msgspec.field(name="token")


def confirm(plan: Plan, token: str) -> None:
    """Raises Usage if the token is that of another plan."""
    if token != plan.token:
        raise Usage(f"the token of this plan is {plan.token}, not {token}: look at the plan again")


def ranges(offsets: Iterable[int]) -> str:
    """`3,5-9,12`, of offsets in order."""
    runs: list[list[int]] = []
    for offset in offsets:
        if runs and offset == runs[-1][1] + 1:
            runs[-1][1] = offset
        else:
            runs.append([offset, offset])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def offsets_of(entries: Iterable[Entry]) -> dict[int, list[int]]:
    """In order, by partition."""
    found: dict[int, list[int]] = {}
    for entry in entries:
        found.setdefault(entry.partition, []).append(entry.offset)
    return found


def report(plan: Plan, at_ms: int) -> dict[str, Any]:
    """A record for the audit topic."""
    return {
        "action": plan.action,
        "token": plan.token,
        "topic": plan.topic,
        "group": plan.group,
        "count": len(plan.entries),
        "targets": dict(sorted(plan.targets().items())),
        "where": plan.where,
        "planned_ms": plan.made_ms,
        "applied_ms": at_ms,
        "offsets": {str(index): ranges(found) for index, found in offsets_of(plan.entries).items()},
    }
