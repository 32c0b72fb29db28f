"""Jobs smaller than an instance, where instances are shared."""

from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import pytest
from everspot_core.job import JobSpec, JobSubmission, Priority, Resources
from everspot_core.records import (
    Assignment,
    InstanceRecord,
    InstanceState,
    JobRecord,
    JobState,
    Market,
    Order,
    Reason,
    Role,
)
from everspot_core.schedule import Assign, Hold, InstanceView, JobView, Why, plan
from hypothesis import given, settings
from hypothesis import strategies as st
from view_helpers import cluster_view, instance_view, job_view, outlook_view

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
SHAPES = {"gpu8": (96, 768.0, 8, 40.0), "gpu4": (48, 192.0, 4, 24.0), "cpu": (16, 64.0, 0, 0.0)}


def job(name: str, *, age: float = 10, hours: float | None = None, nodes: int = 1, record=None, **need) -> JobView:
    priority = need.pop("priority", Priority.NORMAL)
    spec = JobSpec(name="x", recipe="r", priority=priority, resources=Resources(**{"shared": True, **need}))
    submission = JobSubmission(job_id=name, spec=spec, submitted_at=NOW - timedelta(minutes=age))
    outlook = None
    if hours is not None:
        none, left = 0 * HOUR, hours * HOUR
        outlook = outlook_view(left=left / 2, left_upper=left, changeover=none, changeover_upper=none)
    return job_view(submission=submission, record=record, outlook=outlook, nodes=nodes)


def resident(name: str, iid: str, *, hours: float | None = None, **need) -> JobView:
    running = JobRecord(job_id=name, state=JobState.RUNNING, epoch=1, owner=iid, changed_at=NOW)
    return job(name, hours=hours, record=running, **need)


def host(iid: str, kind: str, *residents: JobView, market: Market = Market.SPOT, zone: str = "z", **kw) -> InstanceView:
    vcpus, memory, gpus, gpu_memory = SHAPES[kind]
    record = InstanceRecord(
        instance_id=iid,
        cluster="c",
        role=Role.AGENT,
        instance_type=kind,
        zone=zone,
        market=market,
        vcpus=vcpus,
        memory_gib=memory,
        gpus=gpus,
        gpu_memory_gib=gpu_memory,
        state=InstanceState.BUSY if residents else InstanceState.READY,
        booted_at=NOW,
        updated_at=NOW,
    )
    return instance_view(instance_id=iid, record=record, residents=tuple(r.job_id for r in residents), **kw)


def decide(jobs: list[JobView], instances: list[InstanceView], *, shared: bool = True, **kw) -> dict:
    """By job: the instance that it gets (for a gang a set), or why it waits."""
    view = cluster_view(jobs=tuple(jobs), instances=tuple(instances), shared=shared, **kw)
    decided: dict = {}
    for action in plan(view, NOW):
        if isinstance(action, Assign):
            all_of = {action.instance_id, *action.gang}
            decided[action.job_id] = all_of if action.gang else action.instance_id
        elif isinstance(action, Hold):
            decided[action.job_id] = action.why
    return decided


def test_several_jobs_share_an_instance_in_one_plan_as_far_as_there_is_room():
    jobs = [job(f"j{n}", age=20 - n, gpus=3, vcpus=8) for n in range(3)]
    assert decide(jobs, [host("i", "gpu8")]) == {"j0": "i", "j1": "i", "j2": Why.NO_FREE_INSTANCE}
    alone = decide(jobs, [host("i", "gpu8")], shared=False)
    assert alone == {"j0": "i", "j1": Why.NO_FREE_INSTANCE, "j2": Why.NO_FREE_INSTANCE}


@pytest.mark.parametrize(
    ("taken", "asked", "fits"),
    [
        ({"gpus": 6}, {"gpus": 2}, True),
        ({"gpus": 6}, {"gpus": 3}, False),
        ({"vcpus": 90}, {"vcpus": 6}, True),
        ({"vcpus": 90}, {"vcpus": 7}, False),
        ({"memory_gib": 767.5}, {"memory_gib": 0.5}, True),
        ({"memory_gib": 767.5}, {"memory_gib": 0.6}, False),
        ({}, {"gpus": 1, "gpu_memory_gib": 40}, True),
        ({}, {"gpus": 1, "gpu_memory_gib": 41}, False),
        ({"gpus": 4, "gpu_memory_gib": 40}, {"gpus": 4, "gpu_memory_gib": 40}, True),
    ],
)
def test_room_is_what_the_residents_have_not_asked_for(taken, asked, fits):
    there = resident("r", "i", **taken)
    decided = decide([there, job("j", **asked)], [host("i", "gpu8", there)])
    assert (decided["j"] == "i") is fits


