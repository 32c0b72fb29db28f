"""`everspot init`: a new project of environments that are changed by pull requests."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from everspot_clouds.base import NotOffered
from everspot_clouds.base.project_setup import REPOSITORY, REPOSITORY_ID, TEAM, CloudStarter, ProjectAnswers
from everspot_clouds.naming import catalogue_types
from everspot_clouds.price_files import FOLDER, BadPriceFile, file_name, project_prices, read_tables, render_table
from everspot_clouds.registry import DEPLOYABLE, starter
from everspot_core.capacity.price_table import PriceTable
from everspot_core.validation.model_errors import legible
from everspot_core.validation.problems import Problem, Problems, shown

from everspot_cli import added_cluster, project_template
from everspot_cli.commands.options import Json, current_session
from everspot_cli.errors import CliError, Exit, list_problems
from everspot_cli.pricing import read_price_lists
from everspot_cli.session import Session

PAGE = "SETUP.md"
ASKED = ("cloud", "account", "region", "team", "repository")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("init")(init)


def init(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="The folder of the project.")] = Path(),
    cloud: Annotated[str | None, typer.Option("--cloud", help=f"The cloud: {', '.join(DEPLOYABLE)}.")] = None,
    account: Annotated[
        str | None, typer.Option("--account", help="The account's number, the project's id, or NUMBER/EKS-CLUSTER.")
    ] = None,
    region: Annotated[
        str | None, typer.Option("--region", help="The region of the state and of both clusters.")
    ] = None,
    unlisted_region: Annotated[
        bool, typer.Option("--unlisted-region", help="Accept a region that is missing in the list of regions.")
    ] = False,
    team: Annotated[str | None, typer.Option("--team", help="The team that pays: the tag Team.")] = None,
    repository: Annotated[
        str | None, typer.Option("--repository", metavar="OWNER/NAME", help="The repository on GitHub.")
    ] = None,
    repository_ids: Annotated[
        str | None,
        typer.Option("--repository-ids", metavar="ID,OWNER_ID", help="Both ids, if known."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing; take all answers from the options.")] = False,
    add: Annotated[
        bool,
        typer.Option(
            "--add", help="Add a cluster to the Pulumi project in DIR: one Python module; nothing else is written."
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files that differ.")] = False,
    json: Json = False,
) -> None:
    """Create a project whose environments are changed by pull requests: settings, program, workflows, and a set-up
    guide.

    It asks five questions and only writes files. SETUP.md lists the commands to run, with their effect and cost.
    """
    session = current_session(context, json)
    options = {"cloud": cloud, "account": account, "region": region, "team": team, "repository": repository}
    interactive = not (yes or session.json)
    if add:
        _limit_options(options, repository_ids, unlisted_region, interactive=interactive)
        _add(
            session, folder, _collect_answers(options, unlisted_region, interactive=interactive), unlisted_region, force
        )
        return
    words = _collect_answers(options, unlisted_region, interactive=interactive)
    chosen, answers = _parse_answers(words, repository_ids, unlisted_region)
    table, present = _price_table(session, folder, chosen.price_cloud, answers.region, force=force)
    with project_prices([] if table is None else [table]):
        try:
            files = project_template.render_files(chosen, answers)
        except NotOffered as error:
            raise CliError(str(error), Exit.USAGE) from None
        steps = chosen.steps(answers)
        costs = project_template.estimate_costs(steps, files)
    files[PAGE] = project_template.page(answers, steps, costs)
    if table is not None and not present:
        files[f"{FOLDER}/{file_name(table.cloud, table.region)}"] = render_table(table)
    written = _write(folder, files, force=force)
    if session.json:
        session.answer({"folder": str(folder), "written": written, "steps": project_template.document(steps, costs)})
        return
    _print_steps(
        session,
        folder,
        written,
        [f"{step.title}: {project_template.describe_cost(step, costs.get(step.stack))}" for step in steps],
    )


def _limit_options(
    options: dict[str, str | None], repository_ids: str | None, unlisted: bool, *, interactive: bool
) -> None:
    """Take away the options whose answers a project has already. The account stays where its answer also names the
    existing cluster that the new one is in.

    Raises:
        CliError: if one of the options that are taken away was given.
    """
    if options["cloud"] is None and interactive:
        options["cloud"] = _collect_answers({"cloud": None}, unlisted, interactive=True)["cloud"]
    cloud = (options["cloud"] or "").strip()
    own = ["repository"] if cloud in DEPLOYABLE and starter(cloud).names_host else ["account", "repository"]
    surplus = [f"--{name}" for name in own if options.pop(name) is not None]
    surplus += ["--repository-ids"] if repository_ids is not None else []
    if surplus:
        raise CliError(f"{', '.join(surplus)}: --add takes none of them, since the project has its own", Exit.USAGE)


def _add(session: Session, folder: Path, words: dict[str, str], unlisted: bool, force: bool) -> None:
    """Write a module with a cluster into the program of the Pulumi project in a folder.

    Raises:
        CliError: if there is no such project, or naming everything that is wrong with the answers.
    """
    entry = added_cluster.entry_file(folder)
    program = entry.parent
    chosen, answers = _parse_answers(words, None, unlisted)
    try:
        files = {f"{added_cluster.MODULE}.py": added_cluster.render_module(chosen, answers)}
    except NotOffered as error:
        raise CliError(str(error), Exit.USAGE) from None
    written = _write(program, files, force=force)
    steps = added_cluster.next_steps(chosen, answers, entry)
    if session.json:
        session.answer({"folder": str(program), "written": written, "steps": steps})
        return
    session.console.print(f"Written to {program}: {', '.join(written) or 'nothing, all was there'}.", soft_wrap=True)
    for number, step in enumerate(steps, 1):
        session.console.print(f"{number}. {step}", soft_wrap=True)


def _price_table(
    session: Session, folder: Path, cloud: str, region: str, *, force: bool
) -> tuple[PriceTable | None, bool]:
    """Return the region's prices and whether the folder has them. They come from the folder, else from the cloud's
    price lists. None if the user is not signed in, which the first step does not require.

    Raises:
        CliError: if the folder's own file cannot be read.
    """
    try:
        tables = read_tables(folder / FOLDER)
    except BadPriceFile as error:
        raise CliError(str(error)) from None
    here = [table for table in tables if (table.cloud, table.region) == (cloud, region)]
    if here and not force:
        return here[0], True
    try:
        return read_price_lists(session, cloud, region, catalogue_types(cloud)), False
    except CliError as error:
        if not session.json:
            reason = f"The price lists of {region} were not read: {error}"
            session.errors.print(reason, style="dim", soft_wrap=True)
        return None, False


def _collect_answers(options: dict[str, str | None], unlisted: bool, *, interactive: bool) -> dict[str, str]:
    """Return all answers: from the options, and otherwise typed by the user.

    Each typed answer is checked immediately; the question is repeated until the answer is valid.

    Raises:
        CliError: naming all options that are missing if nobody can be asked, or all options with a wrong value.
    """
    missing = [name for name in options if options[name] is None]
    if missing and not interactive:
        raise _unanswered_error(missing, "without --yes and --json they are asked for")
    answers = {name: value for name, value in options.items() if value is not None}
    if missing and (wrong := _answer_problems(answers, None, unlisted)):
        raise CliError("these answers are not valid", Exit.USAGE, problems=list_problems(wrong))
    for name in missing:
        try:
            answers[name] = _answer(name, answers, unlisted)
        except typer.Abort:
            if sys.stdin.isatty():
                raise
            typer.echo(err=True)  # the question's line has no end yet
            unanswered = [each for each in missing if each not in answers]
            raise _unanswered_error(unanswered, "standard input ended, and nobody can be asked") from None
    return {name: value.strip() for name, value in answers.items()}


def _answer(name: str, answers: dict[str, str], unlisted: bool) -> str:
    """Ask until the answer is valid, and return it."""
    question, usual = _question(name, answers.get("cloud", ""))
    while True:
        answer = str(typer.prompt(question, default=usual, err=True)).strip()
        wrong = [
            problem for problem in _answer_problems({**answers, name: answer}, None, unlisted) if problem.path == name
        ]
        if not wrong:
            return answer
        for problem in wrong:
            typer.echo(f"  {legible(problem.reason)}", err=True)


def _unanswered_error(names: list[str], hint: str) -> CliError:
    return CliError(f"missing: {', '.join(f'--{name}' for name in names)}", Exit.USAGE, hint=hint)


def _question(name: str, cloud: str) -> tuple[str, str | None]:
    """Return the question for an answer, and the proposed answer."""
    cloud_starter = starter(cloud) if cloud in DEPLOYABLE else None
    questions = {
        "cloud": (f"Cloud ({', '.join(DEPLOYABLE)})", None),
        "account": (f"Which {cloud_starter.account if cloud_starter else 'account'}", None),
        "region": ("Region", cloud_starter.usual_region if cloud_starter else None),
        "team": ("Team that pays", "ml-platform"),
        "repository": ("Repository on GitHub (OWNER/NAME)", None),
    }
    return questions[name]


def _parse_answers(raw_answers: dict[str, str], ids: str | None, unlisted: bool) -> tuple[CloudStarter, ProjectAnswers]:
    """Return the answers, parsed.

    Raises:
        CliError: naming everything that is wrong with them.
    """
    if wrong := _answer_problems(raw_answers, ids, unlisted):
        raise CliError("these answers are not valid", Exit.USAGE, problems=list_problems(wrong))
    return starter(raw_answers["cloud"]), _answers(raw_answers, ids, unlisted)


def _answers(raw_answers: dict[str, str], ids: str | None, unlisted: bool) -> ProjectAnswers:
    pair = tuple(part.strip() for part in ids.split(",")) if ids is not None else ()
    id_pair = (pair[0], pair[1]) if len(pair) == 2 else None
    account, region, team, repository = (raw_answers.get(name, "") for name in ASKED[1:])
    return ProjectAnswers(account, region, team, repository, id_pair, unlisted_region=unlisted)


def _answer_problems(raw_answers: dict[str, str], ids: str | None, unlisted: bool) -> list[Problem]:
    """Return all problems of the answers."""
    problems, answers = Problems(), _answers(raw_answers, ids, unlisted)
    cloud = raw_answers.get("cloud", "")
    cloud_supported = problems.need(
        cloud in DEPLOYABLE, "cloud", f"{shown(cloud)} is no cloud for projects; choose one of {', '.join(DEPLOYABLE)}"
    )
    message = f"{shown(answers.team)} has to be 1 to 40 letters, digits, spaces, dots, dashes and underscores"
    problems.need(bool(TEAM.fullmatch(answers.team)), "team", message)
    fits = bool(REPOSITORY.fullmatch(answers.repository))
    problems.need(fits, "repository", f"{shown(answers.repository)} has to be OWNER/NAME, as GitHub writes it")
    sound = ids is None or (answers.ids is not None and all(REPOSITORY_ID.fullmatch(part) for part in answers.ids))
    problems.need(sound, "repository-ids", f"{shown(ids)} has to be two numbers with a comma between them")
    if cloud_supported:
        starter(cloud).check(problems, answers)
    return [
        problem for problem in problems.collected if problem.path in raw_answers or problem.path == "repository-ids"
    ]


def _write(folder: Path, files: dict[str, str], *, force: bool) -> list[str]:
    """Write the files. Existing files with the same text stay.

    Raises:
        CliError: naming all files that would be overwritten, before anything is written; or if one cannot be written.
    """
    differ = [name for name, text in files.items() if not _free(folder / name, text)]
    if differ and not force:
        problems = [{"field": name, "problem": "is there already, with another text"} for name in differ]
        raise CliError("nothing is overwritten", Exit.USER, hint="--force overwrites these", problems=problems)
    written: list[str] = []
    for name, text in files.items():
        path = folder / name
        if path.is_file() and name not in differ:
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise CliError(f"{path} cannot be written: {error.strerror}", Exit.USER) from None
        written.append(name)
    return written


def _free(path: Path, text: str) -> bool:
    """Return whether a file may be written: it does not exist, or has the same content."""
    if path.is_symlink() or path.is_dir():
        return False
    try:
        return path.read_bytes() == text.encode()
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _print_steps(session: Session, folder: Path, written: list[str], steps: list[str]) -> None:
    console = session.console
    console.print(f"Written to {folder}: {', '.join(written) or 'nothing, all was there'}.", soft_wrap=True)
    console.print(f"\nThe order, with its commands in {folder / PAGE}:\n", soft_wrap=True)
    for number, step in enumerate(steps, 1):
        console.print(f"{number}. {step}", soft_wrap=True)
