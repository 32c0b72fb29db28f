"""Asks Service Quotas at preview whether the account may run what the spec declares, and warns where it may not."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pulumi
from everspot_clouds.aws.hourly import launched_under
from everspot_clouds.aws.quotas import most_vcpus, needs, shortfalls
from everspot_core.fleet import derived_weights
from everspot_core.market import Market

from everspot.aws import asking
from everspot.aws.capacity import AwsCapacityArgs, capacity_of
from everspot.capacity import cap_of, catalogue_of


def tell_quotas(parent: pulumi.Resource, capacity: AwsCapacityArgs, region: pulumi.Output[str]) -> None:
    """In previews, warn of each part of the capacity that exceeds the account's vCPU quotas. Of elastic capacity only
    what its cap in dollars allows counts. A quota that cannot be read is taken to be enough, and one line says so."""
    if not pulumi.runtime.is_dry_run():
        return
    known = catalogue_of(capacity)
    spec, cap = capacity_of(capacity), cap_of(capacity)
    standing = {Market.ON_DEMAND: spec.on_demand_target, Market.SPOT: spec.spot_target}
    weights = derived_weights(spec, known.types)
    without_dollars = replace(cap, usd_per_hour=None) if cap is not None else None
    most = launched_under(without_dollars, list(weights), known, "")
    codes = sorted({quota.code for quota in most_vcpus(standing, most, weights, known.types)})
    errors: list[str] = []

    def tell(found: Sequence[Any]) -> None:
        region, *answers = found
        values = {code: float(found["value"]) for code, found in zip(codes, answers, strict=True) if found is not None}
        if errors:
            pulumi.log.info(f"Not compared with the account's vCPU quotas, which were not told: {errors[0]}", parent)
        elastic = launched_under(cap, list(weights), known, region)
        for sentence in shortfalls(needs(standing, weights, elastic, known.types, values), values):
            pulumi.log.warn(sentence, parent)

    def unknown(error: Exception) -> None:
        errors.append(asking.reason(error))

    pulumi.Output.all(region, *[_asked(parent, code, unknown) for code in codes]).apply(tell)


def _asked(parent: pulumi.Resource, code: str, failed: Any) -> pulumi.Output[Any]:
    asked = {"serviceCode": "ec2", "quotaCode": code}
    return asking.ask(parent, "servicequotas/getServiceQuota:getServiceQuota", asked, failed=failed)
