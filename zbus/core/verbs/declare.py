"""Declaring topics and groups: everything is checked, then a start position is looked for (which
may take a read), then all of it is applied at once.

Tests: `tests/conformance/test_declare.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from zbus.core.commit import topic_changes as deciding
from zbus.core.commit.tick import Tick
from zbus.core.cursor.key_order import KeyLocks
from zbus.core.cursor.priority_order import PriorityOrder
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.delivery import retries
from zbus.core.delivery.run_queue import RunQueue
from zbus.core.model.errors import BrokerError, Outcome, Refusal, topic_unknown
from zbus.core.model.filters import FILTER_BYTES_MAX
from zbus.core.model.limits import Limits
from zbus.core.model.names import name_problem
from zbus.core.model.schema import COMPATIBILITIES, Misfit, compiled
from zbus.core.model.schema_change import breaks
from zbus.core.model.ticket import Ticket
from zbus.core.topics import growth
from zbus.core.topics.changes import Changes
from zbus.core.topics.elsewhere import Elsewhere, RemoteTopic
from zbus.core.topics.outcomes import Declared
from zbus.core.topics.topic import Group, Partition, Topic
from zbus.core.verbs.puts import Puts
from zbus.core.verbs.seek import WITH_OTHERS, Seeker, Start, fenced

DURABILITIES = ("memory", "os", "disk")

ORDERS = ("", KeyLocks.name, PriorityOrder.name)


@attrs.frozen
class GroupWish:
    """A group to create or change."""

    name: str
    options: GroupOptions
    start: Start = WITH_OTHERS

    def placed(self, topic: Topic | None) -> bool:
        """Its position has to be found. It counts for a group that is new."""
        start = self.start
        return start.given and (start.moves or topic is None or topic.group(self.name) is None)


Wished = Callable[[Topic | None], tuple[TopicOptions, GroupWish | None]]
"""Says what a topic, and a group in it, are to be like, given what is there now; a name that is
free now is still free when that is done. Asked again when a start position was read: others may
have declared meanwhile. The `Start` is the same then."""


class Declarations:
    """`topics` are the broker's, by lower-case name; `adopt` takes up a new one."""

    def __init__(
        self,
        topics: dict[str, Topic],
        limits: Limits,
        puts: Puts,
        runs: RunQueue,
        changes: Changes,
        seeking: Seeker,
        elsewhere: Elsewhere,
        new_id: Callable[[], bytes],
        adopt: Callable[[Topic, int], None],
        freed: Callable[[Group], None],
    ) -> None:
        self._topics = topics
        self._limits = limits
        self._puts = puts
        self._runs = runs
        self._tick = runs.tick
        self._changes = changes
        self._seeking = seeking
        self._elsewhere = elsewhere
        self._new_id = new_id
        self._adopt = adopt
        self._freed = freed  # to be called with a group that may not be exclusive any more

    def declare(self, ticket: Ticket, name: str, wished: Wished) -> None:
        """Create or change a topic, and a group in it; settles with Declared.

        The name and durability of an existing topic stay as they are, and so does the place of an
        existing group. Its partitions may become more (`zbus.core.topics.growth`).
        """
        letters = self._letters_elsewhere(name, wished)
        if letters is None:
            self._declare(ticket, name, wished)
            return

        def checked(outcome: Outcome) -> None:
            if isinstance(outcome, BrokerError):
                ticket.settle(outcome)
            else:
                self._declare(ticket, name, wished)

        self._elsewhere.check(letters.name, name, checked)

    def _letters_elsewhere(self, name: str, wished: Wished) -> RemoteTopic | None:
        """A new dead-letter topic that another process has."""
        if self._elsewhere.port is None:
            return None
        topic = self._topics.get(name.lower())
        _, wish = wished(topic)
        if wish is None or not wish.options.dead_letter:
            return None
        known = None if topic is None else topic.group(wish.name)
        if known is not None and known.options.dead_letter == wish.options.dead_letter:
            return None
        return self._elsewhere.find(wish.options.dead_letter)

    def _declare(self, ticket: Ticket, name: str, wished: Wished) -> None:
        topic = self._topics.get(name.lower())
        options, wish = wished(topic)
        problem = self._problem(topic, options, wish)
        if problem is not None:
            ticket.settle(problem)
            return

        def apply(places: list[int] | BrokerError) -> None:
            if isinstance(places, BrokerError):
                ticket.settle(places)
                return
            # The topic may have come or gone while a place was looked for, or been changed.
            current = self._topics.get(name.lower())
            if current is None or current is not topic:
                ticket.settle(topic_unknown(name))
                return
            options, wish = wished(current)
            problem = self._problem(current, options, wish)
            group = None if wish is None else current.group(wish.name)
            known: Ticket | BrokerError = ticket
            if problem is None and group is not None and wish is not None and wish.start.moves:
                known = self._seeking.reopening(ticket, group, places)
            if problem is not None:
                ticket.settle(problem)
            elif isinstance(known, BrokerError):
                ticket.settle(known)
            else:
                self._apply(known, current, options, wish, places)

        if wish is None or not wish.placed(topic):
            self._apply(ticket, topic, options, wish, None)
        elif topic is not None:
            self._seeking.find(topic, wish.start, apply)
        elif (refused := wish.start.problem_when_empty(options.partitions)) is not None:
            ticket.settle(refused)
        else:
            self._apply(ticket, topic, options, wish, None)

    def _problem(
        self, topic: Topic | None, options: TopicOptions, wish: GroupWish | None
    ) -> BrokerError | None:
        limits = self._limits
        text = name_problem(options.name)
        if text is not None:
            return BrokerError(Refusal.ILLEGAL, f"topic: {text}")
        if options.durability not in DURABILITIES:
            return BrokerError(Refusal.ILLEGAL, "durability must be memory, os or disk")
        if not 1 <= options.partitions <= limits.partitions_max:
            return BrokerError(Refusal.ILLEGAL, f"partitions must be 1 to {limits.partitions_max}")
        more = topic is None or options.partitions > len(topic.partitions)
        if more and (refused := self._puts.refusal(options)) is not None:
            return refused
        if topic is None:
            if len(self._topics) >= limits.topics_max:
                return BrokerError(
                    Refusal.TOO_MANY,
                    f"the broker has {limits.topics_max} topics, which is the limit",
                )
        elif (text := _growth_problem(topic, options)) is not None:
            return BrokerError(Refusal.ILLEGAL, text)
        elif options.durability != topic.options.durability:
            return BrokerError(Refusal.ILLEGAL, "the durability is fixed at creation")
        elif options.calls != topic.options.calls and any(map(_holds, topic.partitions)):
            text = "a topic that holds messages is not made one of services, nor back: empty it"
            return BrokerError(Refusal.ILLEGAL, text)
        if (text := _compact_problem(topic, options)) is not None:
            return BrokerError(Refusal.ILLEGAL, f"compact: {text}")
        if options.compact and (topic is None or not topic.options.compact):
            text = retries.sends_letters(self._topics, options.name)
            if text is not None:
                return BrokerError(Refusal.ILLEGAL, f"compact: {text}")
        if (problem := _schema_problem(topic, options)) is not None:
            return problem
        if topic is not None and not options.lease and topic.options.lease:
            for group in topic.groups.values():
                renewed = wish is not None and topic.group(wish.name) is group
                if not renewed and (text := _order_problem(options, group.options)):
                    return BrokerError(Refusal.ILLEGAL, f"group {group.name}: {text}")
        if wish is None:
            return None
        text = name_problem(wish.name)
        if text is not None:
            return BrokerError(Refusal.ILLEGAL, f"group: {text}")
        if text := _order_problem(options, wish.options):
            return BrokerError(Refusal.ILLEGAL, text)
        if len(wish.options.filter.encode()) > FILTER_BYTES_MAX:
            return BrokerError(Refusal.ILLEGAL, f"filter length should be <= {FILTER_BYTES_MAX}")
        known = None if topic is None else topic.group(wish.name)
        if (problem := self._option_problem(options, wish.options, known)) is not None:
            return problem
        is_new = topic is not None and known is None
        if is_new and topic and len(topic.groups) >= limits.groups_per_topic_max:
            text = f"the topic has {limits.groups_per_topic_max} groups, which is the limit"
            return BrokerError(Refusal.TOO_MANY, text)
        return None

    def _option_problem(
        self, topic: TopicOptions, options: GroupOptions, known: Group | None
    ) -> BrokerError | None:
        """Of a group that is new or changes; the topic is to have these options."""
        before = GroupOptions() if known is None else known.options
        if options.same_as(before):
            return None
        lease = topic.lease if options.lease is None else options.lease
        text = retries.problem(options, lease)
        if options.push is not None and topic.calls:
            text = "push: calls are answered by services, not by webhooks"
        if text is not None:
            return BrokerError(Refusal.ILLEGAL, text)
        if not options.dead_letter or options.dead_letter == before.dead_letter:
            return None
        if self._elsewhere.has(options.dead_letter):
            return None  # it was checked there
        return retries.dead_letter_problem(self._topics, topic.name, options.dead_letter)

    def _apply(
        self,
        ticket: Ticket,
        topic: Topic | None,
        options: TopicOptions,
        wish: GroupWish | None,
        places: list[int] | None,
    ) -> None:
        grows = topic is not None and options.partitions > len(topic.partitions)
        if topic is None:
            created_ms = self._changes.created_ms(self._tick.now_ms)
            topic = Topic(attrs.evolve(options, created_ms=created_ms, grown=()))
            if len(topic.partitions) > 1:
                topic.incarnation = self._new_id().decode("ascii", "replace")
                deciding.next_number(topic)  # so groups that partition 0 does not know are none
            self._adopt(topic, 0)
            self._tick.make(topic)
        else:
            options = attrs.evolve(options, name=topic.name, created_ms=topic.options.created_ms)
            if grows:
                self._tick.commit(topic)  # what was put so far is before the line
                gone = topic_unknown(topic.name) if topic.partitions[0].removed else None
                if (why := gone or fenced(topic)) is not None:
                    ticket.settle(why)
                    return
            options = growth.with_line(topic, options)
            if grows:
                self._grow(topic, options.partitions)
                places = places and places + [-1] * (len(topic.partitions) - len(places))
            if options != topic.options:
                topic.configure(options)
                topic.updated_ms = self._tick.now_ms
                for partition in topic.partitions:
                    partition.topic_changed = True
                    self._tick.touch(partition)
                for other in topic.groups.values():
                    other.configure(other.options)
                    self._runs.activate(other)
                    self._freed(other)
        group = None if wish is None else self._apply_group(topic, wish, places)
        self._changes.note(self._tick.now_ms)
        self._tick.confirm_all(topic, ticket, Declared(topic, group))
        if grows:
            # At once, and not at the end of the turn: what is put from now on is stored behind the
            # number by which it was put. Where a crash leaves it, the growth is left, too.
            self._tick.commit()

    def _grow(self, topic: Topic, count: int) -> None:
        first = len(topic.partitions)
        growth.grow(topic, count)
        self._adopt(topic, first)
        self._runs.following.grow(topic, count - first)
        deciding.next_number(topic)  # so groups that partition 0 does not know are none

    def _apply_group(self, topic: Topic, wish: GroupWish, places: list[int] | None) -> Group:
        name = wish.name
        group = topic.group(name)
        tick, none = self._tick, [-1] * len(topic.partitions)
        is_new = group is None
        if group is None:
            created_ms = self._changes.created_ms(tick.now_ms)
            group = Group(topic, name, attrs.evolve(wish.options, created_ms=created_ms))
            model, whole = _start_new(topic, group, wish.start)
            topic.groups[name.lower()] = group
            for backlog, place in zip(group.backlogs, places or none, strict=True):
                if place >= 0:
                    backlog.seek(place)
            deciding.begin(tick, group, model, whole, places or none)
        changed = is_new or not group.options.same_as(wish.options)
        if changed and not is_new:
            group.configure(attrs.evolve(wish.options, created_ms=group.options.created_ms))
            group.updated_ms = self._tick.now_ms
        for partition in topic.partitions if changed else ():
            if is_new or not partition.index:  # else only partition 0 has to know
                partition.options_changed[group] = None
                tick.change(partition, group)
        if places and not is_new and wish.start.moves:
            self._seeking.move(group, places)
        else:
            # One that was made by another meanwhile stays where it is.
            self._seeking.arrive(group, places if places and is_new else none)
        self._freed(group)
        return group


