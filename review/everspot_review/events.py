"""Parses the engine's event log: steps, broken rules, diagnostics and the end of the run.

The log, `pulumi preview --event-log FILE`, has one JSON object a line (pulumi/sdk, apitype/events.go, `EngineEvent`).
Unknown kinds of events are skipped, since a newer engine has more of them; known ones must have the fields that are
read. The engine works in parallel, so the order of its lines does not matter: steps are sorted.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any, Literal

from everspot_review.event_log import EventLog, LoggedStep, ResourceState, resource_name
from everspot_review.report import BrokenRule, Diagnostic, Exemption

_COLORS = re.compile(r"<\{%[^%]*%\}>|\x1b\[[0-9;]*m")
_MOST_PROBLEMS = 5
_ANALYZED = ("policyAnalyzeSummaryEvent", "policyAnalyzeStackSummaryEvent")
_OF_A_HOST = re.compile(r"using \S+ from \$PATH at ")
"""A warning about the machine that ran the preview, which tells nothing about the change."""
_FAILED = "preview failed"
_EXEMPTION = re.compile(r"(?P<message>.*) Excepted until (?P<until>\d{4}-\d{2}-\d{2}): (?P<reason>.*)", re.DOTALL)
"""How `everspot-policy` ends the message of a problem that an exception covers."""


class EventLogError(ValueError):
    """The log is not an engine's, or an engine wrote the required fields in an unknown form."""


def read(lines: Iterable[str]) -> EventLog:
    """Return the log in `lines`. A log without its last lines, or with the last line cut, is not `whole`.

    Raises:
        EventLogError: if a line is not part of a log, with the mistakes by line.
    """
    problems: list[str] = []
    steps: dict[str, list[LoggedStep]] = {}
    rules: list[BrokenRule] = []
    passed: set[str] = set()
    failed: set[str] = set()
    diagnostics: list[Diagnostic] = []
    succeeded: bool | None = None
    for number, event in _events(lines, problems):
        try:
            if "resourcePreEvent" in event:
                step = _step(_within(event, "resourcePreEvent", "metadata"))
                steps.setdefault(step.urn, []).append(step)
            elif "policyEvent" in event:
                rules += _rule(_within(event, "policyEvent"))
            elif kind := next((kind for kind in _ANALYZED if kind in event), None):
                summary = _within(event, kind)
                passed |= set(_texts(summary, "passed"))
                failed |= set(_texts(summary, "failed"))
            elif "diagnosticEvent" in event:
                diagnostics += _diagnostic(_within(event, "diagnosticEvent"))
            elif "summaryEvent" in event:
                succeeded = _text(_within(event, "summaryEvent"), "result", "succeeded") == "succeeded"
        except _MalformedEvent as unfit:
            problems.append(f"line {number}: {unfit}")
    if problems:
        more = f" and {len(problems) - _MOST_PROBLEMS} more" if len(problems) > _MOST_PROBLEMS else ""
        raise EventLogError(f"no event log of the engine: {'; '.join(problems[:_MOST_PROBLEMS])}{more}")
    broken = {rule.rule for rule in rules} | failed
    return EventLog(
        steps=tuple(_joined(steps[urn]) for urn in sorted(steps)),
        rules=tuple(sorted(set(rules), key=lambda r: (r.level != "mandatory", r.rule, r.resource, r.message))),
        passed=tuple(sorted(passed - broken)),
        diagnostics=tuple(sorted(set(diagnostics), key=lambda d: (d.severity, d.resource, d.text))),
        succeeded=succeeded,
    )


def read_file(path: Path) -> EventLog:
    """Return the log in a file; one that is not there has no lines. Values may have characters in them that Python, but
    not the engine, ends a line at.

    Raises:
        EventLogError: as `read` does.
    """
    if not path.exists():
        return read(())
    with path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        return read(lines)


class _MalformedEvent(ValueError):
    """An event lacks a field that is read."""


