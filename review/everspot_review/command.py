"""`everspot review`: the commands that a workflow, or a person, runs. `everspot` mounts them."""

import os
from pathlib import Path
from typing import Annotated

import typer
from everspot_core.counting import first_few

from everspot_review.affected import Project
from everspot_review.commenting import CommentOutcome, comment_on, read_reports
from everspot_review.drift import Drift, drift
from everspot_review.drift_report import describe_drift, keep
from everspot_review.engine import Engine
from everspot_review.errors import ReviewExit
from everspot_review.files import build_document, checked, render_lines
from everspot_review.forge import Forge
from everspot_review.history import Push, pushed
from everspot_review.job import PullEvent, summarize
from everspot_review.leaks import leaks_of_change
from everspot_review.markdown.safe import code, cut, visible
from everspot_review.options import (
    AsJson,
    Author,
    Base,
    BaseRev,
    Environments,
    Except,
    Limit,
    Misused,
    Packs,
    Root,
    answer,
    as_json,
    duration,
)  # fmt: skip
from everspot_review.previewing import Revisions, preview_all
from everspot_review.price_tables import use_prices
from everspot_review.printing import note, write
from everspot_review.pushes import ApplyOptions, PushApplication
from everspot_review.refusals import ForgeUnknown
from everspot_review.report import EnvironmentReport, PreviewOutcome, in_a_line

HELP = "Review a change of environments in one comment on its pull request, apply the reviewed change, and find drift."

app = typer.Typer(
    name="review", help=HELP, no_args_is_help=True,
    epilog="Exit codes: 0 done, 1 refused (a preview failed, a rule is broken, an update failed), 2 usage, 3 not what "
    "was reviewed, or applied already, 4 engine or forge unavailable, 6 locked by another update, 7 drifted.",
)  # fmt: skip

HERE = Path()
NOTHING = "No environment changes."
_ERRORS_SHOWN = 5


@app.command("changed")
def changed_command(
    context: typer.Context,
    base: BaseRev,
    project: Root = HERE,
    ignored_files: Except = None,
    json: AsJson = False,
) -> None:
    """List the environments that a change touches: all of them if it could change the program."""
    read_project = Project.read(project)
    affected = read_project.find_affected(base, ignored_files or ())
    document = {
        "environments": list(affected.environments), "removed": list(affected.removed),
        "program": list(affected.program),
    }  # fmt: skip
    removed = [f"{name} (its settings are deleted)" for name in affected.removed]
    answer(context, json, document, [*affected.environments, *removed])
    if as_json(context, json):
        return
    _note_uncommitted(read_project)
    if not affected.environments and not removed:
        note(NOTHING)


@app.command("files")
def files_command(context: typer.Context, base: BaseRev, project: Root = HERE, json: AsJson = False) -> None:
    """Check the settings files that a change edits, and price them, without credentials and without running anything of
    the change. Exit code 1 if a file is wrong, or if a line of the change holds a credential."""
    read_project = Project.read(project)
    affected = read_project.find_affected(base, misnamed=True)
    has_base = bool(base.strip("0 "))
    with use_prices(read_project, base if has_base else "") as price_changes:
        checked_files = {
            name: checked(
                name,
                read_project.file(name),
                read_project.text_at(name, base) if has_base else None,
                read_project.name,
            )
            for name in affected.environments
        }
    leaks = leaks_of_change(read_project, base)
    lines = render_lines(checked_files, affected.removed, leaks, price_changes) or [NOTHING]
    summarize("\n".join(f"- {code(line, 500)}" for line in lines))
    document = build_document(checked_files, affected.removed, leaks, price_changes)
    answer(context, json, document, lines)
    if not as_json(context, json):
        _note_uncommitted(read_project)
    if document["problems"] or document["credentials"]:
        raise typer.Exit(ReviewExit.REFUSED)


def _note_uncommitted(project: Project) -> None:
    if edited := project.uncommitted():
        note(f"Not looked at, because it is not committed: {visible(first_few(edited, 5))}")


@app.command("preview")
def preview_command(
    context: typer.Context,
    environments: Environments = None,
    base: Base = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the reports go.")] = Path("review"),
    project: Root = HERE,
    policy: Packs = None,
    ignored_files: Except = None,
    limit: Limit = "30m",
    json: AsJson = False,
) -> None:
    """Preview environments and write a report on each to DIR/ENV.json. `comment` decides whether they may be merged."""
    read_project, chosen, removed = _chosen(project, environments, base, ignored_files)
    engine = Engine.find(project, policy or ())
    base_revision = _base(read_project, base)
    listeners = () if as_json(context, json) else (_tell_report,)
    with use_prices(read_project, base_revision) as price_changes:
        behind = read_project.behind(base_revision) if base_revision else 0
        revisions = Revisions(base_revision, read_project.revision("HEAD"), behind, price_changes)
        reports = preview_all(engine, read_project, chosen, removed, revisions, out, duration(limit), listeners)
    answer(context, json, {"reports": [report.model_dump(mode="json") for report in reports]}, [])


@app.command("comment")
def comment_command(
    context: typer.Context,
    reports: Annotated[Path, typer.Argument(metavar="DIR", help="The folder with the reports of `preview`.")],
    number: Annotated[int | None, typer.Option("--number", metavar="N", help="The pull request's number.")] = None,
    head: Annotated[str | None, typer.Option("--head", metavar="SHA", help="Its last revision.")] = None,
    author: Author = None,
    show: Annotated[bool, typer.Option("--show", help="Only print the comment.")] = False,
    json: AsJson = False,
) -> None:
    """Write the reports into one comment on the pull request, which later runs edit. Exit code 1 if a preview failed or
    a mandatory rule is broken."""
    written_reports = read_reports(reports)
    outcome: CommentOutcome = comment_on(
        written_reports, None if show else _event(number, head), Forge.from_environment, author
    )
    blocked = [report.environment for report in written_reports if report.blocked]
    document = {"comment": outcome.status, "blocked": blocked, "body": outcome.body if show else None}
    answer(context, json, document, [outcome.body] if show else [f"comment: {outcome.status}"])
    if blocked:
        if not as_json(context, json):
            note(f"not to be merged: {', '.join(blocked)}")
        raise typer.Exit(ReviewExit.REFUSED)


