"""Bugs at the edge: how bytes are read, who may ask, in which order replies leave, and when a
connection is over; and in the client, what is sent again."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutants_of

HEADS = "wire/test_heads.py wire/test_heads_property.py"
HTTP = "wire/test_http_reader.py"
WEBSOCKET = "wire/test_websocket.py"
EXCHANGE = "client/test_exchange.py"
ABANDONED = "client/test_abandoned.py"
ATTEMPTS = "client/test_attempts.py"
CONSUMING = "client/test_consuming.py"
LOOP = "server/test_loop_parts.py"

SHAPES = "dialects/zbus/test_shapes.py"

WIRE: list[Mutant] = [
    *mutants_of(
        "zbus/wire/heads/shapes.py",
        (
            "shape-of-a-line-given-twice",
            "if spellings.count(name) == 1}",
            "if spellings.count(name)}",
            SHAPES,
        ),
        (
            "shape-of-another-token",
            "            found.append(re.escape(line))",
            '            found.append(re.escape(spelled) + rb": [^\\r]*+")',
            SHAPES,
        ),
        (
            "shape-with-other-lines-as-a-block",
            "    return range(first, first + block",
            "    return range(first + 1, first + 1 + block",
            SHAPES,
        ),
        (
            "shape-of-an-id-in-the-query",
            "if name in spellings}",
            "if not spellings}",
            SHAPES,
        ),
    ),
    *mutants_of(
        "zbus/wire/http.py",
        (
            "shape-of-any-length",
            "            if stop - end > length_max or end - at > shape.bytes_max:",
            "            if stop - end > length_max:",
            SHAPES,
        ),
    ),
    *mutants_of(
        "zbus/edge/shape_plans.py",
        (
            "shape-without-its-id",
            "    if not shape.names or (not shape.id_at and",
            "    if not shape.names or (shape.id_at and",
            SHAPES,
        ),
    ),
    *mutants_of(
        "zbus/edge/rights.py",
        (
            "shape-for-anybody",
            "        refused = self._guarded.refusal(peer, body)",
            "        refused: Plan | None = None",
            SHAPES,
        ),
    ),
    *mutants_of(
        "zbus/edge/proxies.py",
        (
            "shape-of-another-client",
            "for name, slot in found.lines.items() if name not in _OF_CLIENT}",
            "for name, slot in found.lines.items()}",
            SHAPES,
        ),
    ),
    *mutants_of(
        "zbus/dialects/zbus/request/slots.py",
        (
            "slot-of-a-key-that-ends-with-a-blank",
            '{0,%d}+(?<! )" % (KEY',
            '{0,%d}+" % (KEY',
            SHAPES,
        ),
        (
            "slot-of-a-tag-that-is-encoded",
            'rb"[!-$&-~]{1,%d}+" % TAG',
            'rb"[!-~]{1,%d}+" % TAG',
            SHAPES,
        ),
        (
            "slot-in-a-query-with-a-plus",
            '_WORD = rb"[!$\'-*,-~]"',
            '_WORD = rb"[!$\'-~]"',
            SHAPES,
        ),
        (
            "slot-of-a-number-with-a-unit",
            '_NUMBER = rb"[0-9]{1,15}+"',
            '_NUMBER = rb"[0-9s]{1,15}+"',
            SHAPES,
        ),
        (
            "slot-of-seconds",
            '_TIME = rb"[1-9][0-9]{11,14}+"',
            '_TIME = rb"[1-9][0-9]{1,14}+"',
            SHAPES,
        ),
        (
            "shape-of-a-parameter",
            " for name in names if not params.takes(name)}",
            " for name in names}",
            SHAPES,
        ),
    ),
    *mutants_of(
        "zbus/dialects/zbus/request/stored.py",
        (
            "slot-of-a-content-type",
            "            and KINDS[name] <= Kind.STANDARD",
            "            and KINDS[name] <= Kind.TYPE",
            SHAPES,
        ),
    ),
    *mutants_of(
        "zbus/dialects/zbus/request/json_frames.py",
        (
            "id-in-json-as-it-is",
            "    return value if value.isalnum() else",
            "    return value if value else",
            "conformance/test_json_frames.py",
        ),
    ),
    *mutants_of(
        "zbus/dialects/zbus/messages/put_shapes.py",
        (
            "shape-over-the-limit-of-lines",
            "        if used_bytes > self._budget_bytes or len",
            "        if len",
            SHAPES,
        ),
        (
            "shape-with-any-target",
            " or len(target) > ORIGIN_URL_BYTES_MAX:",
            ":",
            SHAPES,
        ),
        (
            "shape-without-how-a-message-came",
            " or topic.has_put_hooks or not topic.minimal_headers:",
            " or topic.has_put_hooks:",
            SHAPES,
        ),
        (
            "shape-that-stores-an-id-twice",
            " or topic.has_put_hooks or not topic.minimal_headers:",
            " or not topic.minimal_headers:",
            SHAPES,
        ),
        (
            "shape-with-a-number-out-of-bounds",
            "            if not least <= number <= most:",
            "            if number < 0:",
            SHAPES,
        ),
        (
            "shape-with-an-id-that-is-the-key-as-it-is-written",
            'b"" if id.translate(None, OF_KEYS) else encode_header_value(id)',
            'b"" if id.translate(None, OF_KEYS) else id',
            SHAPES,
        ),
        (
            "shape-with-a-body-as-it-is-written",
            "        if self._decodes and (",
            "        if not self._decodes and (",
            SHAPES,
        ),
        (
            "short-head-that-may-be-over-the-limit",
            "        short_bytes = self._budget_bytes - len(self._lines)",
            "        short_bytes = 2 * self._budget_bytes",
            SHAPES,
        ),
    ),
    *mutants_of(
        "zbus/wire/heads/heads.py",
        (
            "name-twice-in-a-head",
            "        if len(fields) != len(lines):",
            "        if len(fields) > len(lines):",
            HEADS,
        ),
        (
            "id-of-any-length",
            "            if visible and len(value) <= self._id_bytes_max:",
            "            if visible:",
            HEADS,
        ),
        (
            "id-with-any-bytes",
            "            if visible and len(value) <= self._id_bytes_max:",
            "            if len(value) <= self._id_bytes_max:",
            HEADS,
        ),
        (
            "steering-name-remembered",
            '            if len(name) <= _NAME_BYTES_MAX and (name not in GUARDED or name == b"content-'
            'length"):',
            "            if len(name) <= _NAME_BYTES_MAX:",
            HEADS,
        ),
        (
            "length-of-any-digits",
            "            if not value.isdigit() or len(value) > _LENGTH_DIGITS_MAX:",
            "            if not value.isdigit():",
            HEADS,
        ),
        (
            "no-room-for-an-id",
            '        if template.count(b"\\r\\n") >= self._limits.fields_max:',
            '        if template.count(b"\\r\\n") > self._limits.fields_max:',
            HEADS,
        ),
        (
            "receive-with-a-body-remembered",
            "            if id_ or body or not head.direct:",
            "            if id_ or not head.direct:",
            "wire/test_receives.py",
        ),
    ),
    *mutants_of(
        "zbus/wire/http.py",
        (
            "body-at-the-limit-refused",
            "        if length > self._limits.body_bytes_max:\n            if type(head)",
            "        if length >= self._limits.body_bytes_max:\n            if type(head)",
            HTTP,
        ),
        (
            "body-of-any-length",
            "                if length == len(body) <= self._limits.body_bytes_max and head.direct:",
            "                if length == len(body) and head.direct:",
            HTTP,
        ),
        (
            "end-of-head-in-two-pieces",
            "        searched = len(rest) - 3",
            "        searched = len(rest) - 2",
            HTTP,
        ),
        (
            "two-empty-lines",
            "            if self._blank:\n                raise",
            "            if self._blank and at:\n                raise",
            HTTP,
        ),
        (
            "body-budget-not-given-back",
            "                    if self._budget is not None:\n                        self._budget.give",
            "                    if self._budget is None:\n                        self._budget.give",
            f"wire/test_budget.py {HTTP}",
        ),
        (
            "continue-although-it-came",
            "        if head.expects_continue and end == len(data):",
            "        if head.expects_continue:",
            HTTP,
        ),
        (
            "read-after-the-last-request",
            "        while at < len(data) and not self.done:",
            "        while at < len(data):",
            HTTP,
        ),
    ),
    *mutants_of(
        "zbus/wire/bodies/chunks.py",
        (
            "chunks-over-the-limit",
            "        if self.size + size > self._limits.body_bytes_max:",
            "        if size > self._limits.body_bytes_max:",
            "wire/test_chunks.py",
        ),
        (
            "half-a-line-kept",
            "        held.clear()\n",
            "",
            "wire/test_chunks.py",
        ),
        (
            "trailers-without-a-limit",
            "        if self._trailers > self._limits.fields_max:",
            "        if self._trailers > self._limits.fields_max + 1:",
            "wire/test_chunks.py",
        ),
    ),
    *mutants_of(
        "zbus/wire/websocket.py",
        (
            "message-over-the-limit-in-pieces",
            "            if size > self._bytes_max:",
            "            if length > self._bytes_max:",
            WEBSOCKET,
        ),
        (
            "message-over-the-limit-in-small-pieces",
            "        room = self._bytes_max - self._message.size",
            "        room = self._bytes_max",
            WEBSOCKET,
        ),
        (
            "length-longer-than-need-be",
            "            if length < least:",
            "            if length + 1 < least:",
            WEBSOCKET,
        ),
        (
            "message-within-a-message",
            "                if message is not None:\n",
            "                if message is not None and self._fragments > 9:\n",
            WEBSOCKET,
        ),
        (
            "text-that-is-none",
            "                    self._check_text(payload, True)",
            "                    self._check_text(payload, False)",
            WEBSOCKET,
        ),
        (
            "text-that-is-none-in-pieces",
            "            self._check_text(piece, last)",
            "            self._check_text(piece, False)",
            WEBSOCKET,
        ),
        (
            "ping-of-any-length",
            "            if first & 0x08:\n                raise",
            "            if first == _CLOSE:\n                raise",
            WEBSOCKET,
        ),
        (
            "frame-without-mask",
            "        if length < 0:",
            "        if length < 0 and first & 0x80 == 0:",
            WEBSOCKET,
        ),
        (
            "mask-begins-anew",
            "            self._key = self._key[turn:] + self._key[:turn]",
            "            self._key = self._key[:]",
            WEBSOCKET,
        ),
        (
            "fragments-of-all-messages",
            "        self._missing = self._fragments = 0",
            "        self._missing = 0",
            WEBSOCKET,
        ),
        (
            "bytes-left-unsaid",
            "            self.more = not frames_left and at < end",
            "            self.more = False",
            WEBSOCKET,
        ),
        (
            "short-length-at-64-kib",
            "    if length < 1 << 16:",
            "    if length < (1 << 16) - 1:",
            WEBSOCKET,
        ),
    ),
    *mutants_of(
        "zbus/wire/bodies/body.py",
        (
            "block-counted-as-its-bytes",
            "        return self.size if blocks == 1 else blocks * BLOCK_BYTES",
            "        return self.size",
            "wire/test_body.py",
        ),
        (
            "last-block-whole",
            '        return b"".join((*full, memoryview(last)[: BLOCK_BYTES - self._room]))',
            '        return b"".join((*full, last))',
            "wire/test_body.py",
        ),
    ),
]

DIALECTS: list[Mutant] = [
    *mutants_of(
        "zbus/edge/access.py",
        (
            "token-a-moment-longer",
            "        return now_ms < self.grant.expires_ms",
            "        return now_ms <= self.grant.expires_ms",
            "edge/test_access.py conformance/test_access.py",
        ),
        (
            "token-that-was-taken-away",
            "        for bearer in old:\n            bearer.grant = NOTHING\n",
            "",
            "edge/test_access.py",
        ),
        (
            "name-is-a-beginning",
            "    return name.startswith(pattern[:-1]) if pattern[-1:] == ALL else name == pattern",
            "    return name.startswith(pattern.removesuffix(ALL))",
            "edge/test_access.py",
        ),
        (
            "any-group-of-a-topic",
            "            and (group is None or any(_matches(one, group) for one in groups))",
            "            and (group is None or any(groups))",
            "edge/test_access.py",
        ),
        (
            "topic-for-all-its-groups",
            "            ALL in groups and _matches(pattern, name) for pattern, groups in self.topics",
            "            _matches(pattern, name) for pattern, groups in self.topics",
            "edge/test_access.py conformance/test_access.py",
        ),
        (
            "lapsed-noticed-once",
            "        self._tokens, self._principals = tokens, principals\n        self._again_ms = 0",
            "        self._tokens, self._principals = tokens, principals",
            "edge/test_access.py conformance/test_access.py",
        ),
    ),
    *mutants_of(
        "zbus/edge/guard.py",
        (
            "name-that-ends-like-ours",
            'name.endswith(b".localhost")',
            'name.endswith(b"localhost")',
            "edge/test_guard.py",
        ),
        (
            "fetched-ahead-of-time",
            '        if not typed or b"referer" in fields:',
            "        if not typed:",
            "edge/test_guard.py",
        ),
        (
            "address-in-a-frame",
            '        if mode != b"navigate" or dest != b"document":',
            '        if mode != b"navigate":',
            "edge/test_guard.py",
        ),
        (
            "any-page-with-a-cookie",
            "        return self._is_of_anybody(origin) and not shown",
            "        return self._is_of_anybody(origin)",
            "edge/test_guard.py",
        ),
        (
            "host-excused-by-a-cmd",
            '    return b"accept-encoding" not in fields and not is_browser(fields)',
            "    return not is_browser(fields)",
            "edge/test_guard.py conformance/test_hosts.py",
        ),
        (
            "null-as-a-page-of-ours",
            '        self._origins = listed - {b"*", b"null"}',
            '        self._origins = listed - {b"*"}',
            "edge/test_guard.py",
        ),
        (
            "port-of-another",
            "    return _with_port(authority, port) == _with_port(host, port)",
            "    return _without_port(authority) == _without_port(host)",
            "edge/test_guard.py",
        ),
        (
            "early-only-by-one-word",
            "    return any(value.startswith(_EARLY_WORDS) for value in values)",
            '    return any(value == b"prefetch" for value in values)',
            "edge/test_guard.py",
        ),
    ),
    *mutants_of(
        "zbus/dialects/zbus/request/header_lines.py",
        (
            "plain-reply-with-a-line-of-a-producer",
            "    return not name or name in WRITTEN or is_standard(name)",
            '    return not name or name in WRITTEN or not name.startswith(b"x-")',
            "conformance/test_header_crossing.py conformance/test_delivered_headers.py",
        ),
        (
            "unsafe-type-as-it-is",
            '    return kind in safe_types or kind.endswith(b"+json")',
            '    return kind in safe_types or kind.endswith((b"+json", b"html"))',
            "edge/test_guard.py conformance/test_browsers.py",
        ),
        (
            "head-that-no-proxy-takes",
            "OF_BROKER_BYTES = 1_852",
            "OF_BROKER_BYTES = 2_852",
            "conformance/test_head_sizes.py",
        ),
        (
            "type-in-place-of-another-not-counted",
            "Kind.TYPE: len(_IN_PLACE) + len(PREFIX)}",
            "Kind.TYPE: len(PREFIX)}",
            "conformance/test_delivered_headers.py",
        ),
        (
            "lines-without-a-limit",
            "LINES_MAX = 40",
            "LINES_MAX = 99",
            "conformance/test_delivered_headers.py",
        ),
        (
            "prefix-that-stays",
            "    if name.startswith(PREFIX) and name != PREFIX:\n        return Kind.PREFIXED\n",
            "",
            "conformance/test_header_crossing.py",
        ),
    ),
    *mutants_of(
        "zbus/wire/heads/header_names.py",
        (
            "stock-reply-steers",
            "    return name in _STEERING or name in OF_CONNECTION or name.startswith(_STEERING_PREFIXES)",
            "    return name in _STEERING or name in OF_CONNECTION",
            "conformance/test_header_crossing.py",
        ),
        (
            "credential-by-another-name",
            "        or name.endswith(_CREDENTIAL_SUFFIXES)\n",
            "",
            "conformance/test_delivered_headers.py",
        ),
    ),
    *mutants_of(
        "zbus/dialects/zbus/request/stored.py",
        (
            "way-is-stored-unasked",
            "        if minimal_headers:\n",
            "        if minimal_headers and not self._way:\n",
            "conformance/test_delivered_headers.py",
        ),
        (
            "credential-with-the-prefix",
            "                if KINDS[name] not in (Kind.BROKER, Kind.SECRET):",
            "                if KINDS[name] != Kind.BROKER:",
            "conformance/test_delivered_headers.py",
        ),
    ),
    *mutants_of(
        "zbus/edge/connection.py",
        (
            "reply-out-of-turn",
            "        self.turns.append(reply)",
            "        self.turns.appendleft(reply)",
            "conformance/test_ordering.py",
        ),
        (
            "later-replies-stay",
            "        if self.ordered and peer.turns:\n            peer.answer_next()",
            "        if self.ordered and len(peer.turns or ()) > 1:\n            peer.answer_next()",
            "conformance/test_bugs_fixed.py conformance/test_rpc_and_route.py conformance/test_consume.py",
        ),
        (
            "put-keeps-its-turn",
            "        if self.together is not None:\n            self.together.part(self)",
            "        self.together = None",
            "conformance/test_ordering.py conformance/test_produce.py",
        ),
        (
            "requests-of-who-is-gone",
            "        self._undone = None if self._steps is None else []\n",
            "        pass\n",
            "conformance/test_limits.py",
        ),
        (
            "held-replies-not-counted",
            "        peer.held_bytes += len(data)",
            "        peer.held_bytes += 0",
            "conformance/test_limits.py",
        ),
    ),
    *mutants_of(
        "zbus/dialects/zbus/replies.py",
        (
            "ordered-without-a-turn",
            "            self.ordered = True\n            peer.take_turn(self)",
            "            self.ordered = False",
            "conformance/test_ordering.py",
        ),
        (
            "quiet-on-plain-http",
            "        self.quiet = quiet and params.multiplexed",
            "        self.quiet = quiet",
            "conformance/test_produce.py conformance/test_stock_bytes.py conformance/test_ordering.py",
        ),
        (
            "call-never-counted-off",
            "        self.peer.open_waits -= 1\n        if isinstance(outcome, Routed):",
            "        if isinstance(outcome, Routed):",
            "conformance/test_limits.py",
        ),
    ),
    *mutants_of(
        "zbus/dialects/zbus/messages/put_tickets.py",
        (
            "offset-of-the-first",
            "            offset += 1\n",
            "",
            "conformance/test_produce.py conformance/test_ordering.py",
        ),
        (
            "parted-reply-at-its-neighbour",
            "            reply.offset = self.offset + at",
            "            reply.offset = self.offset",
            "conformance/test_produce.py conformance/test_ordering.py",
        ),
        (
            "parted-takes-any-place",
            "if other is peer and not id]",
            "if other is peer]",
            "conformance/test_ordering.py conformance/test_produce.py",
        ),
        (
            "parted-counted-twice",
            "        peer.open_tickets -= 1  # the reply counts itself\n",
            "",
            "conformance/test_limits.py",
        ),
    ),
    *mutants_of(
        "zbus/dialects/zbus/messages/pull_tickets.py",
        (
            "lost-not-told",
            '            lines += b"skipped: %d\\r\\n" % skipped',
            "            pass",
            "conformance/test_retention.py",
        ),
        (
            "pull-waits-for-ever",
            "        if not self.open:\n            self.peer.open_waits -= 1",
            "        if self.open:\n            self.peer.open_waits -= 1",
            "conformance/test_limits.py",
        ),
        (
            "pull-without-a-turn",
            "        else:\n            self.ordered = True\n            peer.take_turn(self)",
            "        else:\n            self.ordered = False",
            "conformance/test_ordering.py",
        ),
        (
            "peek-held-for-ever",
            "        self.peer.held_bytes -= PEEK_BYTES\n",
            "",
            "conformance/test_limits.py",
        ),
    ),
]

SERVER: list[Mutant] = [
    *mutants_of(
        "zbus/server/loop/loop.py",
        (
            "who-waits-for-replies-leaves-the-ring",
            "                self._hold(link)  # its requests may wait for replies by now\n",
            "",
            "server/test_ring.py",
        ),
        (
            "told-although-the-journal-failed",
            "        elif not self.failure:\n            self.output.send(",
            "        else:\n            self.output.send(",
            "server/test_loop_parts.py server/test_sync.py simulation/test_faults.py",
        ),
        (
            "read-twice-in-a-turn",
            "                    if target.turn != turn:\n",
            "                    if True:\n",
            LOOP,
        ),
        (
            "all-that-is-large-at-once",
            "            link.work = 0 if spent else QUANTUM\n",
            "            link.work = QUANTUM\n",
            "server/test_ring.py",
        ),
        (
            "debts-of-light-links-are-forgotten",
            "            if link.work <= 0:\n                self._ring.used -= link.work\n",
            "            if link.work <= 0:\n",
            "server/test_ring.py",
        ),
        (
            "pull-of-who-hung-up",
            "        link.forget_requests()\n        self.leave(link)",
            "        link.forget_requests()",
            "server/test_sweep.py server/test_loop_parts.py simulation/test_simulation.py",
        ),
    ),
    *mutants_of(
        "zbus/server/loop/fair_queue.py",
        (
            "no-quantum",
            "            link.work = min(link.work + QUANTUM, QUANTUM)",
            "            link.work = 1 << 40",
            "server/test_ring.py",
        ),
        (
            "a-turn-without-end",
            "            if left <= 0:\n                break",
            "            if left <= 0:\n                pass",
            "server/test_ring.py",
        ),
        (
            "debtors-wait-for-nobody",
            "        if most <= -QUANTUM:",
            "        if most <= -(1 << 60):",
            "server/test_ring.py",
        ),
        (
            "left-out-of-the-ring",
            "            if link.has_requests and not link.closed:",
            "            if not link.closed and False:",
            "server/test_ring.py",
        ),
    ),
    *mutants_of(
        "zbus/server/loop/output.py",
        (
            "reply-overtakes-what-is-unsent",
            "            unsent[-1] += data",
            "            unsent[-1][:0] = data",
            "server/test_mixed_links.py server/test_loop_parts.py simulation/test_simulation.py",
        ),
        (
            "sent-and-kept",
            "                del piece[:sent]",
            "                del piece[: sent - 1]",
            "server/test_mixed_links.py server/test_loop_parts.py simulation/test_simulation.py",
        ),
        (
            "stalled-for-ever",
            "        if link.stalled and 2 * link.out_bytes <= self._bytes_max:",
            "        if link.stalled and 2 * link.out_bytes < 0:",
            "server/test_loop_parts.py server/test_mixed_links.py simulation/test_simulation.py",
        ),
    ),
    *mutants_of(
        "zbus/server/loop/mailbox.py",
        (
            "posted-in-the-same-turn",
            "        for _ in range(len(self._posted)):  # what these post is for the next turn",
            "        while self._posted:",
            f"{LOOP} server/test_sync.py",
        ),
        (
            "post-without-a-bell",
            "        self._signalled = self.rang = False\n        for",
            "        self.rang = False\n        for",
            "server/test_mailbox.py",
        ),
        (
            "a-byte-is-lost-while-the-flag-is-up",
            "        try:\n            self.receiver.recv(4096)\n        except BlockingIOError:\n            pass\n        self._signalled = self.rang = False\n",
            "        self._signalled = self.rang = False\n        try:\n            self.receiver.recv(4096)\n        except BlockingIOError:\n            pass\n",
            "server/test_mailbox.py",
        ),
    ),
    *mutants_of(
        "zbus/server/loop/timeouts.py",
        (
            "half-a-head-for-ever",
            "            since_ms = link.half_head_since_ms = link.half_head_since_ms or now_ms",
            "            since_ms = link.half_head_since_ms = now_ms",
            "server/test_sweep.py server/test_loop_parts.py simulation/test_simulation.py",
        ),
        (
            "slow-heads-add-up",
            '        if waiting_for != "head":\n            link.half_head_since_ms = 0\n',
            "",
            "server/test_sweep.py server/test_loop_parts.py simulation/test_simulation.py",
        ),
        (
            "silent-although-it-reads",
            "        silent = now_ms - max(link.heard_ms, link.sent_ms) > timeouts.idle_timeout_ms",
            "        silent = now_ms - link.heard_ms > timeouts.idle_timeout_ms",
            "server/test_sweep.py server/test_loop_parts.py simulation/test_simulation.py",
        ),
        (
            "pinged-again-and-again",
            "// 2 and link.pinged_ms <= link.heard_ms:",
            "// 2:",
            "server/test_sweep_websocket.py",
        ),
        (
            "stalled-a-little-early",
            "            if slow or now_ms - link.sent_ms > stall_ms:",
            "            if slow or now_ms - link.heard_ms > stall_ms:",
            "server/test_sweep.py server/test_loop_parts.py simulation/test_simulation.py",
        ),
    ),
    *mutants_of(
        "zbus/server/watch/pressure.py",
        (
            "no-way-between-the-marks",
            "        if self._disk is not None:\n            least += least // 10",
            "        if self._disk is None:\n            least += 0",
            "server/test_pressure.py",
        ),
        (
            "smaller-of-two-marks",
            "        return max(least, space.total * marks.disk_free_percent_min // 100)",
            "        return min(least, space.total * marks.disk_free_percent_min // 100)",
            "server/test_pressure.py",
        ),
        (
            "full-disk-refuses-in-memory",
            "self._broker.refuse_puts(refusing, self._memory)",
            "self._broker.refuse_puts(refusing, refusing)",
            "server/test_pressure.py",
        ),
        (
            "given-back-again-and-again",
            "            self._free_before = free\n",
            "            self._free_before = 0\n",
            "server/test_pressure.py",
        ),
        (
            "refused-before-memory-gave-way",
            "            used = self._gauges.memory_used() or used",
            "            pass",
            "server/test_pressure.py",
        ),
    ),
]

CLIENT: list[Mutant] = [
    *mutants_of(
        "zbus/client/links/request_tracker.py",
        (
            "a-standby-counted-as-an-attempt",
            "                call.sent = max(0, call.sent - 1)  # it has done nothing",
            "                pass",
            ATTEMPTS,
        ),
        (
            "removed-by-somebody-else",
            "        elif response.status == 404 and call.sent > 1 and call.request.removes:",
            "        elif response.status == 404 and call.request.removes:",
            EXCHANGE,
        ),
        (
            "sent-again-although-unsafe",
            "            unknown = call.sent > 0 and not call.safe",
            "            unknown = False",
            EXCHANGE,
        ),
        (
            "put-without-its-key-again",
            "        if keyed:\n            call.safe = True",
            "        call.safe = True",
            EXCHANGE,
        ),
        (
            "sent-twice-on-one-connection",
            "        self.online = False\n        self._out.clear()\n        self._reader",
            "        self.online = False\n        self._reader",
            EXCHANGE,
        ),
        (
            "given-up-and-sent",
            "            if call.data in self._out:\n                self._out.remove(call.data)\n",
            "            if call.data in self._out:\n                pass\n",
            EXCHANGE,
        ),
        (
            "late-bytes-of-the-old-connection",
            "        self._out.clear()\n        self._reader = ResponseReader()",
            "        self._out.clear()",
            EXCHANGE,
        ),
        (
            "refusal-of-a-waiting-pull",
            "                if call.sent and not call.request.waits:",
            "                if call.sent:",
            EXCHANGE,
        ),
        (
            "messages-of-an-abandoned-pull-dropped",
            "            elif self.online and call.sent and not call.held_back and pulling is not None:",
            "            elif False:",
            ABANDONED,
        ),
        (
            "answered-as-the-caller-left",
            "        elif call.error is None and pulling is not None:",
            "        elif False:",
            ABANDONED,
        ),
        (
            "next-pull-overtakes-the-abandoned-one",
            "        call.held_back = self.online and self._abandoned.is_undecided(pulling.key)",
            "        call.held_back = False",
            ABANDONED,
        ),
    ),
    *mutants_of(
        "zbus/client/readers/consumer.py",
        (
            "leases-that-the-consumer-does-not-keep",
            "        for request in [*core.flush(), *core.extensions(self._link.now_s())]:",
            "        for request in core.flush():",
            CONSUMING,
        ),
        (
            "what-came-as-the-consumer-left",
            "            with suppress(ZbusError):\n                self._take(core)\n        self._home",
            "        self._home",
            CONSUMING,
        ),
        (
            "left-while-its-pull-waits-on",
            "        await self._send(core.close())\n",
            "",
            CONSUMING,
        ),
    ),
    *mutants_of(
        "zbus/client/links/attempts.py",
        (
            "one-retry-too-few",
            "        hopeless = rounds >= options.retries",
            "        hopeless = rounds + 1 >= options.retries",
            EXCHANGE,
        ),
        (
            "all-come-back-at-once",
            "        self.retry_at_s = now_s + pause_s * (0.5 + self._random.random() / 2)",
            "        self.retry_at_s = now_s + pause_s",
            EXCHANGE,
        ),
        (
            "failures-never-forgotten",
            "        self.failures = 0\n\n    def failed",
            "        pass\n\n    def failed",
            EXCHANGE,
        ),
        (
            "standbys-never-tried",
            "        self._place = (self._place + 1) % places\n",
            "",
            ATTEMPTS,
        ),
    ),
    *mutants_of(
        "zbus/client/links/abandoned.py",
        (
            "kept-although-it-comes-again",
            '        if step.kind == "query" and not found.ack:',
            '        if step.kind == "query":',
            ABANDONED,
        ),
        (
            "leased-and-not-given-back",
            "            return self.keep(step.pulling, found)",
            "            return []",
            ABANDONED,
        ),
        (
            "kept-of-another-partition",
            "        taken = [one for one in kept if wanted is None or one.partition == wanted]",
            "        taken = [one for one in kept]",
            ABANDONED,
        ),
    ),
]

EDGE = [*WIRE, *DIALECTS, *SERVER, *CLIENT]