def test_an_instance_whose_residents_are_unknown_has_no_room():
    stranger = resident("stranger", "i")
    assert decide([job("j")], [host("i", "gpu8", stranger)]) == {"j": Why.NO_FREE_INSTANCE}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"gpus": 1}, "begun4"),  # the one GPU that is left
        ({"gpus": 2}, "begun8"),
        ({"gpus": 4}, "empty4"),
        ({"gpus": 5}, "empty8"),
        ({"vcpus": 4}, "full4"),  # where it keeps no GPU idle
        ({"vcpus": 16}, "cpu"),  # exactly what it has
        ({"vcpus": 16, "memory_gib": 60}, "cpu"),
        ({"gpus": 1, "gpu_memory_gib": 40}, "begun8"),
    ],
)
def test_what_is_begun_is_filled_up_and_what_is_whole_stays_so(asked, expected):
    on = {
        "begun4": resident("r1", "begun4", gpus=3, vcpus=4),
        "begun8": resident("r2", "begun8", gpus=6, vcpus=4),
        "full4": resident("r3", "full4", gpus=4, vcpus=24, memory_gib=150),
    }
    hosts = [
        host("begun4", "gpu4", on["begun4"]),
        host("begun8", "gpu8", on["begun8"]),
        host("full4", "gpu4", on["full4"]),
        *(host(n, k) for n, k in (("empty4", "gpu4"), ("empty8", "gpu8"), ("cpu", "cpu"))),
    ]
    assert decide([*on.values(), job("j", **asked)], hosts)["j"] == expected


def test_the_dominant_resource_decides_where_the_fit_is_best():
    """By vCPUs the first is fuller, by memory the second: a job that asks for memory above all goes to the second."""
    one, two = resident("r1", "i1", vcpus=12, memory_gib=8), resident("r2", "i2", vcpus=4, memory_gib=40)
    hosts = [host("i1", "cpu", one), host("i2", "cpu", two)]
    assert decide([one, two, job("j", vcpus=1, memory_gib=20)], hosts)["j"] == "i2"
    assert decide([one, two, job("j", vcpus=4, memory_gib=1)], hosts)["j"] == "i1"


def test_the_market_that_is_preferred_and_another_instance_than_the_last_one_come_before_the_fit():
    there = resident("r", "od", gpus=7)
    hosts = [host("od", "gpu8", there, market=Market.ON_DEMAND), host("spot", "gpu8")]
    assert decide([there, job("j", gpus=1)], hosts)["j"] == "spot"
    assert decide([there, job("j", gpus=1, priority=Priority.CRITICAL)], hosts)["j"] == "od"
    lost = JobRecord(
        job_id="j", state=JobState.PENDING, epoch=1, last_owner="spot", last_reason=Reason.NOTICE, changed_at=NOW
    )
    assert decide([there, job("j", gpus=1, record=lost)], hosts)["j"] == "od"
    assert decide([job("j", gpus=1, record=lost)], hosts[1:])["j"] == "spot"


@pytest.mark.parametrize(
    "flaw",
    [
        {"ending": True},
        {"stale": True},
        {"assignment": Assignment(instance_id="i", job_id="r", epoch=1, order=Order.STOP, changed_at=NOW)},
    ],
)
def test_nothing_is_put_beside_a_job_on_an_instance_that_is_not_fit_for_it(flaw):
    there = resident("r", "i", gpus=1)
    assert decide([there, job("j", gpus=1)], [host("i", "gpu8", there, **flaw)])["j"] is Why.NO_FREE_INSTANCE


@pytest.mark.parametrize(
    ("hours", "gpus", "expected"),
    [
        (5, 2, "i"),  # done when the large one can start
        (6, 2, Why.KEPT_FOR_GANG),
        (6, 1, Why.KEPT_FOR_GANG),
        (None, 2, Why.KEPT_FOR_GANG),
        (None, 0, "i"),  # there is room beside both
    ],
)
def test_room_is_lent_until_the_job_ahead_can_start(hours, gpus, expected):
    there = resident("r", "i", hours=5, gpus=6, vcpus=8)
    jobs = [there, job("large", age=20, gpus=8, vcpus=48), job("late", hours=hours, gpus=gpus, vcpus=4)]
    decided = decide(jobs, [host("i", "gpu8", there)])
    assert decided == {"large": Why.NO_FREE_INSTANCE, "late": expected}


