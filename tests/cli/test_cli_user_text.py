"""User text is printed unchanged on a console of any encoding, and never as markup or emoji."""

from typing import Any

import pytest
from everspot_core.encodings import SUBSTITUTES, degrade_output, substitute
from everspot_core.jobs.records import Reason

MARKUP_TEAMS = ("[/INST]", "[ml] vision", "[bold red]x[/]", "[link=file:///etc]y", ":warning: team", "\\[z]")
"""Team names that rich would close a tag for, swallow, color, link, replace by an emoji, or unescape."""

READING = (
    ("jobs",), ("jobs", "--all"), ("job", "moved"), ("report",), ("budget",), ("chargeback",), ("audit",),
    ("instances",), ("fleet",), ("anomalies",), ("changes",), ("doctor",), ("estimate",), ("prices",),
    ("federation",), ("commitments",), ("gc",),
)  # fmt: skip

ENCODINGS = ("ascii", "latin-1", "cp437", "cp1252")


def frozen(world: Any) -> dict[str, str]:
    return {"EVERSPOT_CLOCK": f"1e-12@{world.clock.now().timestamp():.0f}"}


def make_failed_jobs(world: Any, teams: tuple[str, ...]) -> None:
    """Give each team a job that ran and failed, with the team's name in its tags and in the message."""
    for number, team in enumerate(teams):
        job, at = f"job-{number}", 9100 + 100 * number
        world.submit(job, at, tags={"Team": team, "Project": f"project {team}"})
        world.assign(job, "i-base", at + 1)
        world.start(job, at + 2)
        world.leave(job, at + 60, Reason.ERROR, exit_code=1, detail=f"ValueError: no {team} here")


@pytest.mark.parametrize("team", MARKUP_TEAMS)
def test_text_in_square_brackets_is_printed_as_it_is(past: Any, team: str) -> None:
    """Given a team whose name rich would read as markup, when tables show it, then each character is there."""
    make_failed_jobs(past, (team,))
    past.run("budget", "set", "--team", team, "--per", "day", "--dollars", "10")

    for command in (("report",), ("budget",), ("job", "job-0"), ("chargeback",)):
        answer = past.run(*command, env=frozen(past))
        assert (answer.code, answer.err) == (0, ""), command
        assert team in answer.out, command


def test_one_odd_tag_breaks_no_command(past: Any) -> None:
    """Given a cluster with all odd names, when any command reads it, then it ends as it does without them."""
    plain = {command: past.run(*command, env=frozen(past)).code for command in READING}

    make_failed_jobs(past, MARKUP_TEAMS)

    assert {command: past.run(*command, env=frozen(past)).code for command in READING} == plain


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_console_without_unicode_gets_substitutes(past: Any, encoding: str) -> None:
    """Given a console of another encoding and a tag that it lacks, when commands print, then none of them fails."""
    make_failed_jobs(past, ("团队 é",))
    past.run("budget", "set", "--team", "团队 é", "--per", "day", "--dollars", "10")

    for command in READING:
        expected, answer = (past.run(*command, env=frozen(past), encoding=name) for name in ("utf-8", encoding))
        assert answer.code == expected.code, (command, answer.err)
        assert bool(answer.out) == bool(expected.out), command
    assert "\\u56e2\\u961f" in past.run("report", env=frozen(past), encoding=encoding).out


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_errors_are_readable_in_every_encoding(past: Any, encoding: str) -> None:
    """Given an error that quotes text which the console lacks, when it is printed, then the sentence stays."""
    answer = past.run("job", "团队—x", encoding=encoding)

    assert answer.code != 0
    assert "error: " in answer.err
    assert "\\u56e2" in answer.err


def test_bytes_that_are_not_utf8_are_escaped(past: Any) -> None:
    """Given a name from a file system that is not UTF-8, when it is printed to a UTF-8 console, then it is escaped."""
    answer = past.run("job", "caf\udce9")

    assert "\\udce9" in answer.err


def test_substitutes_are_ascii_and_distinct_names_stay_distinct() -> None:
    """Substitutes must be in every encoding; user text is escaped, so that é and e do not become one name."""
    assert all(text.isascii() for text in SUBSTITUTES.values())
    assert substitute("é→\udce9") == "\\xe9->\\udce9"
    degrade_output(None, object())  # streams that are not text files stay unchanged
