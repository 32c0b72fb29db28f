"""The warnings of every cloud's alarms, and the content of its dashboard, in words for people.

Nothing here needs a client, so that a Pulumi program can use it.
"""

from dataclasses import dataclass
from datetime import timedelta

from everspot_core.cluster.gauges import Gauge

BUDGET_AT = 0.8
"""The fraction of a budget at which people are warned; `BUDGET` has it in its name and sentence."""
SILENT_AFTER = timedelta(minutes=5)
"""A scheduler that has not worked for this long is silent."""


@dataclass(frozen=True, kw_only=True)
class Concern:
    """The subject of one alarm. `sentence`: the sentence that people get."""

    name: str
    gauge: Gauge
    sentence: str


OVER_ESTIMATE = Concern(
    name="job-over-estimate",
    gauge=Gauge.JOBS_OVER_ESTIMATE,
    sentence="A job has held instances for far longer than its expected_duration. `everspot jobs` shows its progress.",
)
OVER_NORM = Concern(
    name="pool-over-norm",
    gauge=Gauge.POOLS_OVER_NORM,
    sentence="A spot pool takes far more instances, or costs far more, than it uses to. `everspot fleet` shows which.",
)
BUDGET = Concern(
    name="budget-at-80",
    gauge=Gauge.BUDGET_USED,
    sentence="80 % of a budget is spent. `everspot cost budget` shows which; at 100 % its jobs stop.",
)
SILENCE = Concern(
    name="scheduler-silent",
    gauge=Gauge.TICKS,
    sentence=f"No scheduler has worked for {SILENT_AFTER // timedelta(minutes=1)} minutes: running jobs run on. "
    "`everspot doctor` checks.",
)

CHARTS = (
    ("Jobs", (Gauge.JOBS_RUNNING, Gauge.JOBS_WAITING)),
    ("Instances", (Gauge.INSTANCES,)),
    ("Dollars an hour", (Gauge.USD_PER_HOUR,)),
    ("Not as usual", (Gauge.JOBS_OVER_ESTIMATE, Gauge.POOLS_OVER_NORM)),
    ("Budget used", (Gauge.BUDGET_USED,)),
    ("Ticks of the scheduler", (Gauge.TICKS,)),
)
"""A dashboard's charts: the title and the figures of each."""
