"""Stands in for the quotas of Compute Engine that instances use: how much of each is used, and what exceeds it.

GPU machines count by their GPUs, others by their vCPUs. Spot uses the quota for Spot once there is one, else the
standard one ("Spot VMs", quotas). Instances count while they are made or run.
"""

from typing import Any

from everspot_core.jobs.records import Market

from everspot_local.gcp.compute.state import Compute
from everspot_local.gcp.operations import OperationFailed
from everspot_local.gcp.quotas import ALL_REGIONS, FAMILY_SERVICE, SERVICE, quota_codes

Document = dict[str, Any]


class QuotaDesk:
    """The quotas of a project's region, and of all regions together. `GPUS_ALL_REGIONS` is the only one of these."""

    def __init__(self, compute: Compute) -> None:
        self._compute = compute
        compute.limits.append(self.beyond)
        compute.quotas = self.describe_regional
        compute.global_quotas = self.describe_global

    def beyond(self, kind: str, market: Market, count: int) -> OperationFailed | None:
        """Return the error if so many more machines would exceed a quota; None if they would not."""
        if not self._compute.project.strict:
            return None
        more = self._units(kind) * count
        for metric in self._metrics(kind, market):
            limit = self._value(metric)
            if limit is not None and self.used(metric) + more > limit:
                return self._exceeded(metric, limit)
        return None

    def used(self, metric: str) -> float:
        """Return how much of a quota the living machines use."""
        usage = 0.0
        for machine in self._compute.project.machines.living():
            if metric in self._metrics(machine.pool.instance_type, machine.market):
                usage += self._units(machine.pool.instance_type)
        if metric == "NETWORKS":
            usage = sum(1 for _ in self._compute.of_kind("networks"))
        return usage

    def describe_regional(self) -> list[Document]:
        """Return the region's quotas as the region shows them."""
        return [self._document(code) for code in self._codes() if code not in (ALL_REGIONS, "NETWORKS")]

    def describe_global(self) -> list[Document]:
        """Return the project's quotas."""
        return [self._document(code) for code in (ALL_REGIONS, "NETWORKS")]

    def _document(self, metric: str) -> Document:
        return {"metric": metric, "limit": float(self._value(metric) or 0), "usage": float(self.used(metric))}

    def _codes(self) -> list[str]:
        return [quota.code for quota in self._compute.project.market.quotas.all(SERVICE)]

    def _value(self, metric: str) -> float | None:
        quotas = self._compute.project.market.quotas
        candidates = [*quotas.all(SERVICE), *quotas.all(FAMILY_SERVICE)]
        return next((quotas.value(quota) for quota in candidates if quota.code == metric), None)

    def _metrics(self, kind: str, market: Market) -> list[str]:
        """Return the quotas that a machine counts towards: one of its region, and for GPUs the one of all regions."""
        own = quota_codes(kind, market)
        chosen = next((metric for metric in own if self._value(metric)), own[-1] if own else "")
        gpus = self._compute.project.market.pools.catalogue.types[kind].gpus
        return [metric for metric in (chosen, ALL_REGIONS if gpus else "") if metric]

    def _units(self, kind: str) -> float:
        instance_type = self._compute.project.market.pools.catalogue.types[kind]
        return float(instance_type.gpus or instance_type.vcpus)

    def _exceeded(self, metric: str, limit: float) -> OperationFailed:
        """Return the error for an exceeded quota. As met in operations:
        https://github.com/hashicorp/terraform-provider-google/issues/12219, and discovery document,
        `QuotaExceededInfo`."""
        everywhere = metric == ALL_REGIONS
        where = "globally" if everywhere else f"in region {self._compute.project.region}"
        metric, _, family = metric.partition("/")
        dimensions = {} if everywhere else {"region": self._compute.project.region}
        info: Document = {
            "metricName": f"compute.googleapis.com/{metric.lower()}",
            "limitName": f"{metric.replace('_', '-')}-per-project{'' if everywhere else '-region'}",
            "dimensions": {**dimensions, **({"gpu_family": family} if family else {})},
            "limit": limit,
        }
        message = f"Quota '{metric}' exceeded.  Limit: {limit:.1f} {where}."
        return OperationFailed("QUOTA_EXCEEDED", message, status=403, details=[{"quotaInfo": info}])
