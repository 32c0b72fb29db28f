"""From a preview to the comment, and from the merge to the update, with doubles of engine and forge."""

import dataclasses
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from desk import OTHER, SAME, UPDATE, Desk, rule, step
from everspot_core.cluster.declared import UNKNOWN
from everspot_review.apply import ApplyResult, WorkflowRun, apply
from everspot_review.comment_state import read_states
from everspot_review.commenting import comment_on, read_reports, stamped
from everspot_review.drift import Drift
from everspot_review.drift_report import describe_drift
from everspot_review.engine import KEPT_BACK, Ended, Engine, EngineError
from everspot_review.errors import ReviewError
from everspot_review.forge import Forge
from everspot_review.job import PullEvent
from everspot_review.locks import Here, parse_locks
from everspot_review.previewing import Revisions, preview, preview_all
from everspot_review.refusals import Patience
from everspot_review.report import EnvironmentReport, PreviewOutcome
from everspot_review.reviewed import list_reviews
from forge_double import RUN, Double

BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)
ENDED = 4194305
"""A process that no machine has: above the kernel's largest number."""
LOCKED = (
    "error: the stack is currently locked by 1 lock(s). Either wait for the other process(es) to end or delete the "
    "lock file with `pulumi cancel`.\n  s3://state/.pulumi/locks/organization/everspot/dev/a.json?region=x: created by "
)


@pytest.fixture
def engine(desk: Desk) -> Engine:
    return Engine.find(desk.root, variables=desk.env)


def forge(desk: Desk) -> Forge:
    return Forge.from_environment(desk.env, Patience(sleep=lambda _: None))


def reviewed(desk: Desk, hub: Double, engine: Engine, head: str) -> list[EnvironmentReport]:
    """A preview of dev, told in the comment as the workflow does."""
    from everspot_review.affected import Project

    hub.head, out = head, desk.engine / "reports"
    revisions = Revisions("", head)
    preview_all(engine, Project.read(desk.root), ["dev"], [], revisions, out, timedelta(minutes=1))
    reports = read_reports(out)
    comment_on(reports, PullEvent(7, head, "main", fork=False), lambda: forge(desk))
    return reports


def test_what_was_reviewed_is_applied_and_told_in_the_comment(desk: Desk, hub: Double, engine: Engine) -> None:
    desk.answers("preview", "dev", [UPDATE])
    head = desk.commit()
    (report,) = reviewed(desk, hub, engine, head)
    hub.merged_as["c" * 40] = 7
    (review,) = list_reviews(forge(desk), ["c" * 40]).reviews
    assert (review.pull.number, review.pull.head, review.digests) == (7, head, {"dev": report.digest})
    done = apply(engine, "dev", review.digests["dev"], WorkflowRun(BEGAN))
    assert (done.status, desk.verbs()) == (ApplyResult.UPDATED, ["preview", "preview", "up"])
    for _ in range(2):
        stamped(forge(desk), review, done, BEGAN)
    (comment,) = hub.comments
    assert comment["body"].count("**dev**: updated at 2026-03-01 12:00 UTC") == 1
    assert list_reviews(forge(desk), ["c" * 40]).reviews[0].digests == review.digests


def test_the_comment_is_edited_at_the_second_push_and_blocked_ones_end_with_1(
    desk: Desk, hub: Double, engine: Engine
) -> None:
    desk.answers("preview", "dev", [UPDATE])
    reviewed(desk, hub, engine, desk.commit())
    first = hub.comments[0]["body"]
    desk.answers("preview", "dev", [UPDATE, rule()], code=1)
    head = desk.commit()
    (report,) = reviewed(desk, hub, engine, head)
    assert (report.blocked, report.outcome, len(hub.comments)) == (True, PreviewOutcome.CHANGES, 1)
    assert hub.comments[0]["body"] != first and "queue-encrypted" in hub.comments[0]["body"]
    event = desk.engine / "event.json"
    event.write_text(json.dumps({**_event(hub), "number": 7}))
    summary = desk.engine / "summary.md"
    variables = {"GITHUB_EVENT_PATH": str(event), "GITHUB_STEP_SUMMARY": str(summary)}
    done = desk.run("comment", str(desk.engine / "reports"), **variables)
    assert (done.returncode, done.stdout, done.stderr) == (1, "comment: unchanged\n", "not to be merged: dev\n")
    assert "queue-encrypted" in summary.read_text()


