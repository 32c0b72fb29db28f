"""The requests of declared Google Cloud resources that cost money.

A resource of a type without a price here is reported as unknown unless the type is free. Costs that depend only on use
are named.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial

from everspot_core.cluster.declared import DeclaredResource
from everspot_core.estimate.requested import FixedRequest, RequestedCapacity

from everspot_clouds.costing import Costing, Rule, apply, by_use, declared_types, idle_requests, part
from everspot_clouds.gcp import estimate_machines as machines
from everspot_clouds.gcp import fixed_prices as fixed
from everspot_clouds.gcp.labels import to_labels
from everspot_clouds.resource_regions import group_by_region

PREFIX = "gcp:"
"""How the types of the provider's resources begin."""

_NAT = "gcp:compute/routerNat:RouterNat"


def collect_charges(resources: Sequence[DeclaredResource], region: str | None = None) -> RequestedCapacity:
    """Return the requests of the Google Cloud resources of one side of a change. `region`: of the settings; None: as in
    the preview."""
    costing = Costing(fixed.AS_OF, fixed.SAME)
    rules = _rules([resource for resource in resources if resource.type in machines.TEMPLATES])
    for where, own in group_by_region(resources, "gcp", region):
        regional = costing.within("gcp", where)
        apply(regional, own, rules, FREE, PREFIX)
        _nat(regional, [resource for resource in own if resource.type == _NAT])
    own_resources = [resource for resource in resources if resource.type.startswith((PREFIX, "everspot:"))]
    return _name_teams(costing.total(), own_resources)


def _name_teams(whole: RequestedCapacity, resources: Sequence[DeclaredResource]) -> RequestedCapacity:
    """Return the teams by the names that tags have, as in components: labels have them in lower case."""
    tags = [tags for r in resources if isinstance(tags := r.inputs.get("tags"), Mapping) and "Team" in tags]
    names = {to_labels({"Team": str(each["Team"])})["team"]: str(each["Team"]) for each in tags}
    return dataclasses.replace(
        whole,
        standing=tuple(
            dataclasses.replace(charge, team=names.get(charge.team, charge.team)) for charge in whole.standing
        ),
        fixed=tuple(dataclasses.replace(charge, team=names.get(charge.team, charge.team)) for charge in whole.fixed),
    )


BY_USE = {
    "gcp:storage/bucket:Bucket": "Cloud Storage by storage, and by the requests of jobs",
    "gcp:pubsub/topic:Topic": "Pub/Sub by throughput",
    "gcp:pubsub/subscription:Subscription": "Pub/Sub by throughput",
    "gcp:logging/projectBucketConfig:ProjectBucketConfig": "logs by what is written and kept",
    "gcp:bigquery/dataset:Dataset": "BigQuery by storage and queries",
}
"""Types that cost by use alone, and by what."""


def _rules(templates: Sequence[DeclaredResource]) -> Mapping[str, Rule]:
    groups = (
        "gcp:compute/regionInstanceGroupManager:RegionInstanceGroupManager",
        "gcp:compute/instanceGroupManager:InstanceGroupManager",
    )
    return {
        **dict.fromkeys(groups, partial(machines.group, templates)),
        "everspot:index:GcpElasticCapacity": partial(machines.elastic, templates),
        "everspot:index:GcpTrainingFleet": declared_types,
        "everspot:index:GcpSchedulerService": idle_requests(fixed.STORE_WRITES, fixed.STORE_READS),
        "everspot:index:GcpMonitoring": lambda costing, r: costing.add_metered(r, "metrics by what is written"),
        "gcp:compute/subnetwork:Subnetwork": _subnetwork,
        "gcp:compute/address:Address": _address,
        "gcp:compute/globalAddress:GlobalAddress": _address,
        "gcp:kms/cryptoKey:CryptoKey": _key,
        "gcp:secretmanager/secret:Secret": lambda costing, r: costing.add_metered(
            r, "secrets by versions and requests"
        ),
        "gcp:secretmanager/secretVersion:SecretVersion": _secret,
        "gcp:monitoring/alertPolicy:AlertPolicy": _alerts,
        _NAT: lambda costing, r: costing.add_metered(r, "Cloud NAT also by the GB"),
        **{kind: by_use(meter) for kind, meter in BY_USE.items()},
    }