@app.command("apply")
def apply_command(
    context: typer.Context,
    environments: Environments = None,
    base: Base = None,
    reviewed: Annotated[
        str | None,
        typer.Option("--reviewed", metavar="DIGEST", help="The digest that was reviewed. Default: the comment's."),
    ] = None,
    project: Root = HERE,
    policy: Packs = None,
    ignored_files: Except = None,
    limit: Limit = "30m",
    update_limit: Annotated[str, typer.Option(metavar="DURATION", help="Longest time for one update.")] = "2h",
    author: Author = None,
    json: AsJson = False,
) -> None:
    """Update environments, each only if the update is the reviewed one: it is previewed again, and the digests are
    compared. After a failed update, run the command again to continue."""
    push = _pushed(Project.read(project), base)
    read_project, chosen, _ = _chosen(project, environments, push.base if base else None, ignored_files)
    for name in [name for name in chosen if base and read_project.is_applied_by_admin(name)]:
        chosen.remove(name)
        note(f"{name}: an administrator applies it by hand (pulumi up --stack {name}): it holds jobs to what they may")
    if reviewed is not None and len(chosen) != 1:
        raise Misused("--reviewed is the digest of one environment: name that one")
    engine = Engine.find(project, policy or ())
    forge = _forge() if reviewed is None or os.environ.get("GITHUB_TOKEN") else None
    options = ApplyOptions(reviewed, author, (duration(limit), duration(update_limit)))
    with use_prices(read_project, _base(read_project, push.base)):
        outcomes, lines = PushApplication(engine, read_project, push, forge, options, note).apply(chosen)
    summarize("\n".join(f"- {code(line, 4_000)}" for line in lines))
    document = {
        "environments": [
            {
                "environment": o.environment,
                "outcome": o.status,
                "said": o.message,
                "rest": o.remaining.digest if o.remaining else None,
            }
            for o in outcomes
        ]
    }
    answer(context, json, document, [])
    raise typer.Exit(next((o.status.exit for o in reversed(outcomes) if o.status.exit), ReviewExit.OK))


@app.command("drift")
def drift_command(
    context: typer.Context,
    environments: Environments = None,
    project: Root = HERE,
    issue: Annotated[bool, typer.Option("--issue", help="Keep one issue for each environment.")] = False,
    limit: Limit = "30m",
    author: Author = None,
    json: AsJson = False,
) -> None:
    """Find changes since the last update, including those that a refresh does not detect. Changes nothing. Exit code 7
    if something has drifted."""
    _, chosen, _ = _chosen(project, environments, None, None)
    engine = Engine.find(project)
    forge = Forge.from_environment() if issue else None
    drifts: list[Drift] = []
    for name in chosen:
        if not engine.resources(name):
            continue  # declared, and never applied
        drifts.append(drift(engine, name, duration(limit)))
        summarize(describe_drift(drifts[-1]))
        if forge is not None:
            keep(forge, drifts[-1], author)
        if not as_json(context, json):
            write(describe_drift(drifts[-1]))
    answer(context, json, {"environments": [each.document() for each in drifts]}, [])
    if any(each.has_drifted for each in drifts):
        raise typer.Exit(ReviewExit.DRIFTED)
    if any(each.skipped_checks or each.refused for each in drifts):
        raise typer.Exit(ReviewExit.UNAVAILABLE)


def _tell_report(report: EnvironmentReport) -> None:
    """Print a report as one line, and below it why the preview failed, if it did."""
    write(f"{in_a_line(report)}\n")
    if report.outcome is PreviewOutcome.FAILED:
        for error in report.errors[:_ERRORS_SHOWN]:
            write(f"  {visible(cut(error, 2_000))}\n")


def _chosen(
    root: Path, environments: list[str] | None, base: str | None, ignored_files: list[str] | None
) -> tuple[Project, list[str], list[str]]:
    """Return the environments that a command is about, and those whose settings are gone."""
    if environments and base:
        raise Misused("name environments, or --base REV, not both")
    project = Project.read(root)
    if base:
        affected = project.find_affected(base, ignored_files or ())
        return project, list(affected.environments), list(affected.removed)
    existing = project.environments()
    unknown = [name for name in environments or () if name not in existing]
    if unknown:
        raise Misused(f"no such environment: {', '.join(unknown)}; there is {', '.join(existing) or 'none'}")
    return project, list(environments or existing), []


def _pushed(project: Project, base: str | None) -> Push:
    push = pushed(project.root, base) if base else Push("", (project.revision("HEAD"),))
    if push.warning:
        note(push.warning)
    return push


def _forge() -> Forge:
    """Return the forge, or the way without one."""
    try:
        return Forge.from_environment()
    except ForgeUnknown as error:
        error.hint = (
            "without a forge, as on a laptop, name what was reviewed: --reviewed DIGEST, as `preview` prints it"
        )
        raise


def _base(project: Project, base: str | None) -> str:
    return project.revision(base) if base and base.strip("0") else ""


def _event(number: int | None, head: str | None) -> PullEvent:
    if (number is None) != (head is None):
        raise Misused("--number and --head belong together")
    return PullEvent(number, head, "", fork=False) if number is not None and head is not None else PullEvent.read()
