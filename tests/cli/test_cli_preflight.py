"""`everspot preflight` against both local clouds: what a deployer lacks, in a table with the sentence that fixes it."""

import json
import re
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import boto3
import pytest
from everspot.aws import bootstrap_policies
from everspot.aws.bootstrap_policies import BootstrapPlace
from everspot.repository import ReviewPart
from everspot_clouds.aws.preflight import CALLS
from everspot_clouds.gcp import deployers as google_deployers
from everspot_clouds.gcp.errors import ApiError
from everspot_clouds.gcp.http_api import Api
from everspot_local.cloud import LocalCloud
from everspot_local.gcp import service_usage
from everspot_local.gcp.environment import owner
from everspot_local.market.delays import Delays
from everspot_local.options import Options
from everspot_store import SystemClock

from tests.cli.conftest import Answer, everspot

REGION, ACCOUNT, IMAGE = "us-east-2", "123456789012", "ami-12c6146b"
AWS = """
config:
  aws:region: us-east-2
  everspot:cluster:
    cloud: aws
    tags: {Project: everspot, Team: ml-platform}
    imageId: %s
    permissionsBoundaryArn: arn:aws:iam::123456789012:policy/bootstrap-boundary
    zones: [us-east-2a]
    schedulerType: t3.micro
    capacity:
      instanceTypes: [%s]
      elastic: {maxInstances: 2}
"""
GOOGLE = """
config:
  gcp:project: everspot-local
  gcp:region: europe-west4
  everspot:cluster:
    cloud: gcp
    tags: {Project: everspot, Team: ml-platform}
    imageFamily: %s
    zones: [europe-west4-a]
    capacity:
      instanceTypes: [g2-standard-4]
      elastic: {maxInstances: 2}
"""
ASK = {"Effect": "Allow", "Action": ["iam:SimulatePrincipalPolicy", "iam:GetRole"], "Resource": "*"}
READ_QUOTAS = {"Effect": "Allow", "Action": "servicequotas:ListServiceQuotas", "Resource": "*"}


@pytest.fixture(scope="module")
def aws_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    folder = tmp_path_factory.mktemp("aws")
    with LocalCloud(
        Options(state_dir=folder, boot_command=None, region=REGION, delays=Delays(propagation=timedelta()))
    ) as cloud:
        yield cloud


