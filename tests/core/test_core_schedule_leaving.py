"""Instances that must leave: broken, excess and old ones. Tables for each rule, and properties of every cluster."""

from dataclasses import replace
from datetime import timedelta

import pytest
from everspot_core.cluster.manifest import Standing
from everspot_core.costs.ledger import FaultKind, FaultRecord
from everspot_core.jobs import lease
from everspot_core.jobs.records import (
    Assignment,
    InstanceState,
    JobState,
    Market,
    Notice,
    NoticeKind,
    Order,
    Progress,
    Reason,
    Role,
)
from everspot_core.schedule import Assign, Leave, Why, describe_action, plan
from hypothesis import given
from hypothesis import strategies as st
from plan_helpers import NOW, instance, job, record
from view_helpers import cluster_view

OLD = NOW - timedelta(hours=3)


def machine(name, *, busy=None, leaving=False, market=Market.SPOT, **kw):
    fields = {"booted_at": OLD, "generation": "now", **kw}
    if busy is not None:
        fields |= {"state": InstanceState.BUSY, "job_id": busy, "epoch": 1}
    order = Order.LEAVE if leaving else Order.RUN
    assigned = Assignment(instance_id=name, job_id=busy, epoch=1 if busy else 0, order=order, changed_at=OLD)
    return instance(name, market, assignment=assigned if busy or leaving else None, **fields)


def running(name, owner, **kw):
    return job(name, record=record(name, JobState.RUNNING, 1, owner, **kw))


def let_go(*instances, jobs=(), **kw):
    busy = {i.assignment.job_id: i.instance_id for i in instances if i.assignment is not None and i.assignment.job_id}
    job_ids = {j.job_id for j in jobs}
    jobs = (*jobs, *(running(name, owner) for name, owner in busy.items() if name not in job_ids))
    actions = plan(cluster_view(jobs=jobs, instances=instances, **kw), NOW)
    for action in actions:
        assert describe_action(action)
    return {a.instance_id: (a.reason, a.cause) for a in actions if isinstance(a, Leave)}


TARGETS = [
    # units declared, instances, who goes
    (2, [machine("a"), machine("b")], []),
    (1, [machine("a"), machine("b")], ["a"]),
    (0, [machine("a"), machine("b")], ["a", "b"]),
    (1, [machine("a"), machine("b"), machine("c", busy="j")], ["a", "b"]),
    (1, [machine("a", busy="j"), machine("b", busy="k")], []),
    (1, [machine("a", leaving=True), machine("b")], []),
    (1, [machine("a", ending=True), machine("b")], []),
    (1, [machine("a", stale=True), machine("b")], []),
    (1, [machine("a"), machine("b", generation="before")], ["b"]),
    (1, [machine("a"), machine("b", state=InstanceState.DRAINING)], ["b"]),
    (1, [machine("a"), machine("b", booted_at=NOW - timedelta(minutes=1))], ["a"]),
    (0, [machine("a", booted_at=NOW - timedelta(minutes=1))], []),
    (1, [machine("a", role=Role.SCHEDULER), machine("b")], []),
]


@pytest.mark.parametrize(("target", "instances", "expected"), TARGETS)
def test_what_is_idle_beyond_the_target_is_let_go(target, instances, expected):
    departures = let_go(*instances, standing=Standing(spot_units=target), generation="now")
    assert departures == dict.fromkeys(expected, (Reason.RELEASE, Why.EXCESS))


SHAKY = Notice(kind=NoticeKind.REBALANCE, source="imds", seen_at=NOW)
REPLACED = [
    # declared units, instances (a rebalance recommendation for the first), the instances that leave
    (2, [machine("a", busy="j", notice=SHAKY), machine("b", busy="k"), machine("c")], []),
    (2, [machine("a", notice=SHAKY), machine("b"), machine("c")], ["a"]),
    (2, [machine("a", notice=SHAKY), machine("b")], []),
    (1, [machine("a", notice=SHAKY), machine("b"), machine("c")], ["a", "b"]),
    (1, [machine("a", notice=SHAKY)], []),
    (0, [machine("a", notice=SHAKY)], ["a"]),
]


@pytest.mark.parametrize(("target", "instances", "expected"), REPLACED)
def test_what_is_recommended_away_holds_nothing_so_that_its_replacement_is_no_excess(target, instances, expected):
    assert sorted(let_go(*instances, standing=Standing(spot_units=target), generation="now")) == expected


def test_each_market_has_its_own_target_and_without_a_declaration_nobody_goes():
    cluster = [machine("a"), machine("b"), machine("c", market=Market.ON_DEMAND)]
    assert list(let_go(*cluster, standing=Standing(spot_units=1, on_demand_units=1))) == ["a"]
    assert let_go(*cluster) == {}


