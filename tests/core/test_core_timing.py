"""Windows, series and chains: the notation, and its meaning."""

from datetime import UTC, datetime, time, timedelta
from itertools import islice, pairwise

import pytest
from everspot_core.jobs.job import JobSpec, JobSubmission, Series
from everspot_core.jobs.job_rules import program_faults
from everspot_core.jobs.series import next_run
from everspot_core.jobs.timing import BadZone, Better, SkipIf, Window, effective, finish
from everspot_core.jobs.timing_rules import timing_faults
from everspot_core.schedule.jobs import exhausted_budget
from hypothesis import assume, example, given
from hypothesis import strategies as st
from pydantic import ValidationError
from view_helpers import job_view

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
NIGHT = Window.parse("22:00-06:00")
JOB = {"name": "train", "recipe": "image-classification"}


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-{text}:00+00:00")


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("22:00-06:00", Window(time(22), time(6))),
        (" 09:30-17:05 Europe/Berlin ", Window(time(9, 30), time(17, 5), "Europe/Berlin")),
        ("00:00-23:59 Etc/GMT+5", Window(time(0), time(23, 59), "Etc/GMT+5")),
    ],
)
def test_a_window_is_read_as_it_is_written_and_written_as_it_is_read(text: str, window: Window) -> None:
    assert Window.parse(text) == window
    assert str(window) == text.strip()


@pytest.mark.parametrize("text", ["", "22-6", "22:00", "24:00-06:00", "22:60-06:00", "22:00-22:00", "x"])
def test_what_is_no_window_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"hours of the day|beyond|no length"):
        Window.parse(text)


@pytest.mark.parametrize(
    ("moment", "opens", "is_open"),
    [
        ("05-01T21:59", "05-01T22:00", False),
        ("05-01T22:00", "05-01T22:00", True),
        ("05-02T05:59", "05-01T22:00", True),
        ("05-02T06:00", "05-02T22:00", False),
    ],
)
def test_a_window_past_midnight_is_one_span(moment: str, opens: str, is_open: bool) -> None:
    assert NIGHT.opens(at(moment)) == at(opens)
    assert NIGHT.is_open(at(moment)) is is_open


def test_a_window_follows_the_clocks_of_its_zone() -> None:
    berlin = Window.parse("22:00-06:00 Europe/Berlin")
    spans = berlin.spans(at("03-27T12:00"))  # clocks go forward in the night to the 29th, at 01:00 UTC
    assert [next(spans) for _ in range(3)] == [
        (at("03-27T21:00"), at("03-28T05:00")),
        (at("03-28T21:00"), at("03-29T04:00")),
        (at("03-29T20:00"), at("03-30T04:00")),
    ]
    with pytest.raises(BadZone, match="Mars/Base is not known"):
        Window.parse("22:00-06:00 Mars/Base").is_open(at("05-01T00:00"))


@pytest.mark.parametrize(
    ("begin", "work", "window", "end"),
    [
        ("05-01T12:00", 3 * HOUR, None, "05-01T15:15"),
        ("05-01T12:00", 3 * HOUR, NIGHT, "05-02T01:15"),
        ("05-01T23:00", 3 * HOUR, NIGHT, "05-02T02:15"),
        ("05-01T12:00", 10 * HOUR, NIGHT, "05-03T00:30"),  # 7:45 in the first night, 2:15 in the second
        ("05-01T12:00", HOUR, Window.parse("10:00-10:10"), None),  # never longer than a changeover
        ("05-01T12:00", timedelta(days=3_000_000), None, None),
    ],
)
def test_work_ends_when_the_hours_allow_it(begin, work, window, end) -> None:
    assert finish(at(begin), work, 15 * MINUTE, window) == (at(end) if end is not None else None)


@pytest.mark.parametrize(
    ("now", "deadline", "hours"),
    [
        ("05-01T12:00", "05-01T20:00", 0),
        ("05-01T12:00", "05-02T06:00", 8),
        ("05-02T01:00", "05-02T06:00", 5),
        ("05-02T01:00", "05-02T03:00", 2),
        ("05-02T01:00", "05-03T06:00", 5 + 7.75),
    ],
)
def test_a_deadline_is_as_near_as_there_are_hours_to_run(now, deadline, hours) -> None:
    assert effective(at(deadline), at(now), 15 * MINUTE, NIGHT) == at(now) + hours * HOUR


@given(
    hours=st.sampled_from(["22:00-06:00", "09:30-17:00 Europe/Berlin", "02:30-02:10 Australia/Lord_Howe"]),
    begin=st.integers(0, 5 * 24 * 60).map(lambda minutes: at("03-26T00:00") + minutes * MINUTE),
    work=st.integers(5, 1500).map(lambda minutes: minutes * MINUTE),
    changeover=st.sampled_from([5 * MINUTE, 40 * MINUTE]),
)
def test_a_deadline_that_submission_accepts_leaves_a_job_without_an_instance_enough_hours(
    hours, begin, work, changeover
) -> None:
    window = Window.parse(hours)
    deadline = finish(begin, work, changeover, window)
    assert begin + changeover + work <= effective(deadline, begin, changeover, window, starting=True) <= deadline


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("test_accuracy gain < 0.01", SkipIf("test_accuracy", Better.GAIN, 0.01)),
        ("val/loss  drop <  -1e-3", SkipIf("val/loss", Better.DROP, -0.001)),
    ],
)
def test_a_condition_is_read_and_written(text: str, condition: SkipIf) -> None:
    assert SkipIf.parse(text) == condition
    assert SkipIf.parse(str(condition)) == condition


