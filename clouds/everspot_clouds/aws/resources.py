"""Kinds of AWS's resources, by Pulumi's names, as a reviewer of a change asks for them."""

from everspot_clouds.base.resources import FleetKind, Inputs, ResourceKinds, TemplateKind


def _fleet_ends(inputs: Inputs) -> bool:
    """EC2 User Guide, "Modify an EC2 Fleet": with `no-termination` a lower target ends nothing; `termination`, the
    default of a fleet of type maintain, has EC2 end what is beyond it."""
    return inputs.get("excessCapacityTerminationPolicy") != "no-termination"


def _refreshes(inputs: Inputs) -> bool:
    """Auto Scaling User Guide, "Instance refresh": the provider starts one if it is declared, at a new template."""
    return bool(inputs.get("instanceRefresh"))


def _expiries(inputs: Inputs) -> dict[str, float]:
    """Return the days of the enabled rules that delete current objects (Amazon S3 User Guide, "Lifecycle configuration
    elements")."""
    days: dict[str, float] = {}
    for rule in inputs.get("rules") or ():
        expiration = rule.get("expiration") if isinstance(rule, dict) and rule.get("status") == "Enabled" else None
        after = expiration.get("days") if isinstance(expiration, dict) else None
        if isinstance(after, int | float):
            chosen = rule.get("filter") if isinstance(rule.get("filter"), dict) else {}
            prefix = str(chosen.get("prefix") or (chosen.get("and") or {}).get("prefix") or rule.get("prefix") or "")
            days[prefix] = min(after, days.get(prefix, after))
    return days


KINDS = ResourceKinds(
    fleets={
        "aws:ec2/fleet:Fleet": FleetKind(
            size="targetCapacitySpecification.totalTargetCapacity",
            template=("launchTemplateConfigs[0].launchTemplateSpecification",),
            pools=("launchTemplateConfigs",),
            lower_ends=_fleet_ends,
            chosen_by="EC2",
            rolls=lambda _: False,
        ),
        "aws:autoscaling/group:Group": FleetKind(
            size="desiredCapacity",
            template=("launchTemplate", "mixedInstancesPolicy.launchTemplate.launchTemplateSpecification"),
            pools=("mixedInstancesPolicy", "vpcZoneIdentifiers", "availabilityZones"),
            lower_ends=lambda _: True,
            chosen_by="EC2 Auto Scaling",
            rolls=_refreshes,
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
        "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": _expiries,
        "aws:s3/bucketLifecycleConfigurationV2:BucketLifecycleConfigurationV2": _expiries,
    },
    settings={
        "aws:s3/bucketVersioning:BucketVersioning": (
            ("versioningConfiguration.status", "Suspended", "earlier versions of what is written are no longer kept"),
        ),
        "aws:kms/key:Key": (("isEnabled", False, "nothing that the key encrypts can be read"),),
    },
)
