"""Asks AWS whether a deployer's credentials and the account suffice for a cluster, before anything of it exists.

EC2's reading calls and the launch itself are tried with `DryRun`, which also counts the policies of the organization.
The other calls are put to IAM's policy simulator. It knows the caller's own policies and boundary alone, and has to be
allowed by `iam:SimulatePrincipalPolicy` (IAM API Reference).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from everspot_core.capacity.market import Market
from everspot_core.clock import Clock
from everspot_core.cluster.checks import Check, Verdict
from everspot_core.cluster.preflight import ImageFacts, PreflightPlan, image_checks, permission_checks
from everspot_core.jobs.records import Role

from everspot_clouds.aws import deployers, rules
from everspot_clouds.aws.checks import (
    client,
    client_missing,
    credential_checks,
    guarded,
    linked_role_checks,
    quota_checks,
)
from everspot_clouds.aws.gpus import FAMILIES
from everspot_clouds.base import image_check

CALLS = deployers.PREVIEW | deployers.DEPLOY | deployers.PRICES
"""Everything that `pulumi preview`, `up`, `refresh` and `destroy` call for a cluster."""

_READ_PARAMETER = "ssm:GetParameter"
_SIMULATOR = "iam:SimulatePrincipalPolicy"
_REGISTRY = re.compile(rules.REGISTRY_HOST)
_BATCH = 50
_OBJECTS = frozenset({"s3:GetObject", "s3:GetObjectTagging", "s3:PutObject", "s3:DeleteObject"})
_TEMPLATES = frozenset(
    {
        *("ec2:CreateLaunchTemplate", "ec2:CreateLaunchTemplateVersion"),
        *("ec2:DeleteLaunchTemplate", "ec2:ModifyLaunchTemplate"),
    }
)


def deployer_checks(plan: PreflightPlan, clock: Clock) -> list[Check]:
    """Check credentials first, and the rest only if they work. Nothing is changed and nothing is launched."""
    if (checks := client_missing()) is not None:
        return checks
    manifest = plan.manifest
    connect = partial(client, manifest.region)
    checks = guarded("credentials", "credentials", lambda: credential_checks(connect("sts"), clock))
    if checks[0].verdict is not Verdict.OK:
        return checks
    caller = checks[0].detail
    checks += guarded("permissions", "credentials", lambda: _permissions(connect("ec2"), connect("iam"), caller, plan))
    checks += guarded("service-linked roles", "user", lambda: linked_role_checks(connect("iam")))
    checks += guarded("quota", "quota", lambda: quota_checks(connect("service-quotas"), manifest, plan.catalogue))
    checks += guarded("image", "user", lambda: _image_checks(connect("ec2"), connect("ssm"), plan))
    for repository in plan.image_repositories:
        name = f"repository {repository.partition('/')[2] or repository}"
        checks += guarded(name, "user", partial(_repository_checks, connect, name, repository, plan))
    return checks


def _permissions(ec2: Any, iam: Any, caller: str, plan: PreflightPlan) -> list[Check]:
    """Return the checks of every call, by service."""
    if caller.endswith(":root"):
        return [Check("credentials", "permissions", Verdict.OK, "the account's root user may make every call")]
    calls = CALLS if plan.image_source else CALLS - {_READ_PARAMETER}
    grants: dict[str, bool | None] = {**dict.fromkeys(calls), **_simulated(iam, caller, plan, calls)}
    grants |= {action: allowed for action, allowed in _dry_runs(ec2) if allowed is not None}
    how_to_ask = f"allow {_SIMULATOR} to {caller}, or compare its policies with docs/reference/security.md"
    return permission_checks(caller, grants, separator=":", how_to_ask=how_to_ask)


def _dry_runs(ec2: Any) -> Iterator[tuple[str, bool | None]]:
    """Try each reading call of EC2 that needs no parameter. Calls that write are not tried: a proxy that does not know
    `DryRun` would carry them out."""
    from botocore import xform_name

    model = ec2.meta.service_model
    for action in sorted(action for action in CALLS if action.startswith("ec2:Describe")):
        shape = model.operation_model(action.removeprefix("ec2:")).input_shape
        if "DryRun" in shape.members and not shape.required_members:
            yield action, _dry_run(partial(getattr(ec2, xform_name(action.removeprefix("ec2:"))), DryRun=True))[0]


def _dry_run(call: Any) -> tuple[bool | None, str]:
    """Return whether a dry run says that the call is allowed, and EC2's message; None if it says neither."""
    from botocore.exceptions import ClientError

    from everspot_clouds.aws.errors import format_error

    try:
        call()
    except ClientError as error:
        code = error.response["Error"]["Code"]
        return {"DryRunOperation": True, "UnauthorizedOperation": False}.get(code), format_error(error)
    return None, "DryRun was ignored"


