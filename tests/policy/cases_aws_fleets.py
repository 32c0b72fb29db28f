"""Cases for AWS: tags, and requests of fleets for Spot Instances."""

from aws_values import BUCKET, FLEET, GROUP, SIX, SPOT_FLEET, TAGS, TEMPLATE, fleet, mixed
from cases import Cases
from everspot_core.cluster.declared import UNKNOWN

c = Cases()

c.select("aws-tags", BUCKET).good({"tags": TAGS}, {"tags": UNKNOWN}, {"tags": {"Team": "a"}, "tagsAll": TAGS})
c.good({"tags": {**TAGS, "Team": UNKNOWN}})
c.bad({"tags": {"Team": "ml", "Project": " "}}, "tags")
c.select("aws-tags", GROUP)
c.good({"tags": [{"key": k, "value": v, "propagateAtLaunch": True} for k, v in TAGS.items()]})
c.bad(
    {
        "minSize": 0,
        "maxSize": 1,
        "availabilityZones": ["us-east-1a"],
        "tags": [{"key": "Team", "value": "a", "propagateAtLaunch": True}],
    },
    "tags",
    engine=False,
)
c.select("aws-tags", TEMPLATE)
SPECIFIED = [{"resourceType": kind, "tags": TAGS} for kind in ("instance", "volume")]
c.good({"tags": TAGS, "tagSpecifications": SPECIFIED}, {"tags": TAGS, "tagSpecifications": UNKNOWN})
c.bad({"tags": TAGS, "tagSpecifications": SPECIFIED[:1]}, "tagSpecifications[volume].tags")
c.bad({"tagSpecifications": SPECIFIED}, "tags", engine=False)

c.select("aws-spot-pools", FLEET).good(fleet(*SIX), fleet(*SIX[:2], spot=0), fleet({"instanceRequirements": {}}))
c.good(fleet(*[{"instanceType": "m6i.large", "subnetId": UNKNOWN}] * 6), {**fleet(), "launchTemplateConfigs": UNKNOWN})
c.good(
    fleet(
        {"instanceType": "m6i.large"},
        targetCapacitySpecification={"defaultTargetCapacityType": "on-demand", "totalTargetCapacity": 4},
    )
)
c.bad(fleet(*SIX[:5], terminateInstances=True, tags=TAGS), "launchTemplateConfigs")
c.bad(fleet(*SIX[:3], *SIX[:3]), "launchTemplateConfigs", engine=False)
c.select("aws-spot-pools", GROUP).good(
    mixed("m6i.large", "m7i.large", zones=3), {"minSize": 1, "maxSize": 1}, mixed("m6i.large", percent=100)
)
c.bad(mixed("m6i.large", zones=2), "mixedInstancesPolicy.launchTemplate.overrides", engine=False)

c.select("aws-spot-allocation", FLEET).good(
    fleet(spotOptions={"allocationStrategy": "priceCapacityOptimized"}), fleet(spot=0), fleet(spotOptions=UNKNOWN)
)
c.bad(fleet(*SIX, terminateInstances=True, tags=TAGS), "spotOptions.allocationStrategy")
c.bad(fleet(spotOptions={"allocationStrategy": "lowestPrice"}), "spotOptions.allocationStrategy", engine=False)
c.select("aws-spot-allocation", GROUP).good(mixed("m6i.large"))
c.bad(
    mixed("m6i.large", strategy=None), "mixedInstancesPolicy.instancesDistribution.spotAllocationStrategy", engine=False
)
c.select("aws-spot-allocation", SPOT_FLEET).good({"allocationStrategy": "capacityOptimized"}).bad(
    {}, "allocationStrategy", engine=False
)

c.select("aws-max-price", FLEET).good(
    fleet(*SIX),
    fleet({"instanceType": "m6i.large", "maxPrice": "0.09"}),
    fleet({"instanceType": "x.none", "maxPrice": "0.01"}),
)
c.good(
    fleet({"instanceType": UNKNOWN, "maxPrice": "0.0001"}), fleet({"instanceType": "m6i.large", "maxPrice": UNKNOWN})
)
CHEAP = [{**each, "maxPrice": "0.0001", "weightedCapacity": 2} for each in SIX[:1]]
c.bad(fleet(*CHEAP, *SIX, terminateInstances=True, tags=TAGS), "launchTemplateConfigs[0].overrides[0].maxPrice")

c.select("aws-production-protected", BUCKET)
PRODUCTION = {"tags": {**TAGS, "Environment": "aws-prod"}}
c.good(PRODUCTION, {"tags": TAGS}).good(PRODUCTION, protected=True).good({"tags": TAGS}, {}, protected=False)
c.bad(PRODUCTION, "", protected=False).bad({}, "", environment="prod", protected=False, engine=False)

CASES = c.listed
