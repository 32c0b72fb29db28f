"""The simulator: jobs and policies driven through traces of spot capacity, years in seconds.

`trace` reads recorded traces, `synthetic` generates them, `engine` runs a job through a trace, `baselines` holds the
policies to compare with, `optimum` computes the best possible run with knowledge of the future, and `tally` computes
the figures.
"""

from everspot_core.simulate.baselines import Greedy, OnDemand, UniformProgress
from everspot_core.simulate.capacity import PoolCapacity
from everspot_core.simulate.engine import (
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
from everspot_core.simulate.everspot_policy import Planned
from everspot_core.simulate.optimum import Schedule, best, optima, optimum
from everspot_core.simulate.policies import POLICIES
from everspot_core.simulate.settings import Setting, starts
from everspot_core.simulate.synthetic import GENERATORS, Generator, with_prices
from everspot_core.simulate.tally import Tally, overall, tally
from everspot_core.simulate.trace import Spells, Trace, parse

__all__ = [
    "GENERATORS",
    "POLICIES",
    "UNTIL_CHANGE",
    "Choice",
    "Generator",
    "Greedy",
    "Mode",
    "OnDemand",
    "Outcome",
    "Planned",
    "Policy",
    "PoolCapacity",
    "Schedule",
    "Setting",
    "Spells",
    "State",
    "Step",
    "Tally",
    "Terms",
    "Trace",
    "UniformProgress",
    "best",
    "optima",
    "optimum",
    "outcome",
    "overall",
    "parse",
    "run",
    "runs",
    "starts",
    "steps",
    "tally",
    "with_prices",
]
