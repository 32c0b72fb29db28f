"""Properties of backfill: it never delays a job that is ahead in the queue."""

from dataclasses import replace
from math import inf
from unittest.mock import patch

from everspot_core.jobs.records import Market
from everspot_core.schedule import Assign, ClusterView, JobView, plan
from everspot_core.schedule.placement.exclusive import Timeline
from gang_helpers import HOUR, NOW, busy, free, job
from hypothesis import given, settings
from hypothesis import strategies as st
from view_helpers import cluster_view


@given(
    st.integers(0, 4),
    st.lists(st.one_of(st.integers(1, 12).map(float), st.just(inf)), max_size=5),
    st.lists(st.tuples(st.integers(1, 4), st.one_of(st.integers(1, 9).map(float), st.just(inf))), max_size=5),
)
def test_the_timeline_agrees_with_counting_hour_by_hour(free_now, ends, requests):
    line, reservations = Timeline(free_now, ends), []

    def count(hour: float) -> int:
        used = sum(n for n, start, hours in reservations if start <= hour < start + hours)
        return free_now + sum(e <= hour for e in ends) - used

    far = [float(h) for h in range(120)]
    for nodes, hours in requests:
        good = [h for h in far[:70] if all(count(t) >= nodes for t in far if h <= t < h + hours)]
        assert line.earliest(nodes, hours) == (good[0] if good else inf)
        until = next((h for h in far if count(h) < nodes), inf)
        assert line.enough_until(nodes) == until
        if good:
            line.take(nodes, good[0], hours)
            reservations.append((nodes, good[0], hours))


class Cluster:
    """A cluster where everything takes its maximum time. Time advances in hours."""

    def __init__(self, kinds: list[str], markets: list[Market], running: list[tuple[int, int | None]]) -> None:
        self.instances = {
            f"i{n}": free(f"i{n}", kind, market) for n, (kind, market) in enumerate(zip(kinds, markets, strict=True))
        }
        self.busy: dict[str, tuple[str, float]] = {}
        for n, (place, hours) in enumerate(running):
            self.busy[f"i{place % len(kinds)}"] = f"r{n}", inf if hours is None else float(hours)

    def run(self, jobs: list[JobView], hours: int = 40) -> dict[str, int]:
        """When each of the jobs starts."""
        starts: dict[str, int] = {}
        for hour in range(hours):
            self.busy = {i: occupant for i, occupant in self.busy.items() if occupant[1] > hour}
            waiting = [j for j in jobs if j.job_id not in starts]
            view = self._view(waiting, hour)
            for action in plan(view, NOW):
                if isinstance(action, Assign):
                    (chosen,) = (j for j in waiting if j.job_id == action.job_id)
                    self._start(chosen, [action.instance_id, *action.gang], hour)
                    starts[action.job_id] = hour
        return starts

    def _start(self, chosen: JobView, names: list[str], hour: int) -> None:
        assert len(names) == chosen.nodes == len(set(names))
        assert len({self.instances[n].record.instance_type for n in names}) == 1
        outlook = chosen.outlook
        lasts = inf if outlook is None else (outlook.remaining_upper + outlook.changeover_upper) / HOUR
        for name in names:
            assert name not in self.busy
            assert chosen.submission.spec.resources.vcpus <= self.instances[name].record.vcpus
            self.busy[name] = f"{chosen.job_id}.{name}", hour + lasts

    def _view(self, waiting: list[JobView], hour: int) -> ClusterView:
        jobs, instances = list(waiting), []
        for name, instance in self.instances.items():
            if name not in self.busy:
                instances.append(instance)
                continue
            _, end = self.busy[name]
            runner, holder = busy(name, None if end == inf else end - hour, instance.record.instance_type)
            market = holder.record.model_copy(update={"market": instance.record.market})
            jobs.append(runner)
            instances.append(replace(holder, record=market))
        return cluster_view(jobs=tuple(jobs), instances=tuple(instances))


@st.composite
def waiting_jobs(draw: st.DrawFn, name: str, age: float) -> JobView:
    return job(
        name,
        draw(st.sampled_from([1, 1, 1, 2, 2, 3, 4])),
        draw(st.one_of(st.integers(1, 8), st.sampled_from([2, 4, None]))),
        age=age,
        vcpus=draw(st.sampled_from([1, 1, 4])),
    )


@settings(max_examples=settings.default.max_examples // 2, deadline=None)
@given(st.data())
def test_no_job_starts_later_for_the_jobs_behind_it(data):
    size = data.draw(st.integers(1, 7))
    kinds = data.draw(st.lists(st.sampled_from(["a", "a", "b"]), min_size=size, max_size=size))
    markets = data.draw(st.lists(st.sampled_from(Market), min_size=size, max_size=size))
    running = data.draw(
        st.lists(st.tuples(st.integers(0, size), st.one_of(st.integers(1, 9), st.none())), max_size=size)
    )
    ahead = [data.draw(waiting_jobs(f"j{n}", 60 - n)) for n in range(data.draw(st.integers(1, 5)))]
    behind = [data.draw(waiting_jobs(f"k{n}", 30 - n)) for n in range(data.draw(st.integers(1, 4)))]
    with patch("everspot_core.schedule.placement.exclusive.DEPTH", data.draw(st.sampled_from([0, 1, 2, 64]))):
        alone = Cluster(kinds, markets, running).run(ahead)
        together = Cluster(kinds, markets, running).run([*ahead, *behind])
    for view in ahead:
        assert together.get(view.job_id, inf) <= alone.get(view.job_id, inf)
