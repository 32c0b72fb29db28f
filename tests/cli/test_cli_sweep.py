"""`everspot sweep`: the study is in the store, trials are jobs, and the command can be interrupted at any moment."""

import pkgutil
from datetime import timedelta
from typing import Any

import pytest
from everspot_cli.sweeping import study as optuna
from everspot_core.experiments.sweep import trial_job
from everspot_core.jobs.records import JobState, Reason
from everspot_core.jobs.visit_records import Away, Trip, TripEnd
from everspot_store.studies import Journal, Studies
from sweep_helpers import Playground, record, under_way


def test_every_trial_is_a_job_and_each_turn_may_be_another_process(play: Playground) -> None:
    ended_jobs: set[str] = set()
    for _ in range(20):
        standing = play.sweep().turn()
        assert len(under_way(play.sweep().turn(act=False))) <= 2
        if standing.over:
            break
        for job in play.waiting():
            play.start(job)
            lr = play.world.store.jobs.get(job).value.spec.parameters["learning_rate"]
            play.reports(job, 100, 1 - abs(lr - 0.01))
            play.ends(job, Reason.FINISHED)
            ended_jobs.add(job)
    assert standing.over
    assert ended_jobs == {f"rates-t{n:04d}" for n in range(6)}
    assert {t.state for t in standing.trials} == {"COMPLETE"}
    for trial in standing.trials:
        spec = play.world.store.jobs.get(trial.job_id).value.spec
        assert spec.parameters == {"learning_rate": trial.fields["parameters.learning_rate"]}
        assert (spec.env["SEED"], spec.tags) == (str(trial.fields["env.SEED"]), {"Sweep": "rates"})
        assert trial.value == pytest.approx(1 - abs(spec.parameters["learning_rate"] - 0.01))
    play.world.store.studies.begin(record(play))
    answer = play.world.run("sweep", str(play.write()), "--json").json
    best = max(standing.trials, key=lambda t: t.value or 0)
    assert (answer["best"], answer["over"]) == (best.job_id, True)
    assert answer["cost_usd"] == pytest.approx(6 * 0.096 * 3600 / 3600, rel=0.01), "an hour of m6i.large each"
    assert answer["cost_per_trial_usd"] == pytest.approx(answer["cost_usd"] / 6, rel=1e-4)
    assert answer["cost_per_useful_trial_usd"] == answer["cost_per_trial_usd"]
    out = play.world.run("sweep", str(play.write()), "--show").out
    assert "for each useful one" in out
    assert f"{best.job_id}" in out


def test_a_command_that_dies_between_choosing_and_submitting_leaves_no_trial_behind(play: Playground) -> None:
    sweep = play.sweep()
    study = optuna.open_study(sweep._spec, play.world.store.studies.journal("rates"), create=True)
    study.add_trial(optuna.choose_trial(study, sweep._spec))
    assert play.waiting() == []
    play.sweep().turn()
    assert play.waiting() == ["rates-t0000", "rates-t0001"]


