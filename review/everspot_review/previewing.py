"""Previews of environments: the engine's event log in, a report out."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from everspot_clouds.estimating import estimated
from everspot_clouds.registry import resource_kinds
from everspot_core.cluster.declared import DeclaredResource
from everspot_core.cluster.deployment import describe_pending, pending_operations, resolve_pending
from everspot_core.counting import counted
from everspot_core.estimate.model import CostFigures, Estimate

from everspot_review.affected import Project
from everspot_review.engine import BUDGET_RULE, OWN_PACK, PREVIEW_TIMEOUT, Ended, Engine, EngineError
from everspot_review.errors import ReviewError
from everspot_review.event_log import EventLog
from everspot_review.events import EventLogError, read, read_file
from everspot_review.judge import judge
from everspot_review.leaks import rules_broken_by
from everspot_review.report import Diagnostic, EnvironmentReport, PreviewOutcome
from everspot_review.running import running_jobs
from everspot_review.unmanaged import describe_unmanaged, list_unmanaged

LIST = "environments.txt"
"""The file beside the reports that lists all of them, so that a missing report is noticed."""

QUOTED_CHARACTERS = 4_000
"""Characters of the engine's last output in a report, used if the event log has no reason for a failure."""

_UNSTARTED = re.compile(r"^error: policy pack .* failed to start", re.MULTILINE)
_REFUSED = re.compile(r"^ *everspot-policy: (?P<what>.+)(?P<each>(?:\n +(?:- |…).*)*)", re.MULTILINE)
_FOLDERS = re.compile(r"^(?:/[^/\n]+)*/(?=[^/\n]+ has )")
"""The folder of a file in a refusal, which is left out: it only exists on the machine that ran the preview."""


@dataclass(frozen=True)
class Revisions:
    """The revisions that a change is between; empty if unknown.

    Attributes:
        behind: commits of the base that the change does not have.
        price_changes: what the change does to the project's price tables, in sentences.
    """

    base: str = ""
    head: str = ""
    behind: int = 0
    price_changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LoggedPreview:
    """The report on a preview, and the event log that it is from."""

    report: EnvironmentReport
    log: EventLog


def preview(
    engine: Engine, environment: str, revisions: Revisions, limit: timedelta = PREVIEW_TIMEOUT
) -> EnvironmentReport:
    """Return the report on the steps of an update of an environment, and on the rules. Changes nothing.

    Raises:
        EngineError: if the engine cannot be run.
    """
    return preview_with_log(engine, environment, revisions, limit).report


def preview_with_log(
    engine: Engine, environment: str, revisions: Revisions, limit: timedelta = PREVIEW_TIMEOUT
) -> LoggedPreview:
    """Return the same as `preview`, with the event log.

    Raises:
        EngineError: if the engine cannot be run.
    """
    with TemporaryDirectory(prefix="everspot-review-") as folder:
        log = Path(folder) / "events.jsonl"
        ended = engine.preview(environment, log, limit)
        return _judged(engine, environment, log, ended, revisions)


def _judged(engine: Engine, environment: str, log: Path, ended: Ended, revisions: Revisions) -> LoggedPreview:
    """Return the report on a run that has ended. A broken rule fails the engine's run, but its log is complete. For any
    other failure the engine's own last words are used if its log has no reason."""
    try:
        log_read, words = read_file(log), _refused_settings(ended.output) or ended.output[-QUOTED_CHARACTERS:]
    except EventLogError as error:
        log_read, words = EventLog(), str(error)
    judged = any(rule.level == "mandatory" for rule in log_read.rules) and log_read.whole and not ended.late
    failure = "" if ended.code == 0 or judged else words or f"the engine ended with exit code {ended.code}"
    if pending := interrupted(engine, environment):
        failure = failure or pending
        log_read = replace(log_read, diagnostics=(Diagnostic(severity="error", text=pending), *log_read.diagnostics))
    log_read = replace(log_read, rules=(*rules_broken_by(engine.project, environment), *log_read.rules))
    unmanaged = list_unmanaged(log_read, resource_kinds())
    estimate = _priced(log_read, unmanaged, failed=bool(failure))
    if estimate is not None and estimate.after is not None:
        log_read = replace(log_read, diagnostics=(*log_read.diagnostics, *describe_unmanaged(unmanaged)))
    report = judge(
        _budgeted(engine, environment, log_read, estimate), environment=environment, stack=environment,
        kinds=resource_kinds(), base=revisions.base, head=revisions.head, estimate=estimate,
        running=running_jobs(engine, environment), failure=failure,
    )  # fmt: skip
    return LoggedPreview(report, log_read)


def interrupted(engine: Engine, environment: str) -> str:
    """Return why nothing may be done to an environment whose last update was interrupted, with the command that
    resolves it; empty if none was interrupted.

    The engine itself would go on, and create again the resources that the interrupted update may have created already.
    """
    try:
        operations = pending_operations(engine.state(environment))
    except (EngineError, ValueError):  # no stack yet, or a broken backend, which the preview itself reports
        return ""
    sentence = describe_pending(operations)
    return f"{sentence}. To go on, {resolve_pending(environment)}" if sentence else ""


def _refused_settings(output: str) -> str:
    """Return our pack's message about its settings if it does not start because of them; empty if the preview failed
    otherwise."""
    match = _REFUSED.search(output) if _UNSTARTED.search(output) else None
    if match is None:
        return ""
    each = "".join(f"\n  {line.strip()}" for line in match["each"].splitlines() if line.strip())
    subject = _FOLDERS.sub("", match["what"].strip())
    return f"Nothing was previewed, because the rules' settings are wrong: {subject}{each}"[:QUOTED_CHARACTERS]


