"""Properties of shared instances: none is overcommitted, and lending room delays no other job."""

from unittest.mock import patch

from everspot_core.schedule import Assign, Hold, JobView, Why, plan
from hypothesis import given, settings
from hypothesis import strategies as st
from sharing_helpers import HOUR, NOW, SHAPES, decide, host, job, resident
from view_helpers import cluster_view


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
        residents = []
        if data.draw(st.booleans()) and kind != "cpu":
            residents = [resident(f"r{n}", f"i{n}", hours=data.draw(st.sampled_from([None, 1, 4])), gpus=1, vcpus=20)]
        hosts.append(host(f"i{n}", kind, *residents))
        jobs += residents
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
    need_by_job = {j.job_id: j.submission.spec.resources for j in (*jobs, *waiting)}
    nodes = {j.job_id: j.nodes for j in waiting}
    on = {h.instance_id: list(h.residents) for h in hosts}
    for action in (a for a in actions if isinstance(a, Assign)):
        names = (action.instance_id, *action.gang)
        assert len(set(names)) == nodes[action.job_id]
        for name in names:
            on[name].append(action.job_id)
    free_by_host = {}
    for h in hosts:
        record, resident_needs = h.record, [need_by_job[n] for n in on[h.instance_id]]
        assert all(r.gpu_memory_gib <= record.gpu_memory_gib for r in resident_needs if r.gpus)
        free_by_host[h.instance_id] = (
            record.gpus - sum(r.gpus for r in resident_needs),
            record.vcpus - sum(r.vcpus for r in resident_needs),
            record.memory_gib - sum(r.memory_gib for r in resident_needs),
        )
        assert min(free_by_host[h.instance_id]) >= -1e-6
    resident_needs = [a.job_id for a in actions if isinstance(a, Hold)]
    first = next((j for j in waiting if j.job_id in resident_needs), None)
    if first is not None and first.nodes == 1:
        need = first.submission.spec.resources
        for h in hosts:
            room = free_by_host[h.instance_id]
            fits = need.gpus <= room[0] and need.vcpus <= room[1] and need.memory_gib <= room[2] - 1e-3
            assert not (fits and need.gpu_memory_gib <= h.record.gpu_memory_gib)


@settings(max_examples=settings.default.max_examples * 3 // 2, deadline=None)
@given(st.data())
def test_what_is_lent_never_puts_off_the_first_in_line(data):
    """The start time of the first waiting job is computed again with the jobs that the plan placed."""
    spans = st.integers(1, 9)
    hosts, residents = [], []
    for n in range(data.draw(st.integers(1, 3))):
        here = [
            resident(f"r{n}.{m}", f"i{n}", hours=data.draw(spans), gpus=data.draw(st.integers(1, 2)))
            for m in range(data.draw(st.integers(0, 4)))
        ]
        hosts.append(host(f"i{n}", "gpu8", *here))
        residents += here
    first = job("first", age=90, hours=data.draw(spans), gpus=data.draw(st.integers(3, 8)))
    others = [
        job(f"j{n}", age=60 - n, hours=data.draw(st.one_of(spans, st.none())), gpus=data.draw(st.integers(1, 4)))
        for n in range(data.draw(st.integers(1, 6)))
    ]
    with patch("everspot_core.schedule.placement.packing.DEPTH", data.draw(st.sampled_from([0, 1, 64]))):
        decided = decide([*residents, first, *others], hosts)
    if isinstance(decided["first"], str) and decided["first"] != Why.NO_FREE_INSTANCE:
        return
    before = {j.job_id: h.instance_id for h in hosts for j in residents if j.job_id in h.residents}
    after = before | {n: i for n, i in decided.items() if n != "first" and i in {h.instance_id for h in hosts}}
    views = {j.job_id: j for j in (*residents, *others)}

    def start(placed: dict[str, str]) -> float:
        return min(
            _room_after(h.instance_id, first, [views[n] for n, i in placed.items() if i == h.instance_id])
            for h in hosts
        )

    assert start(after) == start(before)


def _room_after(iid: str, waiting_job: JobView, resident_jobs: list[JobView]) -> float:
    ends = sorted({0.0, *(v.outlook.remaining_upper / HOUR for v in resident_jobs if v.outlook)})
    need = waiting_job.submission.spec.resources.gpus
    for end in ends:
        still = [v for v in resident_jobs if v.outlook is None or v.outlook.remaining_upper / HOUR > end]
        if 8 - sum(v.submission.spec.resources.gpus for v in still) >= need:
            return end
    return float("inf")


def test_a_full_cluster_is_packed_without_a_gap_where_sizes_allow_it():
    jobs = [job(f"j{n:02}", age=90 - n, gpus=g) for n, g in enumerate([4, 4, 2, 2, 2, 2, 8, 1, 1, 1, 1, 4])]
    decided = decide(jobs, [host(f"i{n}", "gpu8") for n in range(4)])
    assert all(str(i).startswith("i") for i in decided.values())
