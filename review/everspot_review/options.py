"""The options of the commands of `everspot review`, and the form of their answers."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from everspot_core.documents import parse_duration

from everspot_review.errors import ReviewError, ReviewExit
from everspot_review.printing import write, write_json

Root = Annotated[Path, typer.Option("--project", metavar="DIR", help="The folder of Pulumi.yaml.")]
Base = Annotated[
    str | None,
    typer.Option("--base", metavar="REV", help="Take the environments that changed since this revision."),
]
BaseRev = Annotated[str, typer.Option("--base", metavar="REV", help="The revision to compare HEAD with.")]
Environments = Annotated[list[str] | None, typer.Argument(metavar="[ENV]...", help="Environments, by their names.")]
Packs = Annotated[
    list[Path] | None,
    typer.Option(
        "--policy",
        metavar="PACK",
        help="A policy pack, such as everspot-policy, not the change's own copy; repeatable.",
    ),
]
Limit = Annotated[str, typer.Option("--limit", metavar="DURATION", help="Longest time for one preview.")]
Except = Annotated[
    list[str] | None,
    typer.Option(
        "--except", metavar="GLOB", help="Files that change no environment, besides documents and tests; repeatable."
    ),
]
Author = Annotated[
    str | None,
    typer.Option("--author", metavar="LOGIN", help="The author of Everspot's comments. Default: the token's owner."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Answer with JSON.")]


class Misused(ReviewError):
    """A command got an argument that it does not take."""

    code = ReviewExit.USAGE


def duration(text: str) -> timedelta:
    """Return the duration of an option such as 30m.

    Raises:
        Misused: if the text is no duration.
    """
    try:
        value: timedelta = parse_duration(text)
    except ValueError as error:
        raise Misused(f"{text!r}: {error}") from None
    return value


def as_json(context: typer.Context, json: bool) -> bool:
    """Return whether the output is JSON. `json`: the command's own option; `everspot --json review …` selects JSON,
    too."""
    return json or bool(getattr(context.obj, "json", False))


def answer(context: typer.Context, json: bool, document: dict[str, Any], lines: list[str]) -> None:
    """Write the answer to standard output: the document as JSON, or the lines."""
    if as_json(context, json):
        write_json(document)
    else:
        write("".join(f"{line}\n" for line in lines))
