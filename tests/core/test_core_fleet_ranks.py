"""Ranks of types for a cloud without weights and prices."""

from typing import Any

import pytest
from everspot_core.capacity.allocation import Prefer
from everspot_core.capacity.fleet import CapacitySpec, TypeChoice, ranks

PRICES = {"slow": 1.0, "fast": 3.0, "dear": 1.2, "dearest": 9.0}


def spec(prefer: Prefer, *types: TypeChoice) -> CapacitySpec:
    return CapacitySpec(target=0, prefer=prefer, types=types)


def types(**facts_by_name: dict[str, Any]) -> list[TypeChoice]:
    return [TypeChoice(name=name, **facts) for name, facts in facts_by_name.items()]


@pytest.mark.parametrize(
    ("prefer", "expected"),
    [
        (Prefer.PRICE, {"slow": 0, "dear": 1, "fast": 2, "dearest": 3}),
        # 1.2 is within a quarter of 1.0; 3.0 is not, and begins a rank of its own.
        (Prefer.BALANCE, {"slow": 0, "dear": 0, "fast": 1, "dearest": 2}),
        (Prefer.DEPTH, dict.fromkeys(PRICES, 0)),
        (Prefer.ORDER, {"slow": 0, "fast": 1, "dear": 2, "dearest": 3}),
    ],
)
def test_each_preference_has_its_ranks(prefer: Prefer, expected: dict[str, int]) -> None:
    assert ranks(spec(prefer, *types(**{name: {} for name in PRICES})), PRICES) == expected


def test_what_counts_is_the_price_of_the_work() -> None:
    type_choices = types(slow={"throughput": 1}, fast={"throughput": 4}, dear={"throughput": 1.2})
    # 1.00, 0.75 and 1.00 a unit: the two that cost the same share a rank.
    assert ranks(spec(Prefer.PRICE, *type_choices), PRICES) == {"fast": 0, "slow": 1, "dear": 1}


def test_a_type_without_a_price_comes_last() -> None:
    type_choices = types(unknown={}, dearest={}, other={})
    assert ranks(spec(Prefer.BALANCE, *type_choices), PRICES) == {"dearest": 0, "unknown": 1, "other": 1}


def test_priorities_decide_an_order_before_the_list() -> None:
    type_choices = types(slow={"priority": 3.0}, fast={"priority": 1.0}, dear={"priority": 2.0})
    assert ranks(spec(Prefer.ORDER, *type_choices), PRICES) == {"fast": 0, "dear": 1, "slow": 2}
    alike = types(slow={"priority": 3.0}, fast={"priority": 1.0}, dear={"priority": 1.0})
    assert ranks(spec(Prefer.ORDER, *alike), PRICES) == {"fast": 0, "dear": 0, "slow": 1}
