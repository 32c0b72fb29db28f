"""The jobs that a job comes after, and the time at which it may begin: its file, resolved in the cluster."""

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from everspot_core.jobs.job import JobSpec, JobSubmission, PrecedingJob, Series
from everspot_core.jobs.records import JobState
from everspot_core.jobs.run_condition import MetricRef, MetricSource

from everspot_cli.errors import CliError, Exit

if TYPE_CHECKING:
    from everspot_cli.session import Session

_ID = r"-[0-9a-f]{8}(-\d+)?"  # the suffix that a submission, and a series, add to a job's name


def set_start(submission: JobSubmission) -> JobSubmission:
    """Return the submission with its start and end moments, and as the first run of its series if it begins one."""
    spec, now = submission.spec, submission.submitted_at
    start = now + spec.start_after if isinstance(spec.start_after, timedelta) else spec.start_after
    series = Series(id=submission.job_id) if spec.every is not None else None
    return submission.model_copy(update={"start_at": start, "series": series})


def resolve_dependencies(session: "Session", file_name: str, submission: JobSubmission) -> list[PrecedingJob]:
    """Return the jobs that this one comes after, by id. `file_name`: its file.

    Raises:
        CliError: naming every one that does not exist, that has not succeeded and never will, or whose name is
            ambiguous.
    """
    words = submission.spec.after
    if not words or submission.after:  # else another attempt, which comes after what the first one came after
        return submission.after
    matches = [_find(session, reference) for reference in words]
    names = [job.spec.name for job, _ in (f for f in matches if f is not None)]
    problems = []
    for number, (reference, earlier_job) in enumerate(zip(words, matches, strict=True)):
        problem = ""
        if earlier_job is None:
            problem = f"there is no job {reference}, neither by name nor by id"
        elif earlier_job[1] in (JobState.FAILED, JobState.CANCELLED):
            problem = f"{earlier_job[0].job_id} has not succeeded, and never will ({earlier_job[1].value})"
        elif names.count(earlier_job[0].spec.name) > 1:
            problem = f"another one is named {earlier_job[0].spec.name} too: their outputs would lie in the same folder"
        if problem:
            problems.append({"field": f"after[{number}]", "problem": problem})
    problems += _unknown_jobs(submission, names)
    if problems:
        raise CliError(
            f"{file_name}: what the job comes after", Exit.NOT_FOUND, hint="everspot jobs", problems=problems
        )
    return [
        PrecedingJob(name=earlier_job[0].spec.name, job_id=earlier_job[0].job_id)
        for earlier_job in matches
        if earlier_job is not None
    ]


def _unknown_jobs(submission: JobSubmission, names: list[str]) -> list[dict[str, str]]:
    """Return the faults of `run_if`: jobs whose metrics it names, and that the job does not come after."""
    condition = submission.spec.run_if
    return [
        {"field": "run_if", "problem": f"{ref}: none of the jobs of after is named {ref.job}"}
        for ref in (condition.refs if condition is not None else ())
        if ref.source is MetricSource.METRIC and ref.job not in names
    ]


def unknown_last_jobs(session: "Session", spec: JobSpec) -> list[tuple[MetricRef, set[str]]]:
    """Return each `last(JOB.NAME)` of a `run_if` whose job nobody has submitted, with the names of the jobs that there
    are. The job's own name is left out: at first there is none."""
    refs = spec.run_if.refs if spec.run_if is not None else ()
    others = [ref for ref in refs if ref.source is MetricSource.LAST and ref.job != spec.name]
    if not others:
        return []
    ids = {*session.store.jobs.names(), *session.store.archive.keys()}
    names = {re.sub(f"{_ID}$", "", job) for job in ids}
    return [(ref, names) for ref in others if ref.job not in names]


def _find(session: "Session", reference: str) -> tuple[JobSubmission, JobState] | None:
    """Return the job with this id, else the newest one with this name; with its state."""
    store = session.store
    live, archived = store.jobs.names(), store.archive.keys()
    like = re.compile(re.escape(reference) + _ID)
    ids = (
        [reference]
        if reference in live or reference in archived
        else [job for job in {*live, *archived} if like.fullmatch(job)]
    )
    tables, past = store.jobs.read([job for job in ids if job in set(live)]), [job for job in ids if job in archived]
    submissions = {job: doc.value for job, doc in tables.items()}
    dossiers = store.archive.read(archived[job] for job in past)
    submissions |= {job: dossier.submission for job, dossier in dossiers.items()}
    chosen = [job for job in submissions.values() if reference in (job.job_id, job.spec.name)]
    if not chosen:
        return None
    last = max(chosen, key=lambda job: (job.submitted_at, job.job_id))
    if last.job_id in dossiers:
        record = dossiers[last.job_id].record
    else:
        doc = store.records.get(last.job_id)
        record = doc.value if doc is not None else None
    return last, record.state if record is not None else JobState.PENDING


def live_run(session: "Session", run: JobSubmission) -> JobSubmission | None:
    """Return the run of a job's series that has not ended. None if the job belongs to no series, or the series is
    over."""
    series, store = run.series, session.store
    if series is None:
        return None
    alike = [job for job in store.jobs.names() if job == series.id or job.startswith(f"{series.id}-")]
    jobs, records = store.jobs.read(alike), store.records.read(alike)
    living = [
        doc.value
        for job, doc in jobs.items()
        if doc.value.series is not None
        and doc.value.series.id == series.id
        and not (job in records and records[job].value.state.final)
    ]
    return max(living, key=lambda job: job.series.run if job.series is not None else 0, default=None)
