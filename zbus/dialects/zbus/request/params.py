"""One request out of header and URL: header fields win over the query, key by key.

With `cmd` and `topic` both in the header the URL is left alone: it may be a proxied one. The
specification's sections 3.3, 3.4 and 16.7.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from zbus.core.api import Start
from zbus.dialects.zbus.request.header_lines import plain, stock, text_of, values
from zbus.dialects.zbus.request.json_frames import encode_json
from zbus.dialects.zbus.request.positions import FORMS, read_start
from zbus.dialects.zbus.schema.commands import GROUP_COMMANDS, NO_COMMAND, TABLE
from zbus.dialects.zbus.schema.kinds import (
    NUMBER_MAX,
    Duration,
    Flag,
    Form,
    Kind,
    Number,
    Size,
    Switch,
    Time,
    Word,
)
from zbus.edge.guard import SANDBOX, Browser
from zbus.edge.http_reply import compose
from zbus.protocol.nearest import NAME_LENGTH_MAX, did_you_mean
from zbus.protocol.parameters import OFFSETS_MAX, PERCENT_DECODED
from zbus.units import DURATIONS, SIZES, parse_bytes, parse_ms, parse_time_ms
from zbus.wire.heads.fields import TOKEN
from zbus.wire.heads.heads import Head
from zbus.wire.numbers import parse_number, parse_ranges
from zbus.wire.target import (
    decode_valid_percent,
    encode_header_value,
    has_controls,
    is_crowded,
    split_target,
)

_EVERYWHERE = frozenset(
    (
        b"cmd",
        b"topic",
        b"consume_group",
        b"group",
        b"id",
        b"timeout",
        b"token",
        # Header lines of HTTP.
        b"accept",
        b"authorization",
        b"content_encoding",
        b"content_type",
        b"host",
        b"last_event_id",
        b"origin",
        b"traceparent",
        b"tracestate",
        b"user_agent",
        # What stock clients send with any command.
        b"ack",
        b"body",
        b"consume_window",
        b"encoding",
        b"offset",
        b"recver",
        b"sender",
        b"tag",
        b"version",
        b"window",
    )
)

_DECLARED = b"group", b"topic", b"retention"
_EVERYWHERE_DASHED = frozenset(name.replace(b"_", b"-") for name in _EVERYWHERE)

_ENCODED = frozenset(name.encode() for name in PERCENT_DECODED)

_NONE: dict[bytes, bytes] = {}
_SWITCHED = {b"1": True, b"true": True, b"0": False, b"false": False}

LOOKING = "405: HEAD and OPTIONS change nothing; use GET or POST"
ALLOW = b"allow: GET, POST\r\n"
"""The refusal of a change that is asked for with a method that asks for none (RFC 9110, section
9.2.1)."""


class BadRequest(Exception):
    """The request cannot be done as it stands; status and text say why."""

    def __init__(self, status: int, text: str, lines: bytes = b"") -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.lines = lines  # header lines of the reply; refusals have no content type of their own


def hint_of(name: bytes, known: Iterable[bytes], near_at: float = 0.6) -> str:
    """Behind the refusal of a name: a similar one of those that are known, if there is one."""
    return did_you_mean(name.decode("latin-1"), [each.decode() for each in known], near_at)


@lru_cache(maxsize=1024)
def _typo_note(cmd: bytes, name: bytes) -> bytes:
    """The header line of a reply that says that a name in the query of a message, which travels
    with it, is nearly that of a parameter; "" if it is not."""
    known = TABLE[cmd]
    if hint := hint_of(name, (*known.kinds, *known.former, *known.spellings), 0.8):
        return f"note: {name.decode()} is stored as a header{hint}\r\n".encode()
    return b""


class Params:
    """What a request says, wherever it says it."""

    __slots__ = (
        "_command",
        "_given_names",
        "browser",
        "cmd",
        "crowded",
        "fields",
        "form",
        "group",
        "head",
        "id",
        "implied",
        "misnamed",
        "multiplexed",
        "named",
        "plain",
        "policy",
        "problem",
        "query_names",
        "segments",
        "topic",
        "topic_line",
    )

    def __init__(self, head: Head, cmd: bytes = b"", skip: int = 0) -> None:
        """A path below which the dialect is mounted gives its `cmd` and how many segments of the
        path to skip."""
        self.head = head
        # The usual reply will do.
        head_only = head.method == b"HEAD" and not head.contained
        self.plain = head.keep_alive and not (head_only or head.json)
        self.browser: Browser | None = None  # a browser gets more header lines
        self.policy = SANDBOX  # what a browser may do with the reply
        self.fields = dict(head.fields)
        self.segments: list[bytes] = []
        self.query_names: list[bytes] = []
        self.crowded = False  # the query says more than is read
        self.named = b"cmd" in self.fields  # the header says which command
        self.implied = False  # nothing says which command
        # The zbus protocol proper, and whatever stands in a frame: replies come by id.
        self.multiplexed = self.named or head.contained
        self.form = values if head.json else stock if self.multiplexed else plain
        self.misnamed = b""  # what is in the query and cannot be a name
        # Present and empty is no command at all.
        self.cmd = (self.fields.pop(b"cmd") or b"\0") if self.named else cmd
        for name in _ENCODED:
            if name in self.fields:
                self.fields[name] = decode_valid_percent(self.fields[name])
        self._given_names = _NONE  # by which other name
        self.problem = ""  # why it cannot be: said by two names, and differently, for instance
        if self.named and self.fields.get(b"topic"):
            self._unify()
        else:
            self._merge_target(skip)
        if b"group" in self.fields and self.cmd in GROUP_COMMANDS:
            alias = self.fields.pop(b"group")
            self.fields.setdefault(b"consume_group", alias)
        self._command = TABLE.get(self.cmd, NO_COMMAND)
        if self._command.former:
            self._rename(self._command.former)
        # A query's id; a header's comes with each request.
        self.id = self.fields.pop(b"id", b"").strip(b" \t")
        if has_controls(self.id):
            self.problem = "'id' has a control character, which no header line can have"
            self.id = b""
        self.topic = text_of(self.fields.pop(b"topic", b"")).strip(" \t")
        self.group = text_of(self.fields.pop(b"consume_group", b"")).strip(" \t")
        self.topic_line = b""
        if self.topic:
            self.topic_line = b"topic: " + encode_header_value(self.topic.encode()) + b"\r\n"

    def _merge_target(self, skip: int) -> None:
        segments, query = split_target(self.head.target)
        segments = segments[skip:]
        self.crowded = is_crowded(self.head.target)
        for name, value in query:
            name = name.lower()
            if name == b"cmd":
                if not self.named:
                    self.cmd = value.lower() or b"\0"
            elif name.translate(None, TOKEN):
                self.misnamed = self.misnamed or name
            elif name and name not in self.head.fields:
                self.fields[name] = value
                self.query_names.append(name)
        if not self.cmd:
            self.implied = True
            self.cmd = b"produce" if segments or self.fields.get(b"topic") else b"home"
        self._unify()
        self.segments = segments
        if segments and not self.fields.get(b"topic"):
            self.fields[b"topic"] = segments[0]
        if len(segments) > 1 and self.cmd in GROUP_COMMANDS and not self._names_group():
            self.fields[b"consume_group"] = segments[1]

    def _unify(self) -> None:
        """What came by the other spelling of its name goes by its name. Of a header line and the
        query the header line wins, however they are spelled."""
        spellings, fields = TABLE.get(self.cmd, NO_COMMAND).spellings, self.fields
        if spellings.keys().isdisjoint(fields):
            return
        lines = self.head.fields
        for other in spellings.keys() & fields.keys():
            name, value = spellings[other], fields.pop(other)
            by_line = other in lines
            if by_line and name in _ENCODED:
                value = decode_valid_percent(value)
            known = fields.get(name)
            if known is not None and known != value:
                if by_line is (name in lines):
                    self.problem = f"{other.decode()} and {name.decode()} are one: give one of them"
                if not by_line:
                    continue
            fields[name] = value
            self._given_names = {**self._given_names, name: other}

    def _rename(self, former: dict[bytes, bytes]) -> None:
        """What came by another name goes by its own."""
        fields = self.fields
        if self.seed and b"ack" in former.values():
            fields.pop(b"ack", None)  # in the original's protocol it asks for a reply
        for other, name in former.items():
            if not (value := fields.pop(other, b"")):
                continue
            if (known := fields.get(name)) and known != value:
                self.problem = f"{name.decode()} and {other.decode()} are one: give one of them"
            fields[name] = value
            self._given_names = {**self._given_names, name: self._given_names.get(other, other)}

    def _names_group(self) -> bool:
        return bool(self.fields.get(b"consume_group") or self.fields.get(b"group"))

    def given(self) -> dict[bytes, bytes]:
        """How each parameter was spelled, by its name, that came once and by one name. Those of
        the query begin with `?`."""
        spellings = [*self.head.fields, *(b"?" + name for name in self.query_names)]
        names = [spelled.removeprefix(b"?") for spelled in spellings]
        names = [self._command.spellings.get(name, name) for name in names]
        return {
            name: spelled
            for spelled, name in zip(spellings, names, strict=True)
            if names.count(name) == 1 and name not in self._command.former
        }

    # -- values ---------------------------------------------------------------------------

    # Which names there are, of what kind and with which bounds, is said by the table of commands.

    def check_required(self) -> None:
        """Refuse a request without what its command requires."""
        for name in self._command.required:
            if not (self.topic if name == b"topic" else self.fields.get(name)):
                raise BadRequest(400, f"400: Bad Format, Missing {name.decode()}")

    def takes(self, name: bytes) -> bool:
        """Whether the command has a parameter of this name, in any spelling."""
        command = self._command
        return name in command.kinds or name in command.former or name in command.spellings

    def kind(self, name: bytes) -> Kind:
        """What values of a parameter are."""
        return self._command.kinds[name]

    def text(self, name: bytes) -> str | None:
        """A field as text, None if absent."""
        _, value = self._command.kinds[name], self.fields.get(name)
        return None if value is None else text_of(value)

    def number(self, name: bytes, maximum: int = NUMBER_MAX, readable: int = 0) -> int | None:
        """A field as a non-negative integer, None if absent or empty. `maximum` is the value of an
        option that bounds it; up to `readable` it is another's to refuse."""
        kind, value = self._command.kinds[name], self.fields.get(name)
        if not value:
            return None
        assert type(kind) is Number
        if type(kind.maximum) is int:
            maximum = kind.maximum
        if kind.none and value == b"none":
            return 0
        number = parse_number(value, readable or maximum)
        if number is None or number < kind.minimum:
            bounds = f"{kind.minimum} to {maximum}{', or none' if kind.none else ''}"
            raise self._wrong(name, value, f"is a number from {bounds}")
        return number

    def word(self, name: bytes, empty: bool = True) -> str:
        """A field that is one of some words, "" if absent or empty (where that may be)."""
        kind, word = self._command.kinds[name], self.text(name) or ""
        assert type(kind) is Word
        if (word or not empty) and word not in kind.values:
            text = f"{name.decode()} is one of {', '.join(kind.values)}"
            raise BadRequest(400, f"400: Bad Format, {text}")
        return word

    def duration(self, name: bytes) -> int | None:
        """A field as milliseconds, None if absent or empty."""
        kind, value = self._command.kinds[name], self.fields.get(name)
        if not value:
            return None
        assert type(kind) is Duration
        duration_ms = parse_ms(value.decode("ascii", "replace"))
        if duration_ms is None or not kind.minimum_ms <= duration_ms <= kind.maximum_ms:
            form = f"is {DURATIONS}, from {kind.minimum_ms} to {kind.maximum_ms} ms"
            raise self._wrong(name, value, form)
        return duration_ms

    def size(self, name: bytes) -> int | None:
        """A field as bytes, None if absent or empty."""
        kind, value = self._command.kinds[name], self.fields.get(name)
        if not value:
            return None
        assert type(kind) is Size
        size_bytes = parse_bytes(value.decode("ascii", "replace"))
        if size_bytes is None or size_bytes > kind.maximum_bytes:
            raise self._wrong(name, value, f"is {SIZES}, from 0 to {kind.maximum_bytes} bytes")
        return size_bytes

    def time(self, name: bytes) -> int | None:
        """A field as epoch milliseconds, None if absent or empty."""
        kind, value = self._command.kinds[name], self.fields.get(name)
        if not value:
            return None
        assert type(kind) is Time
        try:
            return parse_time_ms(value.decode("utf-8", "replace"))
        except ValueError as error:
            label = self._given_names.get(name, name).decode()
            raise BadRequest(400, f"400: Bad Format, {label} {error}") from None

    def start(self, name: bytes) -> Start | None:
        """A field as a place in a log, None if absent or empty."""
        assert self._command.kinds[name] is Form.START
        value = self.fields.get(name)
        if not value:
            return None
        try:
            start = read_start(value)
        except ValueError as error:
            raise BadRequest(400, f"400: Bad Format, a time in {name.decode()} {error}") from None
        if start is None:
            raise self._wrong(name, value, f"is {FORMS}")
        return start

    def _wrong(self, name: bytes, value: bytes, form: str) -> BadRequest:
        shown = value[:40].decode("utf-8", "replace")
        label = self._given_names.get(name, name).decode()
        return BadRequest(400, f"400: Bad Format, {label} {form}, not {shown!r}")

    def ranges(self, name: bytes) -> list[range]:
        """A field as numbers and ranges of them, such as `3,5-9,12`; empty if absent or empty."""
        assert self._command.kinds[name] is Form.OFFSETS
        value = self.fields.get(name)
        if not value:
            return []
        ranges = parse_ranges(value, OFFSETS_MAX)
        if ranges is None:
            form = f"is numbers and ranges such as 3,5-9,12, at most {OFFSETS_MAX} in all"
            raise self._wrong(name, value, form)
        return ranges

    def check_names(self) -> None:
        """Refuse a query, or JSON, that holds a name which the command does not know, nor all
        commands. In headers others than the sender put names of their own: there a name is refused
        if it is nearly that of an option of what is declared. A path that leads further than the
        command reads is refused, too."""
        known = self._command
        form = "/<topic>/<group>" if self.cmd in GROUP_COMMANDS else "/<topic>"
        more = [] if self.named else self.segments[form.count("/") :]
        if more:
            shown = text_of(more[0])[:40]
            text = f"unknown path part {shown!r}: {self.cmd.decode()} reads {form}"
            raise BadRequest(400, f"400: Bad Format, {text}")
        all_known = (*known.kinds, *known.former, *known.spellings)
        lines = self.head.fields if self.head.json or self.cmd == b"declare" else _NONE
        for name in (*self.query_names, *lines):
            if self.takes(name) or name in _EVERYWHERE or name in _EVERYWHERE_DASHED:
                continue
            is_line = name in lines and not self.head.json
            if name.startswith((b"_", b"x-")) or (is_line and not name.startswith(_DECLARED)):
                continue
            hint = hint_of(name, all_known, 0.8 if is_line else 0.6)
            if hint or not is_line:
                shown = name[:40].decode("utf-8", "replace")
                raise BadRequest(400, f"400: Bad Format, unknown parameter {shown!r}{hint}")

    def note_typos(self) -> None:
        """Say in every reply that a name in the query, which is the message's, is nearly that of a
        parameter. It is done as it was asked for: programs name their own headers there."""
        for name in self.query_names:
            strange = not (self.takes(name) or name in _EVERYWHERE or name in _EVERYWHERE_DASHED)
            if strange and len(name) <= NAME_LENGTH_MAX and not name.startswith((b"_", b"x-")):
                self.topic_line += _typo_note(self.cmd, name)

    def flag(self, name: bytes) -> bool:
        """`1` and `true` mean yes, anything else no."""
        kind, value = self._command.kinds[name], self.fields.get(name)
        assert type(kind) is Flag
        return kind.default if value is None else value.strip().lower() in (b"1", b"true")

    def switch(self, name: bytes) -> bool | None:
        """A field as yes or no, None if absent or empty."""
        kind, value = self._command.kinds[name], self.fields.get(name)
        assert type(kind) is Switch
        if not value:
            return None
        switched = _SWITCHED.get(value.strip().lower())
        if switched is None:
            raise self._wrong(name, value, "is true or false")
        return switched

    @property
    def only_looks(self) -> bool:
        """Asks by its method that nothing is changed, and does not speak the zbus protocol."""
        return not self.multiplexed and self.head.method in (b"HEAD", b"OPTIONS")

    @property
    def misplaced(self) -> str:
        """Why its method cannot be that of a put; "" if it can. A put without a body is meant where
        a command says so, or the methods that people know to put and get with."""
        if self.only_looks:
            return LOOKING
        head = self.head
        if head.method in (b"GET", b"POST") or not self.implied or self.multiplexed:
            return ""
        if head.content_length or head.chunked or self.fields.get(b"body"):
            return ""
        method = head.method[:20].decode()
        return (
            f"405: {method} without a body puts nothing; POST a message, or name a command such as"
            " ?cmd=remove"
        )

    @property
    def seed(self) -> bool:
        """A request in the original's own protocol."""
        return self.multiplexed and not self.head.json

    @property
    def opened(self) -> bool:
        """A person sees the reply as a page."""
        return self.browser is not None and self.browser.navigates

    @property
    def group_wished(self) -> bool:
        """A declare that is about a group, so that its answer is the group's; so is every seek."""
        return bool(self.group) or self.cmd == b"seek" or self.flag(b"group_name_auto")

    # -- replies --------------------------------------------------------------------------

    def reply(
        self,
        status: int,
        id: bytes,
        lines: bytes = b"",
        body: bytes = b"",
    ) -> bytes:
        """A whole reply to this request."""
        lines = b"%bid: %b\r\n%b" % (self.topic_line, id, lines)
        return self.compose(status, lines, body)

    def compose(self, status: int, lines: bytes, body: bytes) -> bytes:
        """The same, of all its header lines. Every reply that is not plain is made here."""
        if self.head.json:
            return encode_json(status, lines, body)
        return compose(self.head, self.browser, status, lines, body, self.policy)
