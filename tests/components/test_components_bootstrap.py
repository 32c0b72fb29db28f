"""An account's bootstrap on AWS: the trust of its roles, their permissions, and what they must not change."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from everspot import AwsBootstrap, AwsBootstrapArgs
from everspot.aws import bootstrap_policies
from everspot.aws.bootstrap_policies import BootstrapPlace
from everspot.common import BadComponentInputs
from everspot.repository import ReviewPart
from everspot_clouds.aws import deployers
from everspot_local.aws.iam.policy_language import Call, PolicyDecision, decide

Declare = Callable[..., tuple[Any, dict[str, Any]]]
TAGS = {"Project": "vision", "Team": "ml", "Environment": "bootstrap"}
ACCOUNT, PROVIDER = "123456789012", "arn:aws:iam::123456789012:oidc-provider/token.actions.githubusercontent.com"
BUCKET, KEY = "arn:aws:s3:::everspot-state-123456789012", "arn:aws:kms:us-east-2:123456789012:key/state"
PLACE = BootstrapPlace(
    "aws", ACCOUNT, "everspot-bootstrap", "bootstrap", BUCKET, KEY, ("arn:aws:kms:us-east-2:1:key/own",)
)
REPOSITORY: Any = {"name": "Org/fleets", "id": "11", "owner_id": "22"}
ROLES, OWN = f"arn:aws:iam::{ACCOUNT}:role/everspot-", f"arn:aws:iam::{ACCOUNT}:role/everspot-bootstrap-"
BOUNDED = {"iam:permissionsboundary": (PLACE.boundary,)}
TO_EC2 = {"iam:passedtoservice": ("ec2.amazonaws.com",)}
EC2, PARAMETER = f"arn:aws:ec2:us-east-2:{ACCOUNT}:", f"arn:aws:ssm:us-east-2:{ACCOUNT}:parameter/"
GROUP = f"arn:aws:autoscaling:us-east-2:{ACCOUNT}:autoScalingGroup:1-2:autoScalingGroupName/"
ON_TEMPLATES = ("CreateLaunchTemplateVersion", "ModifyLaunchTemplate", "DeleteLaunchTemplate")
OURS, THEIRS = ({"aws:resourcetag/everspot:cluster": (name,)} for name in ("everspot-dev", "web"))
NEW = {"aws:requesttag/everspot:cluster": ("everspot-dev",)}
GITHUB = "token.actions.githubusercontent.com"


def takes_role(part: ReviewPart, repository: Any = REPOSITORY, **claims: str) -> bool:
    """Return whether a job with these claims can assume a part's role."""
    context = {f"{GITHUB}:{key}": (value,) for key, value in {"aud": "sts.amazonaws.com", **claims}.items()}
    document = bootstrap_policies.trust(PROVIDER, repository, part, [])
    call = Call("sts:AssumeRoleWithWebIdentity", context=context)
    return decide([document], call, PROVIDER) is PolicyDecision.ALLOW


def may(part: ReviewPart, action: str, resource: str = "*", context: Any = None) -> bool:
    """Return whether a part's role may make a call."""
    documents = [document(PLACE) for document in bootstrap_policies.documents(part).values()]
    return decide(documents, Call(action, resource, context or {})) is PolicyDecision.ALLOW


@pytest.mark.parametrize(
    ("part", "claims"),
    [
        (ReviewPart.PREVIEW, {"sub": "repo:Org/fleets:pull_request"}),
        (ReviewPart.PREVIEW, {"sub": "repo:Org@22/fleets@11:pull_request"}),
        (ReviewPart.DRIFT, {"sub": "repo:Org/fleets:ref:refs/heads/main"}),
        (ReviewPart.DEPLOY, {"sub": "repo:Org@22/fleets@11:environment:production", "ref": "refs/heads/main"}),
    ],
)
def test_a_job_takes_the_role_of_its_own_part_in_both_forms_of_the_subject(
    part: ReviewPart, claims: dict[str, str]
) -> None:
    assert takes_role(part, repository_id="11", **claims)
    assert [
        other for other in ReviewPart if other is not part and takes_role(other, repository_id="11", **claims)
    ] == []


