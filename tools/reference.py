#!/usr/bin/env python3
"""Write docs/reference/cli.md, docs/reference/job-file.md and docs/reference/rules.md from the code.

reference.py            write them
reference.py --check    exit with 1 if they are not up to date
"""

import argparse
import re
import sys
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from everspot_cli.errors import MEANING
from everspot_cli.main import HELP, app
from everspot_cli.rows import MEANING_OF_STATUS
from everspot_clouds.registry import CLOUDS, provider
from everspot_core.documents import format_duration
from everspot_core.field_types import SAID_OF_NAMES
from everspot_core.job import JobSpec
from everspot_core.problems import camel
from everspot_core.recipes import RECIPES
from everspot_core.timing import SkipIf, Window
from everspot_policy.rules import RULES
from everspot_policy.settings import EnvironmentRules, RuleException
from everspot_policy.stack import STACK_RULES
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

REFERENCE = Path(__file__).resolve().parents[1] / "docs/reference"
MADE = "<!-- Written by tools/reference.py from the code; change that, not this. -->\n"

EXAMPLE = """```yaml
name: fashion
recipe: image-classification      # or: entrypoint: [train.py, --epochs, "3"]  with  code: src
resources: {vcpus: 4, memory_gib: 16, gpus: 1, gpu: T4}
priority: normal
deadline: 6h
expected_duration: 2h
checkpoint: {every: 5m, steps: 500}
budget: {dollars: 5}
tags: {Project: vision, Team: research, Environment: dev, ModelVersion: v1}
```"""


def cli() -> str:
    """The command's reference."""
    group = typer.main.get_command(app)
    parts = ["# The `everspot` command", MADE, HELP, ""]
    usage = "`everspot [--store URL | --cluster NAME | --stack NAME] [--json] COMMAND …`"
    parts += [usage, "", _parameters(group, "everspot")]
    for name, command in group.all().items():  # type: ignore[attr-defined]
        parts += _command(name, command)
    parts += ["## States of a job", "", "| word | meaning |", "| --- | --- |"]
    parts += [f"| `{status}` | {meaning} |" for status, meaning in MEANING_OF_STATUS.items()]
    parts += [
        "",
        "`--json` also has `state`, the stored one: PENDING, ASSIGNED, RUNNING, SUCCEEDED, FAILED, CANCELLED.",
    ]
    parts += ["", "## Exit codes", "", "| code | meaning |", "| --- | --- |"]
    parts += [f"| {int(code)} | {meaning} |" for code, meaning in MEANING.items()]
    parts += [
        "",
        "With `--json` the answer is one JSON document on standard output (`logs`: one a line). An error is one on "
        'standard error: `{"error", "hint", "problems": [{"field", "problem"}], "exit_code"}`.',
    ]
    return "\n".join(parts) + "\n"


def _command(name: str, command: Any, level: str = "##") -> list[str]:
    """A command's section; of a group, the sections of its commands too."""
    inner = getattr(command, "commands", None)
    if inner is not None:
        epilog = [_paragraphs(command.epilog), ""] if command.epilog else []
        below = [part for subcommand, each in inner.items() for part in _command(f"{name} {subcommand}", each, "###")]
        return [f"{level} everspot {name} COMMAND", "", _paragraphs(command.help), "", *epilog, *below]
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    words = [f"{_metavar(p)}" if p.required or _metavar(p).startswith("[") else f"[{_metavar(p)}]" for p in arguments]
    title = f"{level} everspot {name} {' '.join(words)}".rstrip()
    return [title, "", _paragraphs(command.help), "", _parameters(command, name)]


def _paragraphs(text: str | None) -> str:
    blocks = re.split(r"\n\s*\n", (text or "").strip())
    return "\n\n".join(" ".join(block.split()) for block in blocks)


def _metavar(parameter: Any) -> str:
    if parameter.param_type_name == "option" and parameter.type_descriptor.is_choice:
        return "\\|".join(str(choice.value) for choice in parameter.type_descriptor.choices)
    return str(parameter.metavar or parameter.name.upper())


def _parameters(command: Any, name: str) -> str:
    rows = []
    for parameter in command.params:
        if parameter.name in ("install_completion", "show_completion", "help"):
            continue
        if parameter.param_type_name == "argument":
            shown = f"`{_metavar(parameter)}`"
        else:
            value = "" if parameter.is_flag else f" {_metavar(parameter)}"
            shown = ", ".join(f"`{option}{value}`" for option in (*parameter.opts, *parameter.secondary_opts))
        description, default = parameter.help or "", parameter.default
        if isinstance(default, str) and default and "Default" not in description:
            description += f" Default: {default}."
        rows.append(f"| {shown} | {description} |")
    return "\n".join(["| argument | meaning |", "| --- | --- |", *rows, ""]) if rows else f"`{name}` takes nothing.\n"


def spec() -> str:
    """The job file's reference."""
    parts = ["# The job file", MADE, _paragraphs(JobSpec.__doc__), "", EXAMPLE, "",
             "Durations are written `45s`, `10m`, `1h30m`, `2d`, and have to say their unit: a bare number is refused. "
             "Moments are written with their zone, `2026-01-31T12:00:00Z`. "
             f"Recipes: {', '.join(f'`{r}`' for r in RECIPES)}.", ""]  # fmt: skip
    waiting: list[tuple[str, type[BaseModel]]] = [("", JobSpec)]
    waiting += [(f"parameters of `{recipe}`", kind) for recipe, kind in RECIPES.items()]
    while waiting:
        path, model = waiting.pop(0)
        if path:
            parts += [f"## {path}", "", _paragraphs(model.__doc__), ""]
        parts += ["| field | type | default | meaning |", "| --- | --- | --- | --- |"]
        for name, field in model.model_fields.items():
            inner = field.annotation
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                waiting.append((f"{path}.{name}".lstrip("."), inner))
            parts.append(f"| `{name}` | {_type(inner, field)} | {_default(field)} | {_meaning(field)} |")
        parts.append("")
    return "\n".join([*parts, *_clouds()])


