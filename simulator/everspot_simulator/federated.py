"""A workload on several clusters that take over jobs from each other.

Each cluster has its own fleet, traces and scheduler. A job is submitted to one of them, its home. The clusters decide
by `everspot_core.federation` when it moves to another one, as the schedulers of a real federation do.
"""

from collections.abc import Mapping
from typing import Annotated

from everspot_core.documents import Frozen
from pydantic import Field

from everspot_simulator.workload import TraceSource, Workload


class FederationTerms(Frozen):
    """The terms between clusters. `every_seconds`: the interval at which they look at their jobs, and publish their
    markets."""

    gigabytes_per_hour: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] = 180.0
    every_seconds: Annotated[float, Field(ge=60, le=86_400, allow_inf_nan=False)] = 600.0


class FederatedWorkload(Frozen):
    """The clusters by name, each with the jobs whose home it is.

    `egress`: dollars for a gigabyte that leaves the cluster. All workloads have the same traces, teams and horizon.
    """

    clusters: dict[str, Workload]
    egress: dict[str, float]
    terms: FederationTerms

    @property
    def traces(self) -> Mapping[str, TraceSource]:
        """The traces by name; the fleets of all clusters use these names."""
        return {name: source for w in self.clusters.values() for name, source in w.traces.items()}

    @property
    def horizon_hours(self) -> float:
        """The simulation ends then, whatever still runs."""
        return max(w.horizon_hours for w in self.clusters.values())
