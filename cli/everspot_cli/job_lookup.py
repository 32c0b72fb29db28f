"""Finds the job that an id, or the beginning of one, means."""

from everspot_core.counting import first_few
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import JobRecord

from everspot_cli.errors import CliError, Exit
from everspot_cli.session import Session, run_in_parallel

_SHOWN = 5


def find_job(session: Session, id_prefix: str, *, ended: bool = False) -> JobSubmission:
    """Return the job with this id, else the only job whose id begins with it.

    If several ids begin with it, the only job of them that has not ended is chosen; with `ended`, the only one that
    has. Standard error then names the chosen job. Archived jobs are included.

    Raises:
        CliError: if no job matches, or more than one.
    """
    exact = session.store.jobs.get(id_prefix) if id_prefix and "/" not in id_prefix else None
    return exact.value if exact is not None else _submission(session, _resolve_id(session, id_prefix, ended))


def read_record(session: Session, job_id: str) -> JobRecord | None:
    """Return the record of an existing job, archived or not. None if it has never had an instance."""
    return session.store.record(job_id)


def _resolve_id(session: Session, id_prefix: str, ended: bool) -> str:
    store = session.store
    jobs: list[str]
    archived: dict[str, str]
    jobs, archived = run_in_parallel(store.jobs.names, store.archive.keys)
    if id_prefix in archived:
        return id_prefix
    alike = sorted({job for job in (*jobs, *archived) if id_prefix and job.startswith(id_prefix)})
    if len(alike) > 1:
        records = store.records.read([job for job in alike if job in set(jobs)])
        over = {job for job in alike if job in archived or (job in records and records[job].value.state.final)}
        likely = [job for job in alike if (job in over) is ended]
        if len(likely) == 1:
            _say_chosen(session, id_prefix, likely[0], len(alike), ended)
            return likely[0]
    if not alike:
        raise CliError(f"there is no job {id_prefix!r}", Exit.NOT_FOUND, hint="`everspot jobs --all` lists them")
    if len(alike) > 1:
        raise CliError(f"{id_prefix!r} is the beginning of several jobs: {first_few(alike, _SHOWN)}", Exit.NOT_FOUND)
    return alike[0]


def _say_chosen(session: Session, id_prefix: str, chosen: str, count: int, ended: bool) -> None:
    if not session.json:
        which = "that has ended" if ended else "that has not ended"
        words = f"{id_prefix}: {chosen} is meant, the only one {which} of {count} jobs that begin so"
        session.errors.print(words, style="dim", soft_wrap=True)


def _submission(session: Session, job: str) -> JobSubmission:
    doc = session.store.jobs.get(job)
    if doc is not None:
        return doc.value
    archived = session.store.archive.get(job)
    if archived is None:
        raise CliError(f"there is no job {job!r}", Exit.NOT_FOUND, hint="`everspot jobs --all` lists them")
    return archived.submission
