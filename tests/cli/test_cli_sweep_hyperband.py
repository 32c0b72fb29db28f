"""`everspot sweep` with hyperband: the trials that are ended, and their steps."""

import math
import zlib
from typing import Any

from everspot_core.experiments.sweep import trial_job
from everspot_core.jobs.records import Reason
from sweep_helpers import Playground, under_way

HYPERBAND: dict[str, Any] = {"parallel": 16, "trials": 16, "pruner": "hyperband", "min_steps": 10}


def brackets(count: int, total: int, least: int, name: str = "rates") -> dict[int, set[str]]:
    """Which trials are in which bracket, as the paper has it (Li et al., 2018, algorithm 1; a third goes on): of n + 1
    brackets the s-th from the end has (n + 1) / (s + 1) x 3^s shares of the trials, which fall to it by their names'
    checksums."""
    last = int(math.log(total / least, 3))
    shares = [math.ceil((last + 1) * 3**s / (s + 1)) for s in range(last, -1, -1)]
    owners = [b for b, share in enumerate(shares) for _ in range(share)]
    jobs_by_bracket: dict[int, set[str]] = {b: set() for b in range(last + 1)}
    for n in range(count):
        jobs_by_bracket[owners[zlib.crc32(f"{name}_{n}".encode()) % len(owners)]].add(trial_job(name, n))
    return jobs_by_bracket


def worst_come_last(play: Playground, step: int, total: int | None = 100) -> None:
    """All that run report at this step; the later a trial's number, the worse."""
    for job in play.world.store.jobs.names():
        if play.world.record(job) is not None and not play.world.record(job).state.final:
            play.reports(job, step, 1 - int(job[-4:]) / 100, total)


def test_hyperband_ends_trials_of_a_bracket_at_its_steps_and_not_before(play: Playground) -> None:
    """100 steps, from 10 on: three brackets, which look at steps 10, 30 and 90 first."""
    jobs_by_bracket = brackets(16, 100, 10)
    assert all(len(jobs) >= 2 for jobs in jobs_by_bracket.values()), "the test needs two in each"
    play.sweep(**HYPERBAND).turn()
    for job in play.waiting():
        play.start(job)
    expected: set[str] = set()
    for step, patience in ((9, -1), (10, 0), (29, 0), (30, 1), (89, 1), (90, 2)):
        worst_come_last(play, step)
        play.sweep(**HYPERBAND).turn()  # another process each time
        ended = set(play.world.store.cancels.names())
        beyond = set().union(*(jobs for bracket, jobs in jobs_by_bracket.items() if bracket > patience))
        assert not ended & beyond, f"step {step}"
        assert expected <= ended
        if step == 10 * 3 ** max(patience, 0) and patience >= 0:
            assert ended & jobs_by_bracket[patience], f"step {step}"
            assert min(jobs_by_bracket[patience]) not in ended, "the best of its bracket goes on"
        expected = ended


def test_hyperband_without_known_steps_waits_for_the_first_trial_to_end_and_then_keeps_to_its_steps(
    play: Playground,
) -> None:
    play.sweep(**HYPERBAND).turn()
    for job in play.waiting():
        play.start(job)
    for step in (10, 30):
        worst_come_last(play, step, None)
        play.sweep(**HYPERBAND).turn()
    assert play.world.store.cancels.names() == []
    play.reports("rates-t0000", 100, 1.0, None)
    play.ends("rates-t0000", Reason.FINISHED)
    play.sweep(**HYPERBAND).turn()
    worst_come_last(play, 31, None)
    play.sweep(**HYPERBAND).turn()
    jobs_by_bracket = brackets(16, 100, 10)
    ended = set(play.world.store.cancels.names())
    assert ended
    assert not ended & jobs_by_bracket[2]
    survivor = max(jobs_by_bracket[2])  # one that is far longer changes no bracket
    play.reports(survivor, 10_000, 2.0, None)
    play.ends(survivor, Reason.FINISHED)
    play.sweep(**HYPERBAND).turn()
    worst_come_last(play, 89, None)
    play.sweep(**HYPERBAND).turn()
    assert not set(play.world.store.cancels.names()) & jobs_by_bracket[2]


def test_a_hyperband_sweep_keeps_its_caps_and_comes_to_its_end_with_the_best_trial(play: Playground) -> None:
    """Whole: trials begin where others end, each turn is another process, and what is pruned is a trial that counts."""
    many = HYPERBAND | {"parallel": 6, "trials": 12}
    worth = {trial_job("rates", n): (5 * n) % 12 / 12 for n in range(12)}
    steps: dict[str, int] = {}
    reached: dict[str, int] = {}
    for _ in range(40):
        standing = play.sweep(**many).turn()
        assert len(under_way(standing)) <= 6
        assert len(standing.trials) <= 12
        if standing.over:
            break
        for job in play.waiting():
            play.start(job)
            steps[job] = 0
        for job in list(steps):
            if play.world.store.cancels.get(job) is not None:
                reached[job] = steps.pop(job)
                play.ends(job, Reason.CANCEL)
                continue
            steps[job] += 30
            play.reports(job, min(100, steps[job]), worth[job])
            if steps[job] >= 100:
                del steps[job]
                play.ends(job, Reason.FINISHED)
    assert standing.over
    states = {t.job_id: t.state for t in standing.trials}
    assert set(states.values()) == {"COMPLETE", "PRUNED"}
    assert {job for job, state in states.items() if state == "PRUNED"} == set(reached)
    assert min(reached.values()) >= 10
    assert states[max(worth, key=lambda job: worth[job])] == "COMPLETE", "no other is better at any step"
    assert set(states) == set(worth)


def test_a_hyperband_sweep_ends_at_its_budget(play: Playground) -> None:
    poor = HYPERBAND | {"parallel": 3, "budget": {"dollars": 0.1}}
    play.sweep(**poor).turn()
    first, *others = play.waiting()
    for job in (first, *others):
        play.start(job)
        play.reports(job, 5, 0.5)
    play.ends(first, Reason.FINISHED)
    play.world.to(play.seconds + 3600)
    for job in others:
        play.renews(job)
    standing = play.sweep(**poor).turn()
    assert standing.exhausted
    assert len(standing.trials) == 3
    assert sorted(play.world.store.cancels.names()) == others
