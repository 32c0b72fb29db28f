"""Why a job failed: the exception of its program and the last lines that it printed, without the launcher's own
output."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from everspot_core.counting import counted
from everspot_core.jobs.records import Event, EventKind, JobState
from rich.console import Group, RenderableType
from rich.text import Text

LINES = 20
"""Lines of the program's output that are shown; `everspot logs` has all of them."""
_OWN = ("error", "missing", "stalled")
"""Reasons that are caused by the program or by its settings."""
_LONGEST = 400  # characters of a line
_RANK = re.compile(r"^\[(?:default|rank)?\d+\]:\s?")
# torch.distributed.elastic reports a failure in its own log lines, in its own traceback, and in a framed summary.
_LOG_LINE = re.compile(r"^[WEIF]\d{4} .*\btorch[/.](?:distributed|multiprocessing)[/.]")
_FRAME = re.compile(r"^\s*(?:={10,}|-{10,})\s*$")
_SUMMARY = re.compile(r"^torch\.distributed\.elastic\.multiprocessing\.errors\.ChildFailedError")
_OWN_FRAME = re.compile(r'File "[^"]*/torch/distributed/(?:run|launcher|elastic)\b')
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"^(?:[A-Za-z_][\w.]*)(?:Error|Exception|Interrupt|Exit|Warning|Fault|Corrupt|Denied|Stop)\b")


@dataclass(frozen=True)
class FailureWords:
    """Why a job failed. `ending`: exit code, instance, and how often; `lines`: what the program printed last."""

    head: str
    ending: str
    lines: tuple[str, ...]


def failure(row: dict[str, Any], events: Sequence[Event]) -> RenderableType | None:
    """Return the exception and the last lines; None unless the job failed or waits for a retry after an error."""
    summary = summarize_failure(row, events)
    if summary is None:
        return None
    more = (
        f"The last {counted(len(summary.lines), 'line')}; all of them: everspot logs {row['job_id']}"
        if summary.lines
        else ""
    )
    shown = [Text("\n".join(summary.lines))] if summary.lines else []
    return Group(
        Text(summary.head, style="bold red"), Text(summary.ending, style="dim"), *shown, Text(f"{more}\n", style="dim")
    )


def summarize_failure(row: dict[str, Any], events: Sequence[Event]) -> FailureWords | None:
    """Return the exception, the ending and the last lines as text. None as for `failure`."""
    error_event = next((e for e in reversed(events) if e.kind is EventKind.ERROR), None)
    failed = row["state"] == JobState.FAILED.value
    if not failed and (error_event is None or row["last_reason"] not in _OWN):
        return None
    message, text = _words(row, error_event, events)
    lines = own_lines(text)
    first = message or last_exception(lines) or (lines[-1] if lines else "the program ended without a word")
    head = _short(first.strip().splitlines()[0] if first.strip() else first)
    shown = [line for line in lines[-LINES:] if line.strip() != first.strip()]
    return FailureWords(head, _ending(row, error_event), tuple(map(_short, shown)))


def _words(row: dict[str, Any], error_event: Event | None, events: Sequence[Event]) -> tuple[str, str]:
    """Return the cause in one line, if it is known, and the text that explains it."""
    data = error_event.data if error_event is not None else {}
    traceback, message = str(data.get("traceback") or ""), str(data.get("message") or "")
    final = next((str(e.data.get("message") or "") for e in reversed(events) if e.kind is EventKind.FAILED), "")
    if row["last_reason"] not in (None, *_OWN):  # the budget, or machines that could not start it
        return final or row["detail"].partition("\n")[0], ""
    one_line = message if "\n" not in message.strip() else ""
    return one_line, traceback or row["detail"] or message


def own_lines(text: str) -> list[str]:
    """Return the lines of a text that the program itself printed, without the launcher's log, traceback and summary."""
    lines = [_RANK.sub("", line.rstrip()) for line in text.splitlines()]
    cut = next((n for n, line in enumerate(lines) if _SUMMARY.match(line)), None)
    if cut is not None:
        # The launcher's own traceback ends with this line, and its summary in a frame comes behind.
        start = max((n for n in range(cut) if lines[n].startswith(_TRACEBACK)), default=cut)
        own = start if any(_OWN_FRAME.search(line) for line in lines[start:cut]) else cut
        end = next((n for n in range(len(lines) - 1, cut, -1) if _FRAME.match(lines[n])), cut)
        lines = [*lines[:own], *lines[end + 1 :]]
    program_lines = [line for line in lines if not _LOG_LINE.match(line)]
    while program_lines and not program_lines[-1].strip():
        program_lines.pop()
    return program_lines


def last_exception(lines: Sequence[str]) -> str:
    """Return the last exception that was printed, such as `ValueError: bad`, or ""."""
    return next((line for line in reversed(lines) if _EXCEPTION.match(line)), "")


def _ending(row: dict[str, Any], error_event: Event | None) -> str:
    data = error_event.data if error_event is not None else {}
    code = data.get("exit_code", row["exit_code"])
    how = f"killed by {data['signal']}" if data.get("signal") else f"exit code {code}" if code is not None else ""
    where = f"on {error_event.instance_id}" if error_event is not None and error_event.instance_id else ""
    tries = f"{row['errors']} of its attempts ended so" if row["errors"] > 1 else ""
    return ", ".join(part for part in (how, where, tries) if part)


def _short(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