def test_other_instances_than_the_one_that_is_kept_are_given_away():
    soon, later = resident("r1", "i1", hours=2, gpus=6), resident("r2", "i2", hours=9, gpus=6)
    hosts = [host("i1", "gpu8", soon), host("i2", "gpu8", later)]
    jobs = [soon, later, job("large", age=20, gpus=8), job("late", gpus=2)]
    assert decide(jobs, hosts) == {"large": Why.NO_FREE_INSTANCE, "late": "i2"}


def test_while_no_end_is_known_the_instance_that_lacks_least_is_kept():
    most, least = resident("r1", "i1", gpus=7), resident("r2", "i2", gpus=3)
    hosts = [host("i1", "gpu8", most), host("i2", "gpu8", least)]
    jobs = [most, least, job("large", age=30, gpus=8), job("a", age=20, gpus=1), job("b", gpus=1)]
    assert decide(jobs, hosts) == {"large": Why.NO_FREE_INSTANCE, "a": "i1", "b": Why.KEPT_FOR_GANG}


def test_behind_as_many_promises_as_are_made_nothing_is_lent_that_the_next_one_could_use():
    there = resident("r", "i", gpus=6, hours=3)
    jobs = [there, job("large", age=20, gpus=8), job("small", gpus=1, hours=1), job("lean", gpus=0, hours=1)]
    hosts = [host("i", "gpu8", there), host("c", "cpu")]
    with patch("everspot_core.schedule.placement.packing.DEPTH", 0):
        decided = decide(jobs, hosts)
    assert decided == {"large": Why.NO_FREE_INSTANCE, "small": Why.KEPT_FOR_GANG, "lean": "c"}
    assert decide(jobs, hosts)["small"] == "i"


def test_a_gang_takes_room_on_different_instances_of_one_type():
    there = resident("r", "i1", gpus=5)
    hosts = [host("i1", "gpu8", there), host("i2", "gpu8"), host("i3", "gpu4"), host("i4", "gpu4")]
    assert decide([there, job("gang", nodes=2, gpus=3)], hosts)["gang"] == {"i3", "i4"}
    assert decide([there, job("gang", nodes=2, gpus=3, gpu_memory_gib=40)], hosts)["gang"] == {"i1", "i2"}
    assert decide([there, job("gang", nodes=3, gpus=3)], hosts)["gang"] is Why.TOO_FEW_FREE


def test_room_is_kept_for_a_critical_job_in_back_off():
    waiting = JobRecord(job_id="crit", state=JobState.PENDING, not_before=NOW + HOUR, changed_at=NOW)
    jobs = [job("crit", gpus=6, priority=Priority.CRITICAL, record=waiting), job("a", age=20, gpus=2), job("b", gpus=2)]
    decided = decide(jobs, [host("i", "gpu8", market=Market.ON_DEMAND)])
    assert decided == {"crit": Why.BACK_OFF, "a": "i", "b": Why.KEPT_FOR_CRITICAL}


@st.composite
def needs(draw: st.DrawFn) -> dict:
    gpus = draw(st.sampled_from([0, 0, 1, 2, 4, 8]))
    return {
        "gpus": gpus,
        "gpu_memory_gib": draw(st.sampled_from([0, 16, 24, 40])) if gpus else 0,
        "vcpus": draw(st.sampled_from([1, 4, 16, 48])),
        "memory_gib": draw(st.sampled_from([0.1, 1, 30, 200])),
    }


