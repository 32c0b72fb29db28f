"""Buckets."""

import re
from collections.abc import Iterator, Sequence

from everspot_core.validation.problems import Problem

from everspot_policy.aws.documents import ANYBODY, actions, conditions, principals, statements
from everspot_policy.aws.kinds import BUCKETS, both_versions
from everspot_policy.reading import hidden, lacks, mapping, objects, text, texts
from everspot_policy.rule import Level, Rule, Severity, Subject, rule

BLOCKS = (
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
    "aws:s3/accountPublicAccessBlock:AccountPublicAccessBlock",
)
FOUR = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
ACLS = both_versions("BucketAcl")
POLICY = "aws:s3/bucketPolicy:BucketPolicy"
ENCRYPTION = both_versions("BucketServerSideEncryptionConfiguration")
VERSIONING = both_versions("BucketVersioning")
LIFECYCLE = both_versions("BucketLifecycleConfiguration")
EVERYBODY = ("/groups/global/AllUsers", "/groups/global/AuthenticatedUsers")
"""Ends of the URIs of S3's groups of everybody, and of everybody with an AWS account."""
NOT_NARROWING = ("aws:securetransport", "aws:principalisawsservice")
"""Keys of a denial of plain requests: that they are plain, and that no service of AWS sends them."""
ALL_OBJECTS = re.compile(r"[^/]*\*|[^/]+/\*")
"""ARNs of all objects of a bucket."""
CIPHERS = ("AES256", "aws:kms", "aws:kms:dsse")


@rule(
    "aws-bucket-not-public",
    Level.MANDATORY,
    Severity.CRITICAL,
    title="No bucket can be public, whatever its policy and ACLs say",
    remedy="Set all four inputs of the bucket's public access block to true, and use no public canned ACL.",
    types=(*BLOCKS, *ACLS, *BUCKETS),
    checkov=("CKV_AWS_53", "CKV_AWS_54", "CKV_AWS_55", "CKV_AWS_56", "CKV_AWS_20", "CKV_AWS_57"),
)
def bucket_not_public(subject: Subject) -> Iterator[Problem]:
    """Find public access blocks with a gap, and ACLs for everybody or for everybody with an account."""
    if subject.type in BLOCKS:
        for name in FOUR:
            if lacks(subject.inputs.get(name)):
                yield Problem(name, "has to be true")
        return
    if text(subject.inputs.get("acl")) in ("public-read", "public-read-write", "authenticated-read"):
        yield Problem("acl", f"{subject.inputs['acl']} is for everybody")
    policy = "accessControlPolicy"
    grants = [(f"{policy}.{path}", each) for path, each in objects(mapping(subject.inputs.get(policy)), "grants")]
    for path, each in (*grants, *objects(subject.inputs, "grants")):
        for place, grantee in ((path, each), (f"{path}.grantee", mapping(each.get("grantee")))):
            if text(grantee.get("uri")).endswith(EVERYBODY):
                yield Problem(f"{place}.uri", "is everybody")


@rule(
    "aws-bucket-tls-only",
    Level.MANDATORY,
    Severity.MEDIUM,
    title="Bucket policies deny requests without TLS",
    remedy="Add a statement that denies s3:* to everybody where aws:SecureTransport is false.",
    types=(POLICY,),
)
def bucket_tls_only(subject: Subject) -> Iterator[Problem]:
    """Find bucket policies that allow requests without TLS.

    Buckets without any policy are found by a rule over the whole stack.
    """
    value = subject.inputs.get("policy")
    if not hidden(value) and not any(_refuses_plain(each) for _, each in statements(value)):
        yield Problem("policy", "does not deny what comes without TLS")


def _refuses_plain(statement: object) -> bool:
    content = mapping(statement)
    everybody = (ANYBODY in [name for _, name in principals(content)]) and content.get("Effect") == "Deny"
    listed = list(conditions(content))
    plain = any(
        operator in ("bool", "boolifexists", "stringequals", "stringequalsignorecase")
        and key == "aws:securetransport"
        and [value.lower() for value in values] == ["false"]
        for operator, key, values in listed
    )
    resources = texts(content.get("Resource"))
    whole = all(key in NOT_NARROWING for _, key, _ in listed) and any(ALL_OBJECTS.fullmatch(each) for each in resources)
    return everybody and plain and whole and bool({"*", "s3:*"} & set(actions(content)))