@pytest.mark.parametrize(
    "claims",
    [
        {"sub": "repo:Org/other:pull_request", "repository_id": "11"},
        {"sub": "repo:Org/fleets:pull_request", "repository_id": "12"},  # the name taken over by another repository
        {"sub": "repo:Org/fleets:pull_request"},
        {"sub": "repo:org/fleets:pull_request", "repository_id": "11"},
        {"sub": "repo:Org@23/fleets@11:pull_request", "repository_id": "11"},
        {"sub": "repo:Org/fleets:pull_request:more", "repository_id": "11"},
        {"sub": "repo:Org/fleets:pull_request", "repository_id": "11", "aud": "https://github.com/Org"},
        {"sub": "repo:Org/fleets:environment:staging", "repository_id": "11", "ref": "refs/heads/main"},
        # An environment without rules for branches takes the jobs of any of them.
        {"sub": "repo:Org/fleets:environment:production", "repository_id": "11", "ref": "refs/heads/theirs"},
        {"sub": "repo:Org/fleets:environment:production", "repository_id": "11", "ref": "refs/pull/7/merge"},
        {"sub": "repo:Org/fleets:ref:refs/heads/other", "repository_id": "11"},
    ],
)
def test_any_other_job_takes_none(claims: dict[str, str]) -> None:
    assert not any(takes_role(part, **claims) for part in ReviewPart)


def test_without_ids_the_name_decides_and_branch_and_environment_are_those_that_are_named() -> None:
    repository = {"name": "Org/fleets", "branch": "trunk", "environment": "live"}
    assert takes_role(ReviewPart.DRIFT, repository, sub="repo:Org/fleets:ref:refs/heads/trunk")
    trunk = "refs/heads/trunk"
    assert takes_role(ReviewPart.DEPLOY, repository, sub="repo:Org/fleets:environment:live", ref=trunk)
    assert not takes_role(ReviewPart.DEPLOY, repository, sub="repo:Org/fleets:environment:live", ref="refs/heads/main")
    assert not takes_role(ReviewPart.DEPLOY, repository, sub="repo:Org/fleets:environment:production", ref=trunk)
    assert not takes_role(ReviewPart.DRIFT, repository, sub="repo:Org@22/fleets@11:ref:refs/heads/trunk")


def test_previews_and_looks_for_drift_only_read() -> None:
    for part in (ReviewPart.PREVIEW, ReviewPart.DRIFT):
        documents = [document(PLACE) for document in bootstrap_policies.documents(part).values()]
        actions = {a.split(":")[1] for d in documents for s in d["Statement"] for a in s["Action"]}
        assert {a for a in actions if not a.startswith(("Describe", "Get", "List", "View"))} == {"Decrypt"}
        assert not may(part, "s3:GetObject", "arn:aws:s3:::everspot-prod-store-data-1/jobs/x")
        assert may(part, "s3:GetObject", "arn:aws:s3:::everspot-prod-store-control-1/cluster.json")
        assert may(part, "s3:GetObject", f"{BUCKET}/.pulumi/stacks/everspot/prod.json")
        assert may(part, "kms:Decrypt", KEY) and not may(part, "kms:Encrypt", KEY)


