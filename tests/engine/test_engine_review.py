"""A change through review with the real engine on the local cloud: the workflow previews and comments it, it is applied
as reviewed, and later manual changes are found as drift."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from everspot_review.deviations import list_deviations
from everspot_review.event_log import EventLog
from everspot_review.events import read_file

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/review/running"))  # the doubles of a forge, and what runs workflows

from acting import act, of_pull, shipped  # noqa: E402
from desk import Desk  # noqa: E402
from forge_double import RUN, Double  # noqa: E402

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]
PLANTED = "hunter2-of-the-planted-secret"


@pytest.fixture(scope="module")
def first_update(rig: Any) -> tuple[EventLog, EventLog]:
    """The event logs of the preview and of the update that makes the stack, with a secret among its settings."""
    rig.add_service_roles()
    rig.pulumi("config", "set", "--secret", "--path", "everspot:cluster.tags.Note", PLANTED, stack="local")
    rig.preview()
    previewed = read_file(rig.project / "events.jsonl")
    rig.up()
    return previewed, read_file(rig.project / "events.jsonl")


@pytest.fixture(scope="module")
def desk(rig: Any, first_update: Any, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """The stack as it was applied, in a git repository with the workflows."""
    desk = Desk(rig.project, tmp_path_factory.mktemp("review") / "engine", dict(rig.env))
    desk.engine.mkdir()
    desk.write(".gitignore", "local/\n.venv\nevents.jsonl\n")
    desk.git("init", "-q", "-b", "main")
    shipped(desk)
    desk.commit("what is there")
    return desk


@pytest.fixture(scope="module")
def hub(desk: Desk) -> Iterator[Double]:
    with Double.serve(desk.env) as server:
        yield server


def runner_environment(rig: Any) -> dict[str, str]:
    """The environment of a self-hosted runner."""
    inherited = {name: value for name, value in rig.env.items() if name.startswith(("AWS_", "PULUMI_", "EVERSPOT_"))}
    return {**inherited, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


def test_an_update_does_nothing_but_what_its_preview_shows(first_update: tuple[EventLog, EventLog]) -> None:
    previewed, updated = first_update
    assert sum(not step.idle for step in updated.steps) > 50
    assert list_deviations(previewed, updated) == []


def test_a_change_is_commented_and_applied_as_it_was_reviewed(rig: Any, desk: Desk, hub: Double) -> None:
    base = desk.git("rev-parse", "HEAD")
    desk.git("checkout", "-q", "-b", "more")
    rig.settings("capacity.standing.target", 7)
    head = desk.commit("more of it")
    review = act(desk, hub, "review", "pull_request", of_pull(hub, desk), **runner_environment(rig))
    assert review.code == 0, review.log
    (comment,) = (each["body"] for each in hub.comments)
    assert "everspot-local-fleet-spot" in comment and "$" in comment
    desk.git("checkout", "-q", "-B", "main", "more")
    hub.merged_as[head] = 7
    hub.runs = [{"id": RUN, "path": ".github/workflows/apply.yml", "status": "in_progress"}]
    event = {"before": base, "after": head, "ref": "refs/heads/main", "repository": {"full_name": "boss/fleets"}}
    done = act(desk, hub, "apply", "push", event, **runner_environment(rig))
    assert done.code == 0, done.log
    fleets = rig.client("ec2").describe_fleets()["Fleets"]
    targets = [fleet["TargetCapacitySpecification"]["TotalTargetCapacity"] for fleet in fleets]
    (comment,) = (each["body"] for each in hub.comments)
    assert (sum(targets), "✅ **local**: updated" in comment) == (7, True)
    artifacts = [path.read_text() for path in (desk.engine.parent / "artifacts").rglob("*") if path.is_file()]
    assert len(artifacts) == 2
    assert [PLANTED in text for text in (comment, review.log, done.log, *artifacts)] == [False] * 5


def test_what_is_changed_by_hand_is_found_by_both_looks(rig: Any, desk: Desk, hub: Double) -> None:
    ec2, iam = rig.client("ec2"), rig.client("iam")
    groups = ec2.describe_security_groups()["SecurityGroups"]
    (group,) = [each["GroupId"] for each in groups if "network-instances" in each["GroupName"]]
    door = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[door])
    (role,) = [each["RoleName"] for each in iam.list_roles()["Roles"] if "identity-agent" in each["RoleName"]]
    policy = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})
    arn = iam.create_policy(PolicyName="by-hand", PolicyDocument=policy)["Policy"]["Arn"]
    iam.attach_role_policy(RoleName=role, PolicyArn=arn)
    fleet = ec2.describe_fleets()["Fleets"][0]
    more = fleet["TargetCapacitySpecification"]["TotalTargetCapacity"] + 1
    ec2.modify_fleet(FleetId=fleet["FleetId"], TargetCapacitySpecification={"TotalTargetCapacity": more})
    done = desk.run("drift", "local", "--issue", "--json", **runner_environment(rig))
    (environment,) = json.loads(done.stdout)["environments"]
    (moved,) = environment["resources"]
    assert done.returncode == 7
    assert [each["path"] for each in moved["changes"]] == ["targetCapacitySpecification.totalTargetCapacity"]
    assert sorted((each["kind"], each["what"]) for each in environment["added"]) == [
        ("attached policy", arn), ("ingress rule", "tcp, port 22, from 0.0.0.0/0"),
    ]  # fmt: skip
    (issue,) = hub.issues
    assert "port 22, from 0.0.0.0/0" in issue["body"] and PLANTED not in issue["body"] + done.stdout
