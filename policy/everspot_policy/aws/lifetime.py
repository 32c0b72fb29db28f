"""Rules about resources that must not be deleted by mistake."""

from collections.abc import Iterator

from everspot_core.validation.problems import Problem

from everspot_policy.aws.kinds import BUCKETS, FLEET
from everspot_policy.aws.tags import tags
from everspot_policy.environments import is_production
from everspot_policy.reading import text
from everspot_policy.rule import Level, Rule, Severity, Subject, rule


@rule(
    "aws-production-protected",
    Level.MANDATORY,
    Severity.HIGH,
    title="Fleets and buckets of production are protected against deletion and replacement",
    remedy="Declare them with the option protect (a cluster: protect: true). Production is what the tag Environment, "
    "or else the stack's name, calls prod, production or live.",
    types=(FLEET, *BUCKETS),
)
def production_protected(subject: Subject) -> Iterator[Problem]:
    """Find unprotected resources, where the engine was asked."""
    environment = text(tags(subject).get("Environment")) or subject.environment
    if subject.protected is False and is_production(environment):
        yield Problem("", "is production and not protected")


RULES: tuple[Rule, ...] = (production_protected,)
