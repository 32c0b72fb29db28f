"""The record of an applied change is stored in the cluster's store, once. If it cannot be stored, the command does not
fail."""

import json
from pathlib import Path
from typing import Any

import pytest
from desk import SAME, UPDATE, Desk
from everspot_core.cluster.applied_change import AppliedChange, PullRequest
from everspot_store import Store
from forge_double import Double


def list_changes(folder: Path) -> list[AppliedChange]:
    return Store.open(folder.as_uri(), folder.as_uri()).changes.all()


def has_cluster(desk: Desk, output: Any) -> None:
    """The stack dev, with this output `controlUrl`."""
    stack = {"type": "pulumi:pulumi:Stack", "outputs": {"controlUrl": output} if output else {}}
    (desk.engine / "state.dev.json").write_text(json.dumps({"deployment": {"resources": [stack]}}))


def reviewed(desk: Desk, hub: Double) -> str:
    """A change of dev that was previewed, commented, and merged as the commit that is returned."""
    desk.answers("preview", "dev", [UPDATE])
    head = desk.commit()
    hub.head, hub.merged_as[head] = head, 7
    reports = desk.engine / "reports"
    assert desk.run("preview", "dev", "--out", str(reports)).returncode == 0
    assert desk.run("comment", str(reports), "--number", "7", "--head", head).returncode == 0
    return head


def test_an_applied_change_is_kept_with_its_pull_request_and_what_it_costs(
    desk: Desk, hub: Double, tmp_path: Path
) -> None:
    has_cluster(desk, tmp_path.as_uri())
    head = reviewed(desk, hub)
    done = desk.run("apply", "dev")
    assert done.returncode == 0, done.stderr
    (record,) = list_changes(tmp_path)
    url = f"{hub.url}/boss/fleets/pull/7"
    assert record.pull_request == PullRequest(number=7, title="More of it", url=url, author="ann")
    assert (record.environment, record.revision, record.steps) == ("dev", head, {"update": 1})
    assert record.digest in hub.comments[0]["body"] and len(record.digest) == 64
    assert record.estimate is not None and record.estimate.by_use
    Store.open(tmp_path.as_uri(), tmp_path.as_uri()).changes.add(record)
    assert list_changes(tmp_path) == [record], "it is written once"


def test_an_update_that_failed_is_kept_as_such(desk: Desk, hub: Double, tmp_path: Path) -> None:
    has_cluster(desk, tmp_path.as_uri())
    reviewed(desk, hub)
    desk.answers("up", "dev", [], code=1)
    assert desk.run("apply", "dev").returncode == 1
    (record,) = list_changes(tmp_path)
    assert (record.outcome, record.steps, record.whole) == ("failed", {"update": 1}, False)
    assert record.pull_request is not None and record.digest in hub.comments[0]["body"]


def test_nothing_is_kept_of_what_changes_nothing(desk: Desk, hub: Double, tmp_path: Path) -> None:
    has_cluster(desk, tmp_path.as_uri())
    reviewed(desk, hub)
    desk.answers("preview", "dev", [SAME])
    assert (desk.run("apply", "dev").returncode, list_changes(tmp_path)) == (0, [])


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("", "it has no cluster, so that no store keeps what this change cost"),
        ({"4dabf18193072939515e22adb298388d": "1b", "ciphertext": "x"}, "it has no cluster"),
        ("mars://nowhere", "could not be kept in the cluster's store: "),
        ("file:///proc/nowhere", "could not be kept in the cluster's store: "),
    ],
)
def test_a_store_that_cannot_be_written_is_told_and_is_no_failure(
    desk: Desk, hub: Double, output: Any, reason: str
) -> None:
    has_cluster(desk, output)
    reviewed(desk, hub)
    summary = desk.engine / "summary.md"
    done = desk.run("apply", "dev", GITHUB_STEP_SUMMARY=str(summary))
    assert (done.returncode, reason in done.stderr, reason in summary.read_text()) == (0, True, True), done.stderr
    assert "✅ **dev**: updated" in hub.comments[0]["body"]
