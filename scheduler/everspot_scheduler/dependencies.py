"""Finds the states of the jobs that other jobs come after, and of earlier jobs of the same cached stage."""

import logging
from collections.abc import Mapping
from datetime import timedelta

from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import JobRecord, JobState
from everspot_core.schedule import StageRun
from everspot_core.schedule.conditions import outside_window
from everspot_core.schedule.stages import is_early
from everspot_store import Store, StoreDenied, StoreError

from everspot_scheduler.observer import Observation

Standing = tuple[tuple[str, JobState | None], ...]
"""Earlier jobs with their states, each by the name that the later job uses; None: the job is not known."""
OUTPUTS_PAUSE = timedelta(hours=1)
"""Real time for which outputs are not looked for after the data bucket did not answer, or refused it."""
_log = logging.getLogger(__name__)


class Chains:
    """The chains and cached stages of one cluster. It asks the archive only for jobs that have left the tables, and
    once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, JobSubmission] = {}
        self._ended: dict[str, JobState | None] = {}
        self._producers: dict[str, str] = {}
        self._reusable: dict[str, bool] = {}
        self._later_runs: dict[str, list[str]] = {}
        self._input_producers: dict[str, dict[str, str] | None] = {}
        self._other_inputs: set[tuple[str, str]] = set()
        self._reads_outputs_from = timedelta(0)

    def look(self, observation: Observation) -> None:
        """Find the waiting jobs, and learn the states of the jobs that they name and that have left the tables.

        Raises:
            StoreError: if the archive could not be asked.
        """
        self._waiting = _waiting(observation)
        self._note_later_runs(observation)
        other_jobs = {job for submission in self._waiting.values() for job in self._names(submission)}
        self._ended = {job: state for job, state in self._ended.items() if job in other_jobs}
        self._producers = {job: producer for job, producer in self._producers.items() if job in other_jobs}
        self._ask_archive({job for job in other_jobs if _state(job, observation) is None} - set(self._ended))
        same_stages = {job for submission in self._waiting.values() for job in self._same_stage(submission)}
        self._look_at_generations(same_stages, observation)
        self._look_at_outputs(observation)
        self._look_at_inputs(observation)

    def predecessor_states(self, observation: Observation) -> Mapping[str, Standing]:
        """Return, for each waiting job, the jobs that it comes after with their states. Jobs that come after none are
        left out."""
        return {
            name: tuple((earlier.name, self._find_state(earlier.job_id, observation)) for earlier in job.after)
            for name, job in self._waiting.items()
            if job.after
        }

    def stage_runs(self, observation: Observation) -> Mapping[str, tuple[StageRun, ...]]:
        """Return, for each waiting job, the other jobs of the same cached stage: those that it may await, and later
        ones that have succeeded meanwhile. Jobs without any are left out."""
        return {
            name: tuple(self._stage_run(other, name, observation) for other in same_stage)
            for name, job in self._waiting.items()
            if (same_stage := self._same_stage(job))
        }

    def _same_stage(self, submission: JobSubmission) -> list[str]:
        later_runs = self._later_runs.get(submission.stage_key or "", [])
        return [
            *submission.same_stage,
            *(j for j in later_runs if j not in (submission.job_id, *submission.same_stage)),
        ]

    def _names(self, submission: JobSubmission) -> list[str]:
        return [*(earlier.job_id for earlier in submission.after), *self._same_stage(submission)]

    def _note_later_runs(self, observation: Observation) -> None:
        """Remember the succeeded jobs of each waiting stage. A job that was held, as by its window, may find one that
        was submitted after it."""
        keys = {job.stage_key for job in self._waiting.values() if job.stage_key is not None}
        self._later_runs = {key: jobs for key, jobs in self._later_runs.items() if key in keys}
        for name, job in observation.jobs.items() if keys else ():
            key = job.value.stage_key
            if key in keys and job.value.visit is None and _state(name, observation) is JobState.SUCCEEDED:
                runs = self._later_runs.setdefault(key, [])
                if name not in runs:
                    runs.append(name)

    def _stage_run(self, job: str, waiting: str, observation: Observation) -> StageRun:
        document, state = observation.jobs.get(job), self._find_state(job, observation)
        is_reusable = self._reusable.get(job, False) and (waiting, job) not in self._other_inputs
        if state is JobState.SUCCEEDED and not is_reusable:
            state = JobState.FAILED  # as for the jobs that wait for it
        return StageRun(
            job_id=job,
            state=state,
            producer=self._find_producer(job, observation),
            may_begin=document is not None and self._may_begin(document.value),
        )

    def _find_producer(self, job: str, observation: Observation) -> str:
        """Return the job that computed the outputs of a job which a waiting job names."""
        record = observation.records.get(job)
        reused_from = record.value.reused_from if record is not None else self._producers.get(job)
        return reused_from or job

    def _may_begin(self, submission: JobSubmission) -> bool:
        now = self._store.clock.now()
        return not is_early(submission, now) and outside_window(submission, now) is None

    def _find_state(self, job: str, observation: Observation) -> JobState | None:
        state = _state(job, observation)
        return state if state is not None else self._ended.get(job)

    def _ask_archive(self, jobs: set[str]) -> None:
        """Look up jobs in the archive. A job is written there before it leaves the tables."""
        if not jobs:
            return
        keys = self._store.archive.keys()
        dossiers = self._store.archive.read(keys[job] for job in jobs if job in keys)
        for job in jobs:
            record = dossiers[job].record if job in dossiers else None
            if job in keys and record is None:
                _log.error("%s cannot be read in the archive: what comes after it waits", job)
                self._ended[job] = JobState.PENDING
            else:
                self._ended[job] = record.state if record is not None else None
                self._note_producer(job, record)

    def _look_at_generations(self, jobs: set[str], observation: Observation) -> None:
        """Find out once of each succeeded job whether others may have its outputs: it may have run on a machine of an
        earlier image."""
        self._reusable = {job: is_reusable for job, is_reusable in self._reusable.items() if job in jobs}
        unknown = {
            job for job in jobs - set(self._reusable) if self._find_state(job, observation) is JobState.SUCCEEDED
        }
        manifest = self._store.read_manifest() if unknown else None
        if manifest is None:
            return
        for job in unknown:
            self._reusable[job] = self._store.ran_on_generation(self._store.record(job), manifest.value.generation)

    def _look_at_outputs(self, observation: Observation) -> None:
        """Find out whether the outputs that waiting jobs are about to get still exist. If not, these jobs run
        themselves. Where the data bucket does not answer, or refuses the scheduler, all outputs count as present."""
        for job in self._due_jobs(observation):
            for run in [self._stage_run(other, job.job_id, observation) for other in self._same_stage(job)]:
                if run.state is JobState.SUCCEEDED:
                    self._reusable[run.job_id] = self._has_outputs(run)

    def _look_at_inputs(self, observation: Observation) -> None:
        """Find out which succeeded jobs have read other outputs than the waiting jobs would. A key names the jobs that
        were expected at the submission to compute them: others may have done so, if those were held."""
        self._other_inputs, before = set(), self._input_producers
        self._input_producers = {}
        for job in self._due_jobs(observation):
            producers = {earlier.name: self._find_producer(earlier.job_id, observation) for earlier in job.after}
            for run in [self._stage_run(other, job.job_id, observation) for other in self._same_stage(job)]:
                if producers and run.state is JobState.SUCCEEDED:
                    if run.producer not in before:
                        before[run.producer] = self._store.input_producers(run.producer)
                    self._input_producers[run.producer] = before[run.producer]
                    if before[run.producer] != producers:
                        self._other_inputs.add((job.job_id, run.job_id))

    def _due_jobs(self, observation: Observation) -> list[JobSubmission]:
        """Return the waiting jobs whose start has come, and whose earlier jobs have succeeded."""
        now = self._store.clock.now()
        return [
            job
            for job in self._waiting.values()
            if not is_early(job, now)
            and all(self._find_state(earlier.job_id, observation) is JobState.SUCCEEDED for earlier in job.after)
        ]

    def _has_outputs(self, run: StageRun) -> bool:
        if self._store.clock.monotonic() < self._reads_outputs_from:
            return True
        try:
            is_complete = self._store.outputs(run.producer).is_complete()
        except StoreError as error:
            self._reads_outputs_from = self._store.clock.monotonic() + OUTPUTS_PAUSE
            level = logging.INFO if isinstance(error, StoreDenied) else logging.WARNING
            _log.log(level, "whether the outputs of %s are still there cannot be read: %s", run.producer, error)
            return True
        if not is_complete:
            _log.warning("the outputs of %s are gone, or it left none: the stage is run again", run.producer)
        return is_complete

    def _note_producer(self, job: str, record: JobRecord | None) -> None:
        if record is not None and record.reused_from is not None:
            self._producers[job] = record.reused_from


def _waiting(observation: Observation) -> dict[str, JobSubmission]:
    """Return the waiting jobs that name other jobs, or have a cached stage."""
    return {
        name: job.value
        for name, job in observation.jobs.items()
        if (job.value.after or job.value.same_stage or (job.value.stage_key and job.value.visit is None))
        and (name not in observation.records or observation.records[name].value.state is JobState.PENDING)
    }


def _state(job: str, observation: Observation) -> JobState | None:
    """Return the job's state; None if it has left the tables, or was never there."""
    if job in observation.records:
        return observation.records[job].value.state
    return JobState.PENDING if job in observation.jobs or job in observation.unreadable_jobs else None
