"""The cost of a change, from event logs of the real engine."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from everspot_clouds.estimating import estimated
from everspot_core.estimate.model import CostFigures, Range
from everspot_review.engine import Ended
from everspot_review.events import read
from everspot_review.previewing import Revisions, preview
from everspot_review.report import EnvironmentReport

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


def preview_log(lines: list[str], code: int = 0) -> EnvironmentReport:
    """The report on a preview that writes these lines."""

    def written(_: str, log: Path, limit: timedelta) -> Ended:
        log.write_text("\n".join(lines))
        return Ended(code=code, pid=1, output="no more")

    engine: Any = SimpleNamespace(
        preview=written, over_budget=lambda *_: [], state=lambda _: {}, packs=(), project=LOGS
    )
    return preview(engine, "local", Revisions())


@pytest.mark.parametrize(("code", "has_figures"), [(0, True), (1, False)])
def test_a_report_has_what_the_change_costs_and_a_failed_preview_has_no_figure(code: int, has_figures: bool) -> None:
    cost = preview_log((LOGS / "aws-first.jsonl").read_text().splitlines(), code).estimate
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
    lines = [line("us", provider="us", **TEN), line("eu", provider="eu", **TEN)]
    assert month([*providers, *lines]) == (pytest.approx(US + EU), (), ())
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


UNMANAGED = (
    "{}: only taken out of the state, not out of the cloud. There they are billed until somebody deletes them: {} of "
    "the month after this change."
)


@pytest.mark.parametrize(
    ("type", "inputs", "retained", "stays"),
    [
        (FLEET, {**TEN, "terminateInstances": True}, True, "$7,344"),
        (FLEET, TEN, False, "$7,344"),  # the provider's default: the instances of a deleted fleet run on
        (FLEET, {**TEN, "terminateInstances": True}, False, None),
        ("aws:ec2/natGateway:NatGateway", {}, True, "$33"),
        ("aws:ec2/natGateway:NatGateway", {}, False, None),
        ("aws:ec2/routeTable:RouteTable", {}, True, None),  # costs nothing
    ],
)
def test_what_is_only_taken_out_of_the_state_is_in_the_month_after(
    step_line: Callable[..., str], type: str, inputs: dict[str, Any], retained: bool, stays: str | None
) -> None:
    urn = f"urn:pulumi:dev::everspot::{PROVIDER}::us"
    flags = {"retainOnDelete": retained, "provider": f"{urn}::an-id"}
    provider = step_line("delete", "us", PROVIDER, old={"region": "us-east-1"})
    report = preview_log([provider, step_line("delete", "it", type, old=inputs, old_flags=flags), END])
    cost = report.estimate
    assert cost is not None and cost.before is not None and cost.after is not None
    assert cost.after.total == (cost.before.total if stays else Range(low=0, expected=0, high=0, on_demand=0))
    assert [diagnostic.text for diagnostic in report.diagnostics] == ([UNMANAGED.format("it", stays)] if stays else [])


def test_a_retained_resource_that_is_replaced_costs_beside_the_new_one(step_line: Callable[..., str]) -> None:
    provider = step_line("same", "us", PROVIDER, old={"region": "us-east-1"}, new={"region": "us-east-1"})
    retained = {"retainOnDelete": True}
    nat = step_line("replace", "nat", "aws:ec2/natGateway:NatGateway", old_flags=retained, new_flags=retained)
    cost = preview_log([provider, nat, END]).estimate
    assert cost is not None and cost.before is not None and cost.after is not None
    assert (cost.before.total.expected, cost.after.total.expected) == (32.85, 65.70)
