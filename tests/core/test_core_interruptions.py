"""The interruptions of a job, and their cost in the bill."""

import pytest
from cost_helpers import LISTED, at, compute, end, event, interrupted_job, launch, price
from everspot_clouds.aws.rules import BILLING
from everspot_core.capacity.catalogue import builtin
from everspot_core.costs.attempts import attempts
from everspot_core.costs.bill import bill
from everspot_core.jobs.records import EventKind


def test_on_demand_comparison_leaves_out_the_seconds_lost_to_interruptions():
    computed_bill = compute([launch(), launch("i-2")], [end(720), end(1300, "i-2")], [price(0.036)], interrupted_job())
    job = computed_bill.jobs[0]
    assert job.lost_seconds == 160  # from the notice at 600 to training at 760
    assert job.on_demand_cost == (500 + 500) * LISTED / 3600
    assert computed_bill.on_demand_cost == (1000 + 200 + 740) * LISTED / 3600
    (interruption,) = job.interruptions
    assert (interruption.steps_redone, interruption.steps_redone_is_least) == (0, False)  # its agent told its last step
    assert interruption.with_notice
    assert interruption.changeover_seconds == 140
    assert interruption.attempt.notice_to_durable_seconds == 10
    assert interruption.resumed_on == "i-2"


def test_a_hard_kill_loses_the_work_since_the_last_durable_checkpoint():
    events = [
        event(EventKind.ASSIGNED, 0),
        event(EventKind.TRAINING, 10, from_step=0),
        event(EventKind.CHECKPOINTED, 110, step=100, trigger="interval"),
        event(EventKind.LOST, 200, iid=None, cause="expired", step=150),
        event(EventKind.ASSIGNED, 210, epoch=2, iid="i-2"),
        event(EventKind.TRAINING, 230, epoch=2, iid="i-2", from_step=100, restored=True),
    ]
    job = compute([launch(), launch("i-2")], [end(150, interrupted=False)], [price(0.036)], {"job-1": events}).jobs[0]
    (interruption,) = job.interruptions
    assert (interruption.steps_redone, interruption.with_notice) == (50, False)
    assert interruption.steps_redone_is_least  # 150 was reported at a renewal; what it did since nobody knows
    assert job.lost_seconds == 120  # from the checkpoint at 110 to training at 230


def test_an_agent_that_was_restarted_under_the_same_epoch_has_steps_to_redo():
    events = [
        event(EventKind.ASSIGNED, 0),
        event(EventKind.STARTED, 5),
        event(EventKind.TRAINING, 10, from_step=0),
        event(EventKind.CHECKPOINTED, 110, step=100, trigger="interval"),
        event(EventKind.STARTED, 200, again=2, step_before=150),
        event(EventKind.TRAINING, 230, from_step=100, restored=True),
        event(EventKind.FINISHED, 400, step=300),
    ]
    bill_with_steps = bill(
        [launch()],
        [end(500)],
        [price(0.036)],
        {"job-1": events},
        builtin(),
        at(600),
        {("job-1", 1): 300},
        rules=BILLING,
    )
    (interruption,) = bill_with_steps.jobs[0].interruptions
    assert (interruption.steps_redone, interruption.with_notice, interruption.kind) == (50, False, "lost")
    assert interruption.steps_redone_is_least
    assert interruption.resumed_on == "i-1"
    assert bill_with_steps.jobs[0].lost_seconds == 120  # from the checkpoint at 110 to training at 230


def test_a_loss_that_was_taken_back_is_none():
    events = [
        event(EventKind.ASSIGNED, 0),
        event(EventKind.TRAINING, 10, from_step=0),
        event(EventKind.LOST, 200, iid=None, cause="expired", step=150),
        event(EventKind.TRAINING, 210, from_step=190, restored=False, by="agent", reclaimed=True),
        event(EventKind.FINISHED, 400, step=300),
    ]
    job = compute([launch()], [end(500)], [price(0.036)], {"job-1": events}).jobs[0]
    assert (job.interruptions, job.lost_seconds) == ((), 0)


