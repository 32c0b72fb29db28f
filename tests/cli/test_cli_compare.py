"""`everspot cost compare --a … --b …`: the jobs of each set, the compared figures, and the note on small sets."""

import pytest
from everspot_core.costs.ledger import LaunchRecord
from everspot_core.jobs import lease
from everspot_core.jobs.records import Market
from everspot_core.jobs.visit_records import Trip, TripEnd
from report_helpers import T0

RUNS = {"a": (600, 660, 720), "b": (1800, 1860, 1920)}  # seconds of each job's run


@pytest.fixture
def sets(world):
    """Three short runs of team one, three long ones of team two, a failed one of team two, and one without a team."""
    world.launch("i-base", 0)
    now = 0.0
    for name, runs in RUNS.items():
        for number, seconds in enumerate(runs):
            job = f"{name}-{number}"
            world.submit(job, now, tags={"Team": "one" if name == "a" else "two"})
            world.assign(job, "i-base", now)
            world.start(job, now + 60)
            world.finish(job, now + seconds, 100, 0.9 if name == "a" else 0.8)
            now += seconds
    world.submit("b-lost", now, tags={"Team": "two"})
    world.submit("other", now)
    return world


def test_two_sets_are_compared_with_an_interval_each(sets):
    comparison = sets.run("--json", "compare", "--a", "Team=one", "--b", "Team=two").json
    rows = {row["measure"]: row for row in comparison["measures"]}
    assert list(rows) == ["dollars", "duration", "goodput", "test_accuracy"]
    assert (comparison["a"]["job_ids"], comparison["b"]["job_ids"]) == (["a-0", "a-1", "a-2"], ["b-0", "b-1", "b-2"])
    assert (rows["duration"]["a_mean"], rows["duration"]["difference"]) == (660, 1200)
    # 60 s of spread on both sides of three: 4 degrees of freedom, 2.7764 * sqrt(2 * 3600 / 3).
    assert rows["duration"]["low"] == pytest.approx(1200 - 2.77645 * 2400**0.5, abs=1e-3)
    assert rows["duration"]["shown"] and rows["duration"]["few"]
    assert rows["dollars"]["difference"] == pytest.approx(1200 * 0.096 / 3600, abs=1e-6)
    # 0.9 three times and 0.8 three times: without a spread there is no interval.
    accuracy = rows["test_accuracy"]
    assert accuracy["difference"] == pytest.approx(-0.1)
    assert (accuracy["low"], accuracy["high"], accuracy["shown"], accuracy["detectable_percent"]) == (
        None,
        None,
        False,
        None,
    )
    # Failed and running jobs are not compared, but their dollars count towards the cost of a success.
    assert (comparison["b"]["chosen"], comparison["b"]["jobs"]) == (4, 3)
    assert any("1 job of B without success: not compared" in note for note in comparison["notes"])
    assert any("submitted at different times" in note for note in comparison["notes"])


def test_a_job_that_travelled_is_compared_with_all_that_it_cost(sets):
    trips = [Trip(cluster="beta", visit="visit-1", number=1, since=T0, until=T0, end=TripEnd.RETURNED, usd=42.0,
                  egress_usd=1.5)]  # fmt: skip
    sets.save(sets.record("a-0").model_copy(update={"trips": trips}))
    sides = sets.run("--json", "compare", "a-0", "b-0").json["sides"]
    assert [side["cost_usd"] for side in sides] == pytest.approx([43.5 + 600 * 0.096 / 3600, 1800 * 0.096 / 3600])
    assert "The left side costs" in sets.run("compare", "a-0", "b-0").out
    alone = sets.run("compare", "a-0")  # the on-demand cost is that of the work here alone
    assert "Not all of what they cost is known." in alone.out
    unbilled = [trips[0].model_copy(update={"usd": None})]
    sets.save(sets.record("a-0").model_copy(update={"trips": unbilled}))
    out = sets.run("compare", "a-0", "b-0").out
    assert "≥ $1.52" in out
    assert "Not all of what they cost is known." in out
    assert sets.run("--json", "compare", "a-0", "b-0").json["savings_percent"] is None


def test_for_people_it_says_what_is_shown_and_how_little_few_jobs_show(sets):
    answer = sets.run("compare", "--a", "a-*", "--b", "b-0,b-1", "--b", "b-2")
    assert answer.code == 0, answer.err
    lines = [" ".join(line.split()) for line in answer.out.splitlines()]
    assert "A: 3 jobs B: 3 jobs B - A 95 % interval" in lines
    higher = next(line for line in lines if line.startswith("duration: "))
    assert higher.startswith("duration: B's mean is higher than A's by 181.8 %. A side has fewer than 5 jobs, so ")
    same = sets.run("compare", "--a", "a-0,a-2", "--b", "a-1,b-0").out
    assert "duration: these jobs show no difference. Below ±" in same
    single = sets.run("compare", "--a", "a-0", "--b", "b-?").out
    assert "duration: a side has but one job, which shows no spread: nothing can be said of the difference." in single


