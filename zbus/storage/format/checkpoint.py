"""The payload of STATE and CHECKPOINT batches: a `StateChange` as bytes.

What people may want to read in an emergency is JSON; what there may be millions of is vectors.

    +-----+---------------------------+------+---------------------------------------------+
    | u32 | JSON                      | zero | for each group, in JSON order, its entries:  |
    | len | {"topic": {...},          | pad  |   offsets u64[n] | times ms u64[n]           |
    |     |  "groups": [{...}, ...],  |      |   ranks i64[n]   | attempts u32[n], padded   |
    |     |  "first": n,              |      |   states u8[n], padded                       |
    |     |  "originals": n}          |      | and what it has delayed:                     |
    |     |                           |      |   pages u64[p] | counts u64[p] | keys u64[n] |
    |     |                           |      | and what became of messages in it:           |
    |     |                           |      |   offsets u64[n] | times ms u64[n]           |
    |     |                           |      |   attempts u32[n], padded                    |
    |     |                           |      |   fates u8[n], padded                        |
    |     |                           |      | then of the originals, the oldest first:     |
    |     |                           |      |   names u8[16][n] | offsets u64[n]           |
    |     |                           |      |   times ms u64[n] | digests u64[n]           |
    |     |                           |      |   counts u32[n], padded                      |
    |     |                           |      | then of the ids that are taken:              |
    |     |                           |      |   names u8[16][n] | offsets u64[n]           |
    |     |                           |      | then of what expires, as of what is delayed: |
    |     |                           |      |   pages u64[p] | counts u64[p] | keys u64[n] |
    +-----+---------------------------+------+---------------------------------------------+

Every part starts at a multiple of 8 bytes from the payload's start. In the JSON a value that is
its default is left out, `entries` is the number of a group's entries, `delayed` and `pages` those
of its delayed messages and their pages, `fates` of those that it remembers as finished,
`originals`, `ids` and `expiries` how many of those follow, and unknown keys are ignored, so that an
older program can read what a newer one has added there. Vectors that it does not know it refuses:
it would lose what they hold.

What is delayed and was never delivered has no entry but a key: due time (epoch milliseconds) times
256 plus the low byte of its offset. A page is all offsets that are equal but for that byte; it is
given as that number, `offset // 256`, with the count of its keys. Pages are in ascending order, and
so are the keys of each. That is how `zbus.core.timing.delays` has them in memory, so ten million of
them are written and read in a part of a second.
"""

from __future__ import annotations

import struct
from typing import Annotated, Any, TypeAlias, TypeVar, cast

import attrs
import msgspec

from zbus.core.cursor.state import (
    NO_ENTRIES,
    Completion,
    GroupChange,
    GroupOptions,
    Origin,
    StateChange,
    TopicOptions,
)
from zbus.core.dedup.entries import NO_IDS, Original
from zbus.core.model.dispositions import NO_ENDINGS
from zbus.core.timing.delays import NOTHING
from zbus.storage.errors import JournalDamage
from zbus.storage.format.vectors import (
    PADDING,
    Part,
    decode_delayed,
    decode_endings,
    decode_entries,
    decode_ids,
    decode_originals,
    encode_delayed,
    encode_endings,
    encode_entries,
    encode_ids,
    encode_originals,
)

_LENGTH = struct.Struct("<I")

_Natural = Annotated[int, msgspec.Meta(ge=0)]
_to_json = msgspec.json.Encoder().encode


_Options = TypeVar("_Options", TopicOptions, GroupOptions)

_Fields: TypeAlias = dict[str, Any]
"""Of options, by their names in the format."""

_NAMES = {
    "opaque": "mask",
    "calls": "rpc",
    "temporary": "delete_on_exit",
    "minimal_headers": "bare",
}
"""Fields that the format calls otherwise than the program does today."""

_TOPIC, _GROUP = (
    {_NAMES.get(field.name, field.name): field.name for field in attrs.fields(kind)}
    for kind in (TopicOptions, GroupOptions)
)


