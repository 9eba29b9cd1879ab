"""What the broker answers when it cannot do as asked. Errors are values: verbs settle tickets with
them, dialects translate them into their dialect. Exceptions are for bugs.

Tests: `tests/docs/test_pages.py`.
"""

from __future__ import annotations

import enum

import attrs


class InDoubt(Exception):
    """What is stored is not what the broker thinks, and it is unknown what is: nothing may be
    acknowledged any more. The one exception that ends the process."""


class Refusal(enum.Enum):
    """Why. A dialect has words of its own for each."""

    ILLEGAL = "illegal"  # a name or value that no retry makes right
    TOPIC_UNKNOWN = "topic unknown"
    GROUP_UNKNOWN = "group unknown"
    OFFSET_UNKNOWN = "offset unknown"
    NOT_LEASED = "not leased"  # any more: the lease has ended, or what it was for is settled
    SESSION_UNKNOWN = "session unknown"
    FORBIDDEN = "forbidden"  # the caller may not
    EXCLUSIVE = "exclusive"  # another session holds the group
    # The log does not end where the producer expects, or a message is not delayed any more.
    CONFLICT = "conflict"
    REUSED = "reused"  # a key that came with another message before
    UNFIT = "unfit"  # a body that does not fit the schema of its topic
    TOO_MANY = "too many"  # a stated limit is reached
    THROTTLED = "throttled"  # more a second than is taken
    TOO_LARGE = "too large"
    FULL = "full"  # no room to store; reading and acknowledging go on
    OVERLOADED = "overloaded"  # out of memory; reading and acknowledging go on
    UNANSWERED = "unanswered"  # a call whose service did not answer in time
    SERVICE_GONE = "service gone"  # the service that took a call left without an answer
    STOPPING = "stopping"
    FENCED = "fenced"  # what is stored of a partition is in doubt, and is read again
    DAMAGED = "damaged"  # stored bytes cannot be read back


class Outcome:
    """How a ticket ends (`zbus.core.topics.outcomes`)."""

    __slots__ = ()


@attrs.frozen
class BrokerError(Outcome):
    """An outcome: refused, and why in one sentence."""

    refusal: Refusal
    text: str  # for people; a dialect with words of its own for this refusal goes by `name`
    name: str = ""  # of what is unknown or taken: a topic, a group, an offset
    retry_s: int = 1  # when to come again, of refusals where that may help
    next_step: str = ""  # what to do about it, where a name alone does not say so


def topic_unknown(name: str) -> BrokerError:
    return BrokerError(Refusal.TOPIC_UNKNOWN, f"there is no topic {name}", name)


def dead_letter_unknown(name: str) -> BrokerError:
    """It is not declared along with the group: its retention, durability and readers are to be
    chosen, and of a mistyped name there would be a topic that keeps what no consumer reads."""
    next_step = f"declare the dead-letter topic first, with cmd=declare&topic={name}"
    return BrokerError(
        Refusal.TOPIC_UNKNOWN, f"there is no topic {name}", name, next_step=next_step
    )


def group_unknown(name: str) -> BrokerError:
    return BrokerError(Refusal.GROUP_UNKNOWN, f"there is no group {name}", name)


def offset_unknown(offset: int) -> BrokerError:
    return BrokerError(Refusal.OFFSET_UNKNOWN, f"there is no message at {offset}", str(offset))


def offset_outside(index: int, first: int, end: int) -> BrokerError:
    """The log does not reach back that far, or not yet that far."""
    return BrokerError(Refusal.OFFSET_UNKNOWN, f"partition {index} has offsets {first} to {end}")


def too_many_wait(waiting_max: int) -> BrokerError:
    text = f"{waiting_max} consumes are waiting on this broker, which is the limit"
    return BrokerError(Refusal.TOO_MANY, text)


def conflict(partition: int, end: int) -> BrokerError:
    text = f"expected_offset does not match: partition {partition} continues at {end}"
    return BrokerError(Refusal.CONFLICT, text, str(end))


def fenced(topic: str, partition: int, why: str) -> BrokerError:
    text = f"partition {partition} of {topic} is recovering ({why}); retry in 1 s"
    return BrokerError(Refusal.FENCED, text, topic)


INTERNAL = "internal error"
"""Why something is read again after a mistake in the program."""


def followed_no_more(topic: str) -> BrokerError:
    """Streaming a topic to its subscribers failed."""
    return BrokerError(Refusal.FENCED, f"{INTERNAL} while streaming {topic}; reconnect", topic)


def damaged(partition: int, offset: int) -> BrokerError:
    text = f"the message at offset {offset} of partition {partition} is missing from the log"
    return BrokerError(Refusal.DAMAGED, text, str(offset))


def group_taken(name: str) -> BrokerError:
    text = f"another session reads the exclusive group {name}"
    return BrokerError(Refusal.EXCLUSIVE, text, name)
