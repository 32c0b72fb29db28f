"""The bucket that holds the state of stacks."""

import json
import re

import pulumi
from pulumi_aws import s3

from everspot.aws import policies

BUCKET_NAME = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")

OLD_STATES_DAYS = 90
"""Days for which overwritten or deleted states can be restored."""

ABORT_UPLOAD_DAYS = 2


def add_state_bucket(
    parent: pulumi.Resource, name: str, bucket: pulumi.Input[str], key_arn: pulumi.Input[str], tags: dict[str, str]
) -> s3.Bucket:
    """Declare the bucket: versioned, private, encrypted with a customer key, over TLS alone, and never deleted."""
    # The settings that protect the bucket stay as long as the bucket does.
    child = pulumi.ResourceOptions(parent=parent, retain_on_delete=True)
    protected = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(protect=True))
    state = s3.Bucket(name, bucket=bucket, tags=tags, opts=protected)
    closed = s3.BucketPublicAccessBlock(
        f"{name}-private",
        bucket=state.id,
        block_public_acls=True,
        block_public_policy=True,
        ignore_public_acls=True,
        restrict_public_buckets=True,
        opts=child,
    )
    s3.BucketServerSideEncryptionConfiguration(
        f"{name}-encryption",
        bucket=state.id,
        rules=[
            {
                "apply_server_side_encryption_by_default": {"sse_algorithm": "aws:kms", "kms_master_key_id": key_arn},
                "bucket_key_enabled": True,
            }
        ],
        opts=child,
    )
    s3.BucketPolicy(
        f"{name}-tls",
        bucket=state.id,
        policy=state.arn.apply(lambda arn: json.dumps(policies.tls_only_bucket(arn))),
        # S3 refuses two changes of a bucket's access at the same moment.
        opts=pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=[closed])),
    )
    versioned = s3.BucketVersioning(
        f"{name}-versions", bucket=state.id, versioning_configuration={"status": "Enabled"}, opts=child
    )
    rules: list[s3.BucketLifecycleConfigurationRuleArgsDict] = [
        {
            "id": "old-states",
            "status": "Enabled",
            "filter": {"prefix": ""},
            "noncurrent_version_expiration": {"noncurrent_days": OLD_STATES_DAYS},
            "expiration": {"expired_object_delete_marker": True},
        },
        {
            "id": "unfinished-uploads",
            "status": "Enabled",
            "filter": {"prefix": ""},
            "abort_incomplete_multipart_upload": {"days_after_initiation": ABORT_UPLOAD_DAYS},
        },
    ]
    after = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=[versioned]))
    s3.BucketLifecycleConfiguration(f"{name}-lifecycle", bucket=state.id, rules=rules, opts=after)
    return state