def _event(hub: Double) -> dict[str, Any]:
    return {"pull_request": hub.pull(7), "repository": {"full_name": "boss/fleets"}}


def test_what_is_not_what_was_reviewed_is_not_applied(desk: Desk, engine: Engine) -> None:
    desk.answers("preview", "dev", [UPDATE])
    digest = preview(engine, "dev", Revisions()).digest
    desk.answers("preview", "dev", [OTHER])
    for expected_digest in (digest, ""):
        assert apply(engine, "dev", expected_digest, WorkflowRun(BEGAN)).status is ApplyResult.NOT_REVIEWED
    done = desk.run("apply", "dev", "--reviewed", digest, GITHUB_TOKEN="")
    assert (done.returncode, "is not what was reviewed" in done.stderr) == (3, True)
    desk.answers("preview", "dev", [SAME])
    assert apply(engine, "dev", "", WorkflowRun(BEGAN)).status is ApplyResult.UNCHANGED
    assert "up" not in desk.verbs()


QUEUE_NAME = {"__defaults": ["name"], "delaySeconds": 2}


@pytest.mark.parametrize(
    ("previewed", "updated", "message"),
    [
        ([UPDATE], [OTHER], "queue.delaySeconds (3 instead of 2)"),
        ([UPDATE], [UPDATE, step("delete", "data", {"bucket": "checkpoints"}, None)], "data (delete)"),
        ([UPDATE], [SAME], ""),
        (
            [step("create", "queue", None, {**QUEUE_NAME, "name": "queue-1a2b3c4", "policy": UNKNOWN})],
            [step("create", "queue", None, {**QUEUE_NAME, "name": "queue-d4c3b2a", "policy": "{}"})],
            "",
        ),
        (
            [step("create", "queue", None, {**QUEUE_NAME, "name": "queue-1a2b3c4"})],
            [step("create", "queue", None, {**QUEUE_NAME, "name": "orders"})],
            'queue.name ("orders" instead of "queue-1a2b3c4")',
        ),
        (
            [step("update", "queue", {"apiToken": "old"}, {"apiToken": "reviewed-value"})],
            [step("update", "queue", {"apiToken": "old"}, {"apiToken": "another-value"})],
            "queue.apiToken ([secret] instead of [secret])",
        ),
        (  # the engine hides each occurrence of a secret's text
            [step("create", "queue", None, {**QUEUE_NAME, "name": "queue-[secret]76ab"})],
            [step("create", "queue", None, {**QUEUE_NAME, "name": "queue-d4c3b2a"})],
            "",
        ),
    ],
    ids=[
        "another value",
        "another resource",
        "less",
        "another drawn name",
        "a name of its own",
        "a secret",
        "hidden parts",
    ],
)
def test_an_update_that_does_what_was_not_reviewed_ends_with_3_and_names_it(
    desk: Desk, hub: Double, engine: Engine, previewed: list[Any], updated: list[Any], message: str
) -> None:
    desk.answers("preview", "dev", previewed)
    head = desk.commit()
    reviewed(desk, hub, engine, head)
    hub.merged_as[head] = 7
    desk.answers("up", "dev", updated)
    completed = desk.run("apply", "dev")
    assert completed.returncode == (3 if message else 0), completed.stderr
    assert ("the update did what was not reviewed" in completed.stderr, message in completed.stderr) == (
        bool(message),
        True,
    )
    assert "another-value" not in completed.stderr
    status = "🛑 **dev**: updated, but not as reviewed at" if message else "✅ **dev**: updated at"
    assert status in hub.comments[0]["body"]
    assert read_states(hub.comments[0]["body"])["dev"].applied


def test_an_update_that_fails_names_what_it_did_that_was_not_reviewed(desk: Desk, engine: Engine) -> None:
    desk.answers("preview", "dev", [UPDATE])
    digest = preview(engine, "dev", Revisions()).digest
    desk.answers("up", "dev", [OTHER], code=1, stderr="error: the cloud is full")
    done = apply(engine, "dev", digest, WorkflowRun(BEGAN))
    assert (done.status, "queue.delaySeconds (3 instead of 2)" in done.message) == (ApplyResult.FAILED, True)


