"""The simulator: jobs and policies driven through traces of spot capacity, years in seconds.

`trace` reads recorded traces, `synthetic` generates them, `engine` runs a job through a trace, `baselines` has the
policies to compare with, `optimum` computes the best possible run with knowledge of the future, and `aggregate` the
figures of many runs.
"""

from everspot_simulator.aggregate import Aggregate, aggregate_runs, aggregate_traces
from everspot_simulator.capacity import PoolCapacity
from everspot_simulator.engine import (
    UNTIL_CHANGE,
    Choice,
    Mode,
    Outcome,
    Policy,
    State,
    Step,
    Terms,
    outcome,
    run,
    runs,
    steps,
)
from everspot_simulator.everspot_policy import EverspotPolicy
from everspot_simulator.optimum import Schedule, best, optima, optimum
from everspot_simulator.policies import POLICIES, Greedy, OnDemand, SlackMargin, UniformProgress
from everspot_simulator.regions import Regions
from everspot_simulator.settings import Setting, starts
from everspot_simulator.synthetic import GENERATORS, Generator, with_prices
from everspot_simulator.trace import Spells, Trace, parse

__all__ = [
    "GENERATORS",
    "POLICIES",
    "UNTIL_CHANGE",
    "Aggregate",
    "Choice",
    "EverspotPolicy",
    "Generator",
    "Greedy",
    "Mode",
    "OnDemand",
    "Outcome",
    "Policy",
    "PoolCapacity",
    "Regions",
    "Schedule",
    "Setting",
    "SlackMargin",
    "Spells",
    "State",
    "Step",
    "Terms",
    "Trace",
    "UniformProgress",
    "aggregate_runs",
    "aggregate_traces",
    "best",
    "optima",
    "optimum",
    "outcome",
    "parse",
    "run",
    "runs",
    "starts",
    "steps",
    "with_prices",
]
