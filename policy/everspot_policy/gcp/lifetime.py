"""Rules about resources that must not be deleted by mistake."""

from collections.abc import Iterator

from everspot_core.validation.problems import Problem

from everspot_policy.environments import is_production
from everspot_policy.gcp.kinds import BUCKET, GROUPS
from everspot_policy.gcp.tags import labels
from everspot_policy.reading import number, text
from everspot_policy.rule import Level, Rule, Severity, Subject, rule


@rule(
    "gcp-production-protected",
    Level.MANDATORY,
    Severity.HIGH,
    title="Groups and buckets of production are protected against deletion and replacement",
    remedy="Declare them with the option protect (a cluster: protect: true). Production is what the label "
    "environment, or else the stack's name, calls prod, production or live. A group of one, such as a "
    "scheduler's, is exempt, because it holds nothing.",
    types=(BUCKET, *GROUPS),
)
def production_protected(subject: Subject) -> Iterator[Problem]:
    """Find unprotected resources, if the engine reports the protection."""
    size = number(subject.inputs.get("targetSize"))
    if subject.type in GROUPS and size is not None and size <= 1:
        return
    environment = text(labels(subject).get("environment")) or subject.environment
    if subject.protected is False and is_production(environment):
        yield Problem("", "is production and not protected")


RULES: tuple[Rule, ...] = (production_protected,)