def _budgeted(engine: Engine, environment: str, log: EventLog, estimate: Estimate | None) -> EventLog:
    """Return the log with the budget rule's finding on the estimate: the engine asks its packs before there is an
    estimate."""
    if estimate is None or estimate.after is None:
        return log
    broken = read(engine.over_budget(environment, estimate.after.total.high)).rules
    names = {rule.rule for rule in broken}
    unpriced = _added_unpriced(estimate)
    if unpriced:  # the figure is too low for the rule to hold
        names.add(BUDGET_RULE)
    rules = sorted((*broken, *log.rules), key=lambda rule: rule.level != "mandatory")
    passed = tuple(name for name in log.passed if name not in names)
    diagnostics = (*log.diagnostics, *_unjudged(engine, environment, estimate.after, () if broken else unpriced))
    return replace(log, rules=tuple(rules), passed=passed, diagnostics=diagnostics)


def _added_unpriced(estimate: Estimate) -> list[str]:
    """Return the names of the resources without a known price that a change adds."""
    before = estimate.before.unpriced if estimate.before is not None else ()
    return sorted({*(estimate.after.unpriced if estimate.after is not None else ())} - {*before})


def _unjudged(engine: Engine, environment: str, figures: CostFigures, additions: Sequence[str]) -> list[Diagnostic]:
    """Return the part of a month's cost that is not compared with the environment's budget, if it has one and there are
    packs. `additions`: resources without a known price that the change adds, if the other ones keep the budget."""
    if not engine.packs or not engine.has_budget(environment):
        return []
    if not engine.judges_budgets:
        text = f"This change is not judged against the budget: no policy pack has the file name {OWN_PACK}."
    elif additions:
        names = ", ".join(additions)
        text = f"This change is not judged against the budget: it adds {names}, whose price is not known."
    elif figures.unpriced:
        names = ", ".join(figures.unpriced)
        text = f"What the budget is compared with lacks the cost of {names}: no price is known."
    else:
        return []
    return [Diagnostic(severity="warning", text=text)]


def _behind(commits: int) -> Diagnostic:
    text = (
        f"The branch lacks {counted(commits, 'commit')} of the one that it goes into. What these changed may be shown "
        "as undone, and after the merge something else would happen than is shown: bring them into the branch first."
    )
    return Diagnostic(severity="warning", text=text)


def _priced(log: EventLog, unmanaged: Sequence[DeclaredResource], *, failed: bool) -> Estimate | None:
    """Return the cost of the change; None if the engine did not come as far as listing the present resources. The log
    of a failed preview lacks resources, so the present and future ones are unknown. `unmanaged`: resources that stay in
    the cloud although the change takes them out of the stack."""
    if not log.steps:
        return None
    if failed or log.failed:
        return estimated(None, None)
    return estimated(log.before(), (*log.after(), *unmanaged))


def removed(engine: Engine, environment: str, revisions: Revisions) -> EnvironmentReport | None:
    """Return the report on an environment whose settings the change deletes. It is refused while its stack has
    resources, which nobody would see or pay attention to any longer. None if it has none.

    Raises:
        EngineError: if the backend cannot be read.
    """
    count = engine.resources(environment)
    if not count:
        return None
    text = (
        f"Pulumi.{environment}.yaml is deleted, and the stack {environment} still has {count} resources. Destroy the "
        f"stack first (everspot cluster down --stack {environment}, or pulumi destroy), or keep the file. "
        "A renamed file is another stack, and a renamed stack declares another cluster: all resources are named "
        "after it."
    )
    diagnostics = (Diagnostic(severity="error", text=text),)
    return EnvironmentReport(
        environment=environment, stack=environment, outcome=PreviewOutcome.FAILED,
        base=revisions.base, head=revisions.head, diagnostics=diagnostics,
    )  # fmt: skip


def preview_all(
    engine: Engine,
    project: Project,
    chosen: Sequence[str],
    removed_names: Sequence[str],
    revisions: Revisions,
    out: Path,
    limit: timedelta,
    listeners: Sequence[Callable[[EnvironmentReport], None]] = (),
) -> list[EnvironmentReport]:
    """Preview environments one after the other and write a report on each to OUT/ENVIRONMENT.json; reports of another
    run are removed.

    Raises:
        ReviewError: if an environment has no settings, or the engine cannot be run.
    """
    existing = project.environments()
    unknown = [name for name in chosen if name not in existing]
    if unknown:
        raise ReviewError(f"no such environment: {', '.join(unknown)}; there is {', '.join(existing) or 'none'}")
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("*.json"), out / LIST):
        old.unlink(missing_ok=True)
    reports: list[EnvironmentReport] = []
    for name in (*removed_names, *chosen):
        report = removed(engine, name, revisions) if name in removed_names else preview(engine, name, revisions, limit)
        if report is None:
            continue
        remarks = [Diagnostic(severity="warning", text=text) for text in revisions.price_changes]
        if revisions.behind:
            remarks.append(_behind(revisions.behind))
        report = report.model_copy(update={"diagnostics": (*report.diagnostics, *remarks)})
        (out / f"{name}.json").write_bytes(report.to_json())
        reports.append(report)
        for each in listeners:
            each(report)
    (out / LIST).write_text("".join(f"{report.environment}\n" for report in reports))
    return reports