@pytest.fixture
def aws(aws_cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> LocalCloud:
    """An empty account, and the environment of its owner."""
    aws_cloud.reset()
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": REGION}
    for name, value in {"AWS_ENDPOINT_URL": aws_cloud.endpoint, **keys}.items():
        monkeypatch.setenv(name, value)
    iam = boto3.client("iam")
    for service in ("ec2fleet.amazonaws.com", "spot.amazonaws.com"):
        iam.create_service_linked_role(AWSServiceName=service)
    return aws_cloud


def deployer(*statements: dict[str, Any]) -> dict[str, str]:
    """The environment of a role with the policies of a deployment, and with more statements."""
    iam, trust = boto3.client("iam"), {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
    iam.create_role(RoleName="deployer", AssumeRolePolicyDocument=document(trust))
    place = BootstrapPlace("aws", ACCOUNT, "bootstrap", "bootstrap", "arn:aws:s3:::state", "arn:aws:kms:::key/state")
    for name, written in bootstrap_policies.documents(ReviewPart.DEPLOY).items():
        policy = iam.create_policy(PolicyName=name, PolicyDocument=json.dumps(written(place)))["Policy"]["Arn"]
        iam.attach_role_policy(RoleName="deployer", PolicyArn=policy)
    iam.put_role_policy(RoleName="deployer", PolicyName="more", PolicyDocument=document(*statements))
    role = f"arn:aws:iam::{ACCOUNT}:role/deployer"
    keys = boto3.client("sts").assume_role(RoleArn=role, RoleSessionName="test")["Credentials"]
    return {
        "AWS_ACCESS_KEY_ID": keys["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": keys["SecretAccessKey"],
        "AWS_SESSION_TOKEN": keys["SessionToken"],
    }


def document(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def preflight(tmp_path: Path, text: str, env: dict[str, str] | None = None, *options: str) -> Answer:
    file = tmp_path / "Pulumi.dev.yaml"
    file.write_text(text)
    with mock.patch.object(boto3, "DEFAULT_SESSION", None):  # which keeps the credentials of its first client
        return everspot(*options, "preflight", "--settings", str(file), env=env)


def checks(answer: Answer) -> dict[str, dict[str, str]]:
    """The checks of the only cluster, the last of each name."""
    return {check["name"]: check for check in answer.json["clusters"]["everspot-dev"]["checks"]}


def failed(answer: Answer) -> list[str]:
    return [name for name, check in checks(answer).items() if check["verdict"] == "fail"]


def test_a_deployer_with_the_policies_of_a_deployment_may_make_every_call(aws: LocalCloud, tmp_path: Path) -> None:
    answer = preflight(tmp_path, AWS % (IMAGE, "g4dn.xlarge"), deployer(ASK, READ_QUOTAS), "--json")
    rows = checks(answer)
    assert [row for row in rows.values() if row["verdict"] != "ok"] == []
    assert (answer.code, answer.err) == (0, "")
    services = {name.partition(": ")[2] for name in rows if name.startswith("permissions: ")}
    assert {"ec2", "iam", "s3", "sqs", "events", "autoscaling"} <= services
    assert {"launch: spot", "launch: on-demand", "image: architecture", "quota"} <= rows.keys()
    table = preflight(tmp_path, AWS % (IMAGE, "g4dn.xlarge"))
    assert (table.code, table.out.count("✓")) == (0, len(table.out.splitlines()) - 1)


def test_what_a_policy_denies_is_named_with_the_sentence_that_fixes_it(aws: LocalCloud, tmp_path: Path) -> None:
    denied = ["s3:CreateBucket", "ec2:DescribeImages", "ec2:RunInstances", "iam:PassRole"]
    env = deployer(ASK, READ_QUOTAS, {"Effect": "Deny", "Action": denied, "Resource": "*"})
    answer = preflight(tmp_path, AWS % (IMAGE, "g4dn.xlarge"), env, "--json")
    assert answer.code == 1
    rows = checks(answer)
    for service, call in (("s3", "s3:CreateBucket"), ("iam", "iam:PassRole")):
        assert call in rows[f"permissions: {service}"]["detail"]
        assert rows[f"permissions: {service}"]["fix"].startswith(
            f"allow {call} to arn:aws:sts::{ACCOUNT}:assumed-role/"
        )
    assert "ec2:DescribeImages, ec2:RunInstances" in rows["permissions: ec2"]["detail"]
    assert rows["image"]["verdict"] == "skip", "what cannot be read is no mistake of the image"


@pytest.mark.parametrize("half", [0, 1])
def test_every_call_that_is_denied_is_named_and_none_besides(aws: LocalCloud, tmp_path: Path, half: int) -> None:
    # The simulator is asked by way of the role, an image id needs no parameter, and nobody can be denied an identity.
    calls = sorted(CALLS - {"iam:GetRole", "ssm:GetParameter", "sts:GetCallerIdentity"})
    denied = calls[half::2]
    env = deployer(ASK, READ_QUOTAS, {"Effect": "Deny", "Action": denied, "Resource": "*"})
    answer = preflight(tmp_path, AWS % (IMAGE, "g4dn.xlarge"), env, "--json")
    assert answer.code == 1
    fixes = [check["fix"] for name, check in checks(answer).items() if name.startswith("permissions: ")]
    sentence = re.compile(rf"allow (.*) to arn:aws:sts::{ACCOUNT}:assumed-role/deployer/test")
    named_calls = {call for fix in fixes if (match := sentence.fullmatch(fix)) for call in match[1].split(", ")}
    assert named_calls == set(denied)


def test_a_launch_that_is_denied_fails_by_its_dry_run(aws: LocalCloud, tmp_path: Path) -> None:
    spot_only = {"StringEquals": {"ec2:InstanceMarketType": "spot"}}
    denial = {"Effect": "Deny", "Action": "ec2:RunInstances", "Resource": "*", "Condition": spot_only}
    answer = preflight(tmp_path, AWS % (IMAGE, "g4dn.xlarge"), deployer(ASK, READ_QUOTAS, denial), "--json")
    assert failed(answer) == ["launch: spot"], "the simulator does not know the market of a launch"
    assert "UnauthorizedOperation" in checks(answer)["launch: spot"]["detail"]
    assert not [i for r in boto3.client("ec2").describe_instances()["Reservations"] for i in r["Instances"]]


def test_without_the_simulator_only_dry_runs_are_answered(aws: LocalCloud, tmp_path: Path) -> None:
    answer = preflight(tmp_path, AWS % (IMAGE, "g4dn.xlarge"), deployer(READ_QUOTAS), "--json")
    rows = checks(answer)
    assert answer.code == 0
    assert rows["permissions: s3"]["verdict"] == "skip"
    assert "iam:SimulatePrincipalPolicy" in rows["permissions: s3"]["fix"]
    assert "ec2:DescribeImages" not in rows["permissions: ec2"]["detail"].partition("not asked")[2]


def test_types_that_the_image_cannot_start_on_are_named(aws: LocalCloud, tmp_path: Path) -> None:
    arm = (AWS % (IMAGE, "c7g.xlarge")).replace("t3.micro", "t4g.small")
    answer = preflight(tmp_path, arm, None, "--json")
    assert failed(answer) == ["image: architecture"]
    assert "c7g.xlarge (arm64)" in checks(answer)["image: architecture"]["detail"]
    answer = preflight(tmp_path, AWS % (IMAGE, "g4dn.xlarge, p3.2xlarge"), None, "--json")
    assert failed(answer) == ["image: GPUs"]
    assert "V100" in checks(answer)["image: GPUs"]["detail"]
    small = (AWS % (IMAGE, "g4dn.xlarge")).replace("schedulerType: t3.micro", "volumeGib: 10")
    size = checks(preflight(tmp_path, small, None, "--json"))["image: size"]
    assert (size["verdict"], size["fix"]) == ("fail", "set volumeGib to 15 or more, or leave it out")
    missing_image = preflight(tmp_path, AWS % ("ami-0123456789abcdef0", "g4dn.xlarge"), None, "--json")
    assert "ami-0123456789abcdef0 does not exist in us-east-2" in checks(missing_image)["image"]["detail"]


def test_repositories_of_images_are_looked_at(aws: LocalCloud, tmp_path: Path) -> None:
    host = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com"
    boto3.client("ecr").create_repository(repositoryName="team/train")
    names = [
        f"{host}/team/train",
        f"{host}/team/none",
        f"{ACCOUNT}.dkr.ecr.eu-west-1.amazonaws.com/team/train",
        "ghcr.io/x",
    ]
    text = (AWS % (IMAGE, "m6i.large")) + f"    imageRepositories: {json.dumps(names)}\n"
    answer = preflight(tmp_path, text, None, "--json")
    (cluster,) = answer.json["clusters"].values()
    checks = [(c["verdict"], c["detail"]) for c in cluster["checks"] if c["name"].startswith("repository ")]
    assert checks == [
        ("ok", f"{names[0]} exists"),
        ("fail", f"{names[1]} does not exist"),
        ("fail", f"{names[2]} is in eu-west-1, and the cluster in {REGION}"),
        ("fail", "ghcr.io/x is no repository of ECR"),
    ]


def test_a_cluster_on_kubernetes_is_checked_with_the_credentials_of_its_machines_first(aws: LocalCloud) -> None:
    settings = Path(__file__).resolve().parents[2] / "stacks/Pulumi.kubernetes-dev.yaml"
    nowhere = {"KUBECONFIG": "/nonexistent"}
    answer = everspot("--json", "preflight", "--settings", str(settings), env=nowhere)
    rows = answer.json["clusters"]["everspot-kubernetes-dev"]["checks"]
    assert (rows[0]["name"], rows[0]["verdict"]) == ("credentials", "ok")
    assert (rows[-1]["name"], rows[-1]["group"], rows[-1]["verdict"]) == ("kubernetes", "credentials", "fail")
    assert answer.code == 1


def test_a_quota_that_holds_nothing_fails(aws: LocalCloud, tmp_path: Path) -> None:
    for code in ("L-3819A6DF", "L-DB2E81BA"):
        aws.do("quota", code=code, value=0)
    answer = preflight(tmp_path, AWS % (IMAGE, "g4dn.xlarge"), None, "--json")
    assert (answer.code, "quota" in failed(answer)) == (1, True)
    assert "servicequotas" in checks(answer)["quota"]["fix"]


def test_without_credentials_nothing_else_is_asked(aws: LocalCloud, tmp_path: Path) -> None:
    stale = {"AWS_ACCESS_KEY_ID": "ASIAEXAMPLEEXAMPLE00", "AWS_SECRET_ACCESS_KEY": "x", "AWS_SESSION_TOKEN": "x"}
    answer = preflight(tmp_path, AWS % (IMAGE, "g4dn.xlarge"), stale, "--json")
    assert (answer.code, list(checks(answer))) == (4, ["credentials"])


def test_settings_without_a_cluster_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    assert preflight(tmp_path, "config: {aws:region: us-east-2}\n").code == 3
    wrong = preflight(tmp_path, (AWS % (IMAGE, "g4dn.xlarge")).replace("maxInstances", "instances"))
    assert (wrong.code, "maxInstances" in wrong.err) == (1, True)


@pytest.fixture(scope="module")
def google_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    folder = tmp_path_factory.mktemp("google")
    with LocalCloud(Options(folder, cloud="gcp", scale=600, boot_command=None)) as cloud:
        yield cloud


@pytest.fixture
def google(google_cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> LocalCloud:
    google_cloud.reset()
    for name, value in owner(google_cloud.endpoint, "europe-west4").items():
        monkeypatch.setenv(name, value)
    return google_cloud


def test_permissions_on_google_are_tested_on_the_project(google: LocalCloud, tmp_path: Path) -> None:
    answer = preflight(tmp_path, GOOGLE % "everspot", None, "--json")
    rows = checks(answer)
    assert [row for row in rows.values() if row["verdict"] != "ok"] == []
    assert (answer.code, answer.err) == (0, "")
    assert {"permissions: compute", "permissions: iam", "quota", "image: size"} <= rows.keys()
    missing_family = checks(preflight(tmp_path, GOOGLE % "none-such", None, "--json"))["image"]
    assert (missing_family["verdict"], "family/none-such does not exist" in missing_family["detail"]) == ("fail", True)


def test_a_service_that_is_off_on_google_is_named_with_its_remedy(
    google: LocalCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_usage, "ON", tuple(name for name in service_usage.ON if name != "sts"))
    google.reset()
    answer = preflight(tmp_path, GOOGLE % "everspot", None, "--json")
    assert failed(answer) == ["job tokens"]
    assert checks(answer)["job tokens"]["fix"].startswith("`gcloud services enable sts.googleapis.com --project ever")
    without = (GOOGLE % "everspot").replace("cloud: gcp", "cloud: gcp\n    jobRole: false")
    assert "job tokens" not in checks(preflight(tmp_path, without, None, "--json"))
    api = Api(SystemClock())
    api.post("serviceusage", "projects/everspot-local/services/sts.googleapis.com:enable")
    api.close()
    assert failed(preflight(tmp_path, GOOGLE % "everspot", None, "--json")) == []


def until(condition: Callable[[], bool]) -> None:
    """Wait until an account, a role or a binding that was just made is seen."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it was not seen in time"
        time.sleep(0.1)


def bound(api: Api, policy: dict[str, Any]) -> bool:
    try:
        api.post("resourcemanager", "projects/everspot-local:setIamPolicy", policy)
    except ApiError:
        return False
    return True


def test_what_a_google_role_lacks_is_named(google: LocalCloud, tmp_path: Path) -> None:
    project, email = "projects/everspot-local", "deployer@everspot-local.iam.gserviceaccount.com"
    api = Api(SystemClock())
    api.post("iam", f"{project}/serviceAccounts", {"accountId": "deployer"})
    lacking = {"compute.instanceTemplates.create", "storage.buckets.create"}
    allowed = sorted((google_deployers.PREVIEW | google_deployers.DEPLOY | {"compute.projects.get"}) - lacking)
    role = {"roleId": "deployer", "role": {"includedPermissions": [*allowed, "compute.regions.get"]}}
    api.post("iam", f"{project}/roles", role)
    binding = {"role": f"{project}/roles/deployer", "members": [f"serviceAccount:{email}"]}
    until(lambda: bound(api, {"policy": {"version": 3, "bindings": [binding]}}))
    path = f"projects/-/serviceAccounts/{email}:generateAccessToken"
    token = api.post("iamcredentials", path, {"scope": ["cloud-platform"]})["accessToken"]
    api.close()
    env = {"GOOGLE_OAUTH_ACCESS_TOKEN": str(token)}
    until(lambda: preflight(tmp_path, GOOGLE % "everspot", env, "--json").out.count('"ok"') > 4)
    answer = preflight(tmp_path, GOOGLE % "everspot", env, "--json")
    assert failed(answer) == ["permissions: compute", "permissions: storage"]
    rows = checks(answer)
    assert "compute.instanceTemplates.create" in rows["permissions: compute"]["detail"]
    assert rows["permissions: storage"]["fix"].startswith("allow storage.buckets.create to ")
