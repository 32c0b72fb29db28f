"""Quotas under mocks: a preview reads the relevant ones, and warns where they are too small."""

from collections.abc import Callable
from typing import Any

import pulumi
import pytest
from everspot import AwsTrainingCluster

Declare = Callable[..., tuple[Any, dict[str, Any]]]
SPOT, ON_DEMAND = "L-3819A6DF", "L-DB2E81BA"
ASK = "https://console.aws.amazon.com/servicequotas/home/services/ec2/quotas/"
Told = dict[str, list[str]]


@pytest.fixture
def previewed(declare: Declare, spec: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Told]:
    """Return the messages of a preview, by severity. `vcpus`: values of quotas, by code. Keywords: the capacity."""

    def run(vcpus: dict[str, float | None], *, preview: bool = True, **capacity: Any) -> Told:
        messages: Told = {"info": [], "warn": []}
        for loud, words in messages.items():
            monkeypatch.setattr(pulumi.log, loud, lambda message, resource=None, words=words: words.append(message))
        inputs = {**spec, "capacity": {"instance_types": [{"type": "g5.xlarge"}, {"type": "g5.2xlarge"}], **capacity}}
        recorder, _ = declare(
            lambda: {"urn": AwsTrainingCluster("train", inputs).control_url}, preview=preview, vcpus=vcpus
        )
        messages["asked"] = [call for call in recorder.calls if "servicequotas" in call]
        return messages

    return run


def test_a_cap_that_the_quotas_do_not_hold_is_told_in_a_sentence_with_what_to_ask_for(
    previewed: Callable[..., Told],
) -> None:
    """Eight of g5.xlarge take 32 vCPUs: there is room for two on Spot, and none on-demand."""
    messages = previewed({SPOT: 8, ON_DEMAND: 0}, elastic={"max_instances": 8})
    assert messages["warn"] == [
        "The account's quotas do not hold 8 launched instances on spot and on-demand: "
        f"{SPOT} (All G and VT Spot Instance Requests) has 8 vCPUs left for 2 of them, "
        f"{ON_DEMAND} (Running On-Demand G and VT instances) has 0 vCPUs left for 0 of them. "
        f"Ask for 32 vCPUs of {SPOT}: {ASK}{SPOT}"
    ]
    assert len(messages["asked"]) == 2


def test_what_the_markets_hold_together_is_enough(previewed: Callable[..., Told]) -> None:
    assert previewed({SPOT: 16, ON_DEMAND: 16}, elastic={"max_instances": 8})["warn"] == []
    assert previewed({}, elastic={"max_instances": 8})["warn"] == []


def test_a_cap_in_dollars_is_no_reason_to_ask_for_more_than_it_pays(previewed: Callable[..., Told]) -> None:
    """With a cap of 64 instances and $2.40 an hour, at most two g5.xlarge are launched on-demand."""
    capped = {"elastic": {"max_instances": 64, "max_usd_per_hour": 2.4, "markets": ["on-demand"]}}
    assert previewed({ON_DEMAND: 8}, **capped)["warn"] == []
    (warning,) = previewed({ON_DEMAND: 4}, **capped)["warn"]
    assert "do not hold 2 launched instances on on-demand" in warning
    assert f"Ask for 8 vCPUs of {ON_DEMAND}" in warning
    (warning,) = previewed({ON_DEMAND: 8}, elastic={"max_instances": 64, "markets": ["on-demand"]})["warn"]
    assert "do not hold 64 launched instances" in warning


def test_what_stands_comes_first_and_each_market_by_itself(previewed: Callable[..., Told]) -> None:
    standing = {"target": 4, "on_demand_base": 1, "on_demand_percentage": 0}
    messages = previewed({SPOT: 8, ON_DEMAND: 4}, standing=standing)
    (warning,) = messages["warn"]
    assert "do not hold 3 units on spot" in warning
    assert warning.endswith(f"Ask for 12 vCPUs of {SPOT}: {ASK}{SPOT}")
    messages = previewed({SPOT: 16, ON_DEMAND: 4}, standing=standing, elastic={"max_instances": 2})
    (warning,) = messages["warn"]
    assert f"2 launched instances on spot and on-demand: {SPOT} (All G and VT Spot Instance Requests) has 4" in warning
    assert f"Ask for 20 vCPUs of {SPOT}" in warning, "what stands takes 12, two more take 8"


def test_a_quota_that_nobody_tells_is_no_warning_and_is_said_once(previewed: Callable[..., Told]) -> None:
    messages = previewed({SPOT: None, ON_DEMAND: None}, elastic={"max_instances": 8})
    assert messages["warn"] == []
    (info,) = (words for words in messages["info"] if "not told" in words)
    assert "servicequotas:GetServiceQuota" in info


def test_only_a_preview_asks(previewed: Callable[..., Told]) -> None:
    messages = previewed({SPOT: 0}, preview=False, elastic={"max_instances": 8})
    assert (messages["asked"], messages["warn"]) == ([], [])
