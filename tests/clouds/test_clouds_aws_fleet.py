"""A fleet's neutral shape, translated to EC2's parameters."""

import pytest
from everspot_clouds.aws.fleet import STRATEGIES, AwsOnDemandAllocation, AwsSpotAllocation, Ec2Capacity
from everspot_core.capacity.allocation import Prefer


@pytest.mark.parametrize("prefer", list(Prefer))
def test_each_preference_has_its_strategies_and_a_name_of_ec2_wins(prefer: Prefer) -> None:
    by_preference = Ec2Capacity(target=1, prefer=prefer, types=())
    assert (by_preference.spot_strategy, by_preference.on_demand_strategy) == STRATEGIES[prefer]
    by_strategy = by_preference.model_copy(
        update={
            "spot_allocation": AwsSpotAllocation.DIVERSIFIED,
            "on_demand_allocation": AwsOnDemandAllocation.PRIORITIZED,
        }
    )
    assert (by_strategy.spot_strategy, by_strategy.on_demand_strategy) == (
        AwsSpotAllocation.DIVERSIFIED,
        AwsOnDemandAllocation.PRIORITIZED,
    )


def test_only_the_order_asks_for_priorities() -> None:
    assert [p for p in Prefer if Ec2Capacity(target=1, prefer=p, types=()).prioritized] == [Prefer.ORDER]
