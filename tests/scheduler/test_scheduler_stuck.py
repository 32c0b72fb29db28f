"""Jobs that cannot make progress on any instance end with their own reason, before their owner pays for more
attempts."""

import pytest
from everspot_core.jobs.checkpoint import CheckpointHead
from everspot_core.jobs.lease import MAX_LOSSES_WITHOUT_PROGRESS
from everspot_core.jobs.records import EventKind, JobState, Progress, Reason
from scheduler_helpers import Agent, Cluster


def head(cluster: Cluster, job: str, epoch: int) -> None:
    """The head that an owner of this epoch has written."""
    cluster.store.heads.create(job, CheckpointHead(job_id=job, epoch=epoch))


class Losing(Agent):
    """Takes each job, saves `saves` more steps, and lets its lease expire, as a fenced trainer does."""

    saves = 0

    def _work(self, lease) -> None:
        saved = (lease.record.progress.durable_step or 0) + self.saves
        lease.renew(Progress(step=saved, durable_step=saved))
        self.lease = None


def losing(cluster: Cluster, saves: int) -> None:
    """Two such instances."""
    for name in ("i-1", "i-2"):
        cluster.agent(name)
        cluster.agents[name].__class__ = Losing
        cluster.agents[name].saves = saves


@pytest.mark.parametrize("ran", [False, True])
def test_a_job_whose_checkpoints_belong_to_a_later_epoch_ends_before_it_gets_an_instance(cluster, ran):
    cluster.length = 50
    if ran:
        cluster.agent("i-1")
    cluster.submit("j")
    cluster.run(3)
    starts = len(cluster.starts["j"])
    assert starts == ran
    head(cluster, "j", 7)
    if ran:
        cluster.agents["i-1"].lease.release(Reason.NOTICE)
        cluster.agents["i-1"].lease = None
    else:
        cluster.schedulers = [cluster.scheduler("s2")]  # it has not read the head before
    cluster.agent("i-2")
    cluster.run(5)
    record = cluster.store.records.get("j").value
    assert (record.state, record.last_reason) == (JobState.FAILED, Reason.SUPERSEDED)
    assert "epoch 7" in record.detail
    assert "everspot retry" in record.detail
    assert len(cluster.starts["j"]) == starts
    (event,) = cluster.events_of_kind("j", EventKind.FAILED)
    assert event.data["reason"] == "superseded"


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_head_of_its_own_epochs_stops_no_job(cluster, epoch):
    cluster.submit("j")
    if epoch == 0:
        head(cluster, "j", 0)
    cluster.agent("i-1")
    cluster.run(3)
    if epoch == 1:
        head(cluster, "j", 1)
        cluster.agents["i-1"].lease.release(Reason.NOTICE)
        cluster.agents["i-1"].lease = None
        cluster.agent("i-2")
    cluster.run(20)
    assert cluster.state("j") == "SUCCEEDED"


def test_a_job_that_loses_its_lease_again_and_again_without_progress_ends(cluster):
    losing(cluster, saves=0)
    cluster.submit("j")
    cluster.run(30 * MAX_LOSSES_WITHOUT_PROGRESS)
    record = cluster.store.records.get("j").value
    assert (record.state, record.last_reason) == (JobState.FAILED, Reason.NO_PROGRESS)
    assert record.detail.startswith(
        f"its lease was lost {MAX_LOSSES_WITHOUT_PROGRESS} times in a row, and it came no further"
    )
    assert record.epoch == len(cluster.starts["j"]) == MAX_LOSSES_WITHOUT_PROGRESS
    assert len(cluster.events_of_kind("j", EventKind.LOST)) == MAX_LOSSES_WITHOUT_PROGRESS


@pytest.mark.parametrize("expired", [0, 2])
def test_a_job_whose_instances_the_cloud_takes_again_and_again_ends_and_says_so(cluster, expired):
    """The first leases expire on instances that live on."""
    cluster.submit("j")
    cluster.agent("i-0").__class__ = Losing
    cluster.run(1 + 20 * expired)
    for n in range(expired, MAX_LOSSES_WITHOUT_PROGRESS):
        assert len(cluster.starts["j"]) == n + 1
        cluster.end(cluster.starts["j"][-1][1], interrupted=True)
        cluster.agent(f"i-{n + 1}").__class__ = Losing
        cluster.run(3)
    record = cluster.store.records.get("j").value
    assert (record.state, record.last_reason) == (JobState.FAILED, Reason.NO_PROGRESS)
    mixed = "its lease was lost, or the cloud took or ended its instance (4 times), 6 times in a row"
    assert (mixed if expired else "the cloud took or ended its instance 6 times in a row") in record.detail


def test_a_job_that_never_saves_and_gets_a_step_further_every_other_time_ends(cluster):
    """Each attempt begins from zero; only the step that it reaches before it is lost differs."""

    class Beginning(Agent):
        def _work(self, lease):
            lease.renew(Progress(step=9 + lease.record.epoch % 2))
            self.lease = None

    for name in ("i-1", "i-2"):
        cluster.agent(name).__class__ = Beginning
    cluster.submit("j")
    cluster.run(40 * MAX_LOSSES_WITHOUT_PROGRESS)
    record = cluster.store.records.get("j").value
    assert (record.state, record.last_reason) == (JobState.FAILED, Reason.NO_PROGRESS)


def test_a_job_that_comes_further_each_time_is_never_ended_for_its_losses(cluster):
    losing(cluster, saves=1)
    cluster.submit("j")
    cluster.run(30 * MAX_LOSSES_WITHOUT_PROGRESS)
    record = cluster.store.records.get("j").value
    assert not record.state.final
    assert record.epoch > MAX_LOSSES_WITHOUT_PROGRESS
    assert record.fruitless == 0


def test_an_instance_that_the_cloud_does_not_know_gets_no_job_until_the_cloud_knows_it(cluster):
    cluster.submit("j")
    cluster.agent("i-1")
    described = cluster.cloud.described.pop("i-1")
    cluster.run(30)
    assert (cluster.state("j"), cluster.starts["j"]) == ("PENDING", [])
    cluster.cloud.described["i-1"] = described
    cluster.run(30)
    assert cluster.state("j") == "SUCCEEDED"


def test_a_job_that_runs_there_already_runs_on_when_the_cloud_forgets_the_instance(cluster):
    """A description may leave out an instance for a moment: nothing is lost for that."""
    cluster.submit("j")
    cluster.agent("i-1")
    cluster.run(2)
    assert len(cluster.starts["j"]) == 1
    del cluster.cloud.described["i-1"]
    cluster.run(10)
    assert (cluster.state("j"), len(cluster.starts["j"])) == ("SUCCEEDED", 1)


def test_a_new_instance_is_asked_for_at_once_and_not_again_and_again(cluster):
    """Its description is not due, but a job may wait for it. An unknown id must not cause repeated requests."""
    cluster.run(1)
    calls_before = cluster.cloud.describe_calls
    cluster.agent("i-1")
    cluster.submit("j")
    cluster.schedulers[0].tick()
    assert cluster.cloud.describe_calls == calls_before + 1
    assert cluster.state("j") == "ASSIGNED"
    cluster.agent("i-2")
    del cluster.cloud.described["i-2"]
    cluster.run(20)
    assert cluster.cloud.describe_calls <= calls_before + 2 + 20 / 5
