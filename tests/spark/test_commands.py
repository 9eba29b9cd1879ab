"""What the commands of the jobs share: options, problems as texts with exit codes."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from zbus.cli import main
from zbus.spark import errors
from zbus.spark.commands import JOBS, Common, spark, takes
from zbus.spark.session import read_conf


def run(problem: Exception | None, *words: str) -> tuple[int, str, list[Common]]:
    """A job that fails like this."""
    seen = []

    @click.command()
    @takes()
    def job(common: Common) -> None:
        seen.append(common)
        if problem is not None:
            raise problem

    found = CliRunner().invoke(job, words)
    return found.exit_code, found.output, seen


class Captured(Exception):
    """As Spark gives an error of another process back."""


@pytest.mark.parametrize(
    ("problem", "code", "said"),
    [
        (None, 0, ""),
        (errors.Unreachable("no broker at x"), 1, "zbus: no broker at x\n"),
        (errors.NoSpark("no Java"), 1, "zbus: no Java\n"),
        (errors.Usage("no such column"), 2, "zbus: no such column\n"),
        (errors.UnknownTopic("no topic x"), 2, "zbus: no topic x\n"),
        (errors.DataLoss("offsets 0 to 9 are gone"), 3, "zbus: offsets 0 to 9 are gone\n"),
        (errors.LostRace("another archiver"), 4, "zbus: another archiver\n"),
        (errors.Unverified("2 things are wrong"), 5, "zbus: 2 things are wrong\n"),
        (
            Captured("[X] Job aborted\nzbus.spark.errors.DataLoss: gone\nJVM stacktrace:\n  at x"),
            3,
            "zbus: gone\n",
        ),
        (Captured("Caused by zbus.spark.errors.Else: what"), 1, "zbus: what\n"),
        (
            click.UsageError("x"),
            2,
            "Usage: job [OPTIONS]\nTry 'job --help' for help.\n\nError: x\n",
        ),
    ],
)
def test_a_problem_is_a_text_and_an_exit_code(
    problem: Exception | None, code: int, said: str
) -> None:
    assert run(problem)[:2] == (code, said)


def test_what_is_no_problem_of_the_user_is_not_hidden() -> None:
    assert run(Captured("java.lang.OutOfMemoryError"))[0] == 1
    assert run(Captured("java.lang.OutOfMemoryError"))[1] == ""


def test_where_messages_are_read() -> None:
    words = ("--broker", "h:1", "--token-file", "t", "--tls-ca", "c")
    assert run(None, *words)[2][0].options() == {"broker": "h:1", "tokenFile": "t", "tlsCa": "c"}
    assert run(None, *words, "--data-dir", "d")[2][0].options() == {"path": "d"}
    assert run(None)[2][0].options() == {"broker": "127.0.0.1:15555"}
    [common] = run(None, "--broker", "h:1", "--patience", "1500ms")[2]
    assert common.where().patience_s == 1.5
    assert common.options() == {"broker": "h:1", "patience": "1.500s"}
    assert run(errors.Usage("x"), "--patience", "soon")[0] == 2


def test_settings_of_spark() -> None:
    assert read_conf(("a.b=c=d", "e=")) == {"a.b": "c=d", "e": ""}
    for bad in ("", "a", "=b"):
        with pytest.raises(errors.Usage, match="key=value"):
            read_conf((bad,))


@pytest.mark.parametrize("words", [["nonsense"], ["--nonsense"]])
def test_a_job_that_is_not_there(words: list[str]) -> None:
    for command, before in ((spark, []), (main, ["spark"])):
        found = CliRunner().invoke(command, [*before, *words])
        assert found.exit_code == 2
        assert "nonsense" in found.output


@pytest.mark.parametrize("job", JOBS)
def test_each_job_says_what_it_takes(job: str) -> None:
    found = CliRunner().invoke(main, ["spark", job, "--help"])
    assert found.exit_code == 0, found.output
    assert "--broker" in found.output or "Commands" in found.output
