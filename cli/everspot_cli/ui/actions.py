"""The actions of the web UI. Each is an action of the command, and asks for confirmation."""

from collections.abc import Callable
from dataclasses import dataclass

from everspot_core.jobs.job import JobSubmission

from everspot_cli.requests import Requested, ask_cancel, ask_interrupt
from everspot_cli.session import Session


@dataclass(frozen=True)
class Action:
    """One action on a job. `label`: of its button; `question` and `meaning`: on the page that asks for
    confirmation; `command`: the same in a terminal."""

    label: str
    question: str
    meaning: str
    command: str
    send: Callable[[Session, JobSubmission], Requested]


ACTIONS: dict[str, Action] = {
    "cancel": Action(
        label="Cancel the job",
        question="Cancel this job?",
        meaning="It ends at its next step, and its instance is free for others immediately. What it has checkpointed "
        "stays: a retry goes on from there. If it belongs to a series, the series ends, too.",
        command="everspot cancel",
        send=ask_cancel,
    ),
    "interrupt": Action(
        label="Interrupt it as a drill",
        question="Interrupt this job as a drill?",
        meaning="It checkpoints and gives its instance back, as it would at a notice of the cloud, and resumes as soon "
        "as an instance is free.",
        command="everspot cluster interrupt",
        send=lambda session, submission: ask_interrupt(session, submission, "asked for on the page"),
    ),
}
