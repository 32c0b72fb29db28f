"""Stands in for the Service Authorization Reference: which action and resources a call is checked for.

It knows the resources of the calls that Everspot makes from instances, of IAM's and KMS's, and those of launch
templates, fleets, Auto Scaling groups and rules of EventBridge; for others the resource is `*`, so that a policy that
names resources does not allow them.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from everspot_core.jobs.records import Market
from moto.ec2.exceptions import EC2ClientError
from moto.sts.models import sts_backends

from everspot_local.aws.account import ACCOUNT
from everspot_local.aws.ec2.fleet_targets import read_targets
from everspot_local.aws.iam.credentials import transitive_tags
from everspot_local.aws.iam.launches import Launch, arn, by_kind, calls_of_launch, requested, tagged
from everspot_local.aws.iam.named import iam_calls, kms_calls, s3_control
from everspot_local.aws.iam.policy_language import Call, Context
from everspot_local.aws.iam.s3_calls import s3_calls

# Services whose permissions have another prefix than the calls (Service Authorization Reference, "Service Quotas",
# "Amazon Resource Group Tagging API").
PREFIXES = {"service-quotas": "servicequotas", "resourcegroupstaggingapi": "tag"}
# AWS Budgets has one permission for all calls that look, and one for all that change (Service Authorization Reference).
BUDGETS = {"Describe": "ViewBudget", "Create": "ModifyBudget", "Update": "ModifyBudget", "Delete": "ModifyBudget"}
# Service Authorization Reference, Amazon EC2: these are checked for the launch template that they name.
TEMPLATE_CALLS = (
    *("CreateLaunchTemplateVersion", "DeleteLaunchTemplate", "DeleteLaunchTemplateVersions", "ModifyLaunchTemplate"),
)
TAGGED_KINDS = {"i": "instance", "vol": "volume", "lt": "launch-template", "fleet": "fleet"}
FLEET_TAGS_BY = ("RunInstances", "CreateFleet")
SQS_ACTIONS = {
    "SendMessageBatch": "SendMessage",
    "DeleteMessageBatch": "DeleteMessage",
    "ChangeMessageVisibilityBatch": "ChangeMessageVisibility",
}


def required_calls(handler: Any, service: str, action: str, s3_resource: str | None) -> list[Call]:
    """Return every action on every resource that must be allowed for one request."""
    context = base_context(str(handler.region))
    if service == "s3":
        return list(s3_calls(handler, action, s3_resource or "*", context))
    if service == "sqs":
        return [Call(f"sqs:{SQS_ACTIONS.get(action, action)}", _queue(handler), context)]
    if service == "ec2":
        return list(_ec2(handler, action, context))
    if service == "iam":
        return list(iam_calls(action, handler.params, context))
    if service == "kms":
        return list(kms_calls(action, _parameters(handler), str(handler.region), context))
    if service == "autoscaling":
        return [Call(f"autoscaling:{action}", "*" if action.startswith("Describe") else _group(handler), context)]
    if service == "events":
        return [Call(f"events:{action}", _rule(handler), context)]
    if service == "s3control":
        return [Call(f"s3:{action}", s3_control(str(handler.uri)), context)]
    if service == "ssm" and (name := _parameters(handler).get("Name")):
        arn = f"arn:aws:ssm:{handler.region}:{ACCOUNT}:parameter/{str(name).lstrip('/')}"
        return [Call(f"ssm:{action}", arn, context)]
    if service == "sts" and (role := _parameters(handler).get("RoleArn")):
        session = sts_backends[ACCOUNT]["aws"].get_assumed_role_from_access_key(handler.get_access_key())
        actions = (action, "TagSession") if transitive_tags(session) else (action,)
        return [Call(f"sts:{name}", str(role), context) for name in actions]
    if service == "budgets":
        action = next((iam_action for start, iam_action in BUDGETS.items() if action.startswith(start)), action)
    if service == "cloudwatch" and action == "PutMetricData":
        context = {**context, "cloudwatch:namespace": (str(_parameters(handler).get("Namespace") or ""),)}
    return [Call(f"{PREFIXES.get(service, service)}:{action}", "*", context)]


def base_context(region: str) -> Context:
    """Return the context keys of every request."""
    return {"aws:requestedregion": (region,), "aws:securetransport": ("true",)}


def _queue(handler: Any) -> str:
    parameters = _parameters(handler)
    url = parameters.get("QueueUrl") or parameters.get("QueueName") or ""
    return f"arn:aws:sqs:{handler.region}:{ACCOUNT}:{str(url).rsplit('/', 1)[-1]}" if url else "*"


def _group(handler: Any) -> str:
    """Return the Auto Scaling group that a call names."""
    parameters = _parameters(handler)
    name = parameters.get("AutoScalingGroupName") or parameters.get("Tags.member.1.ResourceId")
    owner = f"arn:aws:autoscaling:{handler.region}:{ACCOUNT}"
    return f"{owner}:autoScalingGroup:0:autoScalingGroupName/{name}" if name else "*"


def _rule(handler: Any) -> str:
    """Return the rule of EventBridge that a call names."""
    parameters = _parameters(handler)
    name = parameters.get("Rule") or parameters.get("Name")
    return (
        f"arn:aws:events:{handler.region}:{ACCOUNT}:rule/{name}" if name else str(parameters.get("ResourceARN") or "*")
    )


def _ec2(handler: Any, action: str, context: Context) -> Iterator[Call]:
    parameters = handler.params
    name = f"ec2:{action}"
    backend, region = handler.ec2_backend, handler.region
    if action == "TerminateInstances":
        for instance_id in parameters.get("InstanceIds", []):
            yield Call(name, arn(region, "instance", instance_id), tagged(backend, instance_id, context))
    elif action in ("CreateTags", "DeleteTags"):
        tag_context = requested(context, _flat(parameters.get("Tags", [])))
        for resource_id in parameters.get("Resources", []):
            kind = TAGGED_KINDS.get(resource_id.partition("-")[0], "*")
            yield Call(name, arn(region, kind, resource_id), tagged(backend, resource_id, tag_context))
    elif action == "CreateFleet":
        yield from _create_fleet(handler, context)
    elif action == "RunInstances":
        yield from _run_instances(handler, context)
    elif action in ("DeleteFleets", "ModifyFleet"):
        for fleet_id in parameters.get("FleetIds") or [parameters.get("FleetId", "*")]:
            yield Call(name, arn(region, "fleet", fleet_id), tagged(backend, fleet_id, context))
    elif action == "CreateLaunchTemplate":
        tags = by_kind(parameters.get("TagSpecifications")).get("launch-template", {})
        template_context, template = requested(context, tags), arn(region, "launch-template", "*")
        yield Call(name, template, template_context)
        if tags:
            yield Call("ec2:CreateTags", template, {**template_context, "ec2:createaction": (action,)})
    elif action in TEMPLATE_CALLS:
        ids = backend.launch_template_name_to_ids
        template_id = parameters.get("LaunchTemplateId") or ids.get(parameters.get("LaunchTemplateName"), "*")
        yield Call(name, arn(region, "launch-template", template_id), tagged(backend, template_id, context))
    else:
        yield Call(name, "*", context)


def _create_fleet(handler: Any, context: Context) -> Iterator[Call]:
    """Return the permissions for CreateFleet, and for what it does in the caller's name.

    As met, an `instant` fleet is refused as a whole for CreateFleet, which is checked for its launch templates too
    (https://github.com/kubernetes-sigs/karpenter/issues/2813), and lists for each override the permissions that its
    launch lacks: RunInstances, CreateTags, PassRole (https://github.com/aws/karpenter-provider-aws/issues/1488, 6298).
    """
    backend, region, request = handler.ec2_backend, handler.region, handler.params
    tags = by_kind(request.get("TagSpecifications"))
    fleet_context = requested(context, tags.get("fleet", {}))
    fleet = arn(region, "fleet", "*")
    yield Call("ec2:CreateFleet", fleet, fleet_context)
    if tags.get("fleet"):
        yield Call("ec2:CreateTags", fleet, {**fleet_context, "ec2:createaction": ("CreateFleet",)})
    for config in request.get("LaunchTemplateConfigs") or []:
        if not config.get("LaunchTemplateSpecification"):
            continue  # which is refused
        version, template_id = _template(backend, config["LaunchTemplateSpecification"])
        template = arn(region, "launch-template", template_id)
        yield Call("ec2:CreateFleet", template, tagged(backend, template_id, context))
        if version is None:
            continue  # the launch itself reports the missing version
        for override in config.get("Overrides") or [{}]:
            for market in _markets(request):
                launch = Launch(
                    version.template.id, version.data, override, market, tags, FLEET_TAGS_BY,
                    in_fleet=request.get("Type") == "instant",
                )  # fmt: skip
                for call in calls_of_launch(backend, launch, context):
                    yield replace(call, later=request.get("Type") == "instant")


def _template(backend: Any, specification: dict[str, Any]) -> tuple[Any | None, str]:
    """Return the launch template version that a request names, or None, and the template's id, `*` if unknown."""
    try:
        version = backend._get_template_from_args(specification)
    except EC2ClientError:
        return None, str(specification.get("LaunchTemplateId") or "*")
    return version, str(version.template.id)


def _markets(request: dict[str, Any]) -> list[Market]:
    targets = read_targets(request.get("TargetCapacitySpecification") or {})
    parts = {Market.ON_DEMAND: targets.on_demand, Market.SPOT: targets.spot}
    return [market for market, units in parts.items() if units] or list(parts)


def _run_instances(handler: Any, context: Context) -> Iterator[Call]:
    request = handler.params
    specification = request.get("LaunchTemplate")
    version, template_id = _template(handler.ec2_backend, specification) if specification else (None, "")
    if specification and version is None:
        yield Call("ec2:RunInstances", arn(handler.region, "launch-template", template_id), context)
        return
    spot = (request.get("InstanceMarketOptions") or {}).get("MarketType") == "spot"
    launch = Launch(
        template_id=version.template.id if version else None,
        template=version.data if version else {},
        request=request,
        market=Market.SPOT if spot else Market.ON_DEMAND,
        tags=by_kind(request.get("TagSpecifications")),
    )
    yield from calls_of_launch(handler.ec2_backend, launch, context)


def _flat(tags: list[dict[str, str]]) -> dict[str, str]:
    return {tag["Key"]: tag.get("Value", "") for tag in tags}


def _parameters(handler: Any) -> dict[str, Any]:
    text = _text(handler.raw_body)
    if text.startswith("{"):
        return json.loads(text)  # type: ignore[no-any-return]
    return {k: v[0] if isinstance(v, list) else v for k, v in (handler.querystring or {}).items()}


def _text(body: Any) -> str:
    return body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or "")
