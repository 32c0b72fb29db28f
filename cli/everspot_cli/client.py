"""The Python API of Everspot: submit jobs, wait for them, and read what they report and leave."""

import codecs
import io
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from everspot_core.documents import format_duration
from everspot_core.jobs.curves import CurveBuilder
from everspot_core.jobs.lease import pending
from everspot_core.jobs.records import JobState, Reason
from everspot_store import StoreError, StoreUnavailable

from everspot_cli.commands.submit.command import submit_spec
from everspot_cli.errors import CliError, of_store
from everspot_cli.job_log import read_job_log
from everspot_cli.job_lookup import find_job, read_record
from everspot_cli.job_outputs import fetch_outputs, list_outputs
from everspot_cli.requests import ask_cancel
from everspot_cli.session import Session
from everspot_cli.specs import Overrides, build_spec, read_spec

POLL = timedelta(seconds=1)
LONGEST_OUTAGE = timedelta(minutes=10)
"""Real time for which a wait outlasts a store that does not answer: a laptop sleeps, a network changes."""
_UNNAMED_JOB = "the job"  # how errors call a job that is no file
_process: int | None = None
"""The process that has used a client. The store's threads do not exist in its forks, where each call would hang."""


@dataclass(frozen=True)
class JobStatus:
    """A job at one moment.

    Attributes:
        step: optimizer steps that it has done.
        total_steps: None: not known.
        metrics: the newest value of each.
        reason: why its last attempt ended; None: no attempt has ended.
        detail: the failure, for people; empty without one.
    """

    job_id: str
    state: JobState
    step: int
    total_steps: int | None
    metrics: Mapping[str, float]
    reason: Reason | None
    detail: str

    @property
    def succeeded(self) -> bool:
        """Whether it has ended without a failure."""
        return self.state is JobState.SUCCEEDED


