"""`everspot cluster down` after a killed update, and with a stack program that cannot run."""

import json
from typing import Any

import pytest
from everspot_clouds.base import RemainingResource

from tests.cli.test_cli_down import DESTROY, Ground, ground, machine

__all__ = ["ground"]

FLEET = RemainingResource(kind="fleet", name="fleet-9", detail="target 2, active", capacity=True)
MEMBER = machine("i-9", "fleet-9", role="agent", instance_type="g5.xlarge", zone="us-east-1a")
TEMPLATE = RemainingResource(kind="launch-template", name="lt-9")
CLEAR = "refresh --yes --skip-preview --clear-pending-creates --non-interactive"


def pending(kind: str = "aws:ec2/fleet:Fleet") -> dict[str, Any]:
    tags = {"everspot:cluster": "test"}
    resource = {"urn": f"urn:pulumi:dev::p::{kind}::f", "type": kind, "inputs": {"tags": tags}}
    return {"type": "creating", "resource": resource}


def test_what_is_in_no_stack_is_named_with_its_cost_and_removed_first(ground: Ground) -> None:
    ground.place.resources, ground.place.costless = [FLEET, MEMBER, machine("i-standing")], [TEMPLATE]
    ground.place.after = {8: []}
    answer = ground.run()
    assert answer.code == 2
    assert "What belongs to no stack is removed as well: fleet fleet-9" in answer.err
    assert "fleet-9 (target 2, active, 1 instance, agent)" in answer.err
    assert "about $1.006 an hour" in answer.err
    assert ground.place.removed == []
    answer = ground.run("--yes", "--json")
    assert answer.code == 0, answer.err
    assert (answer.json["orphans_removed"], answer.json["ended_directly"]) == (["fleet-9", "lt-9"], [])
    assert ground.place.removed == ["fleet-9", "lt-9"]
    assert len(ground.destroyed) == 1


def test_what_may_have_data_is_named_and_stays(ground: Ground) -> None:
    bucket = RemainingResource(kind="bucket", name="b-9", detail="arn:b-9", usd_per_hour=None, by_hand=True)
    ground.place.others = [bucket, RemainingResource(kind="queue", name="q-9", detail="https://q-9")]
    answer = ground.run()
    assert "What belongs to no stack is removed as well: queue q-9" in answer.err
    assert (
        "What belongs to no stack and may have data or another owner stays: bucket b-9 (arn:b-9): cost not known"
        in answer.err
    )
    answer = ground.run("--yes", "--json")
    assert answer.code == 0, answer.err
    assert answer.json["orphans_removed"] == ["q-9"] and ground.place.removed == ["q-9"]


def test_what_may_be_another_clusters_of_this_name_is_named_and_stays(ground: Ground) -> None:
    """After the destroy, too: neither ended nor waited for."""
    ground.place.resources = [machine("i-other", "fleet-other", unmarked=True), machine("i-standing", unmarked=True)]
    ground.place.costless = [RemainingResource(kind="vpc", name="vpc-other", unmarked=True)]
    answer = ground.run("--yes", "--json")
    assert answer.code == 0, answer.err
    assert "data or another owner stays: instance i-other (" in answer.err and "vpc vpc-other" in answer.err
    assert (ground.place.removed, ground.place.ended) == ([], ["i-standing"])
    assert len(ground.destroyed) == 1


def test_what_cannot_be_removed_is_named_with_its_command_and_nothing_is_destroyed(ground: Ground) -> None:
    ground.place.resources, ground.place.stubborn = [FLEET, MEMBER], True
    answer = ground.run("--yes")
    assert answer.code == 4
    assert "fleet-9, i-9 cannot be removed; the stack was not destroyed" in answer.err
    assert "fleet fleet-9: cloud delete fleet-9" in answer.err
    assert ground.destroyed == []


def test_pending_operations_are_cleared_once_nothing_of_them_is_left(ground: Ground) -> None:
    ground.pending = [pending()]
    ground.pulumi()
    assert ground.run("--yes").code == 0
    assert [*ground.destroyed, *ground.list_commands("refresh")] == [f"{DESTROY} force", CLEAR]


def test_a_stack_whose_first_update_was_killed_has_no_outputs_and_goes_down_too(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    ground.outputs, ground.pending = {}, [pending()]
    ground.place.resources = [FLEET, MEMBER]
    ground.pulumi()
    answer = ground.run("--yes", "--stack", "dev")
    assert answer.code == 0, answer.err
    assert "nothing can be drained" in answer.err and "test is down" in answer.out
    assert (ground.place.removed, len(ground.destroyed)) == (["fleet-9"], 1)
    assert ground.list_commands("refresh") == [f"{CLEAR} --stack dev"]


def test_a_destroy_that_was_interrupted_is_looked_up_before_it_goes_on(ground: Ground) -> None:
    ground.pending = [{**pending(), "type": "deleting"}]
    ground.pulumi()
    assert ground.run("--yes").code == 0
    commands = [line.partition(" ")[0] for line in ground.list_commands("")]
    assert commands.index("refresh") < commands.index("destroy")


@pytest.mark.parametrize(
    "reason", ["imageId: the image cannot be described", "No module named 'everspot'", "vpcId: there is no such VPC"]
)
def test_a_program_that_cannot_be_run_keeps_no_cluster(ground: Ground, reason: str) -> None:
    hooks = {"before_delete": ["test-guard-no-job-runs"]}
    ground.state.append({"urn": "u::test-guard", "id": "g", "type": "pulumi:index:Stash", "resourceHooks": hooks})
    ground.pulumi(program=reason)
    answer = ground.run("--yes")
    assert answer.code == 0, answer.err
    assert f"error: {reason}" in answer.err and "destroying the stack by its state alone" in answer.err
    assert ground.destroyed == [f"{DESTROY} force", f"{DESTROY.replace('--run-program ', '')} force"]
    state = json.loads((ground.folder / "state.json").read_text())
    assert [sorted(resource) for resource in state["deployment"]["resources"]] == [
        ["id", "type"],
        ["id", "type", "urn"],
    ]


def test_a_destroy_that_has_deleted_something_is_not_begun_anew(ground: Ground) -> None:
    ground.pulumi(code=255)
    answer = ground.run("--yes")
    assert (answer.code, len(ground.destroyed)) == (1, 2), "nothing was deleted by either"
    assert "pulumi destroy failed (exit code 255)" in answer.err