@pytest.mark.parametrize(
    ("jobs", "values", "sentence"),
    [
        (2, (0.9, 0.8), "all jobs of a side have the same value, and are too few to say how far jobs vary: whether A "
                        "and B differ is not known."),
        (5, (0.9, 0.9), "all jobs of both sides have the same value."),
        (5, (0.9, 0.8), "B's mean is lower than A's by 11.1 %. All jobs of a side have the same value, so there is no "
                        "interval; of all ways to deal these jobs to two sides, 0.8 % part them so."),
    ],
)  # fmt: skip
def test_figures_without_any_spread_are_told_as_what_they_are(world, jobs, values, sentence):
    world.launch("i-base", 0)
    for name, value in zip("ab", values, strict=True):
        for number in range(jobs):
            job, begin = f"{name}-{number}", (number + jobs * (name == "b")) * 600.0
            world.submit(job, begin)
            world.assign(job, "i-base", begin)
            world.start(job, begin + 60)
            world.finish(job, begin + 600, 100, value)
    out = " ".join(world.run("compare", "--a", "a-*", "--b", "b-*").out.split())
    assert f"test_accuracy: {sentence}" in out and "rough" not in out.partition("test_accuracy: ")[2]


def test_a_job_of_an_unknown_price_is_left_out_of_the_dollars_alone(sets):
    sets.store.launches.delete("i-base")
    unknown = LaunchRecord(
        instance_id="i-base", instance_type="x9.none", zone="us-east-1a", market=Market.ON_DEMAND, launched_at=T0
    )
    sets.store.launches.create("i-base", unknown)
    comparison = sets.run("--json", "compare", "--a", "a-*", "--b", "b-?").json
    assert [row["measure"] for row in comparison["measures"]] == ["duration", "goodput", "test_accuracy"]
    assert comparison["a"]["cost_usd"] is comparison["a"]["usd_per_success"] is None
    assert any(note.startswith("a-0, a-1, a-2: a price is not known") for note in comparison["notes"])


@pytest.mark.parametrize(
    ("arguments", "code", "messages"),
    [
        ((), 2, ["ID: is missing: a job, or two sets with --a and --b"]),
        (("a-0", "--a", "b-*", "--metric", "x"), 2, ["ID: does not go with", "--b: is missing"]),
        (("a-0", "--metric", "x"), 2, ["--metric: belongs to --a and --b"]),
        (("--a", "zz*", "--b", "Team=none"), 3, ["--a: no job has", "--b: no job has"]),
        (("--a", "a-*,b-0", "--b", "Team=two"), 1, ["--a, --b: both sets have b-0"]),
        (("--a", "b-lost", "--b", "a-*"), 1, ["--a: none of 1 job has succeeded: b-lost"]),
        (("--a", "a-*", "--b", "b-*", "--metric", "bleu"), 1, ["--metric: no job of A that succeeded reports 'bleu'"]),
    ],
)
def test_sets_that_cannot_be_compared_are_refused_with_all_reasons(sets, arguments, code, messages):
    answer = sets.run("compare", *arguments)
    assert answer.code == code
    for words in messages:
        assert words in answer.err


def test_jobs_that_were_no_whole_run_are_not_compared(sets):
    """A cached job costs nothing, and a retry that continued another job's steps costs a part."""
    now = sets.clock.now()
    sets.submit("b-cached", (now - T0).total_seconds(), tags={"Team": "two"})
    sets.save(lease.reuse(None, "b-cached", "b-0", sets.record("b-0").progress, now))
    sets.submit("b-retry", (now - T0).total_seconds() + 10, tags={"Team": "two"})
    document = sets.store.jobs.get("b-retry")
    sets.store.jobs.replace("b-retry", document, document.value.model_copy(update={"retry_of": "b-lost"}))
    start = (now - T0).total_seconds() + 20
    sets.assign("b-retry", "i-base", start)
    sets.start("b-retry", start, from_step=90)
    sets.finish("b-retry", start + 60, 100, 0.8)
    comparison = sets.run("--json", "compare", "--a", "Team=one", "--b", "Team=two").json
    assert (comparison["b"]["job_ids"], comparison["b"]["chosen"]) == (["b-0", "b-1", "b-2"], 6)
    (note,) = (note for note in comparison["notes"] if note.startswith("Not compared: "))
    assert "b-cached: it was not run: it has the outputs of b-0" in note
    assert "b-retry: it continued b-lost from step 90" in note
    assert "b-cached is no whole run" in sets.run("compare", "b-0", "b-cached").out
    alone = sets.run("compare", "--a", "Team=one", "--b", "b-cached")
    assert (alone.code, "none of 1 job is a whole run that succeeded" in alone.err) == (1, True)
