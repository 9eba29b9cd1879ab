"""What can be wrong, and with which exit code a job ends that says so."""

from __future__ import annotations

import re
from collections.abc import Iterable


class SparkProblem(Exception):
    """Something that a person can do something about: its text says what."""

    exit_code = 1


class Unreachable(SparkProblem):
    """The broker cannot be reached, or does not answer."""


class Usage(SparkProblem):
    """An option, a column or a name that cannot be."""

    exit_code = 2


def refuse(problems: Iterable[tuple[bool, str]]) -> None:
    """Raises Usage with the text of the first that is so."""
    for wrong, text in problems:
        if wrong:
            raise Usage(text)


class UnknownTopic(Usage):
    """There is no such topic, or the token may not see it."""


class DataLoss(SparkProblem):
    """Messages that were to be read are not there any more, or the topic is another one by now."""

    exit_code = 3


class LostRace(SparkProblem):
    """Another client has done it."""

    exit_code = 4


class Unverified(SparkProblem):
    """What was checked is not as it should be."""

    exit_code = 5


class NoSpark(SparkProblem):
    """Spark or Java is not there, or does not fit, or does not start."""


_MARKED = re.compile(r"zbus\.spark\.errors\.(\w{1,40}): ([^\n]{1,2000})")


def marker_of(kind: type[SparkProblem]) -> str:
    """Begins a text that Spark is to raise itself, so that it is found like the others."""
    return f"zbus.spark.errors.{kind.__name__}: "


def problem_in(error: BaseException) -> SparkProblem | None:
    """What was raised in a process of Spark comes back as text in another error: this finds it."""
    found = _MARKED.findall(str(error))
    if not found:
        return None
    name, text = found[-1]
    kind = globals().get(name, SparkProblem)
    if isinstance(kind, type) and issubclass(kind, SparkProblem):
        return kind(text.strip())
    return SparkProblem(text.strip())
