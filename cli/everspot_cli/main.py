"""The `everspot` command."""

import json as jsonlib
import re
import sys
from importlib.metadata import version
from typing import Annotated, Any

import typer
from everspot_clouds.registry import STORE_URLS
from everspot_core.encodings import degrade_output

from everspot_cli.errors import CliError, Exit, of_store
from everspot_cli.registry import LazyGroup
from everspot_cli.session import Session
from everspot_cli.target import CLUSTER, STORE

HELP = "Train on spot capacity: submit jobs, watch them, and see what they cost."

app = typer.Typer(
    cls=LazyGroup,
    name="everspot",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 wrong request, 2 usage, 3 not found, 4 store unavailable, 5 job failed.",
)


def _version(requested: bool) -> None:
    if requested:
        sys.stdout.write(f"everspot {version('everspot')}\n")
        raise typer.Exit


@app.callback(help=HELP)
def _global_options(
    context: typer.Context,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="URL",
            help=f"Control bucket: {STORE_URLS}, or a folder. Default: {STORE}, then the cluster "
            f"of {CLUSTER}, then the one of `everspot cluster use`, then the output controlUrl of this folder's "
            "Pulumi stack.",
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", "-c", metavar="NAME", help="A cluster by its name in `everspot cluster use`."),
    ] = None,
    stack: Annotated[
        str | None, typer.Option("--stack", "-s", metavar="NAME", help="Pulumi stack whose controlUrl is used.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Answer with JSON; every command takes it too.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    session: Session = context.obj
    session.store_option, session.cluster_option, session.stack = store, cluster, stack
    session.json = session.json or json


def main(arguments: list[str] | None = None) -> None:
    """Run a command line (by default the process's own) and exit with one of `Exit`."""
    degrade_output(sys.stdout, sys.stderr)
    session, command_line = Session(owns_process=True), sys.argv[1:] if arguments is None else arguments
    try:
        _run(session, command_line)
    except CliError as error:
        _fail(session, error)
    except KeyboardInterrupt:
        raise SystemExit(Exit.INTERRUPTED) from None
    except Exception as error:
        _fail(session, _as_cli_error(session, error))


def _as_cli_error(session: Session, error: Exception) -> CliError:
    """Return the user's error for an error of the store. Any other exception is a defect, and is raised."""
    from everspot_store import StoreError

    if not isinstance(error, StoreError):
        raise error
    return of_store(error, session.store_url)


_BadParameter: Any = typer.BadParameter
_UsageError: Any = typer.BadParameter.__mro__[1]  # of click, or of the copy of it in typer


def _run(session: Session, arguments: list[str]) -> None:
    """Run a command line. With `--json` all errors are JSON, even errors before flags are parsed; what
    comes after `--` is another program's. A bad value is reported like every other error."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    session.json = "--json" in own
    try:
        raise SystemExit(app(arguments, prog_name="everspot", obj=session, standalone_mode=False) or int(Exit.OK))
    except _BadParameter as error:
        raise _bad_value(error) from None
    except _UsageError as error:
        if session.json:
            raise CliError(error.format_message(), Exit.USAGE, hint="everspot --help") from None
        _box(error)
        raise SystemExit(int(Exit.USAGE)) from None
    except typer.Abort:
        sys.stderr.write("Aborted.\n")
        raise SystemExit(int(Exit.USER)) from None


def _bad_value(error: Any) -> CliError:
    """Return the error for a missing value, or one that an option or an argument does not accept."""
    option = error.param is not None and error.param.param_type_name == "option"
    names = error.param.opts if option else [error.param.metavar or error.param.name] if error.param else []
    message = str(error.message).partition(", unable")[0].removeprefix("Value error, ").removesuffix(".")
    message = re.sub("^Input should be ", "has to be ", message)
    command = error.ctx.command_path if error.ctx is not None else "everspot"
    field = " / ".join(names) or "the whole"
    problem = {"field": field, "problem": message or "is missing"}
    return CliError(
        f"`{command}` cannot be done: {field} is wrong", Exit.USAGE, hint=f"{command} --help", problems=[problem]
    )


def _box(error: Any) -> None:
    from typer.rich_utils import rich_format_error  # loads what draws

    rich_format_error(error)


def _fail(session: Session, error: CliError) -> None:
    if session.json:
        answer = {"error": str(error), "hint": error.hint, "problems": error.problems, "exit_code": int(error.code)}
        session.errors.print(jsonlib.dumps(answer, indent=2), soft_wrap=True)
    else:
        session.errors.print(f"error: {error}", style="red", soft_wrap=True)
        for problem in error.problems:
            session.errors.print(f"  {problem['field']}: {problem['problem']}", soft_wrap=True)
        if error.hint:
            session.errors.print(f"hint: {error.hint}", style="dim", soft_wrap=True)
    raise SystemExit(int(error.code))


if __name__ == "__main__":
    main()