def _nat(costing: Costing, gateways: Sequence[DeclaredResource]) -> None:
    """Gateways cost by the machines that use them: the standing ones, and at the most any number. Each has an
    address."""
    standing = sum((charge.units for charge in costing.standing if charge.region == costing.region), Fraction(0))
    for gateway in gateways:
        most, each = costing.rate(fixed.NAT_MOST).usd_per_month, costing.rate(fixed.NAT_VM).usd_per_month
        usual = most if standing > fixed.NAT_VMS else min(most, standing * each)
        address, low = costing.rate(fixed.ADDRESS).usd_per_month, min(usual, each)
        costing.fixed.append(
            FixedRequest(
                name=gateway.name,
                kind="NAT gateway",
                team="",
                expected=usual + address,
                low=low + address,
                high=most + address,
            )
        )


def _subnetwork(costing: Costing, resource: DeclaredResource) -> None:
    if resource.inputs.get("logConfig"):
        costing.add_metered(resource, "flow logs by what is written")


def _address(costing: Costing, resource: DeclaredResource) -> None:
    if resource.inputs.get("addressType") == "INTERNAL":
        return
    usd, idle = costing.rate(fixed.ADDRESS).usd_per_month, costing.rate(fixed.IDLE_ADDRESS).usd_per_month
    team = machines.team_by_labels(resource.inputs.get("labels"))
    costing.add_monthly(resource, "public addresses", usd, team=team, low=usd, high=idle)


def _key(costing: Costing, resource: DeclaredResource) -> None:
    level = part(resource.inputs, "versionTemplate", "protectionLevel") or "SOFTWARE"
    if level not in ("SOFTWARE", "HSM"):
        costing.note_unknown_cost(resource, f"keys of protection level {level} have no price here")
        return
    each = fixed.KEY_VERSION if level == "SOFTWARE" else fixed.HSM_KEY_VERSION
    usd = costing.rate(each).usd_per_month
    costing.add_monthly(resource, "keys", usd, team=machines.team_by_labels(resource.inputs.get("labels")))
    costing.add_metered(resource, "keys also by requests, and by every version that a rotation adds")


def _secret(costing: Costing, resource: DeclaredResource) -> None:
    costing.add_monthly(resource, "secrets", costing.rate(fixed.SECRET_VERSION).usd_per_month)


def _alerts(costing: Costing, resource: DeclaredResource) -> None:
    conditions = resource.inputs.get("conditions")
    if not isinstance(conditions, list | tuple):
        costing.note_unknown_cost(resource, "the number of its conditions is not known")
        return
    usd = len(conditions) * costing.rate(fixed.ALERT).usd_per_month
    team = machines.team_by_labels(resource.inputs.get("userLabels"))
    costing.add_monthly(resource, "alarms", usd, team=team, low=Fraction(0))  # Google may not charge for them yet
    costing.add_metered(resource, "alert policies also by the time series that they read")


_FREE_TYPES: dict[str, tuple[str, ...]] = {
    "billing": ("budget:Budget",),
    "compute": (
        "autoscaler:Autoscaler",
        "firewall:Firewall",
        "healthCheck:HealthCheck",
        "instanceTemplate:InstanceTemplate",
        "network:Network",
        "projectMetadataItem:ProjectMetadataItem",
        "regionAutoscaler:RegionAutoscaler",
        "regionHealthCheck:RegionHealthCheck",
        "regionInstanceTemplate:RegionInstanceTemplate",
        "route:Route",
        "router:Router",
        "subnetwork:Subnetwork",
    ),
    "artifactregistry": ("repositoryIamMember:RepositoryIamMember",),
    "iam": (
        "denyPolicy:DenyPolicy",
        "workloadIdentityPool:WorkloadIdentityPool",
        "workloadIdentityPoolProvider:WorkloadIdentityPoolProvider",
    ),
    "kms": ("cryptoKeyIAMMember:CryptoKeyIAMMember", "keyRing:KeyRing"),
    "logging": ("projectSink:ProjectSink",),
    "monitoring": ("dashboard:Dashboard", "notificationChannel:NotificationChannel"),
    "projects": ("iAMCustomRole:IAMCustomRole", "iAMMember:IAMMember", "service:Service"),
    "pubsub": ("subscriptionIAMMember:SubscriptionIAMMember", "topicIAMMember:TopicIAMMember"),
    "secretmanager": ("secretIamMember:SecretIamMember",),
    "serviceaccount": ("account:Account", "iAMMember:IAMMember"),
    "storage": ("bucketIAMMember:BucketIAMMember", "bucketObject:BucketObject"),
}

FREE = frozenset(f"gcp:{service}/{name}" for service, names in _FREE_TYPES.items() for name in names)
"""Types of resources that cost nothing themselves, as the provider calls them. What objects cost is the bucket's
by use."""
