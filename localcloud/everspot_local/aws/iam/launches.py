"""Stands in for the Service Authorization Reference on RunInstances: what a launch is checked for, by resource.

Each resource has the condition keys that policies usually use to distinguish launches: the launch template
(`ec2:LaunchTemplate`, `ec2:IsLaunchTemplateResource`), tags of what exists (`aws:ResourceTag`), tags of what is made
(`aws:RequestTag`, `aws:TagKeys`), the instance's type, market, zone, profile and metadata options.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from everspot_core.jobs.records import Market
from moto.iam.models import iam_backends

from everspot_local.aws.account import ACCOUNT
from everspot_local.aws.iam.policy_language import Call, Context

MADE = ("instance", "network-interface", "volume")
_OF_TEMPLATES = ("ec2:launchtemplate", "ec2:islaunchtemplateresource")


@dataclass(frozen=True)
class Launch:
    """A launch: its template's data, the request's own values, and the request's tags by kind of resource.

    Attributes:
        by: actions that may count as the creator of a tag.
        in_fleet: whether a fleet launches. AWS does not document whether its launches bear `ec2:LaunchTemplate`, so
            each has to be allowed with the key and without it.
    """

    template_id: str | None
    template: Mapping[str, Any]
    request: Mapping[str, Any]
    market: Market
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    by: tuple[str, ...] = ("RunInstances",)
    in_fleet: bool = False


def calls_of_launch(backend: Any, launch: Launch, context: Context) -> Iterator[Call]:
    """Return every permission that a launch needs. Resources that the request does not name are the template's."""
    region = backend.region_name
    template = arn(region, "launch-template", launch.template_id) if launch.template_id else None
    base = {**context, "ec2:launchtemplate": (template,)} if template else dict(context)
    if template and launch.template_id:
        yield Call("ec2:RunInstances", template, tagged(backend, launch.template_id, base))
    for kind, name, own in _existing(launch):
        resource_keys = tagged(backend, name, _sourced(base, template, own))
        yield Call("ec2:RunInstances", arn(region, kind, name), resource_keys)
    tags = _tags(launch)
    placed = {**base, **_instance_keys(launch)}
    for kind in MADE:
        resource, keys = arn(region, kind, "*"), placed if kind == "instance" else base
        full = requested(_sourced(keys, template, False), tags.get(kind, {}))
        yield Call("ec2:RunInstances", resource, full)
        if launch.in_fleet:
            without = {key: values for key, values in full.items() if key not in _OF_TEMPLATES}
            yield Call("ec2:RunInstances", resource, without)
    if launch.market is Market.SPOT and tags.get("spot-instances-request"):
        # EC2 User Guide, example policies: the request for Spot is evaluated only where it is tagged.
        resource = arn(region, "spot-instances-request", "*")
        yield Call("ec2:RunInstances", resource, requested(base, tags["spot-instances-request"]))
    yield from _tagging(region, launch, tags, context)
    profile = launch.request.get("IamInstanceProfile") or launch.template.get("IamInstanceProfile") or {}
    for role in role_arns(profile):
        yield Call("iam:PassRole", role, {**context, "iam:passedtoservice": ("ec2.amazonaws.com",)})


def _existing(launch: Launch) -> Iterator[tuple[str, str, bool]]:
    """Return kind and id of each existing resource that a launch uses, and whether the request itself names it."""
    request, template = launch.request, launch.template
    first = (template.get("NetworkInterfaces") or [{}])[0]
    interface = (request.get("NetworkInterfaces") or [{}])[0]
    for kind, request_id, template_id in (
        ("image", request.get("ImageId"), template.get("ImageId")),
        ("subnet", request.get("SubnetId") or interface.get("SubnetId"), first.get("SubnetId")),
        ("key-pair", request.get("KeyName"), template.get("KeyName")),
    ):
        if request_id or template_id:
            yield kind, str(request_id or template_id), bool(request_id)
    own = request.get("SecurityGroupIds") or interface.get("Groups") or []
    for group in own or first.get("Groups") or template.get("SecurityGroupIds") or []:
        yield "security-group", str(group), bool(own)


