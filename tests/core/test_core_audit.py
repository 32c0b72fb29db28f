"""The bill equals that of an independent script, over random markets."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction

from everspot_clouds.aws.rules import BILLING as AWS
from everspot_clouds.gcp.rules import BILLING as GOOGLE
from everspot_core.capacity.catalogue import builtin
from everspot_core.costs.bill import bill
from everspot_core.costs.ledger import EndRecord, LaunchRecord, PricePoint
from everspot_core.costs.prices import exact
from everspot_core.governance.usage import usage_rows
from everspot_core.jobs.records import Market
from hypothesis import given, settings
from hypothesis import strategies as st

T0 = datetime(2026, 3, 1, tzinfo=UTC)
ZONES = ("us-east-1a", "us-east-1b")
TYPES = {"m6i.large": 0.096, "c6i.large": 0.085}


seconds = st.one_of(st.integers(0, 9000), st.sampled_from([59, 60, 61, 3599, 3600, 3601]))


@st.composite
def markets(draw):
    points = {(k, z, 0): draw(st.integers(1, 999)) / 10_000 for k in TYPES for z in ZONES}
    for _ in range(draw(st.integers(0, 8))):
        moved = (draw(st.sampled_from(list(TYPES))), draw(st.sampled_from(ZONES)), draw(seconds))
        points[moved] = draw(st.integers(1, 999)) / 10_000
    launches, ends = [], []
    for number in range(draw(st.integers(1, 6))):
        start, market = draw(seconds), draw(st.sampled_from(list(Market)))
        place = draw(st.sampled_from(list(TYPES))), draw(st.sampled_from(ZONES))
        launches.append((f"i-{number}", *place, market, start))
        if draw(st.booleans()):
            ends.append((f"i-{number}", start + draw(seconds), draw(st.booleans())))
    return points, launches, ends


def at(second: int) -> datetime:
    return T0 + timedelta(seconds=second)


RULES = st.sampled_from([("aws", AWS), ("gcp", GOOGLE)])


@settings(max_examples=settings.default.max_examples * 2, deadline=None)
@given(markets(), seconds, RULES)
def test_bill_and_independent_sum_are_exactly_equal(audit_bill, market, until, cloud_and_rules):
    (points, launches, ends), (cloud, rules) = market, cloud_and_rules
    computed_bill = bill(
        [LaunchRecord(instance_id=i, instance_type=k, zone=z, market=m, launched_at=at(s))
         for i, k, z, m, s in launches],
        [EndRecord(instance_id=i, ended_at=at(s), interrupted=interrupted) for i, s, interrupted in ends],
        [PricePoint(instance_type=k, zone=z, market=Market.SPOT, at=at(s), usd_per_hour=usd, source="t")
         for (k, z, s), usd in points.items()],
        {}, builtin(), at(until), rules=rules,
    )  # fmt: skip
    lines = [{"event": "price", "at": at(s).isoformat(), "type": k, "zone": z, "usd": exact(usd)}
             for (k, z, s), usd in points.items()]  # fmt: skip
    for i, k, z, m, s in launches:
        listed = {"usd_per_hour": exact(TYPES[k])} if m is Market.ON_DEMAND else {}
        lines.append({"event": "launch", "at": at(s).isoformat(), "id": i, "type": k, "zone": z, "market": m.value,
                      **listed})  # fmt: skip
    lines += [
        {"event": "end", "at": at(s).isoformat(), "id": i, "interrupted": interrupted} for i, s, interrupted in ends
    ]
    audited_costs = {row["id"]: row["cost"] for row in audit_bill.audit(lines, at(until), cloud)}
    assert {i.launch.instance_id: i.cost for i in computed_bill.instances} == audited_costs
    by_hours: dict[str, Fraction] = dict.fromkeys(audited_costs, Fraction(0))
    for row in usage_rows(computed_bill):
        by_hours[row.resource] += row.cost
    assert by_hours == audited_costs