def _simulated(iam: Any, caller: str, plan: PreflightPlan, calls: Iterable[str]) -> dict[str, bool]:
    """Return the simulator's answers by call. Empty if the caller may not ask it."""
    from botocore.exceptions import ClientError

    from everspot_clouds.aws.errors import trouble
    from everspot_clouds.base import Trouble

    answers: dict[str, bool] = {}
    by_resource: dict[str, list[str]] = {}
    for action in sorted(calls):
        by_resource.setdefault(simulated_resource(action, plan, caller.split(":")[4]), []).append(action)
    try:
        principal = _principal(iam, caller)
        for resource, actions in by_resource.items():
            for start in range(0, len(actions), _BATCH):
                pages = iam.get_paginator("simulate_principal_policy").paginate(
                    PolicySourceArn=principal,
                    ActionNames=actions[start : start + _BATCH],
                    ResourceArns=[resource],
                    ContextEntries=list(_context(plan)),
                )
                results = (result for page in pages for result in page["EvaluationResults"])
                answers |= {result["EvalActionName"]: result["EvalDecision"] == "allowed" for result in results}
    except ClientError as error:
        if trouble(error) is not Trouble.CREDENTIALS:
            raise
    return answers


def _principal(iam: Any, caller: str) -> str:
    """Return the ARN of the user or role whose policies count. That of a session has no path; IAM knows the role's."""
    parts = caller.split(":")
    if not parts[5].startswith("assumed-role/"):
        return caller
    return str(iam.get_role(RoleName=parts[5].split("/")[1])["Role"]["Arn"])


def simulated_resource(action: str, plan: PreflightPlan, account: str) -> str:
    """Return the ARN of a resource of the cluster that a call is simulated for, `*` where a call has none. Policies
    that name the resources of clusters allow the call for it (Service Authorization Reference)."""
    partition = rules.partition(plan.manifest.region)
    service, _, verb = action.partition(":")
    name, regional = plan.manifest.cluster, f"arn:{partition}:{service}:{plan.manifest.region}:{account}"
    if service == "s3":
        return f"arn:{partition}:s3:::{name}-store-control-preflight{'/object' if action in _OBJECTS else ''}"
    if service == "iam":
        kind = "instance-profile" if "InstanceProfile" in verb else "role"
        return f"arn:{partition}:iam::{account}:{kind}/{name}-preflight"
    if action == _READ_PARAMETER:
        return f"{regional}:parameter/{plan.image_source.lstrip('/')}"
    if action in _TEMPLATES:
        return f"{regional}:launch-template/lt-00000000000000000"
    if verb.startswith("Describe"):
        return "*"
    kinds = {"autoscaling": "autoScalingGroup:*:autoScalingGroupName/", "events": "rule/", "sqs": ""}
    return f"{regional}:{kinds[service]}{name}-preflight" if service in kinds else "*"


