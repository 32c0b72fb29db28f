"""The `everspot` command."""

import json as jsonlib
import sys
from typing import Annotated

import typer
from everspot_store import StoreError

from everspot_cli.commands import control, doctor, instances, jobs, logs, report, simulate, submit
from everspot_cli.errors import CliError, Exit, of_store
from everspot_cli.session import ENVIRONMENT, Session

HELP = "Train on capacity that comes and goes: submit jobs, watch them, and see what they cost."

app = typer.Typer(
    name="everspot",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 wrong request, 2 usage, 3 not found, 4 store unavailable, 5 job failed.",
)


@app.callback(help=HELP)
def _global_options(
    context: typer.Context,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="URL",
            help=f"Control bucket: s3://…, gs://…, file:///… or a folder. Default: {ENVIRONMENT}, "
            "else the output controlUrl of the Pulumi stack.",
        ),
    ] = None,
    stack: Annotated[
        str | None, typer.Option("--stack", "-s", metavar="NAME", help="Pulumi stack whose controlUrl is used.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Answer with JSON; every command takes it too.")] = False,
) -> None:
    session: Session = context.obj
    session.store_option, session.stack, session.json = store, stack, session.json or json


for module in (submit, jobs, logs, control, instances, report, simulate, doctor):
    module.register(app)


def main(arguments: list[str] | None = None) -> None:
    """Run a command line (by default the process's own) and exit with one of `Exit`."""
    session, given = Session(), sys.argv[1:] if arguments is None else arguments
    try:
        if "--json" in given:
            _json_usage(session, given)
        else:
            app(given, obj=session)
    except CliError as error:
        _fail(session, error)
    except StoreError as error:
        _fail(session, of_store(error, session.store_url))
    except KeyboardInterrupt:
        raise SystemExit(Exit.INTERRUPTED) from None


_UsageError = typer.BadParameter.__mro__[1]  # of click, or of the copy of it that typer brings


def _json_usage(session: Session, arguments: list[str]) -> None:
    """Run a command line whose errors are all to be JSON, those too that are found before its flags are known."""
    session.json = True
    try:
        raise SystemExit(app(arguments, obj=session, standalone_mode=False) or int(Exit.OK))
    except _UsageError as error:
        raise CliError(error.format_message(), Exit.USAGE, hint="everspot --help") from None


def _fail(session: Session, error: CliError) -> None:
    if session.json:
        answer = {"error": str(error), "hint": error.hint, "problems": error.problems, "exit_code": int(error.code)}
        session.errors.print(jsonlib.dumps(answer, indent=2), markup=False, soft_wrap=True)
    else:
        session.errors.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        for problem in error.problems:
            session.errors.print(f"  {problem['field']}: {problem['problem']}", markup=False, soft_wrap=True)
        if error.hint:
            session.errors.print(f"hint: {error.hint}", style="dim", markup=False, soft_wrap=True)
    raise SystemExit(int(error.code))


if __name__ == "__main__":
    main()