def test_agent_events_cover_a_program_that_reports_nothing():
    events = [
        event(EventKind.ASSIGNED, 0),
        event(EventKind.STARTED, 5),
        event(EventKind.TRAINING, 6, from_step=0, restored=False, by="agent"),
        event(EventKind.STOP_DEMANDED, 100, source="imds"),
        event(EventKind.CHECKPOINTED, 110, files=1, bytes=10, trigger="final"),
        event(EventKind.INTERRUPTED, 111, reason="notice"),
        event(EventKind.ASSIGNED, 120, epoch=2, iid="i-2"),
        event(EventKind.STARTED, 125, epoch=2, iid="i-2"),
        event(EventKind.TRAINING, 126, epoch=2, iid="i-2", from_step=0, restored=True, by="agent"),
        event(EventKind.FINISHED, 226, epoch=2, iid="i-2", step=None),
    ]
    job = compute([launch(), launch("i-2")], [end(720)], [price(0.036)], {"job-1": events}).jobs[0]
    (interruption,) = job.interruptions
    assert (interruption.resumed_on, interruption.steps_redone) == ("i-2", None)  # it reports no steps
    assert interruption.seconds_redone == 0
    assert job.lost_seconds == 26  # from the notice at 100 to its start at 126
    assert job.on_demand_cost > 0


def test_the_trainers_word_counts_where_the_agent_spoke_for_it_too_early():
    events = [
        event(EventKind.ASSIGNED, 0),
        event(EventKind.TRAINING, 6, from_step=0, restored=False, by="agent"),
        event(EventKind.TRAINING, 90, from_step=700, restored=True),
        event(EventKind.FINISHED, 200, step=800),
    ]
    (attempt,) = attempts(events)
    assert (attempt.from_step, attempt.training_at) == (700, at(90))


def test_metrics_may_know_of_more_steps_than_the_events():
    events = {
        "job-1": [
            event(EventKind.ASSIGNED, 0),
            event(EventKind.TRAINING, 10, from_step=0),
            event(EventKind.LOST, 200, step=20),
            event(EventKind.ASSIGNED, 210, epoch=2),
            event(EventKind.TRAINING, 230, epoch=2, from_step=0),
        ]
    }
    bill_with_steps = bill(
        [launch()], [], [], events, builtin(), at(300), {("job-1", 1): 33, ("other", 1): 99}, rules=BILLING
    )
    assert bill_with_steps.jobs[0].interruptions[0].steps_redone == 33


def test_an_interruption_during_start_up_and_the_next_one_are_not_counted_twice():
    events = [
        event(EventKind.ASSIGNED, 0),
        event(EventKind.TRAINING, 10, from_step=0),
        event(EventKind.CHECKPOINTED, 100, step=90),
        event(EventKind.LOST, 150, step=90),
        event(EventKind.ASSIGNED, 160, epoch=2, iid="i-2"),
        event(EventKind.LOST, 190, epoch=2, iid="i-2"),
        event(EventKind.ASSIGNED, 200, epoch=3, iid="i-3"),
        event(EventKind.TRAINING, 250, epoch=3, iid="i-3", from_step=90),
    ]
    job = compute([launch(), launch("i-2"), launch("i-3")], [], [], {"job-1": events}, as_of=400).jobs[0]
    assert job.lost_seconds == 150
    assert [i.steps_redone for i in job.interruptions] == [0, 0]


def test_late_event_of_previous_owner_is_not_counted():
    events = interrupted_job()["job-1"]
    late = event(EventKind.INTERRUPTED, 800, reason="fenced", step=500)
    job = compute([launch(), launch("i-2")], [], [], {"job-1": [*events, late]}, as_of=2000).jobs[0]
    assert len(job.interruptions) == 1


def test_a_job_given_back_before_it_started_was_not_interrupted():
    events = [
        event(EventKind.ASSIGNED, 0),
        event(EventKind.ASSIGNED, 30, epoch=2, iid="i-2"),
        event(EventKind.STARTED, 31, epoch=2, iid="i-2"),
        event(EventKind.ASSIGNED, 60, epoch=3, iid="i-3"),
    ]
    job = compute([launch(), launch("i-2"), launch("i-3")], [], [], {"job-1": events}, as_of=400).jobs[0]
    assert [i.attempt.epoch for i in job.interruptions] == [2]
    assert job.interruptions[0].kind == "lost"