@pytest.mark.parametrize(
    ("action", "resource", "context"),
    [
        ("iam:CreateRole", f"{ROLES}dev-agent-1", {}),
        ("iam:CreateRole", f"{ROLES}dev-agent-1", {"iam:permissionsboundary": ("arn:aws:iam::aws:policy/Other",)}),
        ("iam:CreateRole", f"arn:aws:iam::{ACCOUNT}:role/admin", BOUNDED),
        ("iam:PutRolePolicy", f"{ROLES}dev-agent-1", {}),
        ("iam:DeleteRolePermissionsBoundary", f"{ROLES}dev-agent-1", BOUNDED),
        ("iam:PutRolePolicy", f"{OWN}deploy", BOUNDED),
        ("iam:UpdateAssumeRolePolicy", f"{OWN}preview", {}),
        ("iam:DeleteRole", f"{OWN}drift", {}),
        ("iam:PassRole", f"{OWN}deploy", TO_EC2),
        ("iam:PassRole", f"{ROLES}dev-agent-1", {"iam:passedtoservice": ("lambda.amazonaws.com",)}),
        ("iam:CreatePolicyVersion", PLACE.boundary, {}),
        ("iam:CreateServiceLinkedRole", f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/x/y", {}),
        ("iam:AttachRolePolicy", f"{ROLES}dev-agent-1", BOUNDED),
        ("s3:PutBucketPolicy", BUCKET, {}),
        ("s3:PutLifecycleConfiguration", BUCKET, {}),
        ("s3:DeleteBucket", BUCKET, {}),
        ("s3:DeleteObjectVersion", f"{BUCKET}/.pulumi/stacks/everspot/prod.json", {}),
        ("s3:PutObject", f"{BUCKET}/.pulumi/stacks/everspot/bootstrap.json", {}),
        ("s3:DeleteObject", f"{BUCKET}/.pulumi/backups/everspot/bootstrap/bootstrap.1.json", {}),
        ("s3:PutObject", f"{BUCKET}/.pulumi/locks/organization/everspot/bootstrap/1.json", {}),
        ("s3:PutObject", "arn:aws:s3:::somebody-elses/x", {}),
        ("kms:ScheduleKeyDeletion", KEY, {}),
        ("kms:CreateGrant", KEY, {}),
        ("kms:PutKeyPolicy", KEY, {}),
        *((f"ec2:{call}", f"{EC2}launch-template/lt-1", tags) for tags in ({}, THEIRS) for call in ON_TEMPLATES),
        ("ec2:CreateLaunchTemplate", f"{EC2}launch-template/*", {}),
        *(("ec2:CreateTags", f"{EC2}{kind}/x", NEW) for kind in ("launch-template", "fleet", "instance")),
        ("ec2:DeleteTags", f"{EC2}launch-template/lt-1", THEIRS),
        ("ec2:ModifyFleet", f"{EC2}fleet/f", THEIRS),
        ("ec2:DeleteFleets", f"{EC2}fleet/f", {}),
        ("autoscaling:UpdateAutoScalingGroup", f"{GROUP}web", OURS),
        ("sqs:SetQueueAttributes", f"arn:aws:sqs:us-east-2:{ACCOUNT}:orders", {}),
        ("events:PutTargets", f"arn:aws:events:us-east-2:{ACCOUNT}:rule/orders", {}),
        ("ssm:GetParameter", f"{PARAMETER}web/password", {}),
        ("ssm:GetParameter", f"{PARAMETER}everspot/wandb", {}),
    ],
)
def test_a_deployment_may_not(action: str, resource: str, context: Any) -> None:
    assert not may(ReviewPart.DEPLOY, action, resource, context)


@pytest.mark.parametrize(
    ("action", "resource", "context"),
    [
        ("iam:CreateRole", f"{ROLES}dev-agent-1", BOUNDED),
        ("iam:PassRole", f"{ROLES}dev-agent-1", TO_EC2),
        ("s3:PutBucketPolicy", "arn:aws:s3:::everspot-dev-store-data-1", {}),
        ("s3:PutObject", f"{BUCKET}/.pulumi/stacks/everspot/prod.json", {}),
        ("s3:DeleteObject", f"{BUCKET}/.pulumi/locks/organization/everspot/prod/1.json", {}),
        ("kms:GenerateDataKey", KEY, {}),
        ("kms:CreateGrant", "arn:aws:kms:us-east-2:1:key/own", {}),
        ("ec2:CreateFleet", "*", {}),
        *((f"ec2:{call}", f"{EC2}launch-template/lt-1", OURS) for call in ON_TEMPLATES),
        ("ec2:CreateLaunchTemplate", f"{EC2}launch-template/*", NEW),
        ("ec2:CreateTags", f"{EC2}launch-template/*", {**NEW, "ec2:createaction": ("CreateLaunchTemplate",)}),
        ("ec2:CreateTags", f"{EC2}launch-template/lt-1", {**NEW, **OURS}),
        ("ec2:CreateTags", f"{EC2}security-group/sg-default", NEW),
        ("ec2:DeleteFleets", f"{EC2}fleet/f", OURS),
        ("ec2:ModifyFleet", f"{EC2}fleet/f", OURS),
        ("ec2:ModifyFleet", f"{EC2}subnet/s", {}),
        ("autoscaling:UpdateAutoScalingGroup", f"{GROUP}everspot-dev-scheduler-group-1", {}),
        ("autoscaling:DescribeScalingActivities", "*", {}),
        ("sqs:CreateQueue", f"arn:aws:sqs:us-east-2:{ACCOUNT}:everspot-dev-queue-1", {}),
        ("ssm:GetParameter", f"{PARAMETER}everspot/image/dev", {}),
        ("ssm:GetParameter", "arn:aws:ssm:us-east-2::parameter/aws/service/image", {}),
    ],
)
def test_a_deployment_may(action: str, resource: str, context: Any) -> None:
    assert may(ReviewPart.DEPLOY, action, resource, context)


def test_every_permission_that_deployers_need_is_given_in_some_form() -> None:
    documents = [document(PLACE) for document in bootstrap_policies.documents(ReviewPart.DEPLOY).values()]
    granted = {a for d in documents for s in d["Statement"] if s["Effect"] == "Allow" for a in s["Action"]}
    unseen = {action for names in deployers.UNSEEN for action in names.split(", ")}
    required = deployers.PREVIEW | deployers.DEPLOY | deployers.ACCOUNT | unseen
    # Taken away is a boundary never; and who may use clusters' own keys is said by their names.
    assert required - granted == {"iam:DeleteRolePermissionsBoundary"}


def test_the_documents_fit_into_iam() -> None:
    trusted = (REPOSITORY, [f"arn:aws:iam::{ACCOUNT}:role/runner-{n}" for n in range(5)])
    for part in ReviewPart:
        for document in bootstrap_policies.documents(part).values():
            assert len(json.dumps(document(PLACE)).replace(" ", "")) < 6_144 - 500
        assert (
            len(json.dumps(bootstrap_policies.trust(PROVIDER, trusted[0], part, trusted[1])).replace(" ", "")) < 2_048
        )
    assert len(bootstrap_policies.documents(ReviewPart.DEPLOY)) <= 10
    assert len(json.dumps(bootstrap_policies.boundary(PLACE)).replace(" ", "")) < 6_144


def bootstrap(declare: Declare, **more: Any) -> tuple[Any, dict[str, Any]]:
    args: AwsBootstrapArgs = {"tags": TAGS, "repository": REPOSITORY, **more}  # type: ignore[typeddict-item]

    def program() -> dict[str, Any]:
        component = AwsBootstrap("everspot-bootstrap", args)
        return {"state": component.state_url, "secrets": component.secrets_provider, "boundary": component.boundary_arn}

    return declare(program)


def test_state_lies_in_a_bucket_and_under_a_key_that_nothing_deletes(
    declare: Declare, protection: dict[str, tuple[bool, bool]]
) -> None:
    recorder, outputs = bootstrap(declare)
    assert outputs["state"] == "s3://everspot-state-123456789012?region=eu-west-1"
    assert outputs["secrets"] == "awskms:///alias/everspot-state?region=eu-west-1"
    assert protection["everspot-bootstrap-state"] == protection["everspot-bootstrap-state-key"] == (True, True)
    # Whatever belongs to them outlives the stack too, and nothing else does.
    parts = ("alias", "private", "encryption", "tls", "versions", "lifecycle")
    retained = {name for name, (_, retain) in protection.items() if retain}
    assert retained == {f"everspot-bootstrap-state{end}" for end in ("", "-key", *(f"-{part}" for part in parts))}
    assert recorder.inputs("everspot-bootstrap-state-key")["enableKeyRotation"] is True
    versions = recorder.inputs("everspot-bootstrap-state-versions")["versioningConfiguration"]
    assert versions["status"] == "Enabled"
    (old, _) = recorder.inputs("everspot-bootstrap-state-lifecycle")["rules"]
    assert old["noncurrentVersionExpiration"] == {"noncurrentDays": 90}


def test_the_provider_is_made_once_and_taken_over_where_it_exists(declare: Declare) -> None:
    recorder, _ = bootstrap(declare)
    (provider,) = recorder.of_type("aws:iam/openIdConnectProvider:OpenIdConnectProvider")
    assert (provider.inputs["url"], provider.inputs["clientIdLists"]) == (f"https://{GITHUB}", ["sts.amazonaws.com"])
    recorder, _ = bootstrap(declare, oidc_provider_arn=PROVIDER)
    assert recorder.of_type("aws:iam/openIdConnectProvider:OpenIdConnectProvider") == []
    trust = json.loads(recorder.inputs("everspot-bootstrap-deploy")["assumeRolePolicy"])
    assert trust["Statement"][0]["Principal"] == {"Federated": PROVIDER}


def test_runners_of_a_forge_without_identity_tokens_take_roles_by_their_own(declare: Declare) -> None:
    runner = "arn:aws:iam::123456789012:role/runner-{}".format
    arns = {"preview_runner_role_arns": [runner("p")], "deploy_runner_role_arns": [runner("d")]}
    args: Any = {"tags": TAGS, **arns}
    recorder, _ = declare(lambda: {"url": AwsBootstrap("everspot-bootstrap", args).state_url})
    assert recorder.of_type("aws:iam/openIdConnectProvider:OpenIdConnectProvider") == []
    trusted = {
        part: json.loads(recorder.inputs(f"everspot-bootstrap-{part}")["assumeRolePolicy"])["Statement"]
        for part in ReviewPart
    }
    assert {part: [s["Principal"]["AWS"] for s in statements] for part, statements in trusted.items()} == {
        ReviewPart.PREVIEW: [[runner("p")]], ReviewPart.DRIFT: [[runner("d")]], ReviewPart.DEPLOY: [[runner("d")]],
    }  # fmt: skip


def test_all_that_is_wrong_is_told_at_once(declare: Declare) -> None:
    bad: Any = {
        "tags": {"Project": "p"},
        "repository": {"name": "everybody/*", "id": "x", "branch": "a b", "environment": "*"},
        "preview_runner_role_arns": ["arn:aws:iam::123456789012:role/r", "r"],
        "deploy_runner_role_arns": ["arn:aws:iam::123456789012:role/r"],
        "state_bucket": "Upper",
        "key_arns": ["alias/x"],
        "oidc_provider_arn": "github",
        "spending": {
            "emails": ["nobody"],
            "budgets": [{"team": "a/b", "usd_per_month": 0}, {"team": "a", "usd_per_month": 1},
                        {"team": "a", "usd_per_month": 1}],
            "anomalies": {"usd": 0, "monitor_arn": "x"},
            "allocation_tags": ["Team", "Team"],
        },
    }  # fmt: skip
    with pytest.raises(BadComponentInputs) as refused:
        declare(lambda: {"x": AwsBootstrap("n" * 60, bad).state_url})
    message = str(refused.value)
    paths = (
        "name:", "tags:", "repository.name", "repository.id", "repository: id and ownerId", "repository.branch",
        "repository.environment", "previewRunnerRoleArns[1]", "deployRunnerRoleArns:", "stateBucket", "keyArns[0]",
        "oidcProviderArn", "spending.emails[0]", "spending.budgets[0].team", "spending.budgets[0].usdPerMonth",
        "spending.budgets[2].team", "spending.anomalies.usd", "spending.anomalies.monitorArn",
        "spending.allocationTags[1]",
    )  # fmt: skip
    assert [path for path in paths if f"- {path}" not in message] == []
    with pytest.raises(BadComponentInputs, match="nobody could take the roles"):
        declare(lambda: {"x": AwsBootstrap("everspot-bootstrap", {"tags": TAGS}).state_url})
    silent: Any = {"tags": TAGS, "repository": REPOSITORY, "spending": {"anomalies": {"usd": 5}}}
    with pytest.raises(BadComponentInputs, match=r"nobody would be told[\s\S]*teams of 1 to 10 budgets"):
        declare(lambda: {"x": AwsBootstrap("everspot-bootstrap", silent).state_url})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"bucket_arns": ["data"]}, r"bucketArns\[0\]"),
        ({"secret_arns": ["arn:aws:s3:::secrets"]}, r"secretArns\[0\]"),
        ({"image_parameter_arns": ["/image"]}, r"imageParameterArns\[0\]"),
        ({"bucket_arns": [f"arn:aws:s3:::{n:060d}" for n in range(30)]}, r"bucketArns.*characters too many are named"),
    ],
)
def test_what_is_named_for_clusters_has_to_be_arns_that_fit_into_a_policy(
    declare: Declare, inputs: Any, message: str
) -> None:
    with pytest.raises(BadComponentInputs, match=message):
        bootstrap(declare, **inputs)