def test_weights_are_counted_and_what_is_left_still_makes_the_target():
    small, large = machine("a"), machine("b", shape=(8, 32, 0))
    weights = {"t2-0": 1.0, "t8-0": 4.0}
    assert list(let_go(small, large, standing=Standing(spot_units=4, weights=weights))) == ["a"]
    assert list(let_go(small, large, standing=Standing(spot_units=5, weights=weights))) == []
    assert list(let_go(small, large, standing=Standing(spot_units=1, weights=weights))) == ["a"]


def test_excess_that_falls_idle_goes_before_a_waiting_job_gets_it():
    freed = replace(machine("a", busy="done"), assignment=None)
    done = job("done", record=record("done", JobState.SUCCEEDED, 1, last_owner="a", last_reason=Reason.FINISHED))
    view = cluster_view(
        jobs=(done, job("waits")), instances=(freed, machine("b", busy="k")), standing=Standing(spot_units=1)
    )
    actions = plan(replace(view, jobs=(*view.jobs, running("k", "b"))), NOW)
    assert [type(a) for a in actions if isinstance(a, Assign | Leave)] == [Leave]


def aged(name, **kw):
    return machine(name, generation="before", **kw)


def launched(name, **kw):
    """One that the scheduler launched for a job."""
    more = {key: kw.pop(key) for key in ("record",) if key in kw}
    return replace(machine(name, **{"generation": "before", **kw}), launched_for="j", **more)


REPLACED_JOB = job("moves", record=record("moves", JobState.PENDING, 1, last_owner="z", last_reason=Reason.ROLL))
ROLLS = [
    # instances, what else is known, who goes
    ([aged("a"), machine("b")], {}, ["a"]),
    ([aged(n) for n in "abcd"], {}, ["a"]),
    ([aged(f"{n:02}") for n in range(8)], {}, ["00", "01"]),
    ([aged("a"), aged("b", leaving=True)], {}, []),
    ([aged("a")], {"booting": 1}, []),
    ([aged("a"), machine("b")], {"standing": Standing(spot_units=3)}, []),
    ([aged("a", busy="j")], {}, []),
    ([aged("a", busy="j")], {"rolling": True}, ["a"]),
    ([aged("a", busy="j"), aged("b")], {"rolling": True}, ["b"]),
    ([machine("a", generation="")], {"rolling": True}, []),
    ([aged("a", stale=True)], {}, []),
    ([launched("a"), launched("b"), launched("c", busy="j")], {}, ["a", "b"]),
    ([launched("a", generation="now"), launched("b", generation="")], {"rolling": True}, []),
    ([launched(n, busy=n) for n in "abcd"], {"rolling": True}, ["a"]),
    ([launched(f"{n:02}", busy=f"j{n}") for n in range(8)], {"rolling": True}, ["00", "01"]),
    ([launched("a", busy="j"), launched("b", busy="k", leaving=True)], {"rolling": True}, []),
    ([launched("a", busy="j"), launched("b", record=None)], {"rolling": True}, []),
    ([launched("a", busy="j")], {"rolling": True, "jobs": (REPLACED_JOB,)}, []),
    ([launched("a", busy="j"), aged("b", busy="k")], {"rolling": True}, ["a"]),
]


@pytest.mark.parametrize(("instances", "settings", "expected"), ROLLS)
def test_old_generations_are_replaced_a_share_at_a_time(instances, settings, expected):
    departures = let_go(*instances, **{"generation": "now", **settings})
    assert {name: reason for name, (reason, _) in departures.items()} == dict.fromkeys(expected, Reason.ROLL)
    assert let_go(*instances, **{**settings, "generation": ""}) == {}


def fault(kind, at=NOW, name="gone"):
    where = {"instance_type": "t2-0", "zone": "us-east-1a", "market": Market.SPOT}
    return FaultRecord(instance_id=name, kind=kind, at=at, **where)


UNFIT = {"state": InstanceState.CORDONED, "detail": "1 of 4 GPUs is seen"}


def test_an_instance_that_found_itself_unfit_goes_but_not_all_that_are_broken_alike():
    assert let_go(machine("a", **UNFIT), machine("b")) == {"a": (Reason.CORDON, Why.UNFIT)}
    assert list(let_go(*(machine(n, **UNFIT) for n in "abc"))) == ["a", "b"]
    earlier = (fault(FaultKind.GPUS), fault(FaultKind.GPUS))
    assert let_go(machine("a", **UNFIT), faults=earlier) == {}
    assert list(let_go(machine("a", **UNFIT), faults=tuple(f.model_copy(update={"at": OLD}) for f in earlier))) == ["a"]
    assert list(let_go(machine("a", **UNFIT), faults=(fault(FaultKind.DISK), fault(FaultKind.NEVER_REPORTED)))) == ["a"]


def test_instances_whose_fault_was_written_without_the_order_to_leave_still_leave():
    fault_records = tuple(fault(FaultKind.GPUS, name=name) for name in "ab")
    assert list(let_go(*(machine(n, **UNFIT) for n in "abc"), faults=fault_records)) == ["a", "b"]


