"""The cluster in the plan's input."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.cluster.manifest import Limits, Standing
from everspot_core.costs.ledger import FaultRecord
from everspot_core.costs.team_budgets import CapUse
from everspot_core.schedule.market.behaviour import Behaviour
from everspot_core.schedule.view.instance import InstanceView
from everspot_core.schedule.view.job import JobView
from everspot_core.schedule.view.pool import PoolKey, PoolView


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """The cap on launched instances, running and on their way, without the standing fleets.

    `usd_per_hour` None: there is no cap in dollars.
    """

    instances: int
    usd_per_hour: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """Everything that a plan may know.

    - `draining`: no job may start, and running jobs must stop.
    - `types`: the instance types that this cluster can launch: those declared in place and those that were seen. The
      types of present instances need not be among them.
    - `limits`: the durations that the machines of the cluster guard themselves by.
    - `pools`: the known pools. `plan` launches instances of these and no others; `plan_standing` launches none, and
      learns from them how the pools of the standing fleets behave.
    - `unions`: how several pools have behaved as one, which is up while any of them is. Sets that are not named are
      unknown. Only `plan` uses it.
    - `usage`: dollars that each team has used lately; older ones count less. `shares`: the weight of each team; 1 where
      it is not named.
    - `tick`: the plan is asked again after this time at the latest.
    - `shared`: an instance can hold several jobs.
    - `standing`: the declared size of the standing fleets; None if it is unknown, or too new to act on.
    - `generation`: the declared generation of instances; empty if no instance must be replaced for it. `rolling`: busy
      instances of other generations are replaced too.
    - `booting`: how many instances were launched and have not reported yet.
    - `faults`: the fault records of useless instances.
    - `idle_limit`: a launched instance without work is released after this; zero: immediately.
    - `cap`: the cap on launched instances; None: no cap.
    - `cap_uses`: the rest of the budgets of teams and of the environment.
    - `lasting_changeover`: the bound on a changeover for refusing deadlines; None: the bound of the job's outlook.
    """

    jobs: tuple[JobView, ...]
    instances: tuple[InstanceView, ...]
    draining: bool
    types: tuple[InstanceType, ...]
    limits: Limits
    pools: tuple[PoolView, ...]
    unions: Mapping[frozenset[PoolKey], Behaviour]
    usage: Mapping[str, float]
    shares: Mapping[str, float]
    tick: timedelta
    shared: bool
    standing: Standing | None
    generation: str
    rolling: bool
    booting: int
    faults: tuple[FaultRecord, ...]
    idle_limit: timedelta
    cap: Cap | None
    cap_uses: tuple[CapUse, ...]
    lasting_changeover: timedelta | None
