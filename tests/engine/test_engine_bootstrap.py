"""From an empty account to an environment: runs the files of `everspot init` by the commands that it prints, each with
the identity that it names.

The tests share one project and run in this order.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from botocore.exceptions import ClientError
from engine_changes import DIGEST, keep_change, stored_change_digests
from everspot.repository import ReviewPart
from everspot_clouds.aws import deployers
from everspot_store import StoreError
from pulumi.automation import CommandError

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
ACCOUNT, REGION, PROJECT = "123456789012", "eu-west-1", "my-org/fleets"
STATE = f"s3://everspot-state-{ACCOUNT}?region={REGION}"
SPENDING = {
    "emails": ["a@example.com"], "budgets": [{"team": "vision", "usdPerMonth": 1000.5}], "anomalies": {"usd": 100},
}  # fmt: skip
BOUNDARY = f"arn:aws:iam::{ACCOUNT}:policy/everspot-bootstrap-boundary"


class Walk:
    """A new project on a local cloud. `steps`: the steps that `everspot init` prints."""

    def __init__(self, rig: Any, steps: list[dict[str, Any]]) -> None:
        self.rig, self.steps = rig, steps
        # The only difference to a real account: the endpoint of S3.
        host = rig.env["AWS_ENDPOINT_URL"].removeprefix("http://")
        self.state = f"{STATE}&endpoint={host}&disableSSL=true&s3ForcePathStyle=true"

    def follow(self, *titles: str) -> None:
        """Run the commands of some steps in one shell, as an administrator."""
        commands = [line for step in self.steps if step["title"] in titles for line in step["commands"]]
        script = "\n".join(line for line in commands if not line.startswith("test "))
        script = script.replace(STATE, self.state).replace("pulumi up", "pulumi up --yes --skip-preview --parallel=64")
        done = subprocess.run(
            ["bash", "-ec", script], cwd=self.rig.project, env=self.rig.plugins.attached(self.rig.env),
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    def role_environment(self, role: str) -> dict[str, str]:
        """Return an environment with the credentials of a role."""
        answer = self.rig.client("sts").assume_role(RoleArn=role, RoleSessionName="job")["Credentials"]
        names = {"AWS_ACCESS_KEY_ID": "AccessKeyId", "AWS_SECRET_ACCESS_KEY": "SecretAccessKey"}
        keys = {name: answer[key] for name, key in {**names, "AWS_SESSION_TOKEN": "SessionToken"}.items()}
        return {**self.rig.env, **keys, "PULUMI_BACKEND_URL": self.state}

    def job(self, part: ReviewPart) -> dict[str, str]:
        """The environment of a job."""
        return self.role_environment(f"arn:aws:iam::{ACCOUNT}:role/everspot-bootstrap-{part.value}")

    def pulumi(self, part: ReviewPart, *words: str, stack: str = "dev") -> str:
        """Return the engine's output in a job.

        Raises:
            CommandError: if it fails.
        """
        arguments = [*words, "--color=never", "--non-interactive", "--stack", stack]
        return self.rig.engine.run(arguments, str(self.rig.project), self.job(part)).stdout

    def called(self, part: ReviewPart) -> set[str]:
        """Return the calls that a part's jobs have made."""
        book = (self.rig.project / "local" / "calls.jsonl").read_text().splitlines()
        calls = [json.loads(line) for line in book]
        own_calls = [call for call in calls if f"/everspot-bootstrap-{part.value}/" in call["principal"]]
        return {each["action"] for call in own_calls for each in call["checked"]}

    def client(self, env: dict[str, str], service: str) -> Any:
        return boto3.client(
            service, endpoint_url=env["AWS_ENDPOINT_URL"], region_name=REGION,
            aws_access_key_id=env["AWS_ACCESS_KEY_ID"], aws_secret_access_key=env["AWS_SECRET_ACCESS_KEY"],
            aws_session_token=env["AWS_SESSION_TOKEN"],
        )  # fmt: skip


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory, on_local_cloud: Callable[..., Any]) -> Iterator[Walk]:
    """A project that was just begun, and an empty account."""
    home = tmp_path_factory.mktemp("begun") / "fleets"
    answers = ["--cloud", "aws", "--account", ACCOUNT, "--region", REGION, "--team", "vision", "--repository", PROJECT]
    words = [sys.executable, "-m", "everspot_cli.main", "init", str(home), *answers, "--repository-ids", "11,22"]
    done = subprocess.run([*words, "--yes", "--json"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (home / ".venv").symlink_to(sys.prefix)
    for path in (home / "stacks").glob("Pulumi.*.yaml"):  # a loopback address has no buckets as host names
        content = yaml.safe_load(path.read_text())
        content["config"] |= {"aws:s3UsePathStyle": "true", "aws:skipCredentialsValidation": "true"}
        if path.name == "Pulumi.bootstrap.yaml":
            content["config"]["everspot:bootstrap"]["spending"] = SPENDING
        path.write_text(yaml.safe_dump(content, sort_keys=False))
    with on_local_cloud(home, "aws") as rig:
        yield Walk(rig, json.loads(done.stdout)["steps"])


def refused(client: Any, call: str, **words: Any) -> str:
    with pytest.raises(ClientError) as caught:
        getattr(client, call)(**words)
    return str(caught.value.response["Error"]["Code"])


def test_the_bootstrap_is_applied_and_its_state_moved_by_the_commands_that_init_says(walk: Walk) -> None:
    walk.follow("Bootstrap", "Move the state", "Make the stacks", "Account")
    assert not (walk.rig.project / ".state").exists()  # after a preview that found no change
    versioning = walk.rig.client("s3").get_bucket_versioning(Bucket=f"everspot-state-{ACCOUNT}")
    assert versioning["Status"] == "Enabled"
    settings = yaml.safe_load((walk.rig.project / "stacks/Pulumi.dev.yaml").read_text())
    assert settings["secretsprovider"].startswith("awskms:///alias/everspot-state") and settings["encryptedkey"]


def test_the_first_environment_is_previewed_and_applied_each_by_its_own_role(walk: Walk) -> None:
    image = walk.rig.client("ec2").describe_images(Owners=["self", "amazon"])["Images"][0]["ImageId"]
    walk.rig.client("ssm").put_parameter(Name="/everspot/image/dev", Value=image, Type="String")
    assert "to create" in walk.pulumi(ReviewPart.PREVIEW, "preview")
    with pytest.raises(CommandError, match=r"AccessDenied|not authorized"):
        walk.pulumi(ReviewPart.PREVIEW, "up", "--yes", "--skip-preview")
    walk.pulumi(ReviewPart.DEPLOY, "up", "--yes", "--skip-preview", "--parallel=64")
    assert "to create" not in walk.pulumi(ReviewPart.PREVIEW, "preview", "--expect-no-changes")


def test_what_was_applied_is_kept_in_the_control_bucket_by_the_role_that_applied_it(walk: Walk) -> None:
    (name,) = [b["Name"] for b in walk.rig.client("s3").list_buckets()["Buckets"] if "-control-" in b["Name"]]
    control = f"s3://{name}?region={REGION}"
    for part in (ReviewPart.PREVIEW, ReviewPart.DRIFT):
        with pytest.raises(StoreError):
            keep_change(walk.job(part), control)
    keep_change(walk.job(ReviewPart.DEPLOY), control)
    assert stored_change_digests(walk.job(ReviewPart.PREVIEW), control) == [DIGEST]


def test_the_bill_is_split_by_tags_a_day_after_their_first_use(walk: Walk) -> None:
    """An `up` that comes too early makes everything else, and the next one goes on."""
    walk.rig.market("delays", billed="1000h")
    file = walk.rig.project / "stacks" / "Pulumi.bootstrap.yaml"
    content = yaml.safe_load(file.read_text())
    content["config"]["everspot:bootstrap"]["spending"] = {**SPENDING, "allocationTags": ["Team"]}
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    owner = {**walk.rig.env, "PULUMI_BACKEND_URL": walk.state}
    up = ["up", "--yes", "--skip-preview", "--stack", "bootstrap", "--non-interactive", "--color=never"]
    with pytest.raises(CommandError, match=r"Failed to update Cost Allocation Tag: Tag keys not found: Team"):
        walk.rig.engine.run(up, str(walk.rig.project), owner)
    walk.rig.market("delays", billed="0s")
    walk.rig.engine.run(up, str(walk.rig.project), owner)
    active = walk.rig.client("ce").list_cost_allocation_tags(Status="Active")["CostAllocationTags"]
    assert [tag["TagKey"] for tag in active] == ["Team"]


def test_drift_is_looked_for_in_all_stacks_the_bootstrap_too(walk: Walk) -> None:
    for words in (["init", "-q"], ["add", "stacks", "Pulumi.yaml"], ["-c", "user.name=a", "-c", "user.email=a@b",
                  "commit", "-qm", "x"]):  # fmt: skip
        subprocess.run(["git", *words], cwd=walk.rig.project, check=True)
    words = [sys.executable, "-m", "everspot_cli.main", "review", "drift", "bootstrap", "account", "dev", "--json"]
    done = subprocess.run(
        words, cwd=walk.rig.project, env=walk.job(ReviewPart.DRIFT), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    environments = json.loads(done.stdout)["environments"]
    assert [(each["environment"], each["drifted"], each["not_looked_at"]) for each in environments] == [
        ("bootstrap", False, []), ("account", False, []), ("dev", False, []),
    ]  # fmt: skip


def test_previews_and_drift_call_what_they_are_allowed_and_nothing_else(walk: Walk) -> None:
    own = {"kms:Decrypt", "sts:AssumeRole"}
    denied = {"s3:PutObject"}  # an update, and the document on one
    assert walk.called(ReviewPart.PREVIEW) - own - denied <= deployers.PREVIEW
    assert walk.called(ReviewPart.DRIFT) - own - denied <= deployers.PREVIEW | deployers.DRIFT | deployers.BOOTSTRAP
    # The other permissions are for other settings: an existing network, monitoring, a customer key, peers.
    assert len(deployers.PREVIEW - walk.called(ReviewPart.PREVIEW)) < len(deployers.PREVIEW) / 2
    assert walk.called(ReviewPart.DRIFT) >= deployers.BOOTSTRAP


def test_a_deployment_makes_no_role_without_the_boundary_and_undoes_nothing_of_the_bootstrap(walk: Walk) -> None:
    env = walk.job(ReviewPart.DEPLOY)
    iam, s3, kms = (walk.client(env, service) for service in ("iam", "s3", "kms"))
    trust = json.dumps({"Version": "2012-10-17", "Statement": []})
    role = {"RoleName": "everspot-free", "AssumeRolePolicyDocument": trust}
    assert refused(iam, "create_role", **role) == "AccessDenied"
    agent = next(r["RoleName"] for r in walk.rig.client("iam").list_roles()["Roles"] if "-agent-" in r["RoleName"])
    assert refused(iam, "delete_role_permissions_boundary", RoleName=agent) == "AccessDenied"
    own = "everspot-bootstrap-preview"
    assert refused(iam, "update_assume_role_policy", RoleName=own, PolicyDocument=trust) == "AccessDenied"
    assert refused(iam, "create_policy_version", PolicyArn=BOUNDARY, PolicyDocument=trust) == "AccessDenied"
    bucket = f"everspot-state-{ACCOUNT}"
    assert refused(s3, "put_bucket_policy", Bucket=bucket, Policy=trust) == "AccessDenied"
    state_key = ".pulumi/stacks/everspot/bootstrap.json"
    assert refused(s3, "put_object", Bucket=bucket, Key=state_key, Body=b"{}") == "AccessDenied"
    ec2 = walk.client(env, "ec2")
    data = {"InstanceType": "g6.xlarge"}
    foreign_template = walk.rig.client("ec2").create_launch_template(LaunchTemplateName="web", LaunchTemplateData=data)
    template = foreign_template["LaunchTemplate"]["LaunchTemplateId"]
    version = {"LaunchTemplateId": template, "LaunchTemplateData": data}
    assert refused(ec2, "create_launch_template_version", **version) == "UnauthorizedOperation"
    tags = [{"Key": "everspot:cluster", "Value": "everspot-dev"}]
    assert refused(ec2, "create_tags", Resources=[template], Tags=tags) == "UnauthorizedOperation"
    key = kms.describe_key(KeyId="alias/everspot-state")["KeyMetadata"]["KeyId"]
    assert refused(kms, "schedule_key_deletion", KeyId=key) == "AccessDeniedException"


def test_what_a_deployment_makes_never_reaches_the_state_whatever_its_policies_say(walk: Walk) -> None:
    iam = walk.rig.client("iam")
    (agent,) = [role for role in iam.list_roles()["Roles"] if "-agent-" in role["RoleName"]]
    assert iam.get_role(RoleName=agent["RoleName"])["Role"]["PermissionsBoundary"]["PermissionsBoundaryArn"] == BOUNDARY
    everything = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    iam.put_role_policy(RoleName=agent["RoleName"], PolicyName="more", PolicyDocument=json.dumps(everything))
    env = walk.role_environment(agent["Arn"])
    s3, ssm = walk.client(env, "s3"), walk.client(env, "ssm")
    for name in ("/web/password", "/everspot/wandb"):
        walk.rig.client("ssm").put_parameter(Name=name, Value="x", Type="String")
    assert ssm.get_parameter(Name="/everspot/wandb")["Parameter"]["Value"] == "x"
    assert refused(ssm, "get_parameter", Name="/web/password") == "AccessDeniedException"
    (control,) = [b["Name"] for b in walk.rig.client("s3").list_buckets()["Buckets"] if "-control-" in b["Name"]]
    assert s3.get_object(Bucket=control, Key="cluster.json")
    bucket = f"everspot-state-{ACCOUNT}"
    assert refused(s3, "get_object", Bucket=bucket, Key=".pulumi/stacks/everspot/dev.json") == "AccessDenied"
    iam.delete_role_policy(RoleName=agent["RoleName"], PolicyName="more")


def test_the_environment_is_taken_down_by_the_role_that_made_it(walk: Walk) -> None:
    walk.pulumi(ReviewPart.DEPLOY, "destroy", "--run-program", "--yes", "--skip-preview", "--parallel=64")
    allowed = deployers.PREVIEW | deployers.DEPLOY | deployers.ACCOUNT | {"kms:Decrypt", "kms:GenerateDataKey"}
    called = walk.called(ReviewPart.DEPLOY) - {"sts:AssumeRole", "kms:Encrypt"}
    planted = {"iam:DeleteRolePermissionsBoundary", "iam:UpdateAssumeRolePolicy", "iam:CreatePolicyVersion",
               "kms:ScheduleKeyDeletion"}  # fmt: skip
    assert called - planted <= allowed
    assert Path(walk.rig.project / "SETUP.md").exists()