def failed(name, where, *, now_on="b", step=10, state=JobState.RUNNING):
    fields = {"failed_on": where, "failed_step": 5, "progress": Progress(step=step), "last_owner": now_on}
    return job(name, record=record(name, state, 2, now_on if state.owned else None, **fields))


def test_failures_of_two_jobs_that_do_well_elsewhere_cordon_a_machine():
    well = failed("j", ["a"]), failed("k", ["a"], state=JobState.SUCCEEDED)
    assert let_go(machine("a"), jobs=well) == {"a": (Reason.CORDON, Why.JOBS_FAILED)}
    innocent = [
        (failed("j", ["a"]),),
        (failed("j", ["a"]), failed("k", ["a", "b"])),  # that one fails anywhere
        (failed("j", ["a"]), failed("k", ["a"], step=5)),  # has not come as far yet
        (failed("j", ["a"]), failed("k", ["a"], state=JobState.FAILED)),
        (failed("j", ["a"]), failed("k", ["a"], now_on="a")),
        (failed("j", ["a"]), failed("k", ["c"])),
    ]
    for jobs in innocent:
        assert let_go(machine("a"), jobs=jobs) == {}


machines = st.lists(
    st.fixed_dictionaries(
        {
            "busy": st.sampled_from([None, "job"]),
            "leaving": st.sampled_from([False, False, True]),
            "stale": st.sampled_from([False, False, True]),
            "market": st.sampled_from(Market),
            "generation": st.sampled_from(["", "before", "now"]),
            "shape": st.sampled_from([(2, 4, 0), (8, 32, 0)]),
        }
    ),
    max_size=12,
)


@given(
    machines,
    st.integers(0, 12),
    st.integers(0, 12),
    st.booleans(),
    st.sampled_from(["", "now"]),
    st.integers(0, 2),
)
def test_never_a_busy_one_never_below_the_target_and_a_share_at_a_time(
    drawn_machines, on_demand, spot, rolling, now, booting
):
    everybody = [
        machine(f"i-{n:02}", **{**m, "busy": f"j-{n}" if m["busy"] else None}) for n, m in enumerate(drawn_machines)
    ]
    standing = Standing(on_demand_units=on_demand, spot_units=spot, weights={"t8-0": 2.5})
    settings = {"standing": standing, "rolling": rolling, "generation": now, "booting": booting}
    departures = let_go(*everybody, **settings)
    busy = {i.instance_id for i in everybody if not i.idle}
    released = {name for name, (reason, _) in departures.items() if reason is Reason.RELEASE}
    rolled = set(departures) - released
    assert not released & busy
    assert rolling or not rolled & busy
    assert not set(departures) & {i.instance_id for i in everybody if i.leaving}
    here = [i for i in everybody if i.reports and not i.leaving]

    def units(market, excluded):
        remaining = [i for i in here if i.record.market is market and i.instance_id not in excluded]
        return sum(standing.weights.get(i.record.instance_type, 1.0) for i in remaining)

    for market, target in ((Market.ON_DEMAND, on_demand), (Market.SPOT, spot)):
        before, after = units(market, set()), units(market, released)
        assert after >= min(before, target)
    assert len(rolled) <= max(1, len(here) // 4)
    assert rolled <= {i.instance_id for i in everybody if i.record.generation == "before"}
    assert not rolled or now
    share = max(1, len(here) // 4)
    assert len(rolled) <= max(0, share - max(booting, sum(i.leaving for i in everybody)))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("failed_on", "free", "to"),
    [(["a"], "abcd", "b"), (["a", "b"], "abcd", "c"), (["b", "a"], "abc", "c"), (["a"], "a", "a"), ([], "abcd", "a")],
)
def test_an_attempt_after_an_error_goes_to_another_machine_if_there_is_one(shared, failed_on, free, to):
    waits = job("j", record=record("j", JobState.PENDING, 2, last_owner="a", failed_on=failed_on))
    view = cluster_view(jobs=(waits,), instances=tuple(machine(n) for n in free), shared=shared)
    assert [a.instance_id for a in plan(view, NOW) if isinstance(a, Assign)] == [to]


def test_a_record_remembers_where_its_job_failed_and_how_far_it_was():
    job_record = None
    for owner, reason, step in (("a", Reason.ERROR, 7), ("b", Reason.NOTICE, 8), ("b", Reason.ERROR, 9), ("a",) * 3):
        job_record = lease.assign(job_record, "j", owner, NOW)
        if reason == "a":
            break
        job_record = job_record.model_copy(update={"progress": Progress(step=step)})
        job_record = lease.release(job_record, reason, NOW, job("j", retries={"errors": 9}).submission.spec)
    assert (job_record.failed_on, job_record.failed_step) == (["a", "b"], 9)
