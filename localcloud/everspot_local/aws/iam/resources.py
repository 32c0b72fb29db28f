"""Stands in for the Service Authorization Reference: which action and resources a call is checked for.

It knows the resources of the calls that Everspot makes from instances; for others the resource is `*`, so that a
policy that names resources does not allow them.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from moto.iam.models import iam_backends
from moto.s3.models import s3_backends

from everspot_local.aws.account import ACCOUNT
from everspot_local.aws.iam.policy_language import Call, Context

# Actions whose permission has another name than the call.
S3_ACTIONS = {"HeadBucket": "ListBucket", "HeadObject": "GetObject"}
# What moto does not tell apart by its name: a bucket's parts by their parameter. Who takes one away puts it
# (Amazon S3 User Guide, "Required permissions for Amazon S3 API operations").
S3_PARTS = {
    "accelerate": "AccelerateConfiguration",
    "encryption": "EncryptionConfiguration",
    "object-lock": "BucketObjectLockConfiguration",
    "ownershipcontrols": "BucketOwnershipControls",
    "publicaccessblock": "BucketPublicAccessBlock",
    "replication": "ReplicationConfiguration",
    "requestpayment": "BucketRequestPayment",
}
# Services whose permissions are those of another (Service Authorization Reference, "Amazon S3": TagResource).
PREFIXES = {"s3control": "s3"}
SQS_ACTIONS = {
    "SendMessageBatch": "SendMessage",
    "DeleteMessageBatch": "DeleteMessage",
    "ChangeMessageVisibilityBatch": "ChangeMessageVisibility",
}


def calls_of(handler: Any, service: str, action: str, s3_resource: str | None) -> list[Call]:
    """Every action and resource that must be allowed for one request; all of them."""
    context = {"aws:requestedregion": (str(handler.region),), "aws:securetransport": ("true",)}
    if service == "s3":
        return list(_s3(handler, action, s3_resource or "*", context))
    if service == "sqs":
        return [Call(f"sqs:{SQS_ACTIONS.get(action, action)}", _queue(handler), context)]
    if service == "ec2":
        return list(_ec2(handler, action, context))
    if service == "ssm" and (name := _parameters(handler).get("Name")):
        arn = f"arn:aws:ssm:{handler.region}:{ACCOUNT}:parameter/{str(name).lstrip('/')}"
        return [Call(f"ssm:{action}", arn, context)]
    return [Call(f"{PREFIXES.get(service, service)}:{action}", "*", context)]


def _s3(handler: Any, action: str, resource: str, context: Context) -> Iterator[Call]:
    action = S3_ACTIONS.get(action, action)
    query = {k.lower(): v for k, v in (handler.querystring or {}).items()}
    part = next((name for key, name in S3_PARTS.items() if key in query), None)
    if part is not None and "/" not in resource.rpartition(":")[2]:
        yield Call(f"s3:{'Get' if handler.method == 'GET' else 'Put'}{part}", resource, context)
    elif action == "ListBucket":
        prefix = query.get("prefix")
        if prefix:
            context = {**context, "s3:prefix": (str(prefix[0] if isinstance(prefix, list) else prefix),)}
        yield Call("s3:ListBucket", resource, context)
    elif action == "DeleteObject" and "/" not in resource.rpartition(":")[2]:
        for key in re.findall(r"<Key>([^<]*)</Key>", _text(handler.raw_body)):
            yield Call("s3:DeleteObject", f"{resource}/{key}", context)
    else:
        yield Call(f"s3:{action}", resource, context)
        if action == "GetObject" and not _exists(resource):
            # S3 tells who may not list a bucket 403 instead of 404.
            yield Call("s3:ListBucket", resource.partition("/")[0], context)


def _exists(resource: str) -> bool:
    bucket, _, key = resource.rpartition(":")[2].partition("/")
    found = s3_backends[ACCOUNT]["aws"].buckets.get(bucket)
    return found is None or found.keys.get(key) is not None


def _queue(handler: Any) -> str:
    url = _parameters(handler).get("QueueUrl") or ""
    return f"arn:aws:sqs:{handler.region}:{ACCOUNT}:{str(url).rsplit('/', 1)[-1]}" if url else "*"


def _ec2(handler: Any, action: str, context: Context) -> Iterator[Call]:
    parameters = handler.params
    name = f"ec2:{action}"
    if action in ("TerminateInstances",):
        for instance_id in parameters.get("InstanceIds", []):
            yield Call(name, _ec2_arn(handler, "instance", instance_id), _tagged(handler, instance_id, context))
    elif action in ("CreateTags", "DeleteTags"):
        wanted = _request_tags(parameters.get("Tags", []), context)
        for resource_id in parameters.get("Resources", []):
            kind = {"i": "instance", "vol": "volume"}.get(resource_id.partition("-")[0], "*")
            yield Call(name, _ec2_arn(handler, kind, resource_id), _tagged(handler, resource_id, wanted))
    elif action == "CreateFleet":
        yield from _create_fleet(handler, context)
    elif action == "DeleteFleets":
        for fleet_id in parameters.get("FleetIds", []):
            yield Call(name, _ec2_arn(handler, "fleet", fleet_id), _tagged(handler, fleet_id, context))
    else:
        yield Call(name, "*", context)


def _create_fleet(handler: Any, context: Context) -> Iterator[Call]:
    """CreateFleet, and what it does in the caller's name: RunInstances, CreateTags and PassRole."""
    specs = handler.params.get("TagSpecifications", [])
    fleet_tags = [t for s in specs if s.get("ResourceType") == "fleet" for t in s.get("Tags", [])]
    tagged = _request_tags(fleet_tags, context)
    yield Call("ec2:CreateFleet", _ec2_arn(handler, "fleet", "*"), tagged)
    if fleet_tags:
        yield Call("ec2:CreateTags", _ec2_arn(handler, "fleet", "*"), {**tagged, "ec2:createaction": ("CreateFleet",)})
    for config in handler.params.get("LaunchTemplateConfigs", []):
        if not config.get("LaunchTemplateSpecification"):
            continue  # which is refused
        version = handler.ec2_backend._get_template_from_args(config["LaunchTemplateSpecification"])
        template = _ec2_arn(handler, "launch-template", version.template.id)
        launched = {**context, "ec2:launchtemplate": (template,)}
        yield Call("ec2:RunInstances", template, launched)
        yield Call("ec2:RunInstances", _ec2_arn(handler, "instance", "*"), launched)
        profile = (version.data.get("IamInstanceProfile") or {}).get("Arn")
        for role in _roles_of(profile):
            yield Call("iam:PassRole", role, {**context, "iam:passedtoservice": ("ec2.amazonaws.com",)})