def rules() -> str:
    """The rules' reference."""
    parts = ["# The rules", MADE, "What they are for, and how to use them, stands in [rules](rules.md).", ""]
    for begin, title in (("aws-", "AWS"), ("gcp-", "Google Cloud"), ("no-", "Every cloud")):
        own = [rule for rule in RULES.values() if rule.id.startswith(begin)]
        parts += [
            f"## {title}",
            "",
            "| rule | level | what has to hold, and what to do | Checkov |",
            "| --- | --- | --- | --- |",
        ]
        parts += [
            f"| `{rule.id}` | {rule.level.value}, {rule.severity.value} | {_cell(f'{rule.title}. {rule.remedy}')} "
            f"| {', '.join(rule.twins) or '—'} |"
            for rule in own
        ]
        parts += ["", "| rule | looks at |", "| --- | --- |"]
        parts += [f"| `{rule.id}` | {_cell(_words(rule.types))} |" for rule in own]
        parts.append("")
    parts += ["## Whole stacks", "", "| rule | level | what has to hold, and what to do |", "| --- | --- | --- |"]
    parts += [
        f"| `{rule.id}` | {rule.level.value}, {rule.severity.value} | {_cell(f'{rule.title}. {rule.remedy}')} |"
        for rule in STACK_RULES.values()
    ]
    for model, title in ((EnvironmentRules, "Settings of an environment"), (RuleException, "An exception")):
        parts += ["", f"## {title}", "", _paragraphs(model.__doc__), "", "| field | meaning |", "| --- | --- |"]
        parts += [f"| `{camel(name)}` | {field.description} |" for name, field in model.model_fields.items()]
    return "\n".join(parts) + "\n"


def _cell(text: str) -> str:
    """A text within a table's cell, whose bars would end it."""
    return text.replace("|", "\\|")


def _clouds() -> list[str]:
    """What each cloud has laid down for job files. Where a cluster's instances come from decides which row counts."""
    rows = [(cloud, provider(cloud).jobs) for cloud in CLOUDS]
    return [
        "## What clouds lay down", "",
        "`EVERSPOT_*` belongs to the instance everywhere, and so do the variables of each cloud here: a job may "
        "move. An instance reads secrets of its own cloud.", "",
        "| cloud | variables that belong to the instance | forms of a secret |", "| --- | --- | --- |",
        *(f"| {cloud} | {_words(f'{prefix}*' for prefix in rules.variables)} | {_words(rules.secrets)} |"
          for cloud, rules in rows), "",
    ]  # fmt: skip


def _words(words: Iterable[str]) -> str:
    return ", ".join(f"`{token}`" for token in words)


def _type(annotation: Any, field: FieldInfo | None = None) -> str:
    if get_origin(annotation) is Annotated:
        return _type(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(_type(a) for a in get_args(annotation) if a is not NoneType)
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(annotation))
    if get_origin(annotation) is list:
        return f"list of {_type(get_args(annotation)[0])}"
    if get_origin(annotation) is dict:
        return f"mapping of {_type(get_args(annotation)[0])} to {_type(get_args(annotation)[1])}"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(f"`{member.value}`" for member in annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "see below"
    names = {
        timedelta: "duration",
        datetime: "moment",
        str: "text",
        int: "integer",
        float: "number",
        bool: "yes or no",
        Window: "hours of the day",
        SkipIf: "condition",
    }
    bounds = [f"{sign} {getattr(m, attribute):g}" for m in (field.metadata if field else [])
              for attribute, sign in (("ge", "≥"), ("gt", ">")) if hasattr(m, attribute)]  # fmt: skip
    return " ".join([names.get(annotation, "any value"), *bounds])


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined or value is None or value in ({}, []) or isinstance(value, BaseModel):
        return _default_model(value) if isinstance(value, BaseModel) else "—"
    if isinstance(value, timedelta):
        return f"`{format_duration(value)}`"
    return f"`{value.value if isinstance(value, Enum) else value}`"


def _default_model(value: BaseModel) -> str:
    set_fields = {name: getattr(value, name) for name in value.model_fields_set}
    shown = [f"{n}: {format_duration(v) if isinstance(v, timedelta) else v}" for n, v in set_fields.items()]
    return f"`{{{', '.join(shown)}}}`" if shown else "—"


def _meaning(field: FieldInfo) -> str:
    if field.description:
        return field.description
    kind = field.annotation
    if isinstance(kind, type) and issubclass(kind, BaseModel | Enum):
        return _paragraphs(kind.__doc__)
    if any(getattr(m, "pattern", None) for m in field.metadata):
        return f"{SAID_OF_NAMES}."
    return ""


def main() -> None:
    """Write or check."""
    parser = argparse.ArgumentParser(description="Write the references from the code.")
    parser.add_argument("--check", action="store_true", help="only say whether they are up to date")
    check = parser.parse_args().check
    stale = []
    for name, text in (("cli.md", cli()), ("job-file.md", spec()), ("rules.md", rules())):
        path = REFERENCE / name
        if check and (not path.exists() or path.read_text() != text):
            stale.append(name)
        elif not check:
            path.write_text(text)
    if stale:
        sys.exit(f"not up to date: {', '.join(stale)}; run tools/reference.py")


if __name__ == "__main__":
    main()
