"""The rule on cost allocation labels of Google Cloud resources. Google allows only lower-case labels."""

from collections.abc import Iterator, Mapping
from typing import Any

from everspot_core.validation.problems import Problem

from everspot_policy.gcp.kinds import BUCKET, INSTANCE, TEMPLATES
from everspot_policy.reading import hidden, mapping, objects, text
from everspot_policy.rule import Level, Rule, Severity, Subject, rule

MANDATORY = ("project", "team", "environment")
PAID = (
    INSTANCE, *TEMPLATES, BUCKET,
    "gcp:compute/disk:Disk", "gcp:compute/regionDisk:RegionDisk",
    "gcp:pubsub/topic:Topic", "gcp:pubsub/subscription:Subscription", "gcp:kms/cryptoKey:CryptoKey",
)  # fmt: skip


@rule(
    "gcp-labels",
    Level.MANDATORY,
    Severity.MEDIUM,
    title=f"Resources that cost money carry {', '.join(MANDATORY)}",
    remedy="Give the labels, by the provider's defaultLabels or one by one. A template's disks have labels of their "
    "own.",
    types=PAID,
)
def labelled(subject: Subject) -> Iterator[Problem]:
    """Find resources that lack a label, and templates whose new disks would lack it."""
    inputs = subject.inputs
    if not hidden(inputs.get("labels")):
        yield from _lacking("labels", labels(subject))
    if subject.type in TEMPLATES:
        for path, each in objects(inputs, "disks"):
            if each.get("source") is None and not hidden(each.get("labels")):
                yield from _lacking(f"{path}.labels", mapping(each.get("labels")))


def _lacking(path: str, labels: Mapping[str, Any]) -> Iterator[Problem]:
    missing = [name for name in MANDATORY if not hidden(labels.get(name)) and not text(labels.get(name)).strip()]
    if missing:
        yield Problem(path, f"lacks {', '.join(missing)}")


def labels(subject: Subject) -> dict[str, Any]:
    """Return the labels of a resource: its own, over the provider's default labels."""
    return {**mapping(subject.inputs.get("effectiveLabels")), **mapping(subject.inputs.get("labels"))}


def teams(subject: Subject) -> Iterator[tuple[str, str]]:
    """Yield the teams that a resource names, with the paths."""
    if text(labels(subject).get("team")):
        yield "labels.team", text(labels(subject)["team"])


RULES: tuple[Rule, ...] = (labelled,)
