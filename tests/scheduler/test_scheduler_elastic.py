"""A scheduler that launches what jobs need, and lets it go again."""

import pytest
from elastic_helpers import ElasticCluster
from everspot_core.records import Market, Reason
from everspot_store import ManualClock
from scheduler_helpers import folder_store


@pytest.fixture
def here(tmp_path) -> ElasticCluster:
    clock = ManualClock()
    return ElasticCluster(folder_store(tmp_path, clock), clock)


def test_a_job_has_an_instance_launched_runs_on_it_and_leaves_nothing_behind(here):
    here.submit("j")
    here.run(1)
    (intent,) = here.intents()
    assert (intent.seq, intent.jobs, intent.market, intent.template_version) == (1, ("j",), Market.SPOT, "1")
    assert [(i.instance_id, i.job_id) for i in intent.outcome.instances] == [("e-001", "j")]
    here.run(12)
    assert here.state("j") == "SUCCEEDED"
    here.later(minutes=6)
    here.run(12)
    assert here.cloud.alive == set()
    assert here.store.assignments.get("e-001").value.reason is Reason.RELEASE
    assert len(here.cloud.intents) == 1


def test_nothing_is_launched_where_nothing_waits(here):
    here.run(20)
    assert (here.cloud.intents, here.intents()) == ([], [])