def test_a_run_is_skipped_where_the_last_one_has_bettered_too_little() -> None:
    gain, drop = SkipIf.parse("a gain < 0.1"), SkipIf.parse("a drop < 0.1")
    assert [gain.skips(0.5, x) for x in (0.4, 0.55, 0.65)] == [True, True, False]
    assert [drop.skips(0.5, x) for x in (0.3, 0.45, 0.6)] == [False, True, True]
    assert not gain.skips(None, 0.5)
    assert not gain.skips(0.5, None)


def test_a_job_file_has_all_its_faults_told_at_once() -> None:
    wrong = {"after": ["a", "a"], "window": "22:00-22:00", "every": "1s", "skip_if": "accuracy", "start_after": "soon"}
    with pytest.raises(ValidationError) as refusal:
        JobSpec.model_validate({**JOB, **wrong})
    assert {error["loc"][0] for error in refusal.value.errors()} == set(wrong)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"after": ["train"]}, "after"),
        ({"skip_if": "accuracy gain < 1"}, "skip_if"),
        ({"every": "24h", "deadline": "2026-05-01T00:00:00Z"}, "deadline"),
        ({"start_after": "2h", "deadline": "1h"}, "deadline, start_after"),
        ({"start_after": "2026-05-01T00:00:00Z", "deadline": "2026-05-01T00:00:00Z"}, "deadline, start_after"),
    ],
)
def test_rules_between_fields_are_told_by_their_names_as_written_and_as_read(fields, path) -> None:
    assert [problem.path for problem in timing_faults({**JOB, **fields})] == [path]
    with pytest.raises(ValidationError, match=path.split(",")[0]):
        JobSpec.model_validate({**JOB, **fields})
    assert program_faults({**JOB, **fields}) == []


@pytest.mark.parametrize("fields", [{"start_after": "1h", "deadline": "2h"}, {"every": "24h", "deadline": "2h"}, {}])
def test_what_does_not_contradict_itself_is_taken(fields) -> None:
    spec = JobSpec.model_validate({**JOB, **fields})
    assert JobSpec.model_validate_json(spec.model_dump_json()) == spec
    assert JobSpec.model_validate(spec.model_dump(exclude_unset=True)) == spec


def test_a_stored_job_is_read_where_its_zone_is_not_known() -> None:
    spec = JobSpec.model_validate({**JOB, "window": "22:00-06:00 Europe/Berlin"})
    stored = JobSubmission(job_id="train-1", spec=spec, submitted_at=at("05-01T00:00")).to_json()
    read = JobSubmission.read(stored.replace(b"Europe/Berlin", b"Mars/Base"))
    assert str(read.spec.window) == "22:00-06:00 Mars/Base"
    with pytest.raises(ValidationError, match="Mars/Base is not known"):
        JobSpec.model_validate({**JOB, "window": "22:00-06:00 Mars/Base"})


def run(number: int = 1, before: dict[str, float] | None = None, **fields) -> JobSubmission:
    spec = JobSpec.model_validate({**JOB, "every": "24h", **fields})
    return JobSubmission(
        job_id="train-1" if number == 1 else f"train-1-{number}",
        spec=spec,
        submitted_at=at("05-01T00:00"),
        start_at=None if number == 1 else at("05-02T00:00"),
        deadline_at=at("05-01T06:00") if number == 1 else at("05-02T06:00"),
        code_digest="0f" * 32,
        datasets=["d@0f"],
        series=Series(id="train-1", run=number, before=before or {}),
        retry_of="other-1",
    )


@pytest.mark.parametrize(
    ("number", "ended", "start"),
    [
        (1, "05-01T02:00", "05-02T00:00"),
        (1, "05-02T01:00", "05-02T00:00"),  # after a run of more than a day, the next begins immediately
        (1, "05-04T01:00", "05-04T00:00"),  # and what was missed is not made up for
        (2, "05-02T02:00", "05-03T00:00"),
    ],
)
def test_the_next_run_begins_at_its_time_and_never_while_the_last_one_runs(number, ended, start) -> None:
    following = next_run(run(number), {"accuracy": 0.5}, at(ended), succeeded=True)
    assert (following.job_id, following.series.run) == (f"train-1-{number + 1}", number + 1)
    assert (following.start_at, following.deadline_at) == (at(start), max(at(start), at(ended)) + 6 * HOUR)
    assert following.series.before == {"accuracy": 0.5}
    assert (following.code_digest, following.datasets, following.retry_of) == ("0f" * 32, ["d@0f"], None)


