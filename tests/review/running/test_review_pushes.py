"""One push may contain several pull requests: each environment is applied as the newest of them that changes it was
reviewed."""

from pathlib import Path
from typing import Any

import everspot_review.history as history
import pytest
from desk import SAME, Desk, step
from everspot_review.affected import NO_REVISION, ChangeError
from everspot_review.comment_state import read_states
from everspot_review.history import pushed
from forge_double import Double

ON_MAIN = {"GITHUB_REF": "refs/heads/main"}


def changed(*names: str) -> list[dict[str, Any]]:
    return [step("update", name, {"delaySeconds": 1}, {"delaySeconds": 2}) for name in names]


def merged(desk: Desk, hub: Double, number: int, **previews: list[dict[str, Any]]) -> str:
    """A pull request that edits and previews these environments, merged on top of main; returns the merge."""
    desk.git("checkout", "-q", "-B", f"change-{number}", "main")
    for name, steps in previews.items():
        path = desk.root / f"stacks/Pulumi.{name}.yaml"
        path.write_text(f"{path.read_text()}# {number}\n")
        desk.answers("preview", name, steps)
    head = hub.heads[number] = desk.commit(f"change {number}")
    reports = str(desk.engine / f"reports-{number}")
    assert desk.run("preview", *previews, "--out", reports).returncode == 0
    assert desk.run("comment", reports, "--number", str(number), "--head", head).returncode == 0
    desk.git("checkout", "-q", "main")
    desk.git("merge", "-q", "--no-ff", f"change-{number}", "-m", f"merge {number}")
    merge = hub.tip = desk.git("rev-parse", "HEAD")
    hub.merged_as[merge] = number
    return merge


def applied(desk: Desk, base: str) -> tuple[int, str]:
    done = desk.run("apply", "--base", base, **ON_MAIN)
    return done.returncode, done.stderr


def updates(desk: Desk) -> list[str]:
    """The stacks that were updated, in order."""
    words = [call["words"] for call in desk.calls() if call["words"][0] == "up"]
    return [next(argument for argument in each if argument.startswith("--stack=")).partition("=")[2] for each in words]


def read_body(hub: Double, number: int) -> str:
    (body,) = [str(comment["body"]) for comment in hub.comments if comment["issue"] == number]
    return body


def test_two_pull_requests_of_two_environments_in_one_push_are_both_applied(desk: Desk, hub: Double) -> None:
    base = desk.git("rev-parse", "HEAD")
    merged(desk, hub, 7, dev=changed("a"))
    head = merged(desk, hub, 8, prod=changed("b"))
    code, output = applied(desk, base)
    assert (code, updates(desk)) == (0, ["dev", "prod"]), output
    for number, name, other in ((7, "dev", "prod"), (8, "prod", "dev")):
        body = read_body(hub, number)
        assert f"✅ **{name}**: updated at" in body and f"**{other}**:" not in body
        assert read_states(body)[name].revision == head
    again, output = applied(desk, base)
    assert (again, updates(desk), output.count("applied already")) == (3, ["dev", "prod"], 2)


def test_two_changes_of_one_environment_that_nobody_has_seen_together_are_not_applied(desk: Desk, hub: Double) -> None:
    base = desk.git("rev-parse", "HEAD")
    merged(desk, hub, 7, dev=changed("a"))
    merged(desk, hub, 8, dev=changed("b"))
    desk.answers("preview", "dev", changed("a", "b"))
    code, output = applied(desk, base)
    assert (code, updates(desk)) == (3, [])
    assert "pull requests 7, 8, merged in one push, each change it" in output, output
    assert "Open a pull request that touches Pulumi.dev.yaml" in output
    assert all("🛑 **dev**: not reviewed at" in read_body(hub, number) for number in (7, 8))


def test_the_second_that_was_reviewed_upon_the_first_is_applied(desk: Desk, hub: Double) -> None:
    base = desk.git("rev-parse", "HEAD")
    merged(desk, hub, 7, dev=changed("a"))
    merged(desk, hub, 8, dev=changed("a", "b"))
    code, output = applied(desk, base)
    assert (code, updates(desk)) == (0, ["dev"]), output
    assert all("✅ **dev**: updated at" in read_body(hub, number) for number in (7, 8))


def test_a_review_that_showed_no_change_of_an_environment_does_not_speak_for_it(desk: Desk, hub: Double) -> None:
    base = desk.git("rev-parse", "HEAD")
    merged(desk, hub, 7, dev=changed("a"))
    merged(desk, hub, 8, dev=[SAME], prod=changed("b"))
    desk.answers("preview", "dev", changed("a"))
    code, output = applied(desk, base)
    assert (code, updates(desk)) == (0, ["dev", "prod"]), output


def test_a_pull_request_into_another_branch_is_no_review_of_this_one(desk: Desk, hub: Double) -> None:
    base = desk.git("rev-parse", "HEAD")
    merge = merged(desk, hub, 7, dev=changed("a"))
    hub.bases[7] = "next"
    code, output = applied(desk, base)
    assert (code, updates(desk)) == (3, [])
    assert f"was not reviewed: {merge[:12]} came from no merged pull request" in output


@pytest.mark.parametrize("before", ["none", "gone", "forced"])
def test_where_the_push_began_is_not_known_all_are_looked_at_and_the_last_commit_is_applied(
    desk: Desk, hub: Double, before: str
) -> None:
    desk.git("checkout", "-q", "-b", "old")
    forced = desk.commit("dropped by force")
    desk.git("checkout", "-q", "main")
    merged(desk, hub, 7, dev=changed("a"))
    merged(desk, hub, 8, prod=changed("b"))
    desk.answers("preview", "dev", [SAME])
    desk.answers("preview", "zaccount", [SAME])
    code, output = applied(desk, {"none": NO_REVISION, "gone": "d" * 40, "forced": forced}[before])
    assert (code, updates(desk)) == (0, ["prod"]), output
    assert ("is no longer in its history, as after a push by force" in output) == (before != "none")


def test_a_name_that_is_no_revision_is_refused_before_any_request(desk: Desk, hub: Double) -> None:
    code, output = applied(desk, "nowhere")
    assert (code, "'nowhere' is no revision" in output, hub.calls, desk.calls()) == (1, True, [], [])


def test_a_push_of_very_many_commits_asks_for_the_newest_and_says_so(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = desk.git("rev-parse", "HEAD")
    heads = [desk.commit(str(number)) for number in range(4)]
    assert pushed(desk.root, base).commits == tuple(reversed(heads))
    monkeypatch.setattr(history, "MOST", 3)
    newest = pushed(desk.root, base)
    assert newest.commits == tuple(reversed(heads[1:])) and "has more than 3 commits" in newest.warning
    assert pushed(desk.root, heads[-1]).commits == (heads[-1],), "nothing was pushed: HEAD itself is asked"
    with pytest.raises(ChangeError):
        pushed(Path("/"), base)


def test_what_a_branch_brought_with_it_counts_as_its_merge(desk: Desk) -> None:
    base = desk.git("rev-parse", "HEAD")
    desk.git("checkout", "-q", "-b", "more")
    desk.commit("one")
    desk.commit("two")
    desk.git("checkout", "-q", "main")
    desk.git("merge", "-q", "--no-ff", "more", "-m", "merge")
    assert pushed(desk.root, base).commits == (desk.git("rev-parse", "HEAD"),)
