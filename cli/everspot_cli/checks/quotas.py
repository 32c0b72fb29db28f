"""Checks an account's vCPU quotas against what the standing fleets are declared to hold."""

from collections.abc import Mapping
from typing import Any

from everspot_core.catalogue import Catalogue
from everspot_core.counting import counted
from everspot_core.manifest import Manifest
from everspot_core.quotas import Reach, enough, reaches
from everspot_core.records import Market

from everspot_cli.checks import Check, Verdict

FIX = "ask for more: https://console.aws.amazon.com/servicequotas/home/services/ec2/quotas/{code}"


def quota_checks(service_quotas: Any, manifest: Manifest, catalogue: Catalogue) -> list[Check]:
    """One check for each quota that the fleets count towards; none for a cluster that declares no sizes."""
    standing = manifest.standing
    if standing is None:
        return []
    values = {
        quota["QuotaCode"]: float(quota["Value"])
        for page in service_quotas.get_paginator("list_service_quotas").paginate(ServiceCode="ec2")
        for quota in page["Quotas"]
    }
    checks = []
    for market, units in ((Market.ON_DEMAND, standing.on_demand_units), (Market.SPOT, standing.spot_units)):
        if units > 0:
            checks += _market(units, standing.weights, catalogue, market, values)
    return checks


def _market(
    units: int, weights: Mapping[str, float], catalogue: Catalogue, market: Market, values: Mapping[str, float]
) -> list[Check]:
    found = reaches(units, weights, catalogue.types, market, values)
    return [_check(units, reach, enough(units, found)) for reach in found]


def _check(units: int, reach: Reach, suffices: bool) -> Check:
    quota, types = reach.quota, ", ".join(reach.types)
    if reach.vcpus is None:
        return Check("quota", "quota", Verdict.SKIP, f"{quota.name} ({quota.code}): not told by Service Quotas")
    said = f"{quota.name} ({quota.code}): {reach.vcpus:g} vCPUs"
    if reach.units is None:
        return Check("quota", "quota", Verdict.OK, f"{said}; {counted(units, 'unit')} of {types} take {reach.least:g}")
    verdict = Verdict.WARN if suffices else Verdict.FAIL
    detail = (
        f"{said}, enough for {reach.units:g} of {counted(units, 'unit')} of {types}; all of them take {reach.least:g}"
    )
    return Check("quota", "quota", verdict, detail, FIX.format(code=quota.code))