def test_the_notice_counts_from_when_it_was_learnt_and_its_checkpoint_even_if_told_late():
    events = [
        event(EventKind.ASSIGNED, 0),
        event(EventKind.TRAINING, 10, from_step=0),
        event(EventKind.STOP_DEMANDED, 102, source="imds", seen_at=at(100).isoformat()),
        event(EventKind.INTERRUPTED, 110, reason="notice", step=9, durable_step=9),
        event(EventKind.CHECKPOINTED, 111, step=9, trigger="notice"),
        event(EventKind.ASSIGNED, 120, epoch=2, iid="i-2"),
        event(EventKind.TRAINING, 150, epoch=2, iid="i-2", from_step=9),
    ]
    job = compute([launch(), launch("i-2")], [], [], {"job-1": events}, as_of=400).jobs[0]
    assert job.lost_seconds == 50
    assert job.interruptions[0].attempt.notice_to_durable_seconds == 11


def test_a_notice_that_did_not_save_the_work_is_still_a_notice():
    events = [
        event(EventKind.ASSIGNED, 0),
        event(EventKind.TRAINING, 10, from_step=0),
        event(EventKind.CHECKPOINTED, 50, step=40, trigger="interval"),
        event(EventKind.STOP_DEMANDED, 100, source="imds"),
        event(EventKind.LOST, 220, step=90, cause="terminated"),
        event(EventKind.ASSIGNED, 230, epoch=2, iid="i-2"),
        event(EventKind.TRAINING, 250, epoch=2, iid="i-2", from_step=40),
    ]
    job = compute([launch(), launch("i-2")], [], [], {"job-1": events}, as_of=400).jobs[0]
    (stroke,) = job.interruptions
    assert (stroke.kind, stroke.with_notice, stroke.steps_redone) == ("notice", True, 50)
    assert stroke.attempt.notice_to_durable_seconds is None
    assert job.lost_seconds == 200


def test_an_unfinished_changeover_has_no_redone_steps_yet():
    events = interrupted_job()["job-1"][:7]
    job = compute([launch()], [], [], {"job-1": events}, as_of=900).jobs[0]
    assert job.interruptions[0].steps_redone is None
    assert job.lost_seconds == 300


@pytest.mark.parametrize("kind", [EventKind.CANCELLED, EventKind.FAILED])
def test_a_job_that_ends_while_it_waits_loses_no_time_after_its_end(kind):
    """Cancelled, or out of budget, 300 s after its notice: however late the report is asked for."""
    events = [*interrupted_job()["job-1"][:7], event(kind, 900, iid=None)]
    for as_of in (900, 100_000):
        assert compute([launch()], [], [], {"job-1": events}, as_of=as_of).jobs[0].lost_seconds == 300


def test_an_ending_whose_owner_had_lost_the_job_is_not_its_end():
    events = [
        event(EventKind.ASSIGNED, 0),
        event(EventKind.TRAINING, 10, from_step=0),
        event(EventKind.LOST, 90, step=80, cause="expired"),
        event(EventKind.FINISHED, 95, step=100),
        event(EventKind.ASSIGNED, 100, epoch=2, iid="i-2"),
    ]
    job = compute([launch(), launch("i-2")], [], [], {"job-1": events}, as_of=400).jobs[0]
    assert job.lost_seconds == 390  # it had no durable work, and is not training again
    second = job.attempts[1]
    assert (second.end, second.reason) == (None, None)


