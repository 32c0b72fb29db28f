"""The requests of declared AWS resources that cost money.

A resource of a type without a price here is reported as unknown unless the type is free. Costs that depend only on use
are named.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from everspot_core.cluster.declared import DeclaredResource, unknown
from everspot_core.estimate.requested import RequestedCapacity

from everspot_clouds.aws import estimate_machines as machines
from everspot_clouds.aws import fixed_prices as fixed
from everspot_clouds.costing import (
    Costing,
    Rule,
    apply,
    by_use,
    declared_types,
    idle_requests,
    number,
    part,
    read_team,
    texts,
)
from everspot_clouds.resource_regions import group_by_region

PREFIX = "aws:"
"""How the types of the provider's resources begin."""

_TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"


def collect_charges(resources: Sequence[DeclaredResource], region: str | None = None) -> RequestedCapacity:
    """Return the requests of the AWS resources of one side of a change. `region`: of the settings; None: as in the
    preview."""
    costing = Costing(fixed.AS_OF, fixed.SAME)
    templates = [resource for resource in resources if resource.type == _TEMPLATE]
    for where, own in group_by_region(resources, "aws", region):
        zones = sorted({zone for r in own for zone in texts([r.inputs.get("availabilityZone")])})
        apply(costing.within("aws", where), own, _rules(templates, zones), FREE, PREFIX)
    return costing.total()


def _rules(templates: Sequence[DeclaredResource], zones: Sequence[str]) -> Mapping[str, Rule]:
    return {
        "aws:ec2/fleet:Fleet": partial(machines.fleet, templates, zones),
        "aws:autoscaling/group:Group": partial(machines.group, templates),
        "aws:ec2/instance:Instance": machines.instance,
        "everspot:index:AwsElasticCapacity": partial(machines.elastic, templates, zones),
        "everspot:index:AwsKubernetesPool": _kubernetes_pool,
        "everspot:index:AwsTrainingFleet": declared_types,
        "everspot:index:AwsMonitoring": _metrics,
        "everspot:index:AwsSchedulerService": _scheduler,
        "aws:ec2/vpcEndpoint:VpcEndpoint": _endpoint,
        "aws:ec2/natGateway:NatGateway": _nat,
        "aws:ec2/eip:Eip": _address,
        "aws:ec2/subnet:Subnet": _subnet,
        "aws:kms/key:Key": _key,
        "aws:cloudwatch/metricAlarm:MetricAlarm": _alarm,
        "aws:cloudwatch/compositeAlarm:CompositeAlarm": _composite_alarm,
        "aws:cloudwatch/dashboard:Dashboard": _dashboard,
        **{kind: by_use(meter) for kind, meter in BY_USE.items()},
    }


BY_USE = {
    "aws:s3/bucket:Bucket": "S3 by storage, and by the requests of jobs",
    "aws:s3/bucketV2:BucketV2": "S3 by storage, and by the requests of jobs",
    "aws:sqs/queue:Queue": "SQS by requests",
    "aws:sns/topic:Topic": "SNS by messages",
    "aws:cloudwatch/logGroup:LogGroup": "logs by what is written and kept",
    "aws:ec2/flowLog:FlowLog": "flow logs by what is delivered",
    "aws:bcmdata/export:Export": "exports by the storage of their bucket",
}
"""Types that cost by use alone, and by what."""


_scheduler = idle_requests(fixed.STORE_WRITES, fixed.STORE_READS)


def _kubernetes_pool(costing: Costing, resource: DeclaredResource) -> None:
    machines.kubernetes_pool(costing, resource)
    _scheduler(costing, resource)


def _metrics(costing: Costing, resource: DeclaredResource) -> None:
    usd = fixed.metrics_usd(costing.rate(fixed.METRIC), costing.rate(fixed.REQUESTS))
    costing.add_monthly(resource, "metrics", usd)


def _endpoint(costing: Costing, resource: DeclaredResource) -> None:
    kind = resource.inputs.get("vpcEndpointType")
    if unknown(kind):
        costing.note_unknown_cost(resource, "its kind is not known")
        return
    if kind not in ("Interface", "GatewayLoadBalancer"):
        return  # a gateway endpoint is free
    subnets = resource.inputs.get("subnetIds")
    if not isinstance(subnets, list | tuple):
        costing.note_unknown_cost(resource, "the number of its zones is not known")
        return
    usd = len(subnets) * costing.rate(fixed.ENDPOINT).usd_per_month
    costing.add_monthly(resource, "interface endpoints", usd, team=read_team(resource.inputs.get("tags")))
    costing.add_metered(resource, "interface endpoints also by the GB")


def _nat(costing: Costing, resource: DeclaredResource) -> None:
    usd = costing.rate(fixed.NAT).usd_per_month
    costing.add_monthly(resource, "NAT gateway", usd, team=read_team(resource.inputs.get("tags")))
    costing.add_metered(resource, "NAT gateways also by the GB")


def _address(costing: Costing, resource: DeclaredResource) -> None:
    usd = costing.rate(fixed.ADDRESS).usd_per_month
    costing.add_monthly(resource, "public addresses", usd, team=read_team(resource.inputs.get("tags")))


