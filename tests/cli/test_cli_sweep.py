"""`everspot sweep`: a study in the store, trials that are jobs, and a command that may end at any moment."""

import json
import math
import zlib
from pathlib import Path
from typing import Any

import pytest
from everspot_cli.session import Session
from everspot_cli.sweeping import study as optuna
from everspot_cli.sweeping.runner import SweepRun, SweepStanding
from everspot_core.records import EventKind, JobState, Progress, Reason
from everspot_core.sweep import SweepRecord, SweepSpec, sweep_of, trial_job
from everspot_store.studies import Journal, Studies

SWEEP: dict[str, Any] = {
    "name": "rates",
    "job": "train.yaml",
    "metric": "accuracy",
    "fields": {"parameters.learning_rate": {"low": 0.001, "high": 0.1, "log": True}, "env.SEED": {"choices": [1, 2]}},
    "trials": 6,
    "parallel": 2,
    "seed": 1,
}
ENDS = {
    Reason.FINISHED: EventKind.FINISHED,
    Reason.NOTICE: EventKind.INTERRUPTED,
    Reason.BUDGET: EventKind.FAILED,
    Reason.CANCEL: EventKind.CANCELLED,
}


class Playground:
    """The cluster, a sweep on it, and what its jobs do."""

    def __init__(self, world: Any, folder: Path) -> None:
        self.world, self.folder = world, folder
        (folder / "train.yaml").write_text("name: train\nrecipe: image-classification\n")
        world.launch("i-base", 0)
        self.seconds = 10

    def write(self, **more: Any) -> Path:
        path = self.folder / "sweep.yaml"
        path.write_text(json.dumps(SWEEP | more).replace("Infinity", ".inf").replace("NaN", ".nan"))  # as YAML has them
        return path

    def sweep(self, **more: Any) -> SweepRun:
        """As a command finds it that has just been started."""
        session = Session()
        session.store_option = self.world.url
        return SweepRun(session, SweepSpec.model_validate(SWEEP | more), self.folder / "train.yaml")

    def start(self, job: str) -> None:
        self.seconds += 10
        self.world.assign(job, "i-base", self.seconds)
        self.world.start(job, self.seconds + 1)

    def reports(self, job: str, step: int, value: float, total: int | None = 100) -> None:
        record = self.world.record(job)
        progress = Progress(step=step, total_steps=total, metrics={"accuracy": value})
        self.world.save(record.model_copy(update={"progress": progress}))

    def ends(self, job: str, reason: Reason) -> None:
        self.seconds += 3600
        record, kind = self.world.record(job), ENDS[reason]
        self.world.to(self.seconds)
        data = {"step": record.progress.step, "metrics": record.progress.metrics}
        self.world.tell(job, kind, reason=reason.value, **data)
        self.world.leave(job, self.seconds, reason)

    def waiting(self) -> list[str]:
        return sorted(job for job in self.world.store.jobs.names() if self.world.record(job) is None)


