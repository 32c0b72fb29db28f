"""Rules that need the whole stack: they hold for all resources together, whichever cloud they are of."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from everspot_core.validation.problems import Problem

from everspot_policy.aws import purchases as aws_purchases
from everspot_policy.aws import storage as aws_storage
from everspot_policy.aws import tags as aws_tags
from everspot_policy.environments import is_development
from everspot_policy.gcp import markets as gcp_markets
from everspot_policy.gcp import tags as gcp_tags
from everspot_policy.kubernetes import nodes as kubernetes_nodes
from everspot_policy.rule import Level, Severity, Subject

MOST_ON_DEMAND = Fraction(1, 2)
COST = "cost-within-budget"


@dataclass(frozen=True)
class Bounds:
    """The bounds of a stack.

    Attributes:
        budget: USD a month that the environment may cost; None: unknown.
        high: the most USD a month that it will cost by the estimate; None: unknown.
        teams: the existing teams; empty: any.
        on_demand_share: of standing capacity, in development.
    """

    environment: str = ""
    budget: float | None = None
    high: float | None = None
    teams: tuple[str, ...] = ()
    on_demand_share: Fraction = MOST_ON_DEMAND


_TEAMS = {"gcp": gcp_tags.teams, "kubernetes": kubernetes_nodes.teams}
"""The teams that a resource names, by the provider of its type; else AWS's."""

StackProblem = tuple[str, Problem]
"""A problem with the URN of the resource that it is about; an empty one is the stack's own."""


@dataclass(frozen=True)
class StackRule:
    """A rule about a whole stack, with the same texts as `Rule`.

    Attributes:
        check: yields the problems, each with the URN of its resource.
        about_stack: whether its problems are about the stack itself, and about none of its resources.
    """

    id: str
    level: Level
    severity: Severity
    title: str
    remedy: str
    check: Callable[[Sequence[Subject], Bounds], Iterator[StackProblem]] = field(repr=False)
    about_stack: bool = False


def _within_budget(subjects: Sequence[Subject], bounds: Bounds) -> Iterator[StackProblem]:
    """Yield a problem if the high end of the estimated cost exceeds the environment's budget. Nothing is reported if
    one of them is unknown: a failed estimate is not an estimate of zero."""
    if bounds.high is not None and bounds.budget is not None and bounds.high > bounds.budget:
        yield "", Problem("", f"may cost up to ${bounds.high:,.2f} a month; its budget is ${bounds.budget:,.2f}")


def _one_team(subjects: Sequence[Subject], bounds: Bounds) -> Iterator[StackProblem]:
    """Find unknown teams, and the resources of any team but the one that has most of the stack."""
    team_tags: list[tuple[str, str, str]] = []
    for subject in subjects:
        teams = _TEAMS.get(subject.type.partition(":")[0], aws_tags.teams)
        team_tags += [(team, subject.urn, path) for path, team in teams(subject)]
    counts: dict[str, int] = {}
    for team in (team for team, _, _ in team_tags if not bounds.teams or team in bounds.teams):
        counts[team] = counts.get(team, 0) + 1
    first = max(counts, key=lambda team: (counts[team], team), default="")
    for team, urn, path in team_tags:
        if bounds.teams and team not in bounds.teams:
            yield urn, Problem(path, f"{team} is no known team; there are {', '.join(sorted(bounds.teams))}")
        elif team != first:
            yield urn, Problem(path, f"is {team}, and most of the stack is {first}'s")


def _on_demand_share(subjects: Sequence[Subject], bounds: Bounds) -> Iterator[StackProblem]:
    """Find more of the standing capacity on-demand than development may have; one unit it always may. Elastic capacity
    is bought where it is cheapest."""
    if not is_development(bounds.environment):
        return
    parts = [aws_purchases.standing(subjects), gcp_markets.standing(subjects)]
    on_demand, total = sum((p[0] for p in parts), Fraction(0)), sum((p[1] for p in parts), Fraction(0))
    if on_demand > max(Fraction(1), total * bounds.on_demand_share):
        share = f"{float(on_demand):g} of {float(total):g} units are on-demand"
        yield (
            "",
            Problem("", f"{share}; in a development environment at most {float(bounds.on_demand_share):.0%} may be"),
        )


def _bucket_has_policy(subjects: Sequence[Subject], bounds: Bounds) -> Iterator[StackProblem]:
    """Find buckets of S3 without a declared policy, which accept requests without TLS."""
    for bucket in aws_storage.without_policy(subjects):
        yield bucket.urn, Problem("", "has no bucket policy in this stack that denies requests without TLS")


STACK_RULES: dict[str, StackRule] = {
    each.id: each
    for each in (
        StackRule(
            COST,
            Level.MANDATORY,
            Severity.HIGH,
            "The high end of the estimated monthly cost is within the environment's budget",
            "Lower the capacity, or raise budgetUsdPerMonth in the settings. The rule compares with the high end of "
            "the estimate (highUsdPerMonth).",
            _within_budget,
            about_stack=True,
        ),
        StackRule(
            "one-team",
            Level.MANDATORY,
            Severity.MEDIUM,
            "A stack belongs to one known team",
            "Give all resources the same Team, one of teams in the settings. Put shared resources into a stack of "
            "their own.",
            _one_team,
        ),
        StackRule(
            "on-demand-share",
            Level.MANDATORY,
            Severity.MEDIUM,
            "In development at most half of the standing capacity, or one unit, is on-demand",
            "Lower onDemandBase, or raise onDemandShare in the settings. Development environments are named dev, "
            "test, staging, sandbox or local.",
            _on_demand_share,
            about_stack=True,
        ),
        StackRule(
            "aws-bucket-has-policy",
            Level.ADVISORY,
            Severity.MEDIUM,
            "Every S3 bucket has a policy",
            "Declare a BucketPolicy that denies s3:* to everybody where aws:SecureTransport is false. If another stack "
            "declares it, note an exception.",
            _bucket_has_policy,
        ),
    )
}
