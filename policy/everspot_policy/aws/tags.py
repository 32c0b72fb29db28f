"""The rule on cost allocation tags of AWS resources."""

from collections.abc import Iterator, Mapping
from typing import Any

from everspot_core.validation.problems import Problem

from everspot_policy.aws.kinds import BUCKETS, FLEET, GROUP, INSTANCE, TEMPLATE, VOLUME
from everspot_policy.reading import hidden, mapping, objects, text
from everspot_policy.rule import Level, Rule, Severity, Subject, rule

MANDATORY = ("Project", "Team", "Environment")
PAID = (
    FLEET, TEMPLATE, INSTANCE, VOLUME, *BUCKETS,
    "aws:sqs/queue:Queue", "aws:ec2/natGateway:NatGateway", "aws:ec2/vpcEndpoint:VpcEndpoint",
    "aws:ec2/eip:Eip", "aws:kms/key:Key", "aws:cloudwatch/logGroup:LogGroup",
)  # fmt: skip
"""Types that cost, and carry their tags as a map."""
LAUNCHED = ("instance", "volume")
"""The resources of a launch template that cost money."""


@rule(
    "aws-tags",
    Level.MANDATORY,
    Severity.MEDIUM,
    title=f"Resources that cost money carry {', '.join(MANDATORY)}",
    remedy="Give the tags, by the provider's defaultTags or one by one. A template's own tags do not reach what it "
    "launches: give tagSpecifications for instance and volume.",
    types=(*PAID, GROUP),
)
def tagged(subject: Subject) -> Iterator[Problem]:
    """Find resources that lack a tag, and templates whose instances or volumes would lack it."""
    inputs = subject.inputs
    if not hidden(inputs.get("tags")):
        yield from lacking_tags("tags", tags(subject))
    if subject.type != TEMPLATE or hidden(inputs.get("tagSpecifications")):
        return
    specifications = {
        text(each.get("resourceType")): (path, each) for path, each in objects(inputs, "tagSpecifications")
    }
    for kind in LAUNCHED:
        path, each = specifications.get(kind, (f"tagSpecifications[{kind}]", {}))
        if not hidden(each.get("tags")):
            yield from lacking_tags(f"{path}.tags", mapping(each.get("tags")))


def lacking_tags(path: str, tag_values: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield that tags lack some of the mandatory ones."""
    missing = [
        name for name in MANDATORY if not hidden(tag_values.get(name)) and not text(tag_values.get(name)).strip()
    ]
    if missing:
        yield Problem(path, f"lacks {', '.join(missing)}")


def tags(subject: Subject) -> dict[str, Any]:
    """Return the tags of a resource: its own, over the provider's default tags; an Auto Scaling group has a list."""
    inputs = subject.inputs
    listed = (
        {text(each.get("key")): each.get("value") for _, each in objects(inputs, "tags")} if _is_list(inputs) else {}
    )
    return {**mapping(inputs.get("tagsAll")), **(listed or mapping(inputs.get("tags")))}


def _is_list(inputs: Mapping[str, Any]) -> bool:
    return isinstance(inputs.get("tags"), list)


def teams(subject: Subject) -> Iterator[tuple[str, str]]:
    """Yield the teams that a resource names, with the paths."""
    tag_sets = [("tags", tags(subject))]
    if subject.type == TEMPLATE:
        tag_sets += [
            (f"{p}.tags", dict(mapping(e.get("tags")))) for p, e in objects(subject.inputs, "tagSpecifications")
        ]
    for path, tag_values in tag_sets:
        if text(tag_values.get("Team")):
            yield f"{path}.Team", text(tag_values["Team"])


RULES: tuple[Rule, ...] = (tagged,)
