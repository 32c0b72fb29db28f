"""Kinds of AWS's resources, by Pulumi's names, as a reviewer of a change asks for them."""

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from everspot_clouds.aws import lifecycle
from everspot_clouds.base.resources import ExpiryKind, FleetKind, Inputs, ResourceKinds, TemplateKind


def _fleet_ends(inputs: Inputs) -> bool:
    """EC2 User Guide, "Modify an EC2 Fleet": with `no-termination` a lower target ends nothing; `termination`, the
    default of a fleet of type maintain, has EC2 end what is beyond it."""
    return inputs.get("excessCapacityTerminationPolicy") != "no-termination"


def _spot_fleet_deletion_ends(inputs: Inputs) -> bool:
    """EC2 User Guide, "Cancel (delete) a Spot Fleet request"; the provider's defaults: `terminateInstancesOnDelete`, a
    text, is as `terminateInstancesWithExpiration`, which is false."""
    on_delete = inputs.get("terminateInstancesOnDelete")
    return on_delete == "true" if on_delete else inputs.get("terminateInstancesWithExpiration") is True


def _refreshes(inputs: Inputs) -> bool:
    """Auto Scaling User Guide, "Instance refresh": the provider starts one if it is declared, at a new template."""
    return bool(inputs.get("instanceRefresh"))


def _decrypted_keys(inputs: Inputs) -> frozenset[str] | None:
    """Return the keys that a policy allows to decrypt with, which S3 needs to return an object under SSE-KMS (Amazon S3
    User Guide, "Using server-side encryption with AWS KMS keys")."""
    text = inputs.get("policy")
    try:
        document = json.loads(text) if isinstance(text, str) else text
    except ValueError:  # not known before the update
        return None
    if not isinstance(document, Mapping):
        return None
    keys: set[str] = set()
    for statement in _listed(document.get("Statement")):
        if not isinstance(statement, Mapping) or statement.get("Effect") != "Allow":
            continue
        actions = [str(action).lower() for action in _listed(statement.get("Action"))]
        if any(fnmatchcase("kms:decrypt", action) for action in actions):
            keys |= {str(resource) for resource in _listed(statement.get("Resource"))}
    return frozenset(keys)


def _listed(value: Any) -> list[Any]:
    """Return the items of an element of a policy, which may also be a single one."""
    return value if isinstance(value, list) else [] if value is None else [value]


_CUT_OFF = "instances that use it reach the store no longer, and their jobs write no checkpoint"
"""Of a part of the network. What refers to it is deleted first: a subnet's routes before the subnet, which EC2 then
does not delete while instances are in it (Amazon VPC User Guide, "Delete a subnet")."""
_NO_CREDENTIALS = "instances and jobs that use it may do nothing any more, and write no checkpoint"
"""Amazon EC2 User Guide, "IAM roles for Amazon EC2": without its profile or role an instance gets no credentials."""
_NO_VERSIONS = "earlier versions of what is written are no longer kept"
_EXCESS = "a target below the number of running instances ends instances of EC2's choice, busy or not"