def _schema_problem(topic: Topic | None, options: TopicOptions) -> BrokerError | None:
    """Why a schema that is new cannot be the topic's. What the topic holds is not looked at."""
    schema = options.schema
    before = None if topic is None else topic.options.schema
    if schema is None or schema == before:
        return None
    if schema.compatibility not in COMPATIBILITIES:
        known = ", ".join(COMPATIBILITIES)
        return BrokerError(Refusal.ILLEGAL, f"schema_compatibility is one of {known}")
    try:
        compiled(schema.newest)
    except Misfit as error:
        return BrokerError(Refusal.ILLEGAL, f"schema: {error}")
    found = [] if before is None else breaks(before, schema)
    if not found:
        return None
    text = f"schema: version {schema.number} is not {schema.compatibility}"
    text += f" compatible with the one before: {'; '.join(found)}"
    return BrokerError(Refusal.CONFLICT, text)


def _growth_problem(topic: Topic, options: TopicOptions) -> str | None:
    """Why the topic cannot have that many partitions."""
    count = len(topic.partitions)
    if options.partitions < count:
        return f"the topic has {count} partitions, and cannot have fewer"
    if options.partitions == count:
        return None
    if len(growth.with_line(topic, options).grown or ()) > growth.LINES_MAX:
        return (
            f"the topic has grown {growth.LINES_MAX} times, and holds messages from before each:"
            " partitions_order=none forgets what their order was"
        )
    return None