def _roles_of(profile_arn: str | None) -> list[str]:
    profiles = iam_backends[ACCOUNT]["aws"].get_instance_profiles() if profile_arn else []
    return [role.arn for p in profiles if p.arn == profile_arn for role in p.roles]


def _request_tags(tags: list[dict[str, str]], context: Context) -> Context:
    keys = tuple(t["Key"] for t in tags)
    found: dict[str, tuple[str, ...]] = {f"aws:requesttag/{t['Key'].lower()}": (t.get("Value", ""),) for t in tags}
    return {**context, **found, "aws:tagkeys": keys} if keys else context


def _tagged(handler: Any, resource_id: str, context: Context) -> Context:
    tags = handler.ec2_backend.tags.get(resource_id, {})
    found = {f"{p}:resourcetag/{k.lower()}": (str(v),) for k, v in tags.items() for p in ("aws", "ec2")}
    return {**context, **found}


def _ec2_arn(handler: Any, kind: str, name: str) -> str:
    return f"arn:aws:ec2:{handler.region}:{ACCOUNT}:{kind}/{name}"


def _parameters(handler: Any) -> dict[str, Any]:
    text = _text(handler.raw_body)
    if text.startswith("{"):
        return json.loads(text)  # type: ignore[no-any-return]
    return {k: v[0] if isinstance(v, list) else v for k, v in (handler.querystring or {}).items()}


def _text(body: Any) -> str:
    return body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or "")