class Client:
    """The jobs of one cluster, for programs and notebooks.

        client = everspot.Client()
        job_id = client.submit("job.yaml", overrides={"parameters.epochs": 3})
        for line in client.logs(job_id, follow=True):
            print(line)
        if client.wait(job_id).succeeded:
            client.outputs(job_id, to="results")

    Jobs are named by their id, or the beginning of it. Every method raises `CliError` if the cluster, the job or a
    value is wrong, or the store does not answer: its text is that of the command, `problems` names each wrong field,
    and `hint` says what to do.

    Args:
        store: The URL of the control bucket, or a folder. Without it, and without `cluster` and `stack`, the cluster
            is the one that the command `everspot` takes.
        cluster: A cluster by its name in `everspot cluster use`.
        stack: The Pulumi stack of this folder whose output `controlUrl` is used.
    """

    def __init__(self, store: str | None = None, *, cluster: str | None = None, stack: str | None = None) -> None:
        self._session = Session(store_option=store, cluster_option=cluster, stack=stack, json=True)

    @classmethod
    def with_session(cls, session: Session) -> Self:
        """Return the client of a run of the command."""
        client = cls()
        client._session = session
        return client

    def submit(
        self,
        job: str | Path | Mapping[str, Any],
        *,
        overrides: Mapping[str, Any] | None = None,
        force: bool = False,
        wait_for_capacity: bool = False,
    ) -> str:
        """Submit a job and return its id. Once it returns, the job cannot be lost.

        Args:
            job: The path of a job file, or its fields. Paths in it are relative to the file, or to this folder.
            overrides: Values of fields by their path, such as `{"parameters.epochs": 3}`.
            force: Submit it even if its deadline cannot be met.
            wait_for_capacity: Accept it even if no instance type of the cluster can hold it.
        """
        changes = Overrides(dict(overrides or {}))
        with self._clear_errors():
            self._session.refresh()  # a notebook's client outlives changes of the cluster, and of this machine's clock
            if isinstance(job, Mapping):
                subject = _UNNAMED_JOB
                spec = build_spec(Path("job"), dict(job), changes, subject=subject, forced=force)
            else:
                subject, spec = str(job), read_spec(Path(job), changes, forced=force)
            submission, cautions = submit_spec(
                self._session, subject, spec, forced=force, wait_for_capacity=wait_for_capacity
            )
        for caution in cautions:
            try:
                warnings.warn(caution, stacklevel=2)
            except UserWarning:  # an error by the caller's filters; but the job exists, and its id must not be lost
                with warnings.catch_warnings():
                    warnings.simplefilter("always")
                    warnings.warn(caution, stacklevel=2)
        return submission.job_id

    def status(self, job_id: str) -> JobStatus:
        """Return the state of a job now."""
        with self._clear_errors():
            name = self._find(job_id)
            record = read_record(self._session, name) or pending(name, self._session.now)
        progress = record.progress
        return JobStatus(
            name, record.state, progress.step, progress.total_steps, dict(progress.metrics), record.last_reason,
            record.detail,
        )  # fmt: skip

    def wait(self, job_id: str, timeout: timedelta | None = None) -> JobStatus:
        """Wait until a job has ended, and return its last state: SUCCEEDED, FAILED, CANCELLED or SKIPPED.

        Args:
            job_id: The job.
            timeout: Real time. None: wait as long as it takes.

        Raises:
            TimeoutError: if it has not ended by then.
        """
        clock = self._session.clock
        status, began = self.status(job_id), clock.monotonic()
        answered_at = began
        while not status.state.final:
            if timeout is not None and clock.monotonic() - began >= timeout:
                raise TimeoutError(f"{status.job_id} has not ended within {format_duration(timeout)}")
            clock.sleep(POLL)
            try:
                status, answered_at = self.status(status.job_id), clock.monotonic()
            except CliError as error:
                is_outage = isinstance(error.__cause__, StoreUnavailable)
                if not is_outage or clock.monotonic() - answered_at >= LONGEST_OUTAGE:
                    raise
        return status

    def logs(self, job_id: str, *, follow: bool = False, tail: int | None = None) -> Iterator[str]:
        """Yield the lines that a job has printed, from all its attempts and instances, without their line ends.

        A carriage return ends a line, too, as in the output of a progress bar.

        Args:
            job_id: The job.
            follow: Go on until the job has ended.
            tail: Only this many lines from the end, and with `follow` those that come later.
        """
        text = codecs.getincrementaldecoder("utf-8")(errors="replace")
        decoder, open_line = io.IncrementalNewlineDecoder(text, translate=True), list[str]()
        with self._clear_errors():
            for chunk in read_job_log(self._session, self._find(job_id), follow=follow, tail=tail):
                *line_ends, remainder = decoder.decode(chunk.data).split("\n")
                for line_end in line_ends:
                    yield "".join([*open_line, line_end])
                    open_line.clear()
                open_line.append(remainder)
        if last_line := "".join([*open_line, decoder.decode(b"", final=True)]).removesuffix("\n"):
            yield last_line

    def metrics(self, job_id: str) -> dict[str, list[tuple[int, float]]]:
        """Return the course of each metric of a job: steps and values, losses first.

        Steps that were done again after an interruption are there once. A long course has at most a thousand points,
        among them the lowest and the highest of each part.
        """
        status, builder = self.status(job_id), CurveBuilder()
        with self._clear_errors():
            for chunk in self._session.store.read_metrics(status.job_id):
                builder.add_metrics(chunk.epoch, chunk.data)
        curves = builder.build(sample=(status.step, dict(status.metrics)) if status.metrics else None)
        return {curve.name: [(int(step), value) for step, value in curve.points] for curve in curves.metrics}

    def cancel(self, job_id: str) -> None:
        """Ask for the end of a job. Its checkpoints stay."""
        with self._clear_errors():
            ask_cancel(self._session, find_job(self._session, job_id))

    def outputs(self, job_id: str, path: str = "", *, to: str | Path = ".") -> list[Path]:
        """Download the files of a job's folder `outputs/`, and return where they are.

        Args:
            job_id: The job.
            path: A file or folder of the outputs. Empty: all of them.
            to: The folder in which a folder of the job's id is made.
        """
        with self._clear_errors():
            name = self._find(job_id)
            fetched = fetch_outputs(self._session, name, list_outputs(self._session, name, path), Path(to))
        if fetched.failed:
            raise fetched.error()
        return [fetched.folder / output.path for output in fetched.outputs]

    def _find(self, job_id: str) -> str:
        return find_job(self._session, job_id).job_id

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        """Raise `CliError`, with words for people, for every error of the store."""
        global _process
        if _process not in (None, os.getpid()):
            hint = "use threads, or `multiprocessing.get_context('spawn')`"
            raise CliError("a client was used before this process was forked: none works here", hint=hint)
        _process = os.getpid()
        try:
            yield
        except StoreError as error:
            raise of_store(error, self._session.store_url) from error


__all__ = ["CliError", "Client", "JobStatus"]
