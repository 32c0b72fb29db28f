"""The price at a moment that no cloud has stated: never zero without a note."""

from datetime import UTC, datetime, timedelta

import pytest
from everspot_core.capacity.catalogue import InstanceType, builtin
from everspot_core.costs.prices import Basis, PriceBook, notes
from everspot_core.jobs.records import Market

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
END = BEGIN + timedelta(hours=1)


@pytest.mark.parametrize("market", list(Market))
def test_a_region_without_a_price_costs_what_the_dearest_region_does(market: Market) -> None:
    book = PriceBook([], builtin())
    (segment,) = book.segments("g5.xlarge", "ap-south-1a", market, BEGIN, END)
    dearest = builtin().most_expensive("g5.xlarge")
    assert dearest is not None
    assert dearest.usd_per_hour == max(
        price.usd_per_hour for region in builtin().regions if (price := builtin().on_demand("g5.xlarge", region))
    )
    assert (float(segment.cost), segment.basis) == (pytest.approx(dearest.usd_per_hour), Basis.ELSEWHERE)
    assert "none is known for this one" in notes([("g5.xlarge/ap-south-1a", [segment])])[0]


def test_a_declared_price_is_the_price_of_every_region() -> None:
    own = builtin().types["g5.xlarge"].model_copy(update={"on_demand_usd_per_hour": 0.4})
    catalogue = builtin().with_types([own])
    assert {p.usd_per_hour for r in ("us-east-1", "ap-south-1") if (p := catalogue.on_demand("g5.xlarge", r))} == {0.4}
    assert float(PriceBook([], catalogue).cost("g5.xlarge", "ap-south-1a", Market.ON_DEMAND, BEGIN, END)) == 0.4


def test_what_has_no_price_anywhere_is_said_with_what_to_declare() -> None:
    catalogue = builtin().with_types([InstanceType(name="x9.large", vcpus=2, memory_gib=8)])
    cut = PriceBook([], catalogue).segments("x9.large", "us-east-1a", Market.SPOT, BEGIN, END)
    assert [segment.basis for segment in cut] == [Basis.NONE]
    assert "onDemandUsdPerHour" in notes([("x9.large", cut)])[0]
