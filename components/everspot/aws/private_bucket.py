"""The settings that every bucket has: it is private, encrypted, and answers only over TLS."""

import json

import pulumi
from pulumi_aws import s3

from everspot.aws import policies

ABORT_UPLOAD_DAYS = 2
"""Days after which the parts of an unfinished upload are removed."""

UNFINISHED_UPLOADS: s3.BucketLifecycleConfigurationRuleArgsDict = {
    "id": "unfinished-uploads",
    "status": "Enabled",
    "filter": {"prefix": ""},
    "abort_incomplete_multipart_upload": {"days_after_initiation": ABORT_UPLOAD_DAYS},
}
"""The rule of a bucket's life cycle that removes unfinished uploads."""


def close_bucket(
    name: str,
    bucket: s3.Bucket,
    key_arn: pulumi.Input[str] | None,
    child: pulumi.ResourceOptions,
    encryption: pulumi.ResourceOptions | None = None,
) -> None:
    """Declare the settings of a bucket.

    Args:
        name: The beginning of the settings' names.
        bucket: The bucket.
        key_arn: The customer key of its objects; None: keys managed by S3.
        child: The options of each setting.
        encryption: Further options of the encryption.
    """
    closed = s3.BucketPublicAccessBlock(
        f"{name}-private",
        bucket=bucket.id,
        block_public_acls=True,
        block_public_policy=True,
        ignore_public_acls=True,
        restrict_public_buckets=True,
        opts=child,
    )
    s3.BucketServerSideEncryptionConfiguration(
        f"{name}-encryption",
        bucket=bucket.id,
        rules=[
            {
                "apply_server_side_encryption_by_default": {
                    "sse_algorithm": "aws:kms" if key_arn is not None else "AES256",
                    "kms_master_key_id": key_arn,
                },
                "bucket_key_enabled": key_arn is not None,
            }
        ],
        opts=pulumi.ResourceOptions.merge(child, encryption),
    )
    s3.BucketPolicy(
        f"{name}-tls",
        bucket=bucket.id,
        policy=bucket.arn.apply(lambda arn: json.dumps(policies.tls_only_bucket(arn))),
        # S3 refuses two changes of a bucket's access at the same moment.
        opts=pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=[closed])),
    )
