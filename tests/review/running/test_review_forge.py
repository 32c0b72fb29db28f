"""The forge's client against a double with GitHub's limits, and the one comment that it maintains."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from everspot_review.forge import Forge
from everspot_review.publish import Published, Voice, keep_issue, publish
from everspot_review.refusals import (
    ForgeBusy,
    ForgeDenied,
    ForgeError,
    ForgeMissing,
    ForgeRejected,
    ForgeUnreachable,
    Patience,
)
from forge_double import BOT, LONGEST, RUN, TOKEN, Answer, Double

MARKER = "<!-- everspot-review -->"
HEAD = "a" * 40


@pytest.fixture(params=["github", "gitea"])
def double(request: Any) -> Iterator[Double]:
    server = Double(HEAD, gitea=request.param == "gitea")
    yield server
    server.close()


@pytest.fixture
def github() -> Iterator[Double]:
    server = Double(HEAD)
    yield server
    server.close()


def forge(double: Double, slept: list[float] | None = None, now: float = 1000.0) -> Forge:
    patience = Patience(sleep=(slept if slept is not None else []).append, now=lambda: now)
    return Forge(double.url, "boss/fleets", TOKEN, patience)


def publish_body(double: Double, body: str | None, head: str = HEAD) -> Published:
    client = forge(double)
    return publish(client, Voice.for_owner(client, MARKER), 7, head, body)


def test_one_comment_is_made_once_and_edited_ever_after(double: Double) -> None:
    for n in range(130):
        double.add_comment("someone", f"noise {n}")
    assert publish_body(double, f"{MARKER}\nfirst") == Published.CREATED
    for n in range(130):
        double.add_comment("someone", f"more noise {n}")
    assert publish_body(double, f"{MARKER}\nfirst") == Published.UNCHANGED
    assert publish_body(double, f"{MARKER}\nsecond") == Published.EDITED
    assert [c["body"] for c in double.comments if c["user"]["login"] == BOT] == [f"{MARKER}\nsecond"]
    assert len(double.writes()) == 2


def test_a_comment_with_the_marker_by_another_is_neither_edited_nor_believed(double: Double) -> None:
    forged = double.add_comment("mallory", f"{MARKER}\nall is well")
    double.add_comment(BOT, "the bot says something else")
    assert publish_body(double, f"{MARKER}\ntrue") == Published.CREATED
    assert forged["body"].endswith("all is well")
    own_comment = Voice(BOT, MARKER).own_comment(forge(double).comments(7))
    assert own_comment is not None and own_comment.body.endswith("true")


def test_a_run_that_a_push_has_overtaken_says_nothing(double: Double) -> None:
    assert publish_body(double, f"{MARKER}\nold", head="b" * 40) == Published.OVERTAKEN
    assert double.writes() == []


def test_an_answer_that_is_cut_off_is_asked_for_again(github: Double) -> None:
    github.add_comment("someone", "hello")
    github.faults = [Answer(200, [], {"Content-Length": "1000"})]
    slept = list[float]()
    assert [comment.body for comment in forge(github, slept).comments(7)] == ["hello"]
    assert slept and github.faults == []


def test_nothing_to_say_is_said_only_where_something_else_stands(double: Double) -> None:
    assert publish_body(double, None) == Published.NOTHING
    publish_body(double, f"{MARKER}\nfirst")
    assert publish_body(double, None) == Published.EDITED
    assert publish_body(double, None) == Published.UNCHANGED
    assert "No environment changes" in double.comments[0]["body"]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(401, {"message": "Bad credentials"}), ForgeDenied),
        (Answer(403, {"message": "Resource not accessible by integration"}), ForgeDenied),
        (Answer(404, {"message": "Not Found"}), ForgeMissing),
        (Answer(422, {"message": "Validation Failed"}), ForgeRejected),
    ],
    ids=lambda value: str(value.code) if isinstance(value, Answer) else "",
)
def test_refusals_are_told_apart_and_not_tried_again(github: Double, answer: Answer, kind: type[ForgeError]) -> None:
    github.faults = [answer]
    with pytest.raises(kind, match=f"GET /repos/boss/fleets/pulls/7: {answer.code}: {answer.body['message']}"):
        forge(github).pull(7)
    assert len(github.calls) == 1


def test_a_fork_s_read_only_token_and_a_comment_too_long_are_refused(github: Double) -> None:
    with pytest.raises(ForgeRejected, match="too long"):
        publish_body(github, f"{MARKER}\n" + "x" * LONGEST)
    github.read_only = True
    with pytest.raises(ForgeDenied, match="not accessible by integration"):
        publish_body(github, f"{MARKER}\nfirst")


@pytest.mark.parametrize(
    ("headers", "code", "waited"),
    [
        ({"Retry-After": "17"}, 403, 17),
        ({"Retry-After": "3"}, 429, 3),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1040"}, 403, 41),
        ({}, 429, 60),
        ({}, 403, 60),
    ],
)
def test_a_rate_limit_is_waited_for_as_long_as_it_says(
    github: Double, headers: dict[str, str], code: int, waited: float
) -> None:
    github.faults = [Answer(code, {"message": "You have exceeded a secondary rate limit"}, headers)]
    slept: list[float] = []
    assert forge(github, slept).pull(7).head == HEAD
    assert slept == [waited]


def test_a_rate_limit_beyond_patience_is_told_at_once(github: Double) -> None:
    github.faults = [Answer(403, {"message": "limited"}, {"Retry-After": "3600"})]
    slept: list[float] = []
    with pytest.raises(ForgeBusy, match="3600 s more"):
        forge(github, slept).pull(7)
    assert slept == []


def test_tries_are_bounded(github: Double) -> None:
    github.faults = [Answer(502, {"message": "bad gateway"}) for _ in range(9)]
    slept: list[float] = []
    with pytest.raises(ForgeUnreachable, match="the forge answers 502"):
        forge(github, slept).pull(7)
    assert (len(github.calls), slept) == (5, [1, 2, 4, 8])


def test_a_comment_whose_answer_was_lost_is_looked_for_and_not_made_again(github: Double) -> None:
    def done_and_lost(handler: Any) -> None:
        handler.server.add_comment(BOT, f"{MARKER}\nfirst")
        handler.close_connection = True

    ok = {"head": {"sha": HEAD}, "number": 7}
    github.faults = [Answer(403, {"message": "no"}), Answer(200, ok), Answer(200, []), done_and_lost]
    assert publish_body(github, f"{MARKER}\nfirst") == Published.UNCHANGED
    assert len(github.comments) == 1


def test_what_is_no_json_is_no_answer(github: Double) -> None:
    def page(handler: Any) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(b"<html>captive portal")
        handler.close_connection = True

    github.faults = [page] * 5
    with pytest.raises(ForgeUnreachable, match="no answer from the forge"):
        forge(github).pull(7)


def test_the_token_is_in_no_words(github: Double) -> None:
    github.faults = [Answer(403, {"message": f"the token {TOKEN} may not"})]
    client = forge(github)
    with pytest.raises(ForgeDenied) as refusal:
        client.pull(7)
    assert TOKEN not in str(refusal.value) + repr(client) and "[token]" in str(refusal.value)


def test_the_token_follows_no_redirection_to_another_place(github: Double) -> None:
    other = Double(HEAD)
    try:
        github.faults = [Answer(302, None, {"Location": f"{other.url}/repos/boss/fleets/pulls/7"})]
        with pytest.raises(ForgeError, match="302"):
            forge(github).pull(7)
        assert other.calls == []
    finally:
        other.close()


def test_pulls_of_a_commit_are_found_on_either_forge(double: Double) -> None:
    double.merged_as["c" * 40] = 7
    (pull,) = forge(double).list_pulls("c" * 40)
    assert (pull.number, pull.head, pull.base, pull.merged) == (7, HEAD, "main", True)
    assert forge(double).list_pulls("d" * 40) == []


def test_other_runs_are_those_that_were_there_and_have_not_ended(github: Double) -> None:
    def run(number: int, status: str, **more: Any) -> dict[str, Any]:
        return {"id": number, "path": ".github/workflows/apply.yml", "status": status, **more}

    until, before, after = datetime(2026, 3, 1, 12, tzinfo=UTC), "2026-03-01T11:59:59Z", "2026-03-01T12:00:01Z"
    github.runs = [
        run(RUN, "in_progress", run_started_at=before),
        run(1, "completed", run_started_at=before),
        run(2, "in_progress", run_started_at=after),
    ]
    assert forge(github).other_runs(RUN, until) == []
    github.runs += [run(3, "waiting", run_started_at=before), run(4, "queued")]
    github.runs.append({**run(5, "in_progress", run_started_at=before), "path": ".github/workflows/destroy.yml"})
    assert forge(github).other_runs(RUN, until) == [3, 4, 5]
    github.runs += [run(100 + n, "in_progress", run_started_at=after) for n in range(100)]
    with pytest.raises(ForgeError, match="more than 100 runs are in_progress"):
        forge(github).other_runs(RUN, until)


def test_one_issue_is_kept_for_what_has_drifted(double: Double) -> None:
    client, voice = forge(double), Voice(BOT, "<!-- drift local -->")
    assert keep_issue(client, voice, "local has drifted", None) == Published.NOTHING
    assert keep_issue(client, voice, "local has drifted", f"{voice.marker}\na port") == Published.CREATED
    assert keep_issue(client, voice, "local has drifted", f"{voice.marker}\na port\n") == Published.UNCHANGED
    assert keep_issue(client, voice, "local has drifted", f"{voice.marker}\ntwo ports") == Published.EDITED
    assert keep_issue(client, voice, "local has drifted", None) == Published.EDITED
    assert [(i["state"], i["body"]) for i in double.issues] == [("closed", f"{voice.marker}\ntwo ports")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"GITHUB_TOKEN": ""}, "GITHUB_TOKEN not set"),
        ({"GITHUB_API_URL": "file:///etc"}, "https://"),
        ({"GITHUB_REPOSITORY": "boss/fleets/../x"}, "OWNER/NAME"),
        ({"GITHUB_TOKEN": "a\nHost: b"}, "characters that no token has"),
    ],
)
def test_a_job_that_names_no_forge_is_told_so(change: dict[str, str], message: str) -> None:
    good = {"GITHUB_API_URL": "https://api.example", "GITHUB_REPOSITORY": "boss/fleets", "GITHUB_TOKEN": TOKEN}
    assert Forge.from_environment(good).repository == "boss/fleets"
    with pytest.raises(ForgeError, match=message):
        Forge.from_environment({**good, **change})