def test_a_rule_that_is_broken_stops_before_the_update(desk: Desk, engine: Engine) -> None:
    desk.answers("preview", "dev", [UPDATE])
    digest = preview(engine, "dev", Revisions()).digest
    desk.answers("preview", "dev", [UPDATE, rule()], code=1)
    done = apply(engine, "dev", digest, WorkflowRun(BEGAN))
    assert (done.status, "rule broken: queue-encrypted (queue)" in done.message) == (ApplyResult.REFUSED, True)
    desk.answers("preview", "dev", [UPDATE, rule("advisory")])
    assert apply(engine, "dev", digest, WorkflowRun(BEGAN)).status is ApplyResult.UPDATED
    assert desk.verbs().count("up") == 1


@pytest.mark.parametrize(
    ("forged", "reason"),
    [("author", "has no comment of ours"), ("push", "and its last revision is"), ("commit", "no merged pull request")],
)
def test_a_digest_that_is_not_ours_or_of_another_revision_is_not_believed(
    desk: Desk, hub: Double, engine: Engine, forged: str, reason: str
) -> None:
    desk.answers("preview", "dev", [UPDATE])
    reviewed(desk, hub, engine, desk.commit())
    hub.merged_as["c" * 40] = 7
    if forged == "author":
        hub.comments[0]["user"]["login"] = "mallory"
    elif forged == "push":
        hub.head = "d" * 40
    else:
        hub.merged_as.clear()
    review = list_reviews(forge(desk), ["c" * 40]).expected_digest("dev")
    assert (review.digest, reason in review.reason) == ("", True)


def locked(desk: Desk, holder: str) -> None:
    desk.answers("preview", "dev", [UPDATE])
    (desk.engine / "lock.dev").write_text(LOCKED + holder)


def test_a_lock_that_an_earlier_run_of_the_workflow_left_is_freed(desk: Desk, hub: Double, engine: Engine) -> None:
    locked(desk, f"{Here.own().user}@{Here.own().host} (pid {ENDED}) at 2026-03-01T11:00:00Z")
    digest = preview(engine, "dev", Revisions()).digest
    hub.runs = [{"id": RUN, "path": ".github/workflows/apply.yml", "status": "in_progress"}]
    done = apply(engine, "dev", digest, WorkflowRun(BEGAN, forge(desk), RUN))
    assert (done.status, desk.verbs()) == (ApplyResult.UPDATED, ["preview", "preview", "up", "cancel", "up"])


def test_a_lock_that_another_run_takes_meanwhile_is_no_failed_update(desk: Desk, hub: Double, engine: Engine) -> None:
    locked(desk, f"{Here.own().user}@{Here.own().host} (pid {ENDED}) at 2026-03-01T11:00:00Z")
    (desk.engine / "next_lock.dev").write_text(LOCKED + "alice@laptop (pid 78) at 2026-03-01T12:00:01Z")
    digest = preview(engine, "dev", Revisions()).digest
    hub.runs = [{"id": RUN, "path": ".github/workflows/apply.yml", "status": "in_progress"}]
    done = apply(engine, "dev", digest, WorkflowRun(BEGAN, forge(desk), RUN))
    assert (done.status, desk.verbs()[-2:]) == (ApplyResult.LOCKED, ["cancel", "up"])
    assert "the stack is locked by alice@laptop (process 78) since 2026-03-01" in done.message


@pytest.mark.parametrize(
    ("holder", "others", "token"),
    [
        ("ME@HERE (pid ENDED) at 2026-03-01T11:00:00Z", [-9], True),
        ("alice@HERE (pid ENDED) at 2026-03-01T11:00:00Z", [], True),
        ("ME@fv-az1 (pid ENDED) at 2026-03-01T11:00:00Z", [], True),
        ("ME@HERE (pid ALIVE) at 2026-03-01T11:00:00Z", [], True),
        ("ME@HERE (pid ENDED) at 2026-03-01T12:00:01Z", [], True),
        ("ME@HERE (pid ENDED) at 2026-03-01T11:00:00Z", [9], True),
        ("ME@HERE (pid ENDED) at 2026-03-01T11:00:00Z", [], False),
    ],
    ids=[
        "another workflow's",
        "somebody else's",
        "on another machine",
        "a process that lives",
        "younger than this run",
        "another run in progress",
        "on a person's machine",
    ],
)
def test_any_other_lock_stays_and_its_holder_is_named(
    desk: Desk, hub: Double, engine: Engine, holder: str, others: list[int], token: bool
) -> None:
    for placeholder, value in (
        ("ME", Here.own().user),
        ("HERE", Here.own().host),
        ("ENDED", ENDED),
        ("ALIVE", os.getpid()),
    ):
        holder = holder.replace(placeholder, str(value))
    locked(desk, holder)
    digest = preview(engine, "dev", Revisions()).digest
    hub.runs = [
        {"id": abs(n), "path": f".github/workflows/{'apply' if n > 0 else 'destroy'}.yml", "status": "in_progress"}
        for n in (RUN, *others)
    ]
    done = apply(engine, "dev", digest, WorkflowRun(BEGAN, forge(desk), RUN) if token else WorkflowRun(BEGAN))
    assert (done.status, desk.verbs()[-1]) == (ApplyResult.LOCKED, "up")
    name, _, process, *_ = holder.replace(")", "").split(" ")
    assert f" by {name} (process {process}) since 2026-03-01" in done.message
    assert "pulumi cancel --stack dev" in done.message