def test_steps_of_an_attempt_that_never_trained_are_not_redone_twice():
    """The record still has the step of the attempt before when its successor dies at its start."""
    events = [
        event(EventKind.ASSIGNED, 0),
        event(EventKind.TRAINING, 10, from_step=0),
        event(EventKind.CHECKPOINTED, 60, step=150, trigger="interval"),
        event(EventKind.LOST, 90, step=200, cause="terminated"),
        event(EventKind.ASSIGNED, 100, epoch=2, iid="i-2"),
        event(EventKind.LOST, 120, epoch=2, iid="i-2", step=200, cause="terminated"),
        event(EventKind.ASSIGNED, 130, epoch=3, iid="i-3"),
        event(EventKind.TRAINING, 140, epoch=3, iid="i-3", from_step=150),
    ]
    strokes = compute([launch()], [], [], {"job-1": events}).jobs[0].interruptions
    assert [s.steps_redone for s in strokes] == [50, 0]


@pytest.mark.parametrize("seen_at", ["soon", "2026-03-01T12:10:00"])
def test_a_notice_whose_moment_cannot_be_read_counts_from_its_event(seen_at):
    events = interrupted_job()["job-1"]
    odd_events = [
        e.model_copy(update={"data": {**e.data, "seen_at": seen_at}}) if e.kind is EventKind.STOP_DEMANDED else e
        for e in events
    ]
    assert compute([launch()], [], [], {"job-1": odd_events}).jobs[0].lost_seconds == 160


@pytest.mark.parametrize("kind", [EventKind.CANCELLED, EventKind.FAILED, EventKind.FINISHED, EventKind.ERROR])
def test_what_the_job_does_itself_is_no_interruption(kind):
    events = [event(EventKind.ASSIGNED, 0), event(EventKind.TRAINING, 5, from_step=0), event(kind, 50)]
    job = compute([launch()], [], [], {"job-1": events}).jobs[0]
    assert job.interruptions == ()
    assert job.lost_seconds == 0


def test_time_in_another_cluster_is_not_lost_to_the_interruption_before_it():
    events = [
        *interrupted_job()["job-1"][:7],  # interrupted at 620, after a notice at 600
        event(EventKind.DEPARTED, 700, cluster="west", iid=None),
        event(EventKind.RETURNED, 90_000, cluster="west", step=9000, iid=None),
        event(EventKind.ASSIGNED, 90_100, epoch=2, iid="i-2"),
        event(EventKind.TRAINING, 90_160, epoch=2, iid="i-2", from_step=9000, restored=True),
        event(EventKind.INTERRUPTED, 91_000, epoch=2, iid="i-2", reason="notice", step=9500),
        event(EventKind.ASSIGNED, 91_100, epoch=3, iid="i-3"),
        event(EventKind.TRAINING, 91_160, epoch=3, iid="i-3", from_step=9500, restored=True),
    ]
    launches = [launch(), launch("i-2", seconds=90_000), launch("i-3", seconds=91_000)]
    job = compute(launches, [end(720), end(91_010, "i-2")], [price(0.036)], {"job-1": events}).jobs[0]
    before, after = job.interruptions
    assert (before.resumed_at, before.changeover_seconds, before.steps_redone) == (None, None, None)
    assert (after.resumed_at, after.changeover_seconds) == (at(91_160), 160)
    assert job.lost_seconds == 100 + (91_160 - 90_160), "until it departed, and the loss of the second attempt"


@pytest.mark.parametrize(
    "answer", [{"end": "refused", "usd": None}, {"end": "withdrawn"}, {"end": "returned", "usd": 0.0}]
)
def test_an_offer_that_came_to_nothing_ends_no_lost_time(answer):
    events = [
        *interrupted_job()["job-1"][:7],  # interrupted at 620, after a notice at 600
        event(EventKind.DEPARTED, 700, cluster="west", visit="v-1", iid=None),
        event(EventKind.RETURNED, 900, cluster="west", visit="v-1", iid=None, **answer),
        event(EventKind.ASSIGNED, 2000, epoch=2, iid="i-2"),
        event(EventKind.TRAINING, 2060, epoch=2, iid="i-2", from_step=500, restored=True),
    ]
    launches = [launch(), launch("i-2", seconds=1900)]
    job = compute(launches, [end(720)], [price(0.036)], {"job-1": events}).jobs[0]
    assert [each.resumed_at for each in job.interruptions] == [at(2060)]
    assert job.lost_seconds == 2060 - 600