def _events(lines: Iterable[str], problems: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the events by the number of their line. A last line that is cut is no problem: the log ends there."""
    broken = ""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if broken:
            problems.append(broken)
            broken = ""
        try:
            event = json.loads(line)
        except ValueError:
            broken = f"line {number}: no JSON"
            continue
        if isinstance(event, dict):
            yield number, event
        else:
            problems.append(f"line {number}: no JSON object")


def _step(data: Mapping[str, Any]) -> LoggedStep:
    diff = data.get("detailedDiff")
    if diff is None:
        diff = {path: {} for path in _texts(data, "diffs")}
    if not isinstance(diff, Mapping) or not all(isinstance(entry, Mapping) for entry in diff.values()):
        raise _MalformedEvent("`detailedDiff` maps no paths to differences")
    op, urn = _text(data, "op"), _text(data, "urn")
    if not urn.startswith("urn:pulumi:") or urn.count("::") < 3:
        raise _MalformedEvent(f"{urn[:80]!r} is no URN")
    old, new = _state(data, "old"), _state(data, "new")
    return LoggedStep(
        urn=urn,
        type=_text(data, "type"),
        ops=(op,),
        old=old,
        new=new if op not in ("delete", "delete-replaced") else None,
        diff={path: str(entry.get("diffKind", "update")) for path, entry in diff.items()},
        keys=_texts(data, "keys"),
        provider=_text(data, "provider", ""),
    )


def _joined(steps: list[LoggedStep]) -> LoggedStep:
    """Return the steps of one resource as one. A replacement has three steps: the new state is in the steps that create
    it, and the last step applies to the replaced resource. An older resource of the same name may be deleted beside it,
    too."""
    ranked = sorted(steps, key=lambda step: (step.new is None, step.ops, step.old.id if step.old else ""))
    first = ranked[0]
    diff: dict[str, str] = {}
    for step in reversed(ranked):
        diff |= step.diff
    return LoggedStep(
        urn=first.urn,
        type=first.type,
        ops=tuple(sorted({op for step in ranked for op in step.ops})),
        old=next((step.old for step in ranked if step.old is not None), None),
        new=first.new,
        diff=diff,
        keys=next((step.keys for step in ranked if step.keys), ()),
        provider=first.provider,
    )


def _state(data: Mapping[str, Any], side: str) -> ResourceState | None:
    state = data.get(side)
    if state is None:
        return None
    if not isinstance(state, Mapping):
        raise _MalformedEvent(f"`{side}` is no object")
    sides = {}
    for name in ("inputs", "outputs"):
        properties = state.get(name)
        if properties is not None and not isinstance(properties, Mapping):
            raise _MalformedEvent(f"`{side}.{name}` is no object")
        sides[name] = properties or {}
    return ResourceState(
        **sides,
        id=_text(state, "id", ""),
        protected=state.get("protect") is True,
        retained=state.get("retainOnDelete") is True,
        custom=state.get("custom") is True,
        provider=_text(state, "provider", "").rpartition("::")[0],  # URN::ID
        parent=_text(state, "parent", ""),
    )


def _rule(data: Mapping[str, Any]) -> list[BrokenRule]:
    level = _text(data, "enforcementLevel")
    if level in ("none", "disabled"):
        return []
    # The engine puts the rule's description into the first line, and what is wrong into the others.
    message = plain(_text(data, "message")).strip().split("\n", 1)[-1].strip()
    # An exception's word counts only where the pack has made the rule advisory by it: a message may hold text of the
    # change's own.
    exception = None if level == "mandatory" else _EXEMPTION.fullmatch(message)
    excepted = _excepted(exception["until"], exception["reason"]) if exception is not None else None
    return [
        BrokenRule(
            rule=_text(data, "policyName"),
            level="mandatory" if level == "mandatory" else "advisory",
            severity=_text(data, "severity", ""),
            resource=resource_name(_text(data, "resourceUrn", "")),
            message=exception["message"] if exception is not None and excepted is not None else message,
            excepted=excepted,
        )
    ]


def _excepted(until: str, reason: str) -> Exemption | None:
    """Return the exception of a message; None if its day is not in the calendar."""
    try:
        return Exemption(reason=reason, until=date.fromisoformat(until))
    except ValueError:
        return None


def _diagnostic(data: Mapping[str, Any]) -> list[Diagnostic]:
    severity = _text(data, "severity")
    text = plain(_text(data, "message")).strip()
    level: Literal["error", "warning"] = "error" if severity == "error" else "warning"
    if severity not in ("error", "warning") or data.get("ephemeral") or not text:
        return []
    if _OF_A_HOST.match(text) or text == _FAILED:
        return []
    return [Diagnostic(severity=level, text=text, resource=resource_name(_text(data, "urn", "")))]


def plain(text: str) -> str:
    """Return a text of the engine without its colours."""
    return _COLORS.sub("", text)


def _within(event: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    inner = event
    for name in path:
        below = inner.get(name)
        if not isinstance(below, Mapping):
            raise _MalformedEvent(f"`{'.'.join(path)}` is no object")
        inner = below
    return inner


def _text(data: Mapping[str, Any], name: str, otherwise: str | None = None) -> str:
    text = data.get(name, otherwise)
    if not isinstance(text, str):
        raise _MalformedEvent(f"`{name}` is no text")
    return text


def _texts(data: Mapping[str, Any], name: str) -> tuple[str, ...]:
    texts = data.get(name) or ()
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise _MalformedEvent(f"`{name}` is no list of texts")
    return tuple(texts)