@pytest.fixture
def play(world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Playground:
    monkeypatch.setenv("EVERSPOT_CLOCK", "1e-12@1772539200")  # two days after the world's, and so it stays
    return Playground(world, tmp_path)


def under_way(standing: SweepStanding) -> list[str]:
    return [t.job_id for t in standing.trials if t.state == "RUNNING"]


def test_every_trial_is_a_job_and_each_turn_may_be_another_process(play: Playground) -> None:
    seen: set[str] = set()
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
            seen.add(job)
    assert standing.over
    assert seen == {f"rates-t{n:04d}" for n in range(6)}
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
    said = play.world.run("sweep", str(play.write()), "--show").out
    assert "for each useful one" in said
    assert f"{best.job_id}" in said


def record(play: Playground, **more: Any) -> SweepRecord:
    return SweepRecord(spec=SweepSpec.model_validate(SWEEP | more), made_at=play.world.clock.now())


def test_a_command_that_dies_between_choosing_and_submitting_leaves_no_trial_behind(play: Playground) -> None:
    sweep = play.sweep()
    optuna.ask(sweep._study, sweep._spec)
    assert play.waiting() == []
    play.sweep().turn()
    assert play.waiting() == ["rates-t0000", "rates-t0001"]


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


HYPERBAND: dict[str, Any] = {"parallel": 16, "trials": 16, "pruner": "hyperband", "min_steps": 10}


def brackets(count: int, total: int, least: int, name: str = "rates") -> dict[int, set[str]]:
    """Which trials are in which bracket, as the paper has it (Li et al., 2018, algorithm 1; a third goes on): of n + 1
    brackets the s-th from the end has (n + 1) / (s + 1) x 3^s shares of the trials, which fall to it by their names'
    checksums."""
    last = int(math.log(total / least, 3))
    shares = [math.ceil((last + 1) * 3**s / (s + 1)) for s in range(last, -1, -1)]
    owners = [b for b, share in enumerate(shares) for _ in range(share)]
    found: dict[int, set[str]] = {b: set() for b in range(last + 1)}
    for n in range(count):
        found[owners[zlib.crc32(f"{name}_{n}".encode()) % len(owners)]].add(trial_job(name, n))
    return found


def worst_come_last(play: Playground, step: int, total: int | None = 100) -> None:
    """All that run report at this step; the later a trial's number, the worse."""
    for job in play.world.store.jobs.names():
        if play.world.record(job) is not None and not play.world.record(job).state.final:
            play.reports(job, step, 1 - int(job[-4:]) / 100, total)


def test_hyperband_ends_trials_of_a_bracket_at_its_steps_and_not_before(play: Playground) -> None:
    """100 steps, from 10 on: three brackets, which look at steps 10, 30 and 90 first."""
    known = brackets(16, 100, 10)
    assert all(len(jobs) >= 2 for jobs in known.values()), "the test needs two in each"
    play.sweep(**HYPERBAND).turn()
    for job in play.waiting():
        play.start(job)
    expected: set[str] = set()
    for step, patience in ((9, -1), (10, 0), (29, 0), (30, 1), (89, 1), (90, 2)):
        worst_come_last(play, step)
        play.sweep(**HYPERBAND).turn()  # another process each time
        ended = set(play.world.store.cancels.names())
        beyond = set().union(*(jobs for bracket, jobs in known.items() if bracket > patience))
        assert not ended & beyond, f"step {step}"
        assert expected <= ended
        if step == 10 * 3 ** max(patience, 0) and patience >= 0:
            assert ended & known[patience], f"step {step}"
            assert min(known[patience]) not in ended, "the best of its bracket goes on"
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
    known = brackets(16, 100, 10)
    ended = set(play.world.store.cancels.names())
    assert ended
    assert not ended & known[2]
    survivor = max(known[2])  # one that is far longer changes no bracket
    play.reports(survivor, 10_000, 2.0, None)
    play.ends(survivor, Reason.FINISHED)
    play.sweep(**HYPERBAND).turn()
    worst_come_last(play, 89, None)
    play.sweep(**HYPERBAND).turn()
    assert not set(play.world.store.cancels.names()) & known[2]


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
    standing = play.sweep(**poor).turn()
    assert standing.exhausted
    assert len(standing.trials) == 3
    assert sorted(play.world.store.cancels.names()) == others


def test_trials_that_ended_between_two_looks_are_compared_with_those_that_run(play: Playground) -> None:
    many = {"parallel": 2, "trials": 2, "pruner": "asha", "min_steps": 10}
    play.sweep(**many).turn()
    good, bad = play.waiting()
    for job in (good, bad):
        play.start(job)
    play.reports(good, 100, 0.9)
    play.ends(good, Reason.FINISHED)  # nobody has looked since it began
    play.sweep(**many).turn()
    play.reports(bad, 10, 0.1)
    play.sweep(**many).turn()
    assert play.world.store.cancels.names() == [bad]


def test_without_a_pruner_nothing_is_ended_early(play: Playground) -> None:
    many = {"parallel": 4, "trials": 4, "pruner": "none"}
    play.sweep(**many).turn()
    for rank, job in enumerate(play.waiting()):
        play.start(job)
        play.reports(job, 50, -float(rank))
    play.sweep(**many).turn()
    assert play.world.store.cancels.names() == []


def test_the_report_tells_the_cost_of_each_trial_and_of_each_useful_one_as_the_sweep_does(play: Playground) -> None:
    """Three trials of an hour: one is done, one failed, one is done and never reported the metric."""
    play.world.store.studies.begin(record(play, trials=3, parallel=3))
    play.sweep(trials=3, parallel=3).turn()
    done, failed, silent = play.waiting()
    assert play.world.run("--json", "report").json["sweeps"] == [
        {"sweep": "rates", "metric": "accuracy", "trials": 3, "useful_trials": 0, "cost_usd": 0.0,
         "cost_per_trial_usd": 0.0, "cost_per_useful_trial_usd": None}
    ]  # fmt: skip
    for job in (done, failed, silent):
        play.start(job)
        if job != silent:
            play.reports(job, 100, 0.5)
        play.ends(job, Reason.BUDGET if job == failed else Reason.FINISHED)
    for _ in range(2):  # before the command has looked, and when it has: the same
        shown = play.world.run("sweep", str(play.write(trials=3, parallel=3)), "--show", "--json").json
        (row,) = play.world.run("--json", "report").json["sweeps"]
        assert (row["trials"], row["useful_trials"]) == (3, 1)
        for name in ("cost_usd", "cost_per_trial_usd", "cost_per_useful_trial_usd"):
            assert row[name] == pytest.approx(shown[name], rel=1e-6), name
        assert row["cost_per_useful_trial_usd"] == pytest.approx(3 * row["cost_per_trial_usd"], rel=1e-5)
        assert row["cost_usd"] == pytest.approx(3 * 0.096, rel=0.01)
        play.sweep(trials=3, parallel=3).turn()
    lines = [line.split() for line in play.world.run("report").out.splitlines()]
    assert ["rates", "accuracy", "3", "1", "$0.2880", "$0.0960", "$0.2880"] in lines
    page = play.folder / "report.html"
    assert play.world.run("report", "--html", str(page)).code == 0
    assert "a useful one" in page.read_text()
    assert play.world.run("--json", "report", done).json["sweeps"] == []


def test_a_job_that_only_looks_like_a_trial_is_none_in_the_report(play: Playground) -> None:
    play.sweep().turn()
    assert play.world.run("--json", "report").json["sweeps"] == [], "no sweep of that name was begun"
    play.world.store.studies.begin(record(play))
    assert [row["trials"] for row in play.world.run("--json", "report").json["sweeps"]] == [2]
    play.world.store.control.put("studies/rates/sweep.json", b"{")
    assert play.world.run("--json", "report").json["sweeps"] == []
    assert sweep_of("rates-t0001", {"Sweep": "other"}) is sweep_of("rates", {"Sweep": "rates"}) is None


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


def test_two_writers_of_a_journal_lose_nothing_of_each_other(play: Playground) -> None:
    studies = Studies(play.world.store.control)
    one, other = studies.journal("x"), studies.journal("x")
    one.append_logs([{"op": 1}])
    other.append_logs([{"op": 2}, {"op": 3}])
    one.append_logs([{"op": 4}])
    expected = [{"op": n} for n in (1, 2, 3, 4)]
    for journal in (one, other, studies.journal("x")):
        assert journal.read_logs(0) == expected
    assert one.read_logs(2) == expected[2:]
    assert isinstance(one, Journal)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"trials": 0, "direction": "up", "fields": {}}, ["trials: ", "direction: ", "fields: "]),
        (
            {"fields": {"env.SEED": {"low": 1, "high": 1}}},
            ["fields.env.SEED: low has to be less than high"],
        ),
        ({"fields": {"env.SEED": {"low": 1, "choices": [1]}}}, ["has either choices or a range"]),
        # In a record NaN and infinity are null, so that the sweep would be there and nobody could read it.
        ({"fields": {"env.SEED": {"low": 0.1, "high": float("inf")}}}, ["high: has to be a number from"]),
        ({"fields": {"env.SEED": {"low": float("nan"), "high": 1}}}, ["low: has to be a number from"]),
        ({"fields": {"env.SEED": {"low": 1, "high": 10**400}}}, ["high: has to be a number from -1e+15 to 1e+15"]),
        ({"fields": {"env.SEED": {"choices": [1, float("nan")]}}}, ["has to be finite"]),
        ({"fields": {"env.SEED": {"low": 0.0, "high": 1.0, "step": 1e-300}}}, ["step leaves more than 1e+12 values"]),
        ({"fields": {"parameters.speed": {"choices": [1]}}}, ["parameters.speed: unknown"]),
        ({"job": "none.yaml"}, ["none.yaml"]),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_written(play: Playground, more, said) -> None:
    answer = play.world.run("sweep", str(play.write(**more)))
    assert answer.code != 0
    for words in said:
        assert words in answer.err
    assert play.world.store.jobs.names() == []
    assert play.world.store.studies.get("rates") is None


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


