"""A killed update: its operations are pending in the state, and further updates are refused until they are resolved."""

import json
from typing import Any

import pytest
from desk import UPDATE, Desk
from everspot_review.apply import ApplyResult, WorkflowRun, apply
from everspot_review.engine import Engine
from everspot_review.previewing import Revisions, preview
from forge_double import Double
from test_review_apply import BEGAN

FLEET = "aws:ec2/fleet:Fleet"
URN = f"urn:pulumi:dev::everspot::everspot:index:AwsTrainingCluster${FLEET}::dev-fleet-spot"
CLEAR = "pulumi refresh --yes --clear-pending-creates --stack dev"


def killed(desk: Desk, *operations: str) -> None:
    """Leave dev with these operations pending on a fleet, as a killed engine does."""
    pending = [{"type": kind, "resource": {"urn": URN, "type": FLEET, "custom": True}} for kind in operations]
    state: dict[str, Any] = {"deployment": {"resources": [], "pending_operations": pending}}
    (desk.engine / "state.dev.json").write_text(json.dumps(state))
    (desk.engine / "stacks.json").write_text(json.dumps([{"name": "dev", "resourceCount": 3}]))
    desk.answers("preview", "dev", [UPDATE])
    desk.answers("refresh", "dev", [])


@pytest.mark.parametrize("operation", ["creating", "updating", "deleting", "importing"])
def test_a_preview_names_pending_operations_and_the_command_and_blocks(desk: Desk, operation: str) -> None:
    killed(desk, operation)
    done = desk.run("preview", "dev")
    assert "dev: failed" in done.stdout
    assert f"dev-fleet-spot ({operation})" in done.stdout and CLEAR in done.stdout
    (report,) = json.loads(desk.run("preview", "dev", "--json").stdout)["reports"]
    assert (report["outcome"], report["digest"], len(report["steps"])) == ("failed", "", 1)
    shown = desk.run("comment", "review", "--show")
    assert shown.returncode == 1 and CLEAR in shown.stdout and "no harm" not in shown.stdout


def test_an_update_is_not_begun_until_they_are_resolved(desk: Desk, hub: Double) -> None:
    engine = Engine.find(desk.root, variables=desk.env)
    killed(desk)
    reviewed = preview(engine, "dev", Revisions()).digest
    assert reviewed
    killed(desk, "creating")
    done = apply(engine, "dev", reviewed, WorkflowRun(BEGAN))
    assert (done.status, "up" in desk.verbs()) == (ApplyResult.REFUSED, False)
    assert CLEAR in done.message and "dev-fleet-spot (creating)" in done.message
    killed(desk)
    assert apply(engine, "dev", reviewed, WorkflowRun(BEGAN)).status is ApplyResult.UPDATED


def test_drift_shows_them_as_something_that_was_not_left_so(desk: Desk, hub: Double) -> None:
    killed(desk, "creating", "updating")
    done = desk.run("drift", "dev", "--issue")
    assert done.returncode == 7, done.stderr
    assert f"! {FLEET} dev-fleet-spot: creating, interrupted" in done.stdout and CLEAR in done.stdout
    (entry,) = json.loads(desk.run("drift", "dev", "--json").stdout)["environments"]
    assert (entry["drifted"], [each["operation"] for each in entry["pending"]]) == (
        True,
        ["creating", "updating"],
    )
    assert CLEAR in hub.issues[0]["body"]
    killed(desk)
    assert desk.run("drift", "dev", "--issue").returncode == 0
    assert hub.issues[0]["state"] == "closed"


@pytest.mark.parametrize("state", ["{}", '{"deployment": null}', '{"deployment": {"pending_operations": null}}'])
def test_a_stack_without_pending_operations_is_previewed_as_before(desk: Desk, state: str) -> None:
    killed(desk)
    (desk.engine / "state.dev.json").write_text(state)
    assert "dev: changes, 1 resource to change" in desk.run("preview", "dev").stdout
