"""Repeating an older run changes no environment to which a newer revision was applied."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from desk import Desk
from everspot_core.cluster.applied_change import AppliedChange
from everspot_review.history import MOST
from everspot_store import Store
from forge_double import Double
from test_review_pushes import applied, changed, merged, read_body, updates

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(desk: Desk, revision: str) -> None:
    desk.git("checkout", "-q", "--detach", revision)


def has_cluster(desk: Desk, folder: Path) -> Store:
    """A store of the stack dev's cluster."""
    folder.mkdir()
    stack = {"type": "pulumi:pulumi:Stack", "outputs": {"controlUrl": folder.as_uri()}}
    (desk.engine / "state.dev.json").write_text(json.dumps({"deployment": {"resources": [stack]}}))
    return Store.open(folder.as_uri(), folder.as_uri())


def change(revision: str, **more: Any) -> AppliedChange:
    return AppliedChange(at=AT, environment="dev", revision=revision, digest="b" * 64, **more)


def undone(desk: Desk, hub: Double) -> tuple[str, str]:
    """A change of dev whose update failed half-way, and the one that undid it, which is merged; the base and the first
    merge."""
    base = desk.git("rev-parse", "HEAD")
    first = merged(desk, hub, 7, dev=changed("a", "b"))
    desk.answers("up", "dev", [], code=1)
    assert applied(desk, base)[0] == 1
    desk.answers("up", "dev", [])
    merged(desk, hub, 8, dev=changed("a"))
    return base, first


def test_a_run_that_failed_is_not_run_again_once_its_change_was_undone(desk: Desk, hub: Double) -> None:
    base, first = undone(desk, hub)
    assert applied(desk, first)[0] == 0
    at(desk, first)
    desk.answers("preview", "dev", changed("a", "b"))  # all reviewed steps must be done again
    code, output = applied(desk, base)
    assert (code, updates(desk)) == (3, ["dev", "dev"]), output
    assert f"dev: not applied: {hub.tip[:12]} was applied at 2" in output and f"it came after {first[:12]}" in output
    assert "open a pull request of its own" in output
    assert "🛑 **dev**: superseded at" in read_body(hub, 7) and "✅ **dev**: updated" in read_body(hub, 8)


def test_what_was_merged_later_and_not_applied_yet_keeps_nobody_back(desk: Desk, hub: Double) -> None:
    base, first = undone(desk, hub)
    at(desk, first)
    desk.answers("preview", "dev", changed("a", "b"))
    code, output = applied(desk, base)
    assert (code, updates(desk)) == (0, ["dev", "dev"]), output


def test_what_was_applied_later_to_another_environment_keeps_nobody_back(desk: Desk, hub: Double) -> None:
    base = desk.git("rev-parse", "HEAD")
    first = merged(desk, hub, 7, dev=changed("a"))
    merged(desk, hub, 8, prod=changed("b"))
    assert applied(desk, first)[0] == 0
    at(desk, first)
    code, output = applied(desk, base)
    assert (code, updates(desk)) == (0, ["prod", "dev"]), output


@pytest.mark.parametrize("outcome", ["updated", "failed"])
def test_the_store_knows_what_no_comment_tells(desk: Desk, hub: Double, tmp_path: Path, outcome: Any) -> None:
    base = desk.git("rev-parse", "HEAD")
    store = has_cluster(desk, tmp_path / "store")
    first = merged(desk, hub, 7, dev=changed("a"))
    later = hub.tip = desk.commit("by nobody's pull request")
    store.changes.add(change(base, outcome="updated"))
    store.changes.add(change(later, outcome=outcome).model_copy(update={"digest": "c" * 64}))
    at(desk, first)
    code, output = applied(desk, base)
    status = "applied" if outcome == "updated" else "partly applied"
    assert (code, updates(desk)) == (3, []), output
    assert f"dev: not applied: {later[:12]} was {status} at 2026-03-01 12:00 UTC" in output


def test_where_the_store_cannot_be_read_only_comments_are_searched(desk: Desk, hub: Double) -> None:
    base, first = undone(desk, hub)
    assert applied(desk, first)[0] == 0
    (desk.engine / "state.dev.json").write_text(
        json.dumps(
            {"deployment": {"resources": [{"type": "pulumi:pulumi:Stack", "outputs": {"controlUrl": "mars://x"}}]}}
        )
    )
    at(desk, first)
    desk.answers("preview", "dev", changed("a", "b"))
    code, output = applied(desk, base)
    assert (code, "dev: what was applied later is looked for in comments alone: " in output) == (3, True), output


def test_a_revision_that_was_dropped_from_its_branch_is_not_applied(desk: Desk, hub: Double) -> None:
    base = desk.git("rev-parse", "HEAD")
    first = merged(desk, hub, 7, dev=changed("a"))
    at(desk, base)
    hub.tip = desk.commit("pushed by force")
    at(desk, first)
    code, output = applied(desk, base)
    assert (code, updates(desk)) == (3, []), output
    assert f"dev: not applied: {first[:12]} is not on main any more" in output


def test_an_end_of_the_branch_that_came_after_the_checkout_is_told_and_stops_nothing(desk: Desk, hub: Double) -> None:
    base = desk.git("rev-parse", "HEAD")
    merged(desk, hub, 7, dev=changed("a"))
    hub.tip = "e" * 40
    code, output = applied(desk, base)
    assert (code, updates(desk)) == (0, ["dev"]), output
    assert "eeeeeeeeeeee, where main ends now, came after this checkout" in output


def test_a_revision_long_ago_is_not_looked_at(desk: Desk, hub: Double) -> None:
    base = desk.git("rev-parse", "HEAD")
    first = merged(desk, hub, 7, dev=changed("a"))
    tree = desk.git("rev-parse", "HEAD^{tree}")
    for number in range(MOST + 1):
        hub.tip = desk.git("commit-tree", tree, "-p", hub.tip, "-m", str(number))
    at(desk, first)
    code, output = applied(desk, base)
    assert (code, updates(desk)) == (3, []), output
    assert f"more than {MOST} commits came after {first[:12]}" in output
