"""Cases for AWS: buckets, queues, keys and logs."""

from aws_values import BUCKET, ONE, TAGS, TLS
from cases import Cases, allow, document
from everspot_core.cluster.declared import UNKNOWN

c = Cases()

FOUR = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
c.select("aws-bucket-not-public", "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock")
c.good({"bucket": "b", **dict.fromkeys(FOUR, True)}, {"bucket": "b", **dict.fromkeys(FOUR, UNKNOWN)})
c.bad({"bucket": "b", **dict.fromkeys(FOUR[:3], True)}, FOUR[3])
c.bad({"bucket": "b", **dict.fromkeys(FOUR, False)}, *FOUR, engine=False)
c.select("aws-bucket-not-public", "aws:s3/bucketAcl:BucketAcl").good({"bucket": "b", "acl": "private"}).bad(
    {"bucket": "b", "acl": "public-read"}, "acl"
)

URI = "http://acs.amazonaws.com/groups/global"
GRANTS = [{"grantee": {"type": "Group", "uri": f"{URI}/AllUsers"}, "permission": "READ"}]
c.good({"accessControlPolicy": {"grants": [{"grantee": {"type": "CanonicalUser", "id": "1a2b"}}]}})
c.bad(
    {"bucket": "b", "accessControlPolicy": {"grants": GRANTS}},
    "accessControlPolicy.grants[0].grantee.uri",
    engine=False,
)
c.select("aws-bucket-not-public", BUCKET).good({"grants": [{"uri": "http://acs.amazonaws.com/groups/s3/LogDelivery"}]})
c.bad({"grants": [{"type": "Group", "uri": f"{URI}/AuthenticatedUsers"}]}, "grants[0].uri", engine=False)

c.select("aws-bucket-tls-only", "aws:s3/bucketPolicy:BucketPolicy")
c.good(
    {"policy": document(TLS)},
    {"policy": UNKNOWN},
    {"policy": document({**TLS, "Principal": {"AWS": ["*"]}, "Condition": {"Bool": {"aws:SecureTransport": [False]}}})},
)
c.bad({"bucket": "b", "policy": document(allow("s3:GetObject", Principal={"AWS": ONE}))}, "policy")
c.bad({"policy": document({**TLS, "Action": "s3:PutObject"})}, "policy", engine=False)
PLAIN = {"aws:SecureTransport": "false"}
for denial in (
    {"Resource": "arn:aws:s3:::b/logs/*"},
    {"Resource": "arn:aws:s3:::b"},
    {"Condition": {"StringNotEquals": PLAIN}},
    {"Condition": {"Bool": {"aws:SecureTransport": ["false", "true"]}}},
    {"Condition": {"Bool": PLAIN, "StringEquals": {"aws:PrincipalAccount": "999999999999"}}},
):
    c.bad({"policy": document({**TLS, **denial})}, "policy", engine=False)
NO_SERVICE = {"Bool": {**PLAIN, "aws:PrincipalIsAWSService": "false"}}
c.good(
    {"policy": document({**TLS, "Resource": ["arn:aws:s3:::b", "arn:aws:s3:::b/*"]})},
    {"policy": document({**TLS, "Resource": "arn:aws-cn:s3:::b*"})},
    {"policy": document({**TLS, "Condition": NO_SERVICE})},
)

c.select(
    "aws-bucket-encrypted", "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration"
)
BY = "applyServerSideEncryptionByDefault"
c.good(
    {"bucket": "b", "rules": [{BY: {"sseAlgorithm": "aws:kms"}}]},
    {"rules": UNKNOWN},
    {"rules": [{BY: {"sseAlgorithm": UNKNOWN}}]},
)
c.bad({"bucket": "b", "rules": [{"bucketKeyEnabled": True}]}, f"rules[0].{BY}.sseAlgorithm")
c.select("aws-bucket-encrypted", BUCKET).good({})

c.select("aws-bucket-versioned", "aws:s3/bucketVersioning:BucketVersioning")
c.good({"versioningConfiguration": {"status": "Enabled"}}, {"versioningConfiguration": UNKNOWN})
c.bad({"bucket": "b", "versioningConfiguration": {"status": "Suspended"}}, "versioningConfiguration.status")

c.select("aws-bucket-uploads-aborted", "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration")
ABORT = {"id": "a", "status": "Enabled", "abortIncompleteMultipartUpload": {"daysAfterInitiation": 2}}
c.good({"rules": [ABORT]}, {"rules": UNKNOWN}, {"rules": [{**ABORT, "abortIncompleteMultipartUpload": UNKNOWN}]})
c.bad(
    {"bucket": "b", "rules": [{"id": "o", "status": "Enabled", "filter": {"prefix": "a/"}, "expiration": {"days": 3}}]},
    "rules",
)
c.bad({"rules": [{**ABORT, "status": "Disabled"}]}, "rules", engine=False)

c.select("aws-queue-encrypted", "aws:sqs/queue:Queue").good(
    {}, {"sqsManagedSseEnabled": True}, {"sqsManagedSseEnabled": UNKNOWN}
)
c.good({"sqsManagedSseEnabled": False, "kmsMasterKeyId": "alias/a"})
c.bad({"sqsManagedSseEnabled": False, "tags": TAGS}, "sqsManagedSseEnabled")

c.select("aws-key-rotates", "aws:kms/key:Key").good({"enableKeyRotation": True}, {"enableKeyRotation": UNKNOWN})
c.good({"customerMasterKeySpec": "RSA_2048", "keyUsage": "SIGN_VERIFY"}, {"customKeyStoreId": "cks-1"})
c.bad({"tags": TAGS}, "enableKeyRotation")

c.select("aws-logs-kept", "aws:cloudwatch/logGroup:LogGroup").good(
    {"retentionInDays": 30}, {"retentionInDays": UNKNOWN}
)
c.bad({"tags": TAGS}, "retentionInDays").bad({"retentionInDays": 0}, "retentionInDays", engine=False)

CASES = c.listed
