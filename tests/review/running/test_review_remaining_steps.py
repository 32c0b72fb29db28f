"""After a failed update, a later run applies the remaining reviewed steps, and no others. A finished update is not
applied again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from desk import SAME, Desk, rule, step
from everspot_review.comment_state import CommentState, read_states, with_states
from everspot_review.commenting import carried
from everspot_review.forge import Forge
from everspot_review.markdown import digests
from everspot_review.refusals import Patience
from everspot_review.reviewed import list_reviews
from forge_double import BOT, Double

Steps = list[dict[str, Any]]
HEAD, REST = "a" * 40, "b" * 64


def changed(*names: str, to: int = 2) -> Steps:
    return [step("update", name, {"delaySeconds": 1}, {"delaySeconds": to}) for name in names]


def merged(desk: Desk, hub: Double, steps: Steps, *more: str) -> str:
    """A change of dev, and of `more`, that was previewed, commented, and merged as the commit that is returned."""
    desk.answers("preview", "dev", steps)
    head = desk.commit()
    hub.head, hub.merged_as[head] = head, 7
    reports = str(desk.engine / "reports")
    assert desk.run("preview", "dev", *more, "--out", reports).returncode == 0
    assert desk.run("comment", reports, "--number", "7", "--head", head).returncode == 0
    return head


def fails(desk: Desk, steps: Steps, code: int = 0) -> None:
    """Have the next update fail, and previews after it find this."""
    desk.answers("after", "dev", steps, code)
    desk.answers("up", "dev", [], code=1, stderr="error: the cloud is full")


def test_an_update_that_failed_half_way_goes_on_with_the_rest_and_with_the_rest_of_that(
    desk: Desk, hub: Double, tmp_path: Path
) -> None:
    head = merged(desk, hub, changed("a", "b", "c"))
    reviewed = digests(hub.comments[0]["body"])
    for remaining in (changed("b", "c"), changed("c")):
        fails(desk, remaining)
        done = desk.run("apply", "dev", GITHUB_STEP_SUMMARY=str(tmp_path / "summary"))
        assert (done.returncode, "run this again: it goes on with the rest" in done.stderr) == (1, True), done.stderr
        assert "**dev**: failed at" in hub.comments[0]["body"]
    assert digests(hub.comments[0]["body"]) == reviewed and "it goes on" in (tmp_path / "summary").read_text()
    desk.answers("up", "dev", [])
    done = desk.run("apply", "dev")
    assert (done.returncode, desk.verbs().count("up")) == (0, 3), done.stderr
    assert f"dev: goes on with the rest of {head[:12]}, whose update failed" in done.stderr
    assert f"UTC, went on with the rest of {head[:12]}\n" in hub.comments[0]["body"]
    assert read_states(hub.comments[0]["body"])["dev"].applied


@pytest.mark.parametrize(
    ("remaining_steps", "code", "reason"),
    [
        (changed("b", "z"), 0, "this was not reviewed: z (update)"),
        ([step("delete", "b", {"delaySeconds": 1}, None)], 0, "this was not reviewed: b (delete)"),
        (changed("b", to=400), 0, "this was not reviewed: b.delaySeconds (400 instead of 2)"),
        ([], 255, "nobody knows what is left"),
        ([*changed("b"), rule()], 1, "what is left breaks a mandatory rule"),
    ],
    ids=["another resource", "another deed", "another value", "no preview", "a rule"],
)
def test_a_rest_that_was_not_reviewed_is_not_kept(
    desk: Desk, hub: Double, remaining_steps: Steps, code: int, reason: str
) -> None:
    merged(desk, hub, changed("a", "b"))
    fails(desk, remaining_steps, code)
    done = desk.run("apply", "dev")
    assert (done.returncode, reason in done.stderr) == (1, True), done.stderr
    assert "open a pull request that touches Pulumi.dev.yaml" in done.stderr
    assert read_states(hub.comments[0]["body"]) == {}
    desk.answers("up", "dev", [])
    desk.answers("preview", "dev", [each for each in remaining_steps if "resourcePreEvent" in each] or changed("b"))
    assert (desk.run("apply", "dev").returncode, desk.verbs().count("up")) == (3, 1)


def test_what_differs_from_the_kept_rest_is_not_applied(desk: Desk, hub: Double) -> None:
    merged(desk, hub, changed("a", "b"))
    fails(desk, changed("b"))
    assert desk.run("apply", "dev").returncode == 1
    desk.answers("preview", "dev", changed("b", to=3))
    done = desk.run("apply", "dev")
    assert (done.returncode, "is not what was reviewed" in done.stderr, desk.verbs().count("up")) == (3, True, 1)
    desk.answers("preview", "dev", changed("b"))
    desk.answers("up", "dev", [])
    assert desk.run("apply", "dev").returncode == 0, "it is still kept"


def test_without_a_comment_the_rest_is_applied_by_its_digest(desk: Desk) -> None:
    desk.answers("preview", "dev", changed("a", "b"))
    printed = desk.run("preview", "dev", "--out", str(desk.engine / "reports")).stdout
    fails(desk, changed("b"))
    done = desk.run("apply", "dev", "--reviewed", printed.split()[-1])
    digest = done.stderr.partition("--reviewed ")[2][:64]
    assert (done.returncode, len(digest)) == (1, 64), done.stderr
    desk.answers("up", "dev", [])
    assert desk.run("apply", "dev", "--reviewed", digest).returncode == 0


def test_what_was_applied_is_not_applied_again_by_an_older_run(desk: Desk, hub: Double) -> None:
    merged(desk, hub, changed("a"))
    assert desk.run("apply", "dev").returncode == 0
    body = hub.comments[0]["body"]
    again = desk.run("apply", "dev")  # a later pull request has undone it: the same would be done once more
    assert (again.returncode, desk.verbs().count("up")) == (3, 1)
    assert "dev: applied already at 2" in again.stderr and "needs a pull request of its own" in again.stderr
    desk.answers("preview", "dev", [SAME])
    assert (desk.run("apply", "dev").returncode, hub.comments[0]["body"]) == (0, body)


def test_the_rest_of_one_environment_is_applied_where_another_was_applied_and_has_moved_on(
    desk: Desk, hub: Double
) -> None:
    desk.answers("preview", "prod", changed("a", "b"))
    merged(desk, hub, changed("a"), "prod")
    desk.answers("after", "prod", changed("b"))
    desk.answers("up", "prod", [], code=1)
    assert desk.run("apply", "dev", "prod").returncode == 1
    assert [read_states(hub.comments[0]["body"])[name].applied for name in ("dev", "prod")] == [True, False]
    desk.answers("up", "prod", [])
    done = desk.run("apply", "dev", "prod")
    assert (done.returncode, desk.verbs().count("up")) == (3, 3), done.stderr
    assert "dev: applied already" in done.stderr and "prod: updated" in done.stderr


def test_only_our_comment_s_fourth_line_on_this_revision_is_believed(desk: Desk, hub: Double) -> None:
    head = merged(desk, hub, changed("a"))
    forge = Forge.from_environment(desk.env, Patience(sleep=lambda _: None))
    own_comment, entry = hub.comments[0], CommentState(head, "2026-03-01 12:00 UTC", REST)
    plain, forged = own_comment["body"], with_states(own_comment["body"], {"dev": entry})
    own_comment["body"] = forged
    assert list_reviews(forge, [head]).state_at("dev", head) == entry
    line = forged.split("\n")[3]
    own_comment["body"] = f"{plain}\n{line}\n"
    hub.add_comment("mallory", forged)
    (review,) = list_reviews(forge, [head]).reviews
    assert (review.states, review.pull.number) == ({}, 7)
    own_comment["body"] = with_states(plain, {"dev": replace(entry, revision="c" * 40)})
    assert list_reviews(forge, [head]).state_at("dev", head) is None and own_comment["user"]["login"] == BOT


def test_a_review_of_a_new_revision_drops_what_was_kept_and_one_of_the_same_does_not(desk: Desk, hub: Double) -> None:
    head = merged(desk, hub, changed("a", "b"))
    fails(desk, changed("b"))
    assert desk.run("apply", "dev").returncode == 1
    reports = str(desk.engine / "reports")
    for expected_names in (["dev"], []):
        revision = hub.head = head if expected_names else desk.commit()
        assert desk.run("preview", "dev", "--out", reports).returncode == 0
        assert desk.run("comment", reports, "--number", "7", "--head", revision).stdout == "comment: edited\n"
        body = hub.comments[0]["body"]
        assert (list(read_states(body)), "**dev**: failed at" in body) == (expected_names, bool(expected_names))


@pytest.mark.parametrize(
    "text",
    ["[1]", "{", '{"dev": 1}', '{"dev": {"at": "x", "rest": "", "revision": "aaaaaaa"}}', '{"dev": {"rest": ""}}'],
)
def test_what_is_no_entry_is_left_out(text: str) -> None:
    assert read_states(f"1\n2\n3\n<!-- everspot-kept {text} -->\n") == {}


def test_the_line_takes_any_name_and_is_replaced_whole() -> None:
    name, body = "a--><b>\n", f"1\n2\n<!-- everspot-head {HEAD} -->\n\nrest\n"
    states = {name: CommentState(HEAD, "2026-03-01 12:00 UTC", REST)}
    marked = with_states(body, states)
    assert (read_states(marked), read_states(with_states(marked, {})), with_states(marked, {})) == (states, {}, body)
    assert carried(marked, body) == marked and marked.split("\n")[3].count("-->") == 1