def test_the_faults_of_a_sweep_and_of_its_fields_in_the_job_are_told_in_one_error_by_the_file_they_are_in(
    play: Playground,
) -> None:
    rate = {"parameters.lr": {"choices": [0.1]}}
    told = play.world.run("--json", "sweep", str(play.write(fields=rate)), "--show")
    said = json.loads(told.err)
    assert (told.code, said["error"]) == (1, f"{play.folder / 'sweep.yaml'}: a field is wrong")
    (problem,) = said["problems"]
    assert problem["field"] == "fields.parameters.lr"
    assert problem["problem"].startswith("unknown field") and "allowed: data, epochs" in problem["problem"]
    fields = {
        "parameters.learning_rat": {"low": 1},
        "parameters.epochs": {"choices": ["many"]},
        "foo.bar": {"choices": [1]},
        "resources.vcpus": {"low": 3, "high": 2},
    }
    (play.folder / "train.yaml").write_text("name: train\nrecipe: image-classification\npriority: huge\n")
    wrong = play.write(fields=fields, trials=0, direction="up")
    said = json.loads(play.world.run("--json", "sweep", str(wrong), "--show").err)
    found = [problem["field"] for problem in said["problems"]]
    assert sorted(found) == [
        "direction", "fields.foo.bar", "fields.parameters.epochs", "fields.parameters.learning_rat",
        "fields.parameters.learning_rat", "fields.resources.vcpus", "train.yaml: priority", "trials",
    ]  # fmt: skip
    assert "did you mean" in "".join(problem["problem"] for problem in said["problems"])
    alone = play.world.run("sweep", str(play.write()), "--show")
    assert "train.yaml: a field is wrong\n  priority: " in alone.err
    both = json.loads(play.world.run("--json", "sweep", str(play.write(job="none.yaml", trials=0))).err)
    assert {problem["field"] for problem in both["problems"]} == {"trials", "job"}


def test_another_sweep_of_the_same_name_is_refused_and_other_caps_are_taken(play: Playground) -> None:
    play.world.store.studies.begin(record(play))
    answer = play.world.run("sweep", str(play.write(metric="loss")))
    assert answer.code == 1
    assert "another sweep named rates was begun" in answer.err
    assert "metric: is not what the sweep was begun with" in answer.err
    assert SweepSpec.model_validate(SWEEP | {"trials": 9}).differs(record(play).spec) == []
    assert play.world.run("sweep", str(play.write(name="other")), "--show").code == 1


def test_ids_of_trials_follow_from_their_numbers() -> None:
    assert trial_job("rates", 12) == "rates-t0012"