class _StoredGroup(msgspec.Struct, omit_defaults=True):
    name: str
    cursor: _Natural = 0
    options: _Fields | None = None
    removed: bool = False
    reset: bool = False
    entries: _Natural = 0
    delayed: _Natural = 0
    pages: _Natural = 0
    fates: _Natural = 0
    skipped: _Natural = 0
    untold: _Natural = 0
    dead: _Natural = 0
    incarnation: _Natural = 0
    origin: Origin | None = None


class _StoredCompletion(msgspec.Struct, array_like=True):
    number: _Natural
    end: _Natural
    topic: str
    topic_ms: _Natural
    group: str
    group_ms: _Natural
    partition: _Natural
    ranges: tuple[tuple[_Natural, _Natural], ...]
    dead: bool = False
    due_ms: _Natural = 0
    attempts: _Natural = 0


class _StoredChange(msgspec.Struct, omit_defaults=True):
    topic: _Fields | None = None
    groups: tuple[_StoredGroup, ...] = ()
    first: _Natural = 0
    originals: _Natural = 0
    ids: _Natural = 0
    expiries: _Natural = 0
    expiry_pages: _Natural = 0
    incarnation: str = ""
    number: _Natural = 0
    emptied: tuple[_Natural, ...] = ()
    purges: tuple[tuple[_Natural, _Natural], ...] = ()
    completions: tuple[_StoredCompletion, ...] = msgspec.field(default=(), name="settlements")
    completed: tuple[_Natural, ...] = msgspec.field(default=(), name="settled")


class _StoredName(msgspec.Struct):
    name: str


class _StoredTopic(msgspec.Struct):
    topic: _StoredName | None = None


_Json = TypeVar("_Json", _StoredChange, _StoredTopic)

_changes = msgspec.json.Decoder(_StoredChange)
_topics = msgspec.json.Decoder(_StoredTopic)


def encode_change(change: StateChange) -> bytes:
    """Make the payload of a STATE or CHECKPOINT batch."""
    vectors = change.originals or change.ids or change.expiries
    more = change.first or vectors or change.completions or change.completed
    if change.topic is None and len(change.groups) == 1 and not more:
        group = change.groups[0]
        rest = group.removed or group.reset or group.entries or group.delayed or group.fates
        if group.options is None and not (rest or group.skipped or group.dead):
            return _encode_cursor(group)
    return _encode_any(change)


def _encode_cursor(group: GroupChange) -> bytes:
    """Do what `_encode_any` does, for what nearly every tick has: one group went on."""
    cursor = b',"cursor":%d' % group.cursor if group.cursor else b""
    if group.incarnation:
        cursor += b',"incarnation":%d' % group.incarnation
    text = b'{"groups":[{"name":%b%b}]}' % (_to_json(group.name), cursor)
    length = len(text)
    return b"%b%b%b" % (_LENGTH.pack(length), text, PADDING[length + 4 & 7])


def _encode_any(change: StateChange) -> bytes:
    text = _to_json(
        _StoredChange(
            None if change.topic is None else _options_fields(change.topic),
            tuple(map(_stored_group, change.groups)),
            change.first,
            len(change.originals),
            len(change.ids),
            len(change.expiries),
            len(change.expiries.pages),
            change.incarnation,
            change.number,
            change.emptied,
            change.purges,
            tuple([_StoredCompletion(*attrs.astuple(one)) for one in change.completions]),
            change.completed,
        )
    )
    parts: list[Part] = [_LENGTH.pack(len(text)), text, PADDING[len(text) + 4 & 7]]
    for group in change.groups:
        if group.entries:
            parts += encode_entries(group.entries)
        if group.delayed:
            parts += encode_delayed(group.delayed)
        if group.fates:
            parts += encode_endings(group.fates)
    if change.originals:
        parts += encode_originals(change.originals)
    if change.ids:
        parts += encode_ids(change.ids)
    if change.expiries:
        parts += encode_delayed(change.expiries)
    return b"".join(parts)


def _options_fields(options: TopicOptions | GroupOptions) -> _Fields:
    stored = {_NAMES.get(name, name): value for name, value in _unlike_default(options).items()}
    if options.opaque:
        stored["mask"] = msgspec.json.decode(options.opaque)  # it has to be JSON
    return stored


def _unlike_default(options: TopicOptions | GroupOptions | Origin) -> _Fields:
    return {
        field.name: value
        for field in attrs.fields(type(options))
        if (value := getattr(options, field.name)) != field.default
    }


