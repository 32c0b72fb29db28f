"""Errors of the command: their messages for people and their exit codes."""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from everspot_cli.local_cloud_hints import with_local_cloud

if TYPE_CHECKING:
    from everspot_core.validation.problems import Problem
    from everspot_store import StoreError


class Exit(IntEnum):
    """Exit codes, as docs/reference/cli.md lists them."""

    OK = 0
    USER = 1
    USAGE = 2
    NOT_FOUND = 3
    UNAVAILABLE = 4
    JOB_FAILED = 5
    INTERRUPTED = 130


MEANING = {
    Exit.OK: "done",
    Exit.USER: "the request is wrong: a bad spec, a job that has already ended, a failed check, a wait that took "
    "longer than its `--timeout`",
    Exit.USAGE: "the command line cannot be read: unknown option, missing argument",
    Exit.NOT_FOUND: "no such job, file or dataset, or several jobs begin with the given id",
    Exit.UNAVAILABLE: "the store or the credentials for it are not available: try again, or run `everspot doctor`; "
    "or a required program is not installed (`exec`, `forward`)",
    Exit.JOB_FAILED: "the job that was waited for ended as FAILED or CANCELLED (`job --wait`, `logs -f`)",
    Exit.INTERRUPTED: "stopped with Ctrl-C",
}


def list_problems(problems: "Sequence[Problem]") -> list[dict[str, str]]:
    """Return the problems of an error: the first ones are listed, the rest are counted."""
    from everspot_core.validation.model_errors import legible  # most commands end well, and start fast
    from everspot_core.validation.problems import SHOWN_AT_MOST

    shown = [(legible(problem.path), legible(problem.reason)) for problem in problems[:SHOWN_AT_MOST]]
    entries = [{"field": field or "the whole", "problem": reason} for field, reason in shown]
    remaining = len(problems) - SHOWN_AT_MOST
    return (
        entries
        if remaining <= 0
        else [*entries, {"field": f"(and {remaining} more)", "problem": "not listed; fix these first"}]
    )


class CliError(Exception):
    """An error with a message for people. `hint`: what to do about it; `problems`: each single fault."""

    def __init__(
        self, message: str, code: Exit = Exit.USER, *, hint: str = "", problems: list[dict[str, str]] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint
        self.problems = problems or []


def fields_wrong(count: int) -> str:
    """`a field is wrong`, or `3 fields are wrong`."""
    return f"{count} fields are wrong" if count > 1 else "a field is wrong"


def run_rules(subject: str, rules: "Sequence[Callable[[], list[str]]]") -> tuple[list[str], CliError | None]:
    """Run several rules. A rule returns warnings or refuses fields.

    Returns:
        All warnings, and one error with all refused fields, or None.
    """
    warnings: list[str] = []
    refused: list[CliError] = []
    for rule in rules:
        try:
            warnings += rule()
        except CliError as error:
            if not error.problems:
                raise
            refused.append(error)
    if len(refused) < 2:
        return warnings, refused[0] if refused else None
    problems = [problem for error in refused for problem in error.problems]
    hint = "; ".join(error.hint for error in refused if error.hint)
    message = f"{subject}: {fields_wrong(len(problems))} for this cluster"
    return warnings, CliError(message, hint=hint, problems=problems)


_OF_THE_LOCAL_CLOUD = (
    "this shell leads to a local cloud: does it run (`everspot-local status`)? For any other cluster use a new shell"
)


def of_store(error: "StoreError", url: str) -> CliError:
    """Return the user's error for an error of the store."""
    from everspot_store import StoreDenied, StoreMissing, StoreUnavailable, StoreUntrusted
    from everspot_store.cloud import is_local

    if isinstance(error, StoreMissing):
        hint = with_local_cloud("is this the right --store?")
        return CliError(f"the store {url} does not exist: {error}", Exit.UNAVAILABLE, hint=hint)
    if isinstance(error, StoreDenied):
        return CliError(
            f"the store {url} refused the credentials: {error}",
            Exit.UNAVAILABLE,
            hint=with_local_cloud(
                "log in again, or ask for access to the control bucket; `everspot doctor` says which check fails"
            ),
        )
    if isinstance(error, StoreUntrusted):
        return CliError(f"the store {url} is not trusted: {error}", Exit.UNAVAILABLE)
    if isinstance(error, StoreUnavailable):
        hint = _OF_THE_LOCAL_CLOUD if is_local(url) else "try again in a minute"
        return CliError(f"the store {url} does not answer: {error}", Exit.UNAVAILABLE, hint=hint)
    return CliError(str(error), Exit.USER)


def need(program: str, extra: str) -> None:
    """Check that the packages of an extra are installed, before any of them is imported.

    Raises:
        CliError: if one is missing, with the sentence that says which extra to install.
    """
    from everspot_core.extras import check  # most commands need none

    try:
        check(program, extra)
    except SystemExit as missing:
        raise CliError(str(missing)) from None
