"""Rules about keys, and about the retention of logs."""

from collections.abc import Iterator

from everspot_core.validation.problems import Problem

from everspot_policy.reading import lacks, number, text
from everspot_policy.rule import Level, Rule, Severity, Subject, rule

ROTATING = ("", "SYMMETRIC_DEFAULT")
"""Kinds of keys that KMS rotates by itself."""


@rule(
    "aws-key-rotates",
    Level.MANDATORY,
    Severity.MEDIUM,
    title="Keys are rotated every year",
    remedy="Set enableKeyRotation to true. Older data stays readable.",
    types=("aws:kms/key:Key",),
    checkov=("CKV_AWS_7",),
)
def key_rotates(subject: Subject) -> Iterator[Problem]:
    """Find symmetric keys of KMS's own that are not rotated; others it cannot rotate."""
    inputs = subject.inputs
    own = inputs.get("customKeyStoreId") is None and text(inputs.get("keyUsage")) in ("", "ENCRYPT_DECRYPT")
    if own and text(inputs.get("customerMasterKeySpec")) in ROTATING and lacks(inputs.get("enableKeyRotation")):
        yield Problem("enableKeyRotation", "has to be true")


@rule(
    "aws-logs-kept",
    Level.ADVISORY,
    Severity.LOW,
    title="Log groups state a retention",
    remedy="Set retentionInDays. Otherwise logs are kept, and cost money, for ever.",
    types=("aws:cloudwatch/logGroup:LogGroup",),
    checkov=("CKV_AWS_66",),
)
def logs_kept(subject: Subject) -> Iterator[Problem]:
    """Find groups of logs that are kept for ever, which 0 also means."""
    days = subject.inputs.get("retentionInDays")
    if days is None or number(days) == 0:
        yield Problem("retentionInDays", "is not given: logs are kept for ever")


RULES: tuple[Rule, ...] = (key_rotates, logs_kept)
