"""Asks Service Quotas at preview whether the account may run the declared capacity, and warns if it may not."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pulumi
from everspot_clouds.aws.hourly import launched_under
from everspot_clouds.aws.quotas import most_vcpus, needs, shortfalls
from everspot_core.capacity.fleet import derived_weights
from everspot_core.capacity.market import Market

from everspot.aws import preview_queries
from everspot.aws.capacity import AwsCapacityArgs, parse_capacity
from everspot.capacity import build_cap, build_catalogue


def warn_of_quotas(parent: pulumi.Resource, capacity: AwsCapacityArgs, region: pulumi.Output[str]) -> None:
    """In previews, warn of each part of the capacity that exceeds the account's vCPU quotas. Of elastic capacity only
    what its cap in dollars allows counts. A quota that cannot be read is taken to be enough, and one line says so."""
    if not pulumi.runtime.is_dry_run():
        return
    catalogue = build_catalogue(capacity, "")
    spec, cap = parse_capacity(capacity), build_cap(capacity)
    standing = {Market.ON_DEMAND: spec.on_demand_target, Market.SPOT: spec.spot_target}
    weights = derived_weights(spec, catalogue.types)
    without_dollars = replace(cap, usd_per_hour=None) if cap is not None else None
    most = launched_under(without_dollars, list(weights), catalogue, "")
    codes = sorted({quota.code for quota in most_vcpus(standing, most, weights, catalogue.types)})
    errors: list[str] = []

    def warn(facts: Sequence[Any]) -> None:
        region, *answers = facts
        values = {code: float(quota["value"]) for code, quota in zip(codes, answers, strict=True) if quota is not None}
        if errors:
            pulumi.log.info(f"Not compared with the account's vCPU quotas, which were not told: {errors[0]}", parent)
        elastic = launched_under(cap, list(weights), build_catalogue(capacity, region), region)
        for sentence in shortfalls(needs(standing, weights, elastic, catalogue.types, values), values):
            pulumi.log.warn(sentence, parent)

    def unknown(error: Exception) -> None:
        errors.append(preview_queries.reason(error))

    pulumi.Output.all(region, *[_read_quota(parent, code, unknown) for code in codes]).apply(warn)


def _read_quota(parent: pulumi.Resource, code: str, failed: Any) -> pulumi.Output[Any]:
    query = {"serviceCode": "ec2", "quotaCode": code}
    return preview_queries.invoke(parent, "servicequotas/getServiceQuota:getServiceQuota", query, failed=failed)