def test_a_stale_lock_of_this_machine_is_told_from_one_that_is_held(desk: Desk) -> None:
    here = Here.own()
    lock_text = LOCKED + f"{here.user}@{here.host} (pid %d) at 2026-03-01T11:00:00+01:00"
    (stale,) = parse_locks(lock_text % ENDED)
    (alive,) = parse_locks(lock_text % os.getpid())
    assert (here.ended(stale), here.ended(alive)) == (True, False)
    assert stale.where.startswith("s3://state/.pulumi/locks/") and stale.since == datetime(2026, 3, 1, 10, tzinfo=UTC)


def test_an_engine_that_does_not_stop_is_killed_and_its_preview_is_a_failed_one(desk: Desk, engine: Engine) -> None:
    hasty = dataclasses.replace(engine, ends_in=timedelta(milliseconds=100))
    desk.answers("preview", "dev", [UPDATE])
    digest = preview(hasty, "dev", Revisions()).digest
    (desk.engine / "up.dev.hangs").touch()
    done = apply(hasty, "dev", digest, WorkflowRun(BEGAN), limits=(timedelta(minutes=1), timedelta(seconds=1)))
    assert (done.status, "had not ended within 1s" in done.message) == (ApplyResult.FAILED, True)
    assert "cancel" not in desk.verbs()  # the lock was free
    (desk.engine / "preview.dev.hangs").touch()
    report = preview(hasty, "dev", Revisions(), timedelta(seconds=1))
    assert (report.outcome, report.digest) == (PreviewOutcome.FAILED, "")
    assert "had not ended within 1s" in report.diagnostics[-1].text


@pytest.mark.parametrize("is_own", [True, False], ids=["its own", "another's"])
def test_the_lock_that_a_killed_engine_kept_is_freed_and_no_other(
    desk: Desk, engine: Engine, monkeypatch: pytest.MonkeyPatch, is_own: bool
) -> None:
    freed: list[str] = []
    here = Here.own()
    holder = f"{here.user}@{here.host} (pid {77 if is_own else 78}) at 2026-03-01T11:00:00Z"
    killed = Ended(-9, 77, "stopped", late=True, killed=True)
    monkeypatch.setattr(Engine, "up", lambda *_: killed)
    monkeypatch.setattr(Engine, "holders", lambda *_: LOCKED + holder)
    monkeypatch.setattr(Engine, "cancel", lambda _, environment: freed.append(environment))
    desk.answers("preview", "dev", [UPDATE])
    digest = preview(engine, "dev", Revisions()).digest
    assert apply(engine, "dev", digest, WorkflowRun(BEGAN)).status is ApplyResult.FAILED
    assert freed == (["dev"] if is_own else [])


def test_the_change_s_program_gets_nothing_of_what_the_job_may_do_at_the_forge(desk: Desk, engine: Engine) -> None:
    desk.env |= dict.fromkeys(KEPT_BACK, "the-job-s-own") | {"AWS_ROLE_ARN": "arn"}
    desk.answers("preview", "dev", [UPDATE])
    preview(Engine.find(desk.root, variables=desk.env), "dev", Revisions())
    assert desk.calls()[-1]["env"] == {"AWS_ROLE_ARN": "arn", "PULUMI_DEBUG_COMMANDS": "true"}