@settings(max_examples=settings.default.max_examples * 2, deadline=None)
@given(st.data())
def test_no_instance_is_ever_promised_more_than_it_has_and_no_room_is_left_that_the_first_in_line_could_use(data):
    kinds = data.draw(st.lists(st.sampled_from(sorted(SHAPES)), min_size=1, max_size=4))
    hosts, jobs = [], []
    for n, kind in enumerate(kinds):
        there = []
        if data.draw(st.booleans()) and kind != "cpu":
            there = [resident(f"r{n}", f"i{n}", hours=data.draw(st.sampled_from([None, 1, 4])), gpus=1, vcpus=20)]
        hosts.append(host(f"i{n}", kind, *there))
        jobs += there
    hours = st.sampled_from([None, 1, 3, 9])
    waiting = [
        job(
            f"j{n}",
            age=60 - n,
            hours=data.draw(hours),
            nodes=data.draw(st.sampled_from([1, 1, 1, 2])),
            **data.draw(needs()),
        )
        for n in range(data.draw(st.integers(1, 12)))
    ]
    actions = plan(cluster_view(jobs=(*jobs, *waiting), instances=tuple(hosts), shared=True), NOW)
    asked = {j.job_id: j.submission.spec.resources for j in (*jobs, *waiting)}
    nodes = {j.job_id: j.nodes for j in waiting}
    on = {h.instance_id: list(h.residents) for h in hosts}
    for action in (a for a in actions if isinstance(a, Assign)):
        names = (action.instance_id, *action.gang)
        assert len(set(names)) == nodes[action.job_id]
        for name in names:
            on[name].append(action.job_id)
    left = {}
    for h in hosts:
        record, held = h.record, [asked[n] for n in on[h.instance_id]]
        assert all(r.gpu_memory_gib <= record.gpu_memory_gib for r in held if r.gpus)
        left[h.instance_id] = (
            record.gpus - sum(r.gpus for r in held),
            record.vcpus - sum(r.vcpus for r in held),
            record.memory_gib - sum(r.memory_gib for r in held),
        )
        assert min(left[h.instance_id]) >= -1e-6
    held = [a.job_id for a in actions if isinstance(a, Hold)]
    first = next((j for j in waiting if j.job_id in held), None)
    if first is not None and first.nodes == 1:
        need = first.submission.spec.resources
        for h in hosts:
            room = left[h.instance_id]
            fits = need.gpus <= room[0] and need.vcpus <= room[1] and need.memory_gib <= room[2] - 1e-3
            assert not (fits and need.gpu_memory_gib <= h.record.gpu_memory_gib)


@settings(max_examples=settings.default.max_examples * 3 // 2, deadline=None)
@given(st.data())
def test_what_is_lent_never_puts_off_the_first_in_line(data):
    """The moment at which the first waiting job could start is worked out anew, with what the plan put beside it."""
    spans = st.integers(1, 9)
    hosts, there = [], []
    for n in range(data.draw(st.integers(1, 3))):
        here = [
            resident(f"r{n}.{m}", f"i{n}", hours=data.draw(spans), gpus=data.draw(st.integers(1, 2)))
            for m in range(data.draw(st.integers(0, 4)))
        ]
        hosts.append(host(f"i{n}", "gpu8", *here))
        there += here
    first = job("first", age=90, hours=data.draw(spans), gpus=data.draw(st.integers(3, 8)))
    others = [
        job(f"j{n}", age=60 - n, hours=data.draw(st.one_of(spans, st.none())), gpus=data.draw(st.integers(1, 4)))
        for n in range(data.draw(st.integers(1, 6)))
    ]
    with patch("everspot_core.schedule.placement.packing.DEPTH", data.draw(st.sampled_from([0, 1, 64]))):
        decided = decide([*there, first, *others], hosts)
    if isinstance(decided["first"], str) and decided["first"] != Why.NO_FREE_INSTANCE:
        return
    before = {j.job_id: h.instance_id for h in hosts for j in there if j.job_id in h.residents}
    after = before | {n: i for n, i in decided.items() if n != "first" and i in {h.instance_id for h in hosts}}
    views = {j.job_id: j for j in (*there, *others)}

    def start(placed: dict[str, str]) -> float:
        return min(
            _room_after(h.instance_id, first, [views[n] for n, i in placed.items() if i == h.instance_id])
            for h in hosts
        )

    assert start(after) == start(before)


def _room_after(iid: str, wanted: JobView, held: list[JobView]) -> float:
    ends = sorted({0.0, *(v.outlook.left_upper / HOUR for v in held if v.outlook)})
    need = wanted.submission.spec.resources.gpus
    for end in ends:
        still = [v for v in held if v.outlook is None or v.outlook.left_upper / HOUR > end]
        if 8 - sum(v.submission.spec.resources.gpus for v in still) >= need:
            return end
    return float("inf")


def test_a_full_cluster_is_packed_without_a_gap_where_sizes_allow_it():
    jobs = [job(f"j{n:02}", age=90 - n, gpus=g) for n, g in enumerate([4, 4, 2, 2, 2, 2, 8, 1, 1, 1, 1, 4])]
    decided = decide(jobs, [host(f"i{n}", "gpu8") for n in range(4)])
    assert all(str(i).startswith("i") for i in decided.values())
