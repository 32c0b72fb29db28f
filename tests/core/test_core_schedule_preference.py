"""The job's choice between two free instances, as its deadline comes nearer."""

import pytest
from everspot_core.schedule import Assign, Why
from provision_helpers import HOUR, NOW, ON_DEMAND, SPOT, TICK, decide, instance, job, outlook

FREE = [instance("spot", SPOT, launched_for=None), instance("on-demand", ON_DEMAND, launched_for=None)]
WORK = outlook(remaining=10.0, changeover=0.1, changeover_upper=0.25)
"""On-demand must begin 10.25 h and a tick before the deadline; 0.1 h before that is the last time for spot."""
LATEST = 10.35 + TICK / HOUR


@pytest.mark.parametrize(
    ("due", "work", "chosen", "cause"),
    [
        (None, WORK, "spot", Why.PREFERRED_MARKET),
        (20.0, None, "spot", Why.PREFERRED_MARKET),
        (20.0, WORK, "spot", Why.PREFERRED_MARKET),
        (LATEST, WORK, "spot", Why.PREFERRED_MARKET),
        (LATEST - 0.01, WORK, "on-demand", Why.LAST_SAFE_MOMENT),
        (10.0, WORK, "on-demand", Why.LAST_SAFE_MOMENT),
        (9.99, WORK, "spot", Why.PREFERRED_MARKET),  # it is late whatever is done: at least it is cheap
    ],
)
def test_a_job_prefers_on_demand_from_its_last_safe_moment_on(due, work, chosen, cause):
    (assign,) = decide(job(due=due, work=work, ago=1.0), FREE, now=NOW)
    assert isinstance(assign, Assign)
    assert (assign.instance_id, assign.cause) == (chosen, cause)


def test_rather_than_wait_it_takes_spot():
    (assign,) = decide(job(due=10.1, work=WORK), FREE[:1])
    assert (assign.instance_id, assign.cause) == ("spot", Why.OTHER_MARKET)