@rule(
    "aws-bucket-encrypted",
    Level.MANDATORY,
    Severity.HIGH,
    title="Bucket encryption names an algorithm",
    remedy="Set applyServerSideEncryptionByDefault with sseAlgorithm AES256 or aws:kms.",
    types=(*ENCRYPTION, *BUCKETS),
    checkov=("CKV_AWS_19",),
)
def bucket_encrypted(subject: Subject) -> Iterator[Problem]:
    """Find declared encryption without an algorithm. Where none is declared, S3 encrypts by itself, since 2023."""
    inputs, at = subject.inputs, ""
    if subject.type in BUCKETS:
        inputs, at = mapping(inputs.get("serverSideEncryptionConfiguration")), "serverSideEncryptionConfiguration."
    for name in ("rules", "rule"):
        for path, each in objects(inputs, name):
            by_default = each.get("applyServerSideEncryptionByDefault")
            if hidden(by_default) or hidden(mapping(by_default).get("sseAlgorithm")):
                continue
            if mapping(by_default).get("sseAlgorithm") not in CIPHERS:
                yield Problem(
                    f"{at}{path}.applyServerSideEncryptionByDefault.sseAlgorithm",
                    f"has to be one of {', '.join(CIPHERS)}",
                )


@rule(
    "aws-bucket-versioned",
    Level.ADVISORY,
    Severity.LOW,
    title="Overwritten and deleted objects can be restored",
    remedy="Enable versioning, with a lifecycle rule for old versions. For objects that are written once, under "
    "unique keys, note an exception.",
    types=VERSIONING,
    checkov=("CKV_AWS_21",),
)
def bucket_versioned(subject: Subject) -> Iterator[Problem]:
    """Find versioning that is declared and off."""
    status = mapping(subject.inputs.get("versioningConfiguration")).get("status")
    if not hidden(subject.inputs.get("versioningConfiguration")) and not hidden(status) and status != "Enabled":
        yield Problem("versioningConfiguration.status", "has to be Enabled")


@rule(
    "aws-bucket-uploads-aborted",
    Level.ADVISORY,
    Severity.LOW,
    title="Parts of unfinished uploads are deleted",
    remedy="Add a lifecycle rule for all objects with abortIncompleteMultipartUpload. The parts cost money, and no "
    "listing shows them.",
    types=LIFECYCLE,
    checkov=("CKV_AWS_300",),
)
def bucket_uploads_aborted(subject: Subject) -> Iterator[Problem]:
    """Find lifecycles without a rule that ends unfinished uploads."""
    rules = subject.inputs.get("rules")
    if hidden(rules):
        return
    for _, each in objects(subject.inputs, "rules"):
        aborts = each.get("abortIncompleteMultipartUpload")
        if aborts is not None and (each.get("status") == "Enabled" or hidden(each.get("status"))):
            return
    yield Problem("rules", "has none that is enabled and aborts incomplete uploads")


def without_policy(subjects: Sequence[Subject]) -> Iterator[Subject]:
    """Yield the buckets of a stack that no policy of the stack is for: by reference, or by the name that both give. Of
    a whole stack the engine shows outputs: before the update a bucket's own policy is unknown, be there one or not."""
    policies = [each for each in subjects if each.type == POLICY]
    referred = {urn for policy in policies for urn in policy.depends}
    bucket_names = {text(policy.inputs.get("bucket")) for policy in policies} - {""}
    for subject in subjects:
        own = text(subject.inputs.get("bucket"))
        if (
            subject.type in BUCKETS
            and subject.urn not in referred
            and own not in bucket_names
            and not text(subject.inputs.get("policy"))
        ):
            yield subject


RULES: tuple[Rule, ...] = (
    bucket_not_public, bucket_tls_only, bucket_encrypted, bucket_versioned, bucket_uploads_aborted,
)  # fmt: skip