KINDS = ResourceKinds(
    fleets={
        "aws:ec2/fleet:Fleet": FleetKind(
            size="targetCapacitySpecification.totalTargetCapacity",
            template=("launchTemplateConfigs[0].launchTemplateSpecification",),
            pools=("launchTemplateConfigs",),
            lower_ends=_fleet_ends,
            chosen_by="EC2",
            rolls=lambda _: False,
            # The provider's default is false: the instances of a deleted fleet run on.
            delete_ends=lambda inputs: inputs.get("terminateInstances") is True,
        ),
        "aws:ec2/spotFleetRequest:SpotFleetRequest": FleetKind(
            size="targetCapacity",
            template=(),
            pools=("launchSpecifications", "launchTemplateConfigs"),
            lower_ends=lambda inputs: inputs.get("excessCapacityTerminationPolicy") != "NoTermination",
            chosen_by="EC2",
            rolls=lambda _: False,
            delete_ends=_spot_fleet_deletion_ends,
        ),
        # Amazon EKS User Guide, "Understand each phase of node updates": a new version or template replaces all nodes.
        "aws:eks/nodeGroup:NodeGroup": FleetKind(
            size="scalingConfig.desiredSize",
            template=("launchTemplate", "releaseVersion", "version"),
            pools=(),
            lower_ends=lambda _: True,
            chosen_by="EC2 Auto Scaling",
            rolls=lambda _: True,
            maximum="scalingConfig.maxSize",
        ),
        "aws:autoscaling/group:Group": FleetKind(
            size="desiredCapacity",
            template=("launchTemplate", "mixedInstancesPolicy.launchTemplate.launchTemplateSpecification"),
            pools=("mixedInstancesPolicy", "vpcZoneIdentifiers", "availabilityZones"),
            lower_ends=lambda _: True,
            chosen_by="EC2 Auto Scaling",
            rolls=_refreshes,
            maximum="maxSize",
        ),
    },
    templates={"aws:ec2/launchTemplate:LaunchTemplate": TemplateKind(image=("imageId",))},
    stateful={
        "aws:s3/bucket:Bucket": "all objects in it",
        "aws:s3/bucketV2:BucketV2": "all objects in it",
        "aws:s3/bucketVersioning:BucketVersioning": "earlier versions of what is written from then on",
        "aws:kms/key:Key": "the key, and with it all that it encrypts, once its waiting time is over",
        "aws:ebs/volume:Volume": "what is on the volume",
        "aws:efs/fileSystem:FileSystem": "all files in it",
        "aws:fsx/lustreFileSystem:LustreFileSystem": "all files in it",
        "aws:fsx/openZfsFileSystem:OpenZfsFileSystem": "all files in it",
        "aws:fsx/ontapFileSystem:OntapFileSystem": "all files in it",
        "aws:s3/directoryBucket:DirectoryBucket": "all objects in it",
        "aws:s3tables/tableBucket:TableBucket": "all tables in it",
        "aws:ec2/instance:Instance": "what is on its volumes",
        "aws:eks/cluster:Cluster": "all objects in it and the work of running jobs",
        "aws:dynamodb/table:Table": "all items in it",
        "aws:docdb/cluster:Cluster": "its databases",
        "aws:neptune/cluster:Cluster": "its databases",
        "aws:redshift/cluster:Cluster": "its databases",
        "aws:opensearch/domain:Domain": "its indexes",
        "aws:elasticache/replicationGroup:ReplicationGroup": "what is kept in it",
        "aws:kinesis/stream:Stream": "records that nobody has read yet",
        "aws:backup/vault:Vault": "the backups in it",
        "aws:cognito/userPool:UserPool": "its users",
        "aws:rds/instance:Instance": "its databases",
        "aws:rds/cluster:Cluster": "its databases",
        "aws:ecr/repository:Repository": "its images",
        "aws:secretsmanager/secret:Secret": "the secret",
        "aws:sqs/queue:Queue": "messages that nobody has read yet",
        "aws:cloudwatch/logGroup:LogGroup": "the logs in it",
        "aws:iam/openIdConnectProvider:OpenIdConnectProvider": "the trust in the forge, by which workflows sign in",
    },
    emptied={"aws:s3/bucket:Bucket": "forceDestroy", "aws:s3/bucketV2:BucketV2": "forceDestroy"},
    schedulers=frozenset({"everspot:index:AwsSchedulerService"}),
    expiries={
        "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": ExpiryKind(
            lifecycle.read_configuration, "bucket"
        ),
        "aws:s3/bucketLifecycleConfigurationV2:BucketLifecycleConfigurationV2": ExpiryKind(
            lifecycle.read_configuration, "bucket"
        ),
        "aws:s3/bucket:Bucket": ExpiryKind(lifecycle.read_bucket),
        "aws:s3/bucketV2:BucketV2": ExpiryKind(lifecycle.read_bucket),
    },
    needed={
        "aws:ec2/vpc:Vpc": _CUT_OFF,
        "aws:ec2/subnet:Subnet": _CUT_OFF,
        "aws:ec2/routeTable:RouteTable": _CUT_OFF,
        "aws:iam/instanceProfile:InstanceProfile": _NO_CREDENTIALS,
        "aws:iam/role:Role": _NO_CREDENTIALS,
        "aws:eks/podIdentityAssociation:PodIdentityAssociation": _NO_CREDENTIALS,
    },
    needed_while_there={"aws:ec2/securityGroup:SecurityGroup": _CUT_OFF},
    readable={"aws:iam/rolePolicy:RolePolicy": _decrypted_keys, "aws:iam/policy:Policy": _decrypted_keys},
    switched_off={
        "aws:s3/bucket:Bucket": (("versioning.enabled", _NO_VERSIONS),),
        "aws:s3/bucketV2:BucketV2": (("versionings[0].enabled", _NO_VERSIONS),),
    },
    settings={
        "aws:s3/bucketVersioning:BucketVersioning": (("versioningConfiguration.status", "Suspended", _NO_VERSIONS),),
        "aws:ec2/fleet:Fleet": (("excessCapacityTerminationPolicy", "termination", _EXCESS),),
        "aws:ec2/spotFleetRequest:SpotFleetRequest": (("excessCapacityTerminationPolicy", "Default", _EXCESS),),
        "aws:kms/key:Key": (("isEnabled", False, "nothing that the key encrypts can be read"),),
    },
)