@pytest.mark.parametrize(
    ("every", "start", "ended", "following"),
    [
        ("24h", "03-27T21:00", "03-28T05:00", "03-28T21:00"),  # 22:00 in Berlin, before and
        ("24h", "03-28T21:00", "03-29T04:00", "03-29T20:00"),  # after its clocks go forward
        ("24h", "03-28T11:00", "03-29T11:00", "03-29T10:00"),  # submitted at noon, and held until the evening
        ("24h", "03-29T02:00", "03-29T04:00", "03-30T01:00"),  # in the window, on the day itself
        ("24h", "10-24T20:00", "10-25T05:00", "10-25T21:00"),  # and back
        ("24h", "03-27T21:00", "03-29T20:30", "03-29T20:00"),  # the latest of the times that were missed
        ("24h", "10-23T20:00", "10-25T20:30", "10-24T20:00"),
        ("48h", "03-27T21:00", "03-28T05:00", "03-29T20:00"),
        ("12h", "03-28T21:00", "03-29T04:00", "03-29T09:00"),  # no whole days
    ],
)
def test_a_daily_run_follows_the_clocks_of_its_window(every, start, ended, following) -> None:
    last = run(1, every=every, window="22:00-06:00 Europe/Berlin").model_copy(update={"start_at": at(start)})
    assert next_run(last, {}, at(ended), succeeded=True).start_at == at(following)


def test_a_daily_run_that_starts_in_an_hour_that_clocks_leave_out_is_late_on_that_day_only() -> None:
    job, starts = run(1, window="02:30-05:00 Europe/Berlin").model_copy(update={"start_at": at("03-28T01:30")}), []
    for _ in range(2):
        job = next_run(job, {}, job.start_at + HOUR, succeeded=True)
        starts.append(job.start_at)
    assert starts == [at("03-29T01:30"), at("03-30T00:30")]


def test_a_late_run_gives_the_run_after_it_no_longer_deadline() -> None:
    late = next_run(run(1), {}, at("05-02T05:00"), succeeded=True)
    assert (late.start_at, late.deadline_at) == (at("05-02T00:00"), at("05-02T11:00"))
    assert next_run(late, {}, at("05-02T10:00"), succeeded=True).deadline_at == at("05-03T06:00")
    assert next_run(late, {}, at("05-03T07:00"), succeeded=True).deadline_at == at("05-03T13:00")


def test_the_budget_of_a_late_run_counts_from_its_submission() -> None:
    late = next_run(run(1, budget={"wall_clock": "2h"}), {}, at("05-02T05:00"), succeeded=True)
    view = job_view(submission=late)
    assert exhausted_budget(view, at("05-02T06:59")) is None
    assert exhausted_budget(view, at("05-02T07:00")) is not None


def test_a_run_is_skipped_once_after_a_poor_one() -> None:
    poor = run(2, {"accuracy": 0.5}, skip_if="accuracy gain < 0.01")
    assert next_run(poor, {"accuracy": 0.505}, at("05-02T02:00"), succeeded=True).start_at == at("05-04T00:00")
    assert next_run(poor, {"accuracy": 0.6}, at("05-02T02:00"), succeeded=True).start_at == at("05-03T00:00")
    assert next_run(poor, {}, at("05-02T02:00"), succeeded=True).start_at == at("05-03T00:00")


def test_a_failed_run_is_compared_with_nothing() -> None:
    last = run(2, {"loss": 0.5}, skip_if="loss drop < 0.01")
    after_failure = next_run(last, {"loss": 2.3}, at("05-02T02:00"), succeeded=False)
    assert (after_failure.start_at, after_failure.series.before) == (at("05-03T00:00"), {"loss": 0.5})
    again = next_run(after_failure, {"loss": 0.495}, at("05-03T02:00"), succeeded=True)
    assert (again.start_at, again.series.before) == (at("05-05T00:00"), {"loss": 0.495}), "less than 0.01 below 0.5"


def test_a_job_of_no_series_has_no_next_run() -> None:
    alone = run().model_copy(update={"series": None})
    assert next_run(alone, {}, at("05-02T02:00"), succeeded=True) is None


@given(
    start=st.times(max_value=time(23, 59)).map(lambda t: t.replace(second=0, microsecond=0)),
    end=st.times(max_value=time(23, 59)).map(lambda t: t.replace(second=0, microsecond=0)),
    since=st.integers(0, 6 * 24).map(lambda hours: at("03-26T00:00") + hours * HOUR),
)
@example(start=time(3, 5), end=time(2, 55), since=datetime(2026, 3, 28, 12, tzinfo=UTC))
def test_no_two_spans_of_a_window_overlap_where_clocks_are_put_forward(start, end, since):
    """`03:05-02:55`: its end is in the hour that March 29 lacks in Berlin."""
    assume(start != end)
    window = Window(start, end, "Europe/Berlin")
    spans = list(islice(window.spans(since), 4))
    assert all(opens < closes for opens, closes in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert spans[0][1] > since
