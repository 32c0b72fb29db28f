"""An update that is killed while Google Cloud creates a group: it is reported, blocks further updates, and is cleaned
up, through the real engine."""

import json
from typing import Any

import pytest
from engine_killed import at_home, everspot, kill_update_at, pending, settled
from everspot_local.gcp.project import PROJECT
from everspot_review.drift import drift
from everspot_review.engine import Engine
from everspot_review.previewing import Revisions, preview
from everspot_review.report import PreviewOutcome
from test_engine_gcp import GLOBAL, NAME, REGIONAL, STACK, declare, list_names, request_json

# test_engine_killed.py kills on AWS; tests/clouds/test_clouds_orphans.py finds what is left on either local cloud.
pytestmark = [pytest.mark.engine, pytest.mark.nightly, pytest.mark.timeout(1800)]
GROUPS = f"{REGIONAL}/instanceGroupManagers"
ACTION = "compute.instanceGroupManagers.create"


def test_a_killed_update_s_groups_are_found_and_go_down(google: Any, capsys: pytest.CaptureFixture[str]) -> None:
    kill_update_at(google, ACTION, STACK)
    orphans = settled(google, lambda: list_names(google, GROUPS, ""))
    roots = {name.rpartition("-")[0] for name in orphans}
    interrupted = pending(google, STACK)
    assert roots and roots <= interrupted  # another group's request may not have reached the cloud when the engine died
    assert roots <= {f"{NAME}-{end}" for end in ("fleet-spot", "fleet-on-demand", "scheduler-group")}
    with at_home(google):
        report = preview(Engine.find(google.project), STACK, Revisions())
        assert report.outcome is PreviewOutcome.FAILED and "--clear-pending-creates" in report.errors[0]
        everspot("--stack", STACK, "--json", "doctor")
        details = " ".join(c["detail"] for c in json.loads(capsys.readouterr().out)["checks"] if c["name"] == "orphans")
        assert all(name in details for name in orphans)
    google.up(STACK)  # as the engine itself would, which only warns
    assert len(list_names(google, GROUPS, "") - orphans) == 3
    running = orphans - list_names(google, GROUPS, "fleet-on-demand")  # the stack's standing instance is on Spot
    with at_home(google):
        look = lambda: drift(Engine.find(google.project), STACK).orphans  # noqa: E731
        google.wait(lambda: {o.resource.name for o in look() if o.parts} == running)
        drift_report = drift(Engine.find(google.project), STACK)
        orphans_by_name = {orphan.resource.name: orphan for orphan in drift_report.orphans}
        groups = {name for name, orphan in orphans_by_name.items() if orphan.resource.kind == "instance group"}
        made_before = {name.rpartition("-")[0] for name in set(orphans_by_name) - groups}  # templates, a moment before
        assert groups == orphans and drift_report.has_drifted and made_before <= interrupted
        assert {name for name, orphan in orphans_by_name.items() if orphan.usd_per_hour} == running
        assert all("scheduler" in orphans_by_name[name].sentence for name in running if "scheduler" in name)
        assert all(f"--project {PROJECT}" in orphan.command for orphan in orphans_by_name.values())
        assert everspot("down", "--stack", STACK, "--yes") == 0, capsys.readouterr().err
        assert f"{NAME} is down; nothing of it is left that runs." in capsys.readouterr().out
    assert list_names(google, GROUPS, "") == set() and pending(google, STACK) == set()


def test_a_destroy_that_was_killed_goes_on_with_down(google: Any, capsys: pytest.CaptureFixture[str]) -> None:
    google.up(STACK)
    kill_update_at(google, "compute.instanceGroupManagers.delete", STACK, "destroy", "--skip-preview")
    with at_home(google):
        assert drift(Engine.find(google.project), STACK).has_drifted
        assert everspot("down", "--stack", STACK, "--yes") == 0, capsys.readouterr().err
        assert f"{NAME} is down; nothing of it is left that runs." in capsys.readouterr().out
    assert list_names(google, GROUPS, "") == set() and pending(google, STACK) == set()


def test_a_cluster_whose_image_was_deleted_is_named_so_and_goes_down(
    google: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    declare(google, guardJobs=True)
    google.up(STACK)
    request_json(google, f"{GLOBAL}/images/everspot", "DELETE")
    google.wait(lambda: "imageFamily: there is no image yet" in google.refused(STACK))
    assert "`everspot cluster down` destroys a cluster whose image is gone" in google.refused(STACK)
    with at_home(google):
        everspot("--store", google.outputs["controlUrl"], "--json", "doctor")
        image_checks = [c for c in json.loads(capsys.readouterr().out)["checks"] if c["name"] == "image"]
        assert [(c["verdict"], "images/everspot, of" in c["detail"]) for c in image_checks] == [("fail", True)]
        assert everspot("down", "--stack", STACK, "--yes") == 0
        output = capsys.readouterr()
    assert "The program deleted nothing: destroying the stack by its state alone." in output.err
    assert f"{NAME} is down" in output.out and list_names(google, GROUPS, "") == set()
