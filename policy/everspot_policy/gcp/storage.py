"""Buckets. Google encrypts every object and takes requests over TLS only: these two rules are for AWS alone."""

from collections.abc import Iterator

from everspot_core.validation.problems import Problem

from everspot_policy.gcp.identity import EVERYBODY
from everspot_policy.gcp.kinds import BUCKET
from everspot_policy.reading import hidden, lacks, mapping, objects, text, texts
from everspot_policy.rule import Level, Rule, Severity, Subject, rule

CONTROLS = (
    "gcp:storage/bucketAccessControl:BucketAccessControl",
    "gcp:storage/defaultObjectAccessControl:DefaultObjectAccessControl",
    "gcp:storage/objectAccessControl:ObjectAccessControl",
)
LISTS = (
    "gcp:storage/bucketACL:BucketACL",
    "gcp:storage/defaultObjectACL:DefaultObjectACL",
    "gcp:storage/objectACL:ObjectACL",
)
PUBLIC_ACLS = ("publicRead", "publicReadWrite", "authenticatedRead")


@rule(
    "gcp-bucket-uniform",
    Level.MANDATORY,
    Severity.MEDIUM,
    title="Access to a bucket is granted on the bucket, not on objects",
    remedy="Set uniformBucketLevelAccess to true.",
    types=(BUCKET,),
    checkov=("CKV_GCP_29",),
)
def bucket_uniform(subject: Subject) -> Iterator[Problem]:
    """Find buckets whose objects have access lists."""
    if lacks(subject.inputs.get("uniformBucketLevelAccess")):
        yield Problem("uniformBucketLevelAccess", "has to be true")


@rule(
    "gcp-bucket-not-public",
    Level.MANDATORY,
    Severity.CRITICAL,
    title="No bucket can be public, whatever is granted",
    remedy="Set publicAccessPrevention to enforced, and grant nothing to allUsers or allAuthenticatedUsers.",
    types=(BUCKET, *CONTROLS, *LISTS),
    checkov=("CKV_GCP_114",),
)
def bucket_not_public(subject: Subject) -> Iterator[Problem]:
    """Find buckets that could become public, and access lists that make one so."""
    inputs = subject.inputs
    if subject.type == BUCKET:
        value = inputs.get("publicAccessPrevention")
        if not hidden(value) and value != "enforced":
            yield Problem("publicAccessPrevention", "has to be enforced")
    elif subject.type in CONTROLS:
        if text(inputs.get("entity")) in EVERYBODY:
            yield Problem("entity", f"{inputs['entity']} is everybody")
    else:
        if text(inputs.get("predefinedAcl")) in PUBLIC_ACLS:
            yield Problem("predefinedAcl", f"{inputs['predefinedAcl']} is for everybody")
        if any(each.partition(":")[2] in EVERYBODY for each in texts(inputs.get("roleEntities"))):
            yield Problem("roleEntities", "names everybody")


@rule(
    "gcp-bucket-versioned",
    Level.ADVISORY,
    Severity.LOW,
    title="Overwritten and deleted objects can be restored",
    remedy="Enable versioning, or leave soft deletion on. For objects that are written once, under unique keys, note "
    "an exception.",
    types=(BUCKET,),
    checkov=("CKV_GCP_78",),
)
def bucket_versioned(subject: Subject) -> Iterator[Problem]:
    """Find buckets without versions and without soft deletion, which is on by default."""
    versioning, soft = subject.inputs.get("versioning"), mapping(subject.inputs.get("softDeletePolicy"))
    off = soft.get("retentionDurationSeconds") in (0, "0")
    if off and not hidden(versioning) and lacks(mapping(versioning).get("enabled")):
        yield Problem("versioning.enabled", "has to be true where softDeletePolicy is off")


@rule(
    "gcp-bucket-uploads-aborted",
    Level.ADVISORY,
    Severity.LOW,
    title="Parts of unfinished uploads are deleted",
    remedy="Add a lifecycle rule with the action AbortIncompleteMultipartUpload.",
    types=(BUCKET,),
)
def bucket_uploads_aborted(subject: Subject) -> Iterator[Problem]:
    """Find buckets without a rule that ends unfinished uploads."""
    rules = subject.inputs.get("lifecycleRules")
    if hidden(rules):
        return
    kinds = [mapping(each.get("action")).get("type") for _, each in objects(subject.inputs, "lifecycleRules")]
    if not any(hidden(kind) or kind == "AbortIncompleteMultipartUpload" for kind in kinds):
        yield Problem("lifecycleRules", "has none that aborts incomplete uploads")


RULES: tuple[Rule, ...] = (bucket_uniform, bucket_not_public, bucket_versioned, bucket_uploads_aborted)
