"""Downloads what a job has left in its folder `outputs/`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from everspot_core.counting import counted, first_few
from everspot_store import UnsafeArchive
from everspot_store.outputs import Output, Outputs

from everspot_cli.errors import CliError, Exit
from everspot_cli.job_lookup import read_record
from everspot_cli.session import Session

_NAMED = 5  # outputs that a message names


@dataclass(frozen=True)
class FetchedOutputs:
    """The files that were downloaded into a folder. `failed`: the files that could not be written, as problems."""

    folder: Path
    outputs: tuple[Output, ...]
    failed: tuple[dict[str, str], ...]

    def error(self) -> CliError:
        """Return the error of the files that could not be written."""
        message = f"{counted(len(self.failed), 'output')} cannot be written below {self.folder}"
        return CliError(message, problems=list(self.failed))


def list_outputs(session: Session, job_id: str, path: str) -> list[Output]:
    """Return the outputs of a job at or below a path; all of them if it is empty.

    Raises:
        CliError: if the job has no such outputs.
    """
    outputs = _outputs(session, job_id).list(path.strip("/"))
    if not outputs:
        raise _no_outputs_error(session, job_id, path)
    return outputs


def fetch_outputs(
    session: Session,
    job_id: str,
    outputs: Sequence[Output],
    to: Path,
    on_file: Callable[[Output], None] = lambda _: None,
) -> FetchedOutputs:
    """Download outputs of a job into a folder of its id below `to`. `on_file` is called after each file."""
    source, folder = _outputs(session, job_id), to / job_id
    fetched: list[Output] = []
    failed: list[dict[str, str]] = []  # such as a path that was a folder in one attempt and a file in a later one
    for output in outputs:
        try:
            source.fetch(output, folder)
            fetched.append(output)
        except (OSError, UnsafeArchive) as error:
            failed.append({"field": output.path, "problem": str(error)})
        on_file(output)
    return FetchedOutputs(folder, tuple(fetched), tuple(failed))


def _outputs(session: Session, job_id: str) -> Outputs:
    """Return the outputs of a job, or those of the job that computed the same."""
    return session.store.outputs(session.store.producer(job_id))


def _no_outputs_error(session: Session, job: str, path: str) -> CliError:
    """Return the error that says why there is nothing to pull: not yet, not at all, or not of this name."""
    if path:
        others = [output.path for output in _outputs(session, job).list()]
        names = first_few(others, _NAMED, remainder_phrase=", and {} more")
        hint = f"its outputs are {names}" if others else "it has no outputs"
        return CliError(f"{job} has no {path} among the outputs", Exit.NOT_FOUND, hint=hint)
    record = read_record(session, job)
    if record is not None and record.state.final:
        hint = "what a program writes into its folder outputs/ is kept; `everspot logs` has what it printed"
        return CliError(f"{job} has ended and left nothing in its folder outputs/", Exit.NOT_FOUND, hint=hint)
    hint = f"its folder outputs/ is kept when an attempt has ended: everspot job {job} --wait"
    return CliError(f"{job} has not ended, and has no outputs yet", Exit.NOT_FOUND, hint=hint)
