"""Kinds of Google Cloud's resources, by Pulumi's names, as a reviewer of a change asks for them."""

from everspot_clouds.base.resources import (
    ExpiryKind,
    FleetKind,
    Inputs,
    ResourceKinds,
    RetentionKind,
    TemplateKind,
)
from everspot_clouds.gcp import lifecycle


def _proactive(inputs: Inputs) -> bool:
    """Compute Engine, "Apply new configurations automatically": PROACTIVE replaces instances immediately, OPPORTUNISTIC
    only when they are created for another reason."""
    policy = inputs.get("updatePolicy")
    return isinstance(policy, dict) and policy.get("type") == "PROACTIVE"


# Compute Engine, "Resize a MIG": a group that is made smaller deletes instances of its own choice.
_GROUP = FleetKind(
    size="targetSize",
    template=("versions",),
    pools=("instanceFlexibilityPolicy", "distributionPolicyZones", "distributionPolicyTargetShape"),
    lower_ends=lambda _: True,
    chosen_by="the group",
    rolls=_proactive,
)
# Compute Engine, "Autoscaling groups of instances": it sets the size of a group, between two limits. Its deletion
# leaves the group as it is.
_AUTOSCALER = FleetKind(
    size="autoscalingPolicy.minReplicas",
    template=(),
    pools=(),
    lower_ends=lambda inputs: (inputs.get("autoscalingPolicy") or {}).get("mode", "ON") == "ON",
    chosen_by="the autoscaler",
    rolls=lambda _: False,
    maximum="autoscalingPolicy.maxReplicas",
    delete_ends=lambda _: False,
)
_TEMPLATE = TemplateKind(image=("disks[0].sourceImage",))


_CUT_OFF = "instances that use it keep it from being deleted: the update fails when the rest is changed already"
"""VPC documentation, "Subnets": a subnet that instances use cannot be deleted, and no network that has one."""
_NO_CREDENTIALS = "instances and jobs that use it may do nothing any more, and write no checkpoint"
"""IAM documentation, "Delete and undelete service accounts": what uses the account can no longer access anything, also
once another one has its name."""

KINDS = ResourceKinds(
    fleets={
        "gcp:compute/regionInstanceGroupManager:RegionInstanceGroupManager": _GROUP,
        "gcp:compute/instanceGroupManager:InstanceGroupManager": _GROUP,
        "gcp:compute/regionAutoscaler:RegionAutoscaler": _AUTOSCALER,
        "gcp:compute/autoscaler:Autoscaler": _AUTOSCALER,
        # Google Kubernetes Engine, "Upgrading node pools": a new configuration or version recreates all nodes.
        "gcp:container/nodePool:NodePool": FleetKind(
            size="nodeCount",
            template=("nodeConfig", "version"),
            pools=("nodeLocations",),
            lower_ends=lambda _: True,
            chosen_by="GKE",
            rolls=lambda _: True,
            maximum="autoscaling.maxNodeCount",
        ),
    },
    templates={
        "gcp:compute/regionInstanceTemplate:RegionInstanceTemplate": _TEMPLATE,
        "gcp:compute/instanceTemplate:InstanceTemplate": _TEMPLATE,
    },
    stateful={
        "gcp:storage/bucket:Bucket": "all objects in it",
        "gcp:kms/cryptoKey:CryptoKey": "the key, and with it all that it encrypts",
        "gcp:kms/cryptoKeyVersion:CryptoKeyVersion": "this version of the key, and with it all that it encrypts",
        "gcp:compute/disk:Disk": "what is on the disk",
        "gcp:compute/regionDisk:RegionDisk": "what is on the disk",
        "gcp:filestore/instance:Instance": "all files in it",
        "gcp:compute/instance:Instance": "what is on its boot disk",
        "gcp:container/cluster:Cluster": "all objects in it and the work of running jobs",
        "gcp:sql/databaseInstance:DatabaseInstance": "its databases",
        "gcp:spanner/instance:Instance": "its databases",
        "gcp:bigtable/instance:Instance": "its tables",
        "gcp:firestore/database:Database": "all documents in it",
        "gcp:redis/instance:Instance": "what is kept in it",
        "gcp:bigquery/dataset:Dataset": "its tables",
        "gcp:bigquery/table:Table": "all rows in it",
        "gcp:artifactregistry/repository:Repository": "its packages and images",
        "gcp:secretmanager/secret:Secret": "the secret",
        "gcp:pubsub/subscription:Subscription": "messages that nobody has read yet",
        "gcp:iam/workloadIdentityPool:WorkloadIdentityPool": "the trust in the forge, by which workflows sign in",
    },
    emptied={"gcp:storage/bucket:Bucket": "forceDestroy"},
    schedulers=frozenset({"everspot:index:GcpSchedulerService"}),
    expiries={"gcp:storage/bucket:Bucket": ExpiryKind(lifecycle.read_bucket)},
    # Cloud Storage, "Soft delete": seven days unless the bucket says otherwise, and 0 turns it off.
    retentions={
        "gcp:storage/bucket:Bucket": RetentionKind("softDeletePolicy.retentionDurationSeconds", 604_800, "seconds")
    },
    switched_off={
        "gcp:storage/bucket:Bucket": (("versioning.enabled", "earlier versions of what is written are no longer kept"),)
    },
    needed={
        "gcp:compute/network:Network": _CUT_OFF,
        "gcp:compute/subnetwork:Subnetwork": _CUT_OFF,
        "gcp:serviceaccount/account:Account": _NO_CREDENTIALS,
        "gcp:projects/iAMCustomRole:IAMCustomRole": _NO_CREDENTIALS,
    },
    settings={
        "gcp:kms/cryptoKeyVersion:CryptoKeyVersion": (
            ("state", "DISABLED", "nothing that this version of the key encrypts can be read"),
        ),
    },
)
