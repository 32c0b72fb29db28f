"""Keys, and how long logs are kept."""

from collections.abc import Iterator

from everspot_core.validation.problems import Problem

from everspot_policy.reading import hidden, number, text
from everspot_policy.rule import Level, Rule, Severity, Subject, rule

LONGEST_DAYS = 366
"""Between two rotations. AWS rotates by the year."""


@rule(
    "gcp-key-rotates",
    Level.MANDATORY,
    Severity.MEDIUM,
    title="Keys are rotated at least once a year",
    remedy="Set rotationPeriod, such as 7776000s (90 days). Older data stays readable.",
    types=("gcp:kms/cryptoKey:CryptoKey",),
    checkov=("CKV_GCP_43",),
)
def key_rotates(subject: Subject) -> Iterator[Problem]:
    """Find symmetric keys that are never rotated, or too seldom; others KMS cannot rotate."""
    value = subject.inputs.get("rotationPeriod")
    if (text(subject.inputs.get("purpose")) or "ENCRYPT_DECRYPT") != "ENCRYPT_DECRYPT" or hidden(value):
        return
    seconds = number(text(value).rstrip("s"))
    if seconds is None:
        yield Problem("rotationPeriod", "is not given")
    elif seconds > LONGEST_DAYS * 86_400:
        yield Problem("rotationPeriod", f"is {seconds / 86_400:.0f} days, and may be {LONGEST_DAYS}")


@rule(
    "gcp-logs-kept",
    Level.ADVISORY,
    Severity.LOW,
    title="Log buckets state a retention",
    remedy="Set retentionDays. Google's default is 30.",
    types=("gcp:logging/projectBucketConfig:ProjectBucketConfig",),
)
def logs_kept(subject: Subject) -> Iterator[Problem]:
    """Find log buckets without any declaration."""
    if subject.inputs.get("retentionDays") is None:
        yield Problem("retentionDays", "is not given")


RULES: tuple[Rule, ...] = (key_rotates, logs_kept)
