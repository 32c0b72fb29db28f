"""Updates of an existing cluster that are killed while AWS changes or deletes a resource.

The tests share one cluster and run in this order.
"""

import json
from typing import Any

import pytest
from engine_killed import at_home, everspot, kill_update_at, pending
from everspot_review.apply import ApplyResult, WorkflowRun, apply
from everspot_review.drift import drift
from everspot_review.engine import Engine
from everspot_review.previewing import Revisions, preview
from everspot_review.report import PreviewOutcome
from everspot_store import SystemClock
from test_engine_killed import active_fleets, doctor

pytestmark = [pytest.mark.engine, pytest.mark.nightly, pytest.mark.timeout(1800)]


def assert_blocked(rig: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Preview, apply, drift and doctor name what is pending, and nothing is applied."""
    interrupted = pending(rig, "local")
    assert interrupted
    with at_home(rig):
        engine = Engine.find(rig.project)
        report = preview(engine, "local", Revisions())
        assert report.outcome is PreviewOutcome.FAILED and all(name in report.errors[0] for name in interrupted)
        done = apply(engine, "local", "d" * 64, WorkflowRun(SystemClock.from_environment().now()))
        assert done.status is ApplyResult.REFUSED
        drift_report = drift(engine, "local")
        assert {operation.name for operation in drift_report.pending} == interrupted and drift_report.orphans == ()
        assert doctor(capsys, "--stack", "local")["pending operations"][0]["verdict"] == "fail"


def clear(rig: Any) -> None:
    """Resolve a pending operation with the command that the message names."""
    rig.pulumi("refresh", "--yes", "--clear-pending-creates", "--color=never", stack="local")
    assert pending(rig, "local") == set()


def test_a_fleet_that_an_update_was_changing_is_pending_and_not_made_again(
    rig: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    rig.up("account")
    rig.up()
    fleets = active_fleets(rig)
    rig.settings("capacity.standing.target", 7)
    kill_update_at(rig, "ec2:ModifyFleet", "local")
    rig.wait(lambda: sum(rig.total(market) for market in ("spot", "onDemand")) == 7)
    assert_blocked(rig, capsys)
    clear(rig)
    assert rig.up().changes == {} or sum(rig.total(market) for market in ("spot", "onDemand")) == 7
    assert active_fleets(rig) == fleets
    assert rig.preview().changes == {}


def test_a_destroy_that_was_killed_goes_on_with_down(rig: Any, capsys: pytest.CaptureFixture[str]) -> None:
    kill_update_at(rig, "ec2:DeleteFleets", "local", "destroy", "--skip-preview")
    with at_home(rig):
        drift_report = drift(Engine.find(rig.project), "local")
        assert drift_report.has_drifted
        everspot("--json", "doctor", "--stack", "local")
        capsys.readouterr()
        assert everspot("down", "--stack", "local", "--yes") == 0, capsys.readouterr().err
        assert "nothing of it is left that runs" in capsys.readouterr().out
    assert active_fleets(rig) == set() and pending(rig, "local") == set()
    assert not {"pending", "running"} & set(rig.agents().values())
    assert json.loads(rig.pulumi("stack", "export", stack="local"))["deployment"].get("resources", []) == []