def test_an_environment_whose_settings_are_deleted_is_refused_while_its_stack_has_resources(desk: Desk) -> None:
    desk.git("rm", "-q", "stacks/Pulumi.dev.yaml", "stacks/Pulumi.prod.yaml")
    desk.commit()
    done = desk.run("preview", "--base", "HEAD~1", "--out", "reports", "--json")
    (report,) = json.loads(done.stdout)["reports"]
    assert (report["environment"], report["outcome"]) == ("dev", "failed")
    text = report["diagnostics"][0]["text"]
    assert "the stack dev still has 3 resources" in text
    assert "a renamed stack declares another cluster" in text and "pulumi stack rename" not in text


def test_a_stack_whose_count_is_not_told_is_counted_and_not_taken_for_empty(desk: Desk, engine: Engine) -> None:
    (desk.engine / "stacks.json").write_text(json.dumps([{"name": "organization/everspot/dev"}, {"name": "prod"}]))
    for name, resources in (("dev", [{"urn": "a"}, {"urn": "b"}]), ("prod", None)):
        (desk.engine / f"state.{name}.json").write_text(json.dumps({"deployment": {"resources": resources}}))
    assert [engine.resources(name) for name in ("dev", "prod", "nowhere")] == [2, 0, 0]


def test_a_failed_engine_is_told_by_its_last_words(desk: Desk, engine: Engine) -> None:
    (desk.engine / "preview.dev.code").write_text("255")
    (desk.engine / "preview.dev.told").write_text("error: passphrase must be set")
    report = preview(engine, "dev", Revisions())
    assert (report.outcome, report.diagnostics[0].text) == (PreviewOutcome.FAILED, "error: passphrase must be set")


def test_a_report_that_is_missing_is_not_taken_for_no_change(desk: Desk, engine: Engine) -> None:
    reports = desk.engine / "reports"
    with pytest.raises(ReviewError, match="has no reports"):
        read_reports(reports)
    reports.mkdir()
    (reports / "environments.txt").write_text("dev\n")
    with pytest.raises(ReviewError, match=r"dev\.json is no report"):
        read_reports(reports)
    (reports / "environments.txt").write_text("dev\n../elsewhere\n")
    with pytest.raises(ReviewError, match=r"no name of an environment: '\.\./elsewhere'"):
        read_reports(reports)


def test_a_fork_s_pull_request_gets_its_answer_in_the_summary(desk: Desk, hub: Double, engine: Engine) -> None:
    desk.answers("preview", "dev", [UPDATE])
    report = preview(engine, "dev", Revisions("", "a" * 40))
    published = comment_on([report], PullEvent(7, "a" * 40, "main", fork=True), lambda: forge(desk))
    assert ("fork" in published.status, hub.calls) == (True, [])
    pull = hub.pull(7)
    pull["head"]["repo"]["full_name"] = "mallory/fleets"
    event = desk.engine / "event.json"
    event.write_text(json.dumps({"pull_request": pull, "repository": {"full_name": "boss/fleets"}}))
    assert PullEvent.read({"GITHUB_EVENT_PATH": str(event)}).fork


def test_what_is_missing_is_told_in_one_sentence(desk: Desk) -> None:
    with pytest.raises(EngineError, match="pulumi is not on PATH"):
        Engine.find(desk.root, variables={"PATH": "/nowhere"})
    with pytest.raises(EngineError, match="no policy pack: nothing"):
        Engine.find(desk.root, [Path("nothing")], variables=desk.env)
    for command in (("apply", "dev"), ("drift", "--issue")):
        done = desk.run(*command, GITHUB_TOKEN="")
        assert (done.returncode, "GITHUB_API_URL" in done.stderr and "Traceback" not in done.stderr) == (4, True)
        assert ("--reviewed DIGEST" in done.stderr) is (command[0] == "apply")


def test_words_of_the_engine_are_no_markup_in_the_summary(desk: Desk, engine: Engine) -> None:
    words, summary = "@acme/owners ![x](https://evil.test/x)", desk.engine / "summary"
    desk.answers("preview", "dev", [UPDATE])
    digest = preview(engine, "dev", Revisions()).digest
    desk.answers("up", "dev", [], code=1, stderr=words)
    done = desk.run("apply", "dev", "--reviewed", digest, GITHUB_STEP_SUMMARY=str(summary))
    assert (done.returncode, words in done.stderr) == (1, True)
    assert summary.read_text().startswith(f"- `dev: the update failed: {words}`\n- `dev: left to do, and reviewed: ")
    assert f"`{words}`" in describe_drift(Drift("dev", skipped_checks=(words,)))
