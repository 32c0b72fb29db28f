"""Queues, topics, and the policies of resources."""

from collections.abc import Iterator

from everspot_core.validation.problems import Problem

from everspot_policy.aws.documents import ANYBODY, actions, allows, narrowed, principals, statements
from everspot_policy.aws.kinds import BUCKETS
from everspot_policy.reading import denied
from everspot_policy.rule import Level, Rule, Severity, Subject, rule

QUEUE = "aws:sqs/queue:Queue"
OPEN_BY_POLICY = (
    QUEUE,
    "aws:sqs/queuePolicy:QueuePolicy",
    "aws:sns/topic:Topic",
    "aws:sns/topicPolicy:TopicPolicy",
    *BUCKETS,
    "aws:s3/bucketPolicy:BucketPolicy",
    "aws:ecr/repositoryPolicy:RepositoryPolicy",
    "aws:kms/key:Key",
    "aws:kms/keyPolicy:KeyPolicy",
    "aws:secretsmanager/secret:Secret",
    "aws:secretsmanager/secretPolicy:SecretPolicy",
)
NARROWING = (
    "aws:sourcearn", "aws:sourceaccount", "aws:sourceorgid", "aws:principalorgid", "aws:principalorgpaths",
    "aws:principalaccount", "aws:principalarn", "aws:sourcevpc", "aws:sourcevpce", "kms:calleraccount",
)  # fmt: skip
"""Keys of conditions that leave somebody named of everybody."""


@rule(
    "aws-queue-encrypted",
    Level.MANDATORY,
    Severity.MEDIUM,
    title="Queues are encrypted",
    remedy="Leave sqsManagedSseEnabled out or set it to true, or set kmsMasterKeyId.",
    types=(QUEUE,),
    checkov=("CKV_AWS_27",),
)
def queue_encrypted(subject: Subject) -> Iterator[Problem]:
    """Find encryption that is switched off. Where nothing is said, SQS encrypts, since 2022."""
    if denied(subject.inputs.get("sqsManagedSseEnabled")) and subject.inputs.get("kmsMasterKeyId") is None:
        yield Problem("sqsManagedSseEnabled", "has to be true where there is no kmsMasterKeyId")


@rule(
    "aws-policy-not-for-everybody",
    Level.MANDATORY,
    Severity.CRITICAL,
    title="Resource policies allow nothing to everybody",
    remedy="Name the principals, or add a condition on aws:SourceArn, aws:SourceAccount or aws:PrincipalOrgID.",
    types=OPEN_BY_POLICY,
    checkov=("CKV_AWS_33", "CKV_AWS_70", "CKV_AWS_72", "CKV_AWS_168", "CKV_AWS_169"),
)
def policy_not_for_everybody(subject: Subject) -> Iterator[Problem]:
    """Find statements that allow something to `*`, and no condition that narrows it."""
    for index, statement in statements(subject.inputs.get("policy")):
        if not allows(statement):
            continue
        everybody = any(name == ANYBODY for _, name in principals(statement)) or "NotPrincipal" in statement
        if everybody and not narrowed(statement, NARROWING):
            allowed = ", ".join(actions(statement)[:3]) or "everything but some"
            yield Problem(f"policy.Statement[{index}]", f"allows {allowed} to everybody")


RULES: tuple[Rule, ...] = (queue_encrypted, policy_not_for_everybody)