def test_a_command_that_goes_on_repeats_no_values_and_a_seed_gives_the_same_ones_with_and_without_a_stop(
    play: Playground,
) -> None:
    def values(name: str, commands: int) -> list[float]:
        spec = play.sweep(name=name)._spec
        for _ in range(commands):
            study = optuna.open_study(spec, play.world.store.studies.journal(name), create=True)
            for _ in range(6 // commands):
                study.add_trial(optuna.choose_trial(study, spec))
                optuna.complete(study, study.trials[-1], 0.5, [])
        return [trial.params["parameters.learning_rate"] for trial in study.trials]

    without_stop = values("rates", 1)
    assert len(set(without_stop)) == 6
    assert values("stopped", 3) == without_stop


def test_a_trial_that_is_interrupted_goes_on_and_one_that_fails_is_one(play: Playground) -> None:
    play.sweep().turn()
    first, second = play.waiting()
    for job in (first, second):
        play.start(job)
    play.reports(first, 10, 0.5)
    play.ends(first, Reason.NOTICE)
    play.ends(second, Reason.BUDGET)
    standing = play.sweep().turn()
    play.start(first)
    play.reports(first, 100, 0.9)
    play.ends(first, Reason.FINISHED)
    play.sweep().turn()
    standing = play.sweep().turn()
    assert [(t.state, t.value) for t in standing.trials[:2]] == [("COMPLETE", 0.9), ("FAIL", None)]


def test_trials_that_do_worse_at_the_same_step_are_cancelled(play: Playground) -> None:
    many = {"parallel": 8, "trials": 8, "pruner": "asha", "min_steps": 10}
    play.sweep(**many).turn()
    jobs = play.waiting()
    for rank, job in enumerate(jobs):
        play.start(job)
        play.reports(job, 10, 1.0 - 0.1 * rank)
    play.sweep(**many).turn()
    ended = set(play.world.store.cancels.names())
    assert jobs[0] not in ended, "the best goes on"
    assert jobs[-1] in ended
    for job in sorted(ended):
        play.ends(job, Reason.CANCEL)
    play.sweep(**many).turn()
    states = {t.job_id: t.state for t in play.sweep(**many).turn().trials}
    assert {states[job] for job in ended} == {"PRUNED"}
    assert {states[job] for job in set(jobs) - ended} == {"RUNNING"}


def test_trials_that_ended_between_two_looks_are_compared_with_those_that_run(play: Playground) -> None:
    many = {"parallel": 2, "trials": 2, "pruner": "asha", "min_steps": 10}
    play.sweep(**many).turn()
    good, bad = play.waiting()
    for job in (good, bad):
        play.start(job)
    play.reports(good, 100, 0.9)
    play.ends(good, Reason.FINISHED)  # no command has read it since it began
    play.sweep(**many).turn()
    play.reports(bad, 10, 0.1)
    play.sweep(**many).turn()
    assert play.world.store.cancels.names() == [bad]


def test_trials_that_are_first_seen_late_are_compared_by_their_values_at_each_rung(play: Playground) -> None:
    """The command was away while the first trials ran to step 5,000. A better one that is seen at step 12 goes on."""
    many = {"parallel": 4, "trials": 4, "pruner": "asha", "min_steps": 10}
    play.sweep(**many).turn()
    *early, late = play.waiting()
    for job in (*early, late):
        play.start(job)
    for rank, job in enumerate(early):
        points = {step: (0.8 - 0.01 * rank) * step / (step + 1000) for step in range(0, 5001, 10)}
        lines = [f'{{"step": {step}, "metrics": {{"test_accuracy": {value}}}}}\n' for step, value in points.items()]
        play.world.store.metrics.append(job, 1, 0, "".join(lines).encode())
        play.reports(job, 5000, points[5000], 6000)
    play.sweep(**many).turn()
    play.reports(late, 12, 0.95 * 12 / 1012, 6000)
    play.sweep(**many).turn()
    assert late not in play.world.store.cancels.names()


def test_without_a_pruner_nothing_is_ended_early(play: Playground) -> None:
    many = {"parallel": 4, "trials": 4, "pruner": "none"}
    play.sweep(**many).turn()
    for rank, job in enumerate(play.waiting()):
        play.start(job)
        play.reports(job, 50, -float(rank))
    play.sweep(**many).turn()
    assert play.world.store.cancels.names() == []


def test_what_a_trial_has_cost_at_other_clusters_is_of_the_sweeps_budget(play: Playground) -> None:
    poor = {"budget": {"dollars": 30.0}}
    play.sweep(**poor).turn()
    play.start("rates-t0000")
    at, record = play.world.clock.now(), play.world.record("rates-t0000")
    before = play.sweep(**poor).turn(act=False).trials[0].spent
    trip = Trip(cluster="there", visit="v", number=1, since=at, until=at, end=TripEnd.RETURNED, usd=3.0, gpu_hours=2.0)
    play.world.save(record.model_copy(update={"trips": [trip.model_copy(update={"egress_usd": 0.5})]}))
    standing = play.sweep(**poor).turn(act=False)
    assert standing.trials[0].spent.dollars == pytest.approx(before.dollars + 3.5) and not standing.exhausted
    assert standing.trials[0].spent.gpu_hours == pytest.approx(before.gpu_hours + 2.0)
    visit = Away(cluster="there", visit="w", number=2, since=at, usd=40.0)
    away = {"state": JobState.AWAY, "owner": None, "away": visit, "trips": [trip]}
    play.world.save(record.model_copy(update=away))  # and what the host says of a visit that goes on
    standing = play.sweep(**poor).turn(act=False)
    assert standing.trials[0].spent.dollars >= 43.0 and standing.exhausted


def test_no_trial_begins_and_running_ones_finish_once_the_best_does_not_improve(play: Playground) -> None:
    rule = {"stop": {"min_delta": "1%", "trials": 2}, "pruner": "none"}
    values = iter([0.9, 0.905, 0.9, 0.8, 0.8, 0.8])
    for _ in range(20):
        standing = play.sweep(**rule).turn()
        if standing.over:
            break
        for job in play.waiting()[:1]:  # one at a time: the other one runs on
            play.start(job)
            play.reports(job, 100, next(values))
            play.ends(job, Reason.FINISHED)
    assert standing.over
    assert [trial.value for trial in standing.trials] == [0.9, 0.905, 0.9, 0.8]
    assert standing.stopped == "the best test_accuracy has not improved by 1% in 3 trials"
    assert play.world.store.cancels.names() == []
    play.world.store.studies.begin(record(play, **rule))
    assert play.world.run("sweep", str(play.write(**rule)), "--json").json["stopped"] == standing.stopped
    shown = " ".join(play.world.run("sweep", str(play.write(**rule)), "--show").out.split())
    assert f"No further trial: {standing.stopped}." in shown


def test_nothing_begins_and_nothing_goes_on_once_the_budget_is_used_up(play: Playground) -> None:
    poor = {"budget": {"dollars": 0.1}}
    play.sweep(**poor).turn()
    first, second = play.waiting()
    play.start(first)
    play.reports(first, 100, 0.5)
    play.ends(first, Reason.FINISHED)
    play.sweep(**poor).turn()
    third = next(job for job in play.waiting() if job != second)
    for job in (second, third):
        play.start(job)
    play.reports(second, 100, 0.6)
    play.ends(second, Reason.FINISHED)  # some $0.19 by now
    standing = play.sweep(**poor).turn()
    assert standing.exhausted
    assert third in play.world.store.cancels.names()
    play.ends(third, Reason.CANCEL)
    play.sweep(**poor).turn()
    standing = play.sweep(**poor).turn()
    assert standing.over
    assert len(standing.trials) == 3
    assert play.world.record(third).state is JobState.CANCELLED


def test_a_silent_trial_costs_up_to_its_last_renewal_and_ends_no_other_trial(play: Playground) -> None:
    """While no scheduler runs, neither the end of an instance nor the loss of its trial is written."""
    caps = {"budget": {"dollars": 8.0}}
    play.sweep(**caps).turn()
    silent, healthy = play.waiting()
    play.start(silent)
    play.start(healthy)
    play.renews(healthy)
    last_renewal = play.world.record(silent).changed_at + timedelta(hours=1)
    play.world.save(play.world.record(silent).model_copy(update={"changed_at": last_renewal}))
    standing = play.sweep(**caps).turn()
    assert [trial.spent.dollars for trial in standing.trials] == [
        pytest.approx(0.096, rel=0.01),
        pytest.approx(48 * 0.096, rel=0.01),
    ]
    assert not play.world.store.cancels.names()


def test_two_writers_of_a_journal_lose_nothing_of_each_other(play: Playground) -> None:
    studies = Studies(play.world.store.control)
    writer, other = studies.journal("x"), studies.journal("x")
    writer.append_logs([{"op": 1}])
    other.append_logs([{"op": 2}, {"op": 3}])
    writer.append_logs([{"op": 4}])
    expected = [{"op": n} for n in (1, 2, 3, 4)]
    for journal in (writer, other, studies.journal("x")):
        assert journal.read_logs(0) == expected
    assert writer.read_logs(2) == expected[2:]
    assert isinstance(writer, Journal)


@pytest.mark.parametrize("options", [(), ("--from-scratch",)])
def test_what_a_retry_of_a_trial_costs_is_of_the_sweeps_budget_and_report(
    play: Playground, options: tuple[str, ...]
) -> None:
    caps = {"trials": 3, "parallel": 1, "budget": {"dollars": 1.5 * 0.096}}
    play.world.store.studies.begin(record(play, **caps))
    play.sweep(**caps).turn()
    play.start("rates-t0000")
    play.reports("rates-t0000", 50, 0.5)
    play.ends("rates-t0000", Reason.BUDGET)
    again = play.world.run("retry", "rates-t0000", *options, "--json").json["job_id"]
    running = play.sweep(**caps)
    assert not running.turn(act=False).exhausted
    play.start(again)
    play.reports(again, 100, 0.9)
    play.ends(again, Reason.FINISHED)
    standings = [sweep.turn(act=False) for sweep in (running, play.sweep(**caps))]
    assert [standing.exhausted for standing in standings] == [True, True]
    assert [standing.spent.dollars for standing in standings] == [pytest.approx(2 * 0.096, rel=0.01)] * 2
    assert [trial.spent.dollars for trial in standings[0].trials] == [pytest.approx(0.096, rel=0.01)]
    (row,) = play.world.run("--json", "report").json["sweeps"]
    assert (row["trials"], row["cost_usd"]) == (1, pytest.approx(standings[0].spent.dollars, rel=1e-6))


@pytest.mark.parametrize("moment", ["everspot_cli.sweeping.study.choose_trial", "everspot_cli.sweeping.runner.send"])
@pytest.mark.parametrize("caps", [{"trials": 2, "parallel": 2}, {"trials": 6, "parallel": 2}])
def test_two_commands_of_a_sweep_together_keep_its_caps(
    play: Playground, monkeypatch: pytest.MonkeyPatch, moment: str, caps: dict[str, int]
) -> None:
    """The second command has its turn while the first one chooses values, or packs the code of its first trial."""
    first, second = play.sweep(**caps), play.sweep(**caps)
    original, turns = pkgutil.resolve_name(moment), iter([second.turn])

    def interrupted(*args: Any, **options: Any) -> Any:
        result = original(*args, **options)
        for turn in turns:
            turn()
        return result

    monkeypatch.setattr(moment, interrupted)
    first.turn()
    assert play.waiting() == ["rates-t0000", "rates-t0001"]
    assert len(play.sweep(**caps).turn(act=False).trials) == 2


def test_a_line_is_printed_when_trials_change_state_and_not_when_a_cent_more_is_spent(
    play: Playground, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = play.world.clock
    monkeypatch.setattr("everspot_store.SystemClock.from_environment", lambda: clock)
    polls = iter(range(8))

    def go_on(_: Any) -> None:
        poll = next(polls)
        if poll == 0:
            play.seconds = 600
            play.start(play.waiting()[0])
        if poll == 4:
            play.reports("rates-t0000", 100, 0.5)
            play.ends("rates-t0000", Reason.FINISHED)
        if poll == 7:
            raise KeyboardInterrupt

    monkeypatch.setattr(clock, "on_sleep", go_on)
    answer = play.world.run("sweep", str(play.write()))
    assert answer.code == 130, answer.err
    lines = [line for line in answer.err.splitlines() if "under way" in line]
    assert [line.partition(";")[0] for line in lines] == [
        "2 of 6 trials: 2 under way, 0 done, 0 ended early, 0 failed",
        "3 of 6 trials: 2 under way, 1 done, 0 ended early, 0 failed",
    ]


def test_ids_of_trials_follow_from_their_numbers() -> None:
    assert trial_job("rates", 12) == "rates-t0012"