def _stored_group(group: GroupChange) -> _StoredGroup:
    return _StoredGroup(
        group.name,
        group.cursor,
        None if group.options is None else _options_fields(group.options),
        group.removed,
        group.reset,
        len(group.entries),
        len(group.delayed),
        len(group.delayed.pages),
        len(group.fates),
        group.skipped,
        group.unreported,
        group.dead,
        group.incarnation,
        # Without what is its default: it is a `_Fields` when it is written.
        None if group.origin is None else cast(Origin, _origin(group.origin)),
    )


def _origin(origin: Origin) -> dict[str, Any]:
    stored = _unlike_default(origin)
    if origin.before is not None:
        stored["before"] = _origin(origin.before)
    return stored


def decode_change(payload: bytes | memoryview) -> StateChange:
    """Read a payload. Its checksum may be right and its content still wrong: all is checked."""
    payload = memoryview(payload)  # it may be large, and its parts are looked at without a copy
    stored, at = _read_json(payload, _changes)
    groups = []
    for group in stored.groups:
        entries = NO_ENTRIES
        if group.entries:
            entries, at = decode_entries(payload, at, group.entries)
        delayed = NOTHING
        if group.delayed or group.pages:
            delayed, at = decode_delayed(payload, at, group.pages, group.delayed)
        fates = NO_ENDINGS
        if group.fates:
            fates, at = decode_endings(payload, at, group.fates)
        groups.append(
            GroupChange(
                name=group.name,
                cursor=group.cursor,
                options=_group_options(group.options),
                removed=group.removed,
                reset=group.reset,
                entries=entries,
                delayed=delayed,
                skipped=group.skipped,
                unreported=group.untold,
                dead=group.dead,
                incarnation=group.incarnation,
                origin=group.origin,
                fates=fates,
            )
        )
    originals: tuple[Original, ...] = ()
    if stored.originals:
        originals, at = decode_originals(payload, at, stored.originals)
    ids = NO_IDS
    if stored.ids:
        ids, at = decode_ids(payload, at, stored.ids)
    expiries = NOTHING
    if stored.expiries or stored.expiry_pages:
        expiries, at = decode_delayed(payload, at, stored.expiry_pages, stored.expiries)
    if at != len(payload):
        raise JournalDamage(f"state: {len(payload) - at} bytes more than it says it has")
    return StateChange(
        _topic_options(stored.topic),
        tuple(groups),
        stored.first,
        originals,
        ids,
        expiries,
        stored.incarnation,
        stored.number,
        stored.emptied,
        stored.purges,
        tuple([Completion(*msgspec.structs.astuple(one)) for one in stored.completions]),
        stored.completed,
    )


def topic_name(payload: bytes | memoryview) -> str | None:
    """Give only the name of the topic, for the sake of huge checkpoints."""
    topic = _read_json(payload, _topics)[0].topic
    return None if topic is None else topic.name


def _topic_options(stored: _Fields | None) -> TopicOptions | None:
    return None if stored is None else _known(stored, _TOPIC, TopicOptions)


def _group_options(stored: _Fields | None) -> GroupOptions | None:
    return None if stored is None else _known(stored, _GROUP, GroupOptions)


def _known(stored: _Fields, names: dict[str, str], kind: type[_Options]) -> _Options:
    """Make options of what is stored, by the names that the program has for it."""
    fields = {names[name]: value for name, value in stored.items() if name in names}
    if "opaque" in fields:
        fields["opaque"] = _to_json(fields["opaque"])
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise JournalDamage(f"state: {error}") from error


def _read_json(
    payload: bytes | memoryview, decoder: msgspec.json.Decoder[_Json]
) -> tuple[_Json, int]:
    """Give the JSON part and the position after it."""
    if len(payload) < 4:
        raise JournalDamage("state: payload is cut short")
    stop = 4 + _LENGTH.unpack_from(payload)[0]
    after = stop + 7 & ~7
    if after > len(payload):
        raise JournalDamage("state: JSON is longer than the payload")
    try:
        return decoder.decode(memoryview(payload)[4:stop]), after
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise JournalDamage(f"state: {error}") from error