def _compact_problem(topic: Topic | None, options: TopicOptions) -> str | None:
    """Why the topic cannot keep the newest message of each key for ever."""
    if not options.compact:
        return None
    if options.calls:
        return "calls are not kept"
    if options.durability == "memory":
        return "a topic in memory forgets its oldest messages: durability must be os or disk"
    if options.retains:
        return "the newest message of a key stays for ever: take back the retention"
    if options.remembers_ids:
        return "ids are not looked at: take back dedupe_ms and dedupe_live, use idempotency keys"
    grows = topic is not None and options.partitions > len(topic.partitions)
    if grows or (topic is not None and topic.options.grown):
        return "a topic has one number of partitions for ever, or a key would be in two of them"
    return None


def _holds(partition: Partition) -> bool:
    return max(partition.first, partition.purged_to) < partition.end


def _order_problem(topic: TopicOptions, group: GroupOptions) -> str | None:
    """Why messages cannot be delivered in this order."""
    if group.order not in ORDERS:
        return "order is key, priority or none"
    leases = topic.lease if group.lease is None else group.lease
    return None if leases or not group.order else "an order needs acknowledgements"


def claim(tick: Tick, group: Group) -> None:
    """A consumer reads the group that came with its topic: from now on it is like any other. Which
    is written before anything that it is given."""
    group.options = attrs.evolve(group.options, unclaimed=False)
    decides = group.topic.partitions[0]
    decides.options_changed[group] = None
    tick.change(decides, group)


def _start_new(topic: Topic, group: Group, start: Start) -> tuple[Group | None, bool]:
    """A named group's position, else the most advanced group's, else the beginning of the log.
    Gives the group that it was, and whether all that it has not finished was taken over."""
    model = copied = topic.group(start.copy) if start.copy else None
    if model is None and topic.groups:
        model = max(topic.groups.values(), key=lambda other: sum(other.position()))
    for index, backlog in enumerate(group.backlogs):
        if model is None:
            partition = topic.partitions[index]
            backlog.cursor = max(partition.first, partition.purged_to)
        elif copied is not None:
            backlog.copy_from(model.backlogs[index])
        else:
            backlog.cursor = model.backlogs[index].cursor
            backlog.copy_delayed(model.backlogs[index])
    return model, copied is not None