def _context(plan: PreflightPlan) -> Iterator[dict[str, Any]]:
    """Return the condition keys of the product's calls."""
    keys = {
        f"aws:RequestTag/{rules.CLUSTER_TAG}": plan.manifest.cluster,
        f"aws:ResourceTag/{rules.CLUSTER_TAG}": plan.manifest.cluster,
        "aws:RequestedRegion": plan.manifest.region,
        "iam:PassedToService": "ec2.amazonaws.com",
    }
    if plan.boundary:
        keys["iam:PermissionsBoundary"] = plan.boundary
    for key, value in keys.items():
        yield {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": "string"}


def _image_checks(ec2: Any, ssm: Any, plan: PreflightPlan) -> list[Check]:
    """Return the checks of the image, and of a launch from it."""
    image = plan.image
    if plan.image_source:
        from botocore.exceptions import ClientError

        try:
            image = ssm.get_parameter(Name=plan.image_source)["Parameter"]["Value"]
        except ClientError as error:
            if error.response["Error"]["Code"] != "ParameterNotFound":
                raise
            return [image_check(f"the parameter {plan.image_source} does not exist in {plan.manifest.region}")]
    images = ec2.describe_images(Filters=[{"Name": "image-id", "Values": [image]}])["Images"]
    if not images:
        return [image_check(f"{image} does not exist in {plan.manifest.region}, or is not shared with this account")]
    facts = ImageFacts(image, images[0].get("Architecture", ""), _root_gib(images[0]))
    checks = image_checks(facts, plan, FAMILIES)
    fitting = [kind.name for kind in plan.types if kind.arch == facts.arch]
    return checks + [_launch_check(ec2, image, fitting[0], market, plan) for market in plan.markets if fitting]


def _repository_checks(connect: Callable[[str], Any], name: str, repository: str, plan: PreflightPlan) -> list[Check]:
    """Return the check of a repository from which jobs may have images. A cluster's network leads to the registry of
    its own region alone."""
    from botocore.exceptions import ClientError

    host, _, path = repository.partition("/")
    place, region = _REGISTRY.fullmatch(host), plan.manifest.region
    if place is None or not path:
        fix = "name it as ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME (imageRepositories)"
        return [Check("user", name, Verdict.FAIL, f"{repository} is no repository of ECR", fix)]
    if place["region"] != region:
        fix = f"replicate it to {region}, and name it there (imageRepositories)"
        return [
            Check("user", name, Verdict.FAIL, f"{repository} is in {place['region']}, and the cluster in {region}", fix)
        ]
    try:
        connect("ecr").describe_repositories(registryId=place["account"], repositoryNames=[path])
    except ClientError as error:
        if error.response["Error"]["Code"] != "RepositoryNotFoundException":
            raise
        fix = f"aws ecr create-repository --repository-name {path} --region {region}, or correct imageRepositories"
        return [Check("user", name, Verdict.FAIL, f"{repository} does not exist", fix)]
    return [Check("user", name, Verdict.OK, f"{repository} exists")]


def _root_gib(image: Mapping[str, Any]) -> int | None:
    root = image.get("RootDeviceName")
    volumes: Iterable[Mapping[str, Any]] = image.get("BlockDeviceMappings", ())
    sizes = (volume["Ebs"].get("VolumeSize") for volume in volumes if "Ebs" in volume and volume["DeviceName"] == root)
    return next(sizes, None)


def _launch_check(ec2: Any, image: str, instance_type: str, market: Market, plan: PreflightPlan) -> Check:
    """Try a launch without carrying it out."""
    tag_values = {rules.CLUSTER_TAG: plan.manifest.cluster, rules.ROLE_TAG: Role.AGENT.value}
    tags = [{"Key": key, "Value": value} for key, value in tag_values.items()]
    request: dict[str, Any] = {
        "ImageId": image, "InstanceType": instance_type, "MinCount": 1, "MaxCount": 1, "DryRun": True,
        "TagSpecifications": [{"ResourceType": "instance", "Tags": tags}],
    }  # fmt: skip
    if market is Market.SPOT:
        request["InstanceMarketOptions"] = {"MarketType": "spot"}
    if plan.subnet_ids:
        request["SubnetId"] = plan.subnet_ids[0]
    allowed, message = _dry_run(partial(ec2.run_instances, **request))
    name, label = f"launch: {market.value}", f"{instance_type} from {image}"
    if allowed:
        return Check("user", name, Verdict.OK, f"a dry run of {label} succeeds")
    if allowed is False:
        fix = "allow ec2:RunInstances and ec2:CreateTags; look for a denial in the policies of the organization too"
        return Check("credentials", name, Verdict.FAIL, f"{label}: {message}", fix)
    if "VPCIdNotSpecified" in message:
        # The account has no default network, and the cluster's own does not exist yet.
        return Check("user", name, Verdict.SKIP, f"{label}: there is no network to try it in before `pulumi up`")
    return Check("user", name, Verdict.FAIL, f"{label}: {message}", "correct what EC2 names, in the settings")