def _subnet(costing: Costing, resource: DeclaredResource) -> None:
    public = resource.inputs.get("mapPublicIpOnLaunch")
    if unknown(public) or str(public).lower() == "true":
        usd = float(costing.rate(fixed.ADDRESS).usd_per_month)
        costing.note_unknown_part(
            resource,
            f"mapPublicIpOnLaunch gives a public address, ${usd:.2f} a month, to each of its instances whose template "
            "says nothing of one: these are not counted",
        )


def _key(costing: Costing, resource: DeclaredResource) -> None:
    usd = costing.rate(fixed.KEY).usd_per_month
    high = usd * (1 + fixed.ROTATIONS) if resource.inputs.get("enableKeyRotation") else usd
    costing.add_monthly(resource, "keys", usd, team=read_team(resource.inputs.get("tags")), low=usd, high=high)
    costing.add_metered(resource, "keys also by requests")


def _alarm(costing: Costing, resource: DeclaredResource) -> None:
    queries = resource.inputs.get("metricQueries")
    metrics = sum(1 for query in queries if part(query, "metric")) if isinstance(queries, list | tuple) else 1
    period = number(resource.inputs.get("period"))
    each = fixed.FAST_ALARM if period is not None and period < 60 else fixed.ALARM
    usd = max(1, metrics) * costing.rate(each).usd_per_month
    costing.add_monthly(resource, "alarms", usd, team=read_team(resource.inputs.get("tags")))


def _composite_alarm(costing: Costing, resource: DeclaredResource) -> None:
    team = read_team(resource.inputs.get("tags"))
    costing.add_monthly(resource, "alarms", costing.rate(fixed.COMPOSITE_ALARM).usd_per_month, team=team)


def _dashboard(costing: Costing, resource: DeclaredResource) -> None:
    costing.add_monthly(resource, "dashboards", costing.rate(fixed.DASHBOARD).usd_per_month)


_FREE_TYPES: dict[str, tuple[str, ...]] = {
    "autoscaling": ("lifecycleHook:LifecycleHook", "notification:Notification", "policy:Policy", "tag:Tag"),
    # Rules for the events of AWS's own services are free (Amazon EventBridge pricing).
    "cloudwatch": ("eventPermission:EventPermission", "eventRule:EventRule", "eventTarget:EventTarget"),
    "budgets": ("budget:Budget",),  # without actions
    "costexplorer": (
        "anomalyMonitor:AnomalyMonitor",
        "anomalySubscription:AnomalySubscription",
        "costAllocationTag:CostAllocationTag",
    ),
    "ec2": (
        "defaultSecurityGroup:DefaultSecurityGroup",
        "eipAssociation:EipAssociation",
        "encryptionByDefault:EncryptionByDefault",
        "internetGateway:InternetGateway",
        "keyPair:KeyPair",
        "launchTemplate:LaunchTemplate",
        "mainRouteTableAssociation:MainRouteTableAssociation",
        "managedPrefixList:ManagedPrefixList",
        "managedPrefixListEntry:ManagedPrefixListEntry",
        "networkAcl:NetworkAcl",
        "placementGroup:PlacementGroup",
        "route:Route",
        "routeTable:RouteTable",
        "routeTableAssociation:RouteTableAssociation",
        "securityGroup:SecurityGroup",
        "securityGroupRule:SecurityGroupRule",
        "subnet:Subnet",
        "tag:Tag",
        "vpc:Vpc",
        "vpcEndpointPolicy:VpcEndpointPolicy",
        "vpcEndpointRouteTableAssociation:VpcEndpointRouteTableAssociation",
    ),
    "eks": ("podIdentityAssociation:PodIdentityAssociation",),
    "kms": ("alias:Alias", "grant:Grant", "keyPolicy:KeyPolicy"),
    "resourcegroups": ("group:Group",),
    "sns": ("topicPolicy:TopicPolicy", "topicSubscription:TopicSubscription"),
    "sqs": ("queuePolicy:QueuePolicy", "redriveAllowPolicy:RedriveAllowPolicy", "redrivePolicy:RedrivePolicy"),
    "vpc": (
        "securityGroupEgressRule:SecurityGroupEgressRule",
        "securityGroupIngressRule:SecurityGroupIngressRule",
    ),
    "iam": (
        "instanceProfile:InstanceProfile",
        "openIdConnectProvider:OpenIdConnectProvider",
        "policy:Policy",
        "policyAttachment:PolicyAttachment",
        "role:Role",
        "rolePolicy:RolePolicy",
        "rolePolicyAttachment:RolePolicyAttachment",
        "serviceLinkedRole:ServiceLinkedRole",
    ),
    "s3": (
        "accountPublicAccessBlock:AccountPublicAccessBlock",
        "bucketLifecycleConfiguration:BucketLifecycleConfiguration",
        "bucketNotification:BucketNotification",
        "bucketObjectv2:BucketObjectv2",
        "bucketOwnershipControls:BucketOwnershipControls",
        "bucketPolicy:BucketPolicy",
        "bucketPublicAccessBlock:BucketPublicAccessBlock",
        "bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
        "bucketVersioning:BucketVersioning",
    ),
}

FREE = frozenset(f"aws:{service}/{name}" for service, names in _FREE_TYPES.items() for name in names)
"""Types of resources that cost nothing themselves, as the provider calls them. What objects cost is the bucket's
by use."""
