"""An update that is killed while AWS creates a fleet: it is reported, blocks further updates, and is cleaned up,
through the real engine.

The tests share one cluster and run in this order.
"""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from engine_killed import anomalies, at_home, everspot, kill_update_at, pending, scheduling, settled
from everspot_clouds.aws.cloud import AwsCloud
from everspot_local.aws.ec2.images import BAKED_IMAGE
from everspot_review.apply import ApplyResult, WorkflowRun, apply
from everspot_review.drift import drift
from everspot_review.engine import Engine
from everspot_review.previewing import Revisions, preview
from everspot_review.report import PreviewOutcome
from everspot_store import Store, SystemClock

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]
FLEETS = {"everspot-local-fleet-spot", "everspot-local-fleet-on-demand"}
IMAGE = "ami-04681a1dbd79675a5"
"""The image of the stack, which no test deregisters."""
CLEAR = "pulumi refresh --yes --clear-pending-creates --stack local"


def described(rig: Any) -> list[dict[str, Any]]:
    return [f for f in rig.client("ec2").describe_fleets()["Fleets"] if f["FleetState"] == "active"]


def active_fleets(rig: Any) -> set[str]:
    return {fleet["FleetId"] for fleet in described(rig)}


def doctor(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, list[dict[str, str]]]:
    """The checks of the stack and of what is beside it, by name."""
    everspot(*options, "--json", "doctor")
    checks = json.loads(capsys.readouterr().out)["checks"]
    return {name: [c for c in checks if c["name"] == name] for name in ("pending operations", "orphans")}


def test_a_killed_update_is_shown_and_nothing_is_made_twice(rig: Any, capsys: pytest.CaptureFixture[str]) -> None:
    rig.add_service_roles()
    rig.settings("guardJobs", True)
    rig.settings("imageId", BAKED_IMAGE)
    kill_update_at(rig, "ec2:CreateFleet", "local")
    orphans = settled(rig, lambda: active_fleets(rig))
    interrupted = pending(rig, "local") & FLEETS
    assert 0 < len(orphans) <= len(interrupted)  # the engine may die before it has sent the second call
    with at_home(rig):
        engine = Engine.find(rig.project)
        report = preview(engine, "local", Revisions())
        assert (report.outcome, report.digest) == (PreviewOutcome.FAILED, "")
        assert all(f"{name} (creating)" in report.errors[0] for name in interrupted) and CLEAR in report.errors[0]
        done = apply(engine, "local", "d" * 64, WorkflowRun(SystemClock.from_environment().now()))
        assert (done.status, CLEAR in done.message) == (ApplyResult.REFUSED, True)
        assert active_fleets(rig) == orphans
        drift_report = drift(engine, "local")
        assert {entry.name for entry in drift_report.pending} >= interrupted
        assert {entry.resource.name for entry in drift_report.orphans} >= orphans
        checks = doctor(capsys, "--stack", "local")
        assert checks["pending operations"][0]["verdict"] == "fail"
        details = " ".join(check["detail"] for check in checks["orphans"])
        assert all(fleet in details for fleet in orphans)


def test_what_an_update_made_twice_is_found_with_its_cost(
    rig: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    orphans = active_fleets(rig)
    rig.up()  # as the engine itself would, which only warns
    assert {rig.outputs["spotFleetId"], rig.outputs["onDemandFleetId"]} == active_fleets(rig) - orphans
    most = sum(f["TargetCapacitySpecification"]["TotalTargetCapacity"] for f in described(rig))
    rig.wait(lambda: len([state for state in rig.agents().values() if state == "running"]) == most)
    with at_home(rig):
        drift_report = drift(Engine.find(rig.project), "local")
        orphans_by_name = {orphan.resource.name: orphan for orphan in drift_report.orphans}
        assert orphans <= set(orphans_by_name) and not active_fleets(rig) - orphans & set(orphans_by_name)
        assert all(orphans_by_name[fleet].usd_per_hour and orphans_by_name[fleet].parts for fleet in orphans)
        assert sum(len(orphans_by_name[fleet].parts) for fleet in orphans) == most - 5
        others = [orphan for name, orphan in orphans_by_name.items() if name not in orphans]
        # other resources in creation: the scheduler's group, or a template whose answer the killed engine did not
        # record
        assert {orphan.resource.kind for orphan in others} <= {"Auto Scaling group", "launch-template"}
        assert all("scheduler" in o.sentence for o in others if o.resource.kind == "Auto Scaling group")
        templates = {name for name, o in orphans_by_name.items() if o.resource.kind == "launch-template"}
        capacity = set(orphans_by_name) - templates
        # Outside the project the stack's state is not known: only orphans that are capacity can be named.
        for folder, options, names in (
            (rig.project, ("--stack", "local"), capacity | templates),
            (tmp_path, ("--store", rig.outputs["controlUrl"]), capacity),
        ):
            with contextlib.chdir(folder):
                checks = doctor(capsys, *options)["orphans"]
            shown = " ".join(check["detail"] for check in checks)
            assert all(name in shown for name in names), options
            verdicts = ["warn" if name in templates else "fail" for name in names]  # a template costs nothing
            assert sorted(check["verdict"] for check in checks) == sorted(verdicts), options
        store = Store.open(rig.outputs["controlUrl"])
        with scheduling(store, AwsCloud.open(store.manifest(), store.clock)):
            rig.wait(lambda: set(anomalies(store)) >= orphans)
        unusual = anomalies(store)
        assert not set(unusual) - set(orphans_by_name) and all("an hour" in words for words in unusual.values())


def test_a_cluster_whose_image_was_deregistered_is_named_so_and_goes_down_with_what_was_made_twice(
    rig: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    image = rig.outputs["imageId"]
    orphans = active_fleets(rig) - {rig.outputs["spotFleetId"], rig.outputs["onDemandFleetId"]}
    assert orphans
    rig.client("ec2").deregister_image(ImageId=image)
    refused = rig.refused()
    assert "imageId: the image cannot be described" in refused and "everspot cluster down" in refused
    with at_home(rig):
        everspot("--store", rig.outputs["controlUrl"], "--json", "doctor")
        image_checks = [c for c in json.loads(capsys.readouterr().out)["checks"] if c["name"] == "image"]
        assert [(c["verdict"], image in c["detail"], "not exist" in c["detail"]) for c in image_checks] == [
            ("fail", True, True)
        ]
        assert everspot("down", "--stack", "local", "--yes") == 0
        output = capsys.readouterr()
    assert "The program deleted nothing: destroying the stack by its state alone." in output.err
    assert all(fleet in output.err for fleet in orphans)
    assert "everspot-local is down; nothing of it is left that runs." in output.out
    assert active_fleets(rig) == set()
    assert not {"pending", "running"} & set(rig.agents().values())
    assert rig.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"] == []
    assert pending(rig, "local") == set()
    assert json.loads(rig.pulumi("stack", "export", stack="local"))["deployment"].get("resources", []) == []


@pytest.mark.nightly
def test_a_first_update_that_was_killed_goes_down_without_a_second_one(
    rig: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    rig.settings("imageId", IMAGE)
    kill_update_at(rig, "ec2:CreateFleet", "local")
    settled(rig, lambda: active_fleets(rig))
    with at_home(rig):
        assert everspot("down", "--stack", "local", "--yes") == 0, capsys.readouterr().err
    assert active_fleets(rig) == set() and pending(rig, "local") == set()
    cluster_filter = [{"Name": "tag:everspot:cluster", "Values": ["everspot-local"]}]
    assert rig.client("ec2").describe_vpcs(Filters=cluster_filter)["Vpcs"] == []