def _tagging(region: str, launch: Launch, tags: Mapping[str, Mapping[str, str]], context: Context) -> Iterator[Call]:
    """Return the CreateTags calls of a launch with tags. AWS does not document which action tags the instances of a
    fleet, so each of `by` has to be allowed, as in Karpenter's policy (aws/karpenter-provider-aws,
    cloudformation.yaml)."""
    for kind in (*MADE, "spot-instances-request"):
        if not tags.get(kind) or (kind == "spot-instances-request" and launch.market is not Market.SPOT):
            continue
        for action in launch.by:
            tag_context = {**requested(context, tags[kind]), "ec2:createaction": (action,)}
            yield Call("ec2:CreateTags", arn(region, kind, "*"), tag_context)


def _tags(launch: Launch) -> dict[str, dict[str, str]]:
    stated = by_kind(launch.template.get("TagSpecifications"))
    return {kind: {**stated.get(kind, {}), **launch.tags.get(kind, {})} for kind in (*stated, *launch.tags)}


def _instance_keys(launch: Launch) -> dict[str, tuple[str, ...]]:
    request, template = launch.request, launch.template
    metadata = {**(template.get("MetadataOptions") or {}), **(request.get("MetadataOptions") or {})}
    profile = request.get("IamInstanceProfile") or template.get("IamInstanceProfile") or {}
    keys = {
        "ec2:instancetype": request.get("InstanceType") or template.get("InstanceType"),
        "ec2:instancemarkettype": launch.market.value,
        "ec2:availabilityzone": request.get("AvailabilityZone"),
        "ec2:instanceprofile": next((each.arn for each in _profiles(profile)), profile.get("Arn")),
        "ec2:metadatahttptokens": metadata.get("HttpTokens"),
        "ec2:metadatahttpendpoint": metadata.get("HttpEndpoint"),
    }
    return {key: (str(value),) for key, value in keys.items() if value}


def _sourced(context: Context, template: str | None, own: bool) -> Context:
    """Add the key that is true for values that the request leaves to the template (EC2 User Guide, "Use … launch
    templates to control launching")."""
    return {**context, "ec2:islaunchtemplateresource": ("false" if own else "true",)} if template else context


def role_arns(profile: Mapping[str, Any]) -> list[str]:
    """Return the ARNs of the roles in an instance profile, which is given by its ARN or its name."""
    return [role.arn for each in _profiles(profile) for role in each.roles]


def _profiles(profile: Mapping[str, Any]) -> list[Any]:
    identifiers = {profile.get("Arn"), profile.get("Name")} - {None}
    profiles = iam_backends[ACCOUNT]["aws"].get_instance_profiles() if identifiers else []
    return [each for each in profiles if identifiers & {each.arn, each.name}]


def by_kind(specifications: Iterable[Mapping[str, Any]] | None) -> dict[str, dict[str, str]]:
    """Return the tags of tag specifications by kind of resource."""
    tags_by_kind: dict[str, dict[str, str]] = {}
    for specification in specifications or ():
        tags = {tag["Key"]: str(tag.get("Value") or "") for tag in specification.get("Tags") or ()}
        tags_by_kind.setdefault(str(specification.get("ResourceType") or ""), {}).update(tags)
    return tags_by_kind


def requested(context: Context, tags: Mapping[str, str]) -> Context:
    """Return the context with the keys of the tags that a request sets."""
    tag_keys: dict[str, tuple[str, ...]] = {f"aws:requesttag/{k.lower()}": (str(v),) for k, v in tags.items()}
    return {**context, **tag_keys, "aws:tagkeys": tuple(tags)} if tags else context


def tagged(backend: Any, resource_id: str, context: Context) -> Context:
    """Return the context with the keys of the tags that a resource has."""
    tags = backend.tags.get(resource_id, {})
    tag_keys = {f"{p}:resourcetag/{k.lower()}": (str(v),) for k, v in tags.items() for p in ("aws", "ec2")}
    return {**context, **tag_keys}


def arn(region: str, kind: str, name: str) -> str:
    """Return the ARN of an EC2 resource. An image's ARN has no account."""
    return f"arn:aws:ec2:{region}:{'' if kind == 'image' else ACCOUNT}:{kind}/{name}"
