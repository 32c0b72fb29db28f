"""The cost of a change, from event logs of the real engine."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from everspot_clouds.estimating import estimated
from everspot_core.estimate.model import CostFigures
from everspot_review.engine import Ended
from everspot_review.events import read
from everspot_review.previewing import Revisions, preview

LOGS = Path(__file__).parent / "logs"


def figures(side: CostFigures | None) -> tuple[float, ...]:
    assert side is not None
    assert side.teams == ({"ml-platform": side.total} if side.parts else {})
    return tuple(side.total.model_dump().values())


@pytest.mark.parametrize(
    ("log", "before", "after"),
    [
        # Of c6i.large, m6i.large and m7i.large: one on-demand, four on Spot; t3.small; two endpoints in three zones;
        # $1.12 of the scheduler's requests to an idle store
        ("aws-first", (0, 0, 0, 0), (294.82, 305.77, 591.78, 414.24)),
        ("gcp-template", (132.28, 132.28, 336.77, 132.28), (132.28, 132.28, 336.77, 132.28)),
        ("gcp-destroy", (122.28, 122.28, 326.77, 122.28), (0, 0, 0, 0)),
    ],
)
def test_a_preview_is_priced_by_its_event_log_alone(
    log: str, before: tuple[float, ...], after: tuple[float, ...]
) -> None:
    events = read((LOGS / f"{log}.jsonl").read_text().splitlines())
    cost = estimated(events.before(), events.after())
    assert (figures(cost.before), figures(cost.after)) == (before, after)


def test_a_cluster_of_an_earlier_release_has_elastic_capacity_of_limits_that_are_not_known() -> None:
    events = read((LOGS / "gcp-template.jsonl").read_text().splitlines())
    cost = estimated(events.before(), events.after())
    assert "everspot-local-gcp-elastic: its limits are not known: it was declared by an earlier release" in cost.unknown


@pytest.mark.parametrize(("code", "has_figures"), [(0, True), (1, False)])
def test_a_report_has_what_the_change_costs_and_a_failed_preview_has_no_figure(code: int, has_figures: bool) -> None:
    recorded = LOGS / "aws-first.jsonl"

    def written(_: str, log: Path, limit: timedelta) -> Ended:
        log.write_text(recorded.read_text())
        return Ended(code=code, pid=1, output="no more")

    engine = SimpleNamespace(preview=written, over_budget=lambda *_: [], state=lambda _: {}, packs=(), project=LOGS)
    cost = preview(engine, "local", Revisions()).estimate  # type: ignore[arg-type]
    assert cost is not None and (cost.before is not None, cost.after is not None) == (has_figures, has_figures)


END = '{"summaryEvent":{"result":"succeeded"}}'
FLEET, PROVIDER = "aws:ec2/fleet:Fleet", "pulumi:providers:aws"
TEN: dict[str, Any] = {
    "tags": {"Team": "ml-platform"},
    "targetCapacitySpecification": {"defaultTargetCapacityType": "on-demand", "totalTargetCapacity": 10},
    "launchTemplateConfigs": [{"overrides": [{"instanceType": "g5.xlarge"}]}],
}
ELASTIC = {"instanceTypes": ["g5.xlarge"], "elastic": {"maxInstances": 10, "market": "onDemand"}}
US, EU = 7343.80, 8197.90
"""A month of ten g5.xlarge in us-east-1 at $1.006 an hour, and in eu-west-1 at $1.123."""


def month(lines: list[str]) -> tuple[float, tuple[str, ...], tuple[str, ...]]:
    """The most that the resources of a log cost a month, those without a price, and the notes on regions."""
    events = read([*lines, END])
    cost = estimated([], events.after())
    assert cost.after is not None
    notes = tuple(note for note in cost.unknown if "region" in note)
    return cost.after.total.high, cost.after.unpriced, notes


@pytest.fixture
def two_regions(step_line: Callable[..., str]) -> tuple[list[str], Callable[..., str]]:
    """The lines of a provider in each of two regions, and a function for the line of a resource of one of them."""
    urns = {name: f"urn:pulumi:dev::everspot::{PROVIDER}::{name}" for name in ("us", "eu")}
    lines = [
        step_line("create", name, PROVIDER, new={"region": region})
        for name, region in (("us", "us-east-1"), ("eu", "eu-west-1"))
    ]

    def line(name: str, type: str = FLEET, provider: str = "", parent: str = "", **inputs: Any) -> str:
        flags = {"provider": f"{urns[provider]}::an-id" if provider else "", "parent": parent}
        return step_line("create", name, type, new=inputs, new_flags={**flags, "custom": not type.startswith("ever")})

    return lines, line


def test_each_resource_is_priced_in_the_region_of_its_provider(
    two_regions: tuple[list[str], Callable[..., str]],
) -> None:
    providers, line = two_regions
    both = [line("us", provider="us", **TEN), line("eu", provider="eu", **TEN)]
    assert month([*providers, *both]) == (pytest.approx(US + EU), (), ())
    overridden = line("moved", provider="us", region="eu-west-1", **TEN)
    assert month([providers[0], overridden]) == (EU, (), ())


def test_a_component_is_priced_in_the_region_of_its_resources(
    two_regions: tuple[list[str], Callable[..., str]],
) -> None:
    providers, line = two_regions
    kind = "everspot:index:AwsElasticCapacity"
    lines = [*providers]
    for name in ("us", "eu"):
        component = f"urn:pulumi:dev::everspot::{kind}::{name}"
        lines += [
            line(name, kind, capacity=ELASTIC, tags={"Team": "ml-platform"}),
            line(f"{name}-template", "aws:ec2/launchTemplate:LaunchTemplate", name, component),
        ]
    assert month(lines) == (pytest.approx(US + EU), (), ())


def test_where_several_regions_are_possible_nothing_is_priced_in_one_of_them(
    two_regions: tuple[list[str], Callable[..., str]],
) -> None:
    providers, line = two_regions
    assert month([*providers, line("fleet", **TEN)]) == (0, ("fleet",), ("fleet: its region is not known",))
    unreadable = month([*providers, line("nat", "aws:ec2/natGateway:NatGateway")])[2]
    assert unreadable == (
        "a region that is not known: its list prices of NAT gateways are not known here; us-east-1's stand in for "
        "them, and are mostly the same or lower",
    )
