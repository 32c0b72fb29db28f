#!/usr/bin/env python3
"""Write docs/reference/cli.md, docs/reference/job-file.md and docs/reference/rules.md from the code.

reference.py            write them
reference.py --check    exit with 1 if they are not up to date
"""

import argparse
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
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
from everspot_core.jobs.early_stop import MinDelta
from everspot_core.jobs.job import JobSpec
from everspot_core.jobs.recipes import RECIPES
from everspot_core.jobs.timing import SkipIf, Window
from everspot_core.validation.field_types import SAID_OF_NAMES, parse_percentage
from everspot_core.validation.problems import camel
from everspot_policy.rules import RULES
from everspot_policy.settings import EnvironmentRules, RuleException
from everspot_policy.stack import STACK_RULES
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

REFERENCE = Path(__file__).resolve().parents[1] / "docs/reference"
MADE = "<!-- Written by tools/reference.py from the code; change that, not this. -->\n"

SHARED = 3
"""An option that at least so many commands have, with the same words, is described once."""

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
    commands = list(_iterate_commands("everspot", group))
    rows = Counter(row for _, command in commands for row in _parameters(command))
    shared = [row for row, count in rows.items() if count >= SHARED and row[0] != "`--json`"]
    parts = ["# The `everspot` command", MADE, HELP, ""]
    parts += ["`everspot [--store URL | --cluster NAME | --stack NAME] [--json] COMMAND …`", ""]
    parts += [*_entries(_parameters(group)), ""]
    parts += [
        "## Shared options",
        "",
        "They mean the same in every command that names them.",
        "",
        *_entries(shared),
        "",
    ]
    for name, command in group.all().items():  # type: ignore[attr-defined]
        parts += _command(name, command, set(shared))
    parts += ["## States of a job", ""]
    parts += _entries((f"`{status}`", f"{meaning}.") for status, meaning in MEANING_OF_STATUS.items())
    parts += [
        "",
        "`--json` also has `state`, the stored one: PENDING, ASSIGNED, RUNNING, AWAY, SUCCEEDED, FAILED, CANCELLED.",
    ]
    parts += ["", "## Exit codes", ""]
    parts += _entries((str(int(code)), f"{meaning}.") for code, meaning in MEANING.items())
    parts += [
        "",
        _wrapped(
            "With `--json` the answer is one JSON document on standard output (`logs`: one a line). An error is one "
            'on standard error: `{"error", "hint", "problems": [{"field", "problem"}], "exit_code"}`.'
        ),
    ]
    return "\n".join(parts) + "\n"


def _iterate_commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """The commands below a group, by their whole names."""
    inner = command.all() if hasattr(command, "all") else getattr(command, "commands", None)
    if inner is None:
        yield name, command
    else:
        for subcommand, each in inner.items():
            yield from _iterate_commands(f"{name} {subcommand}", each)


def _command(name: str, command: Any, shared: set[tuple[str, str]], level: str = "##") -> list[str]:
    """A command's section; of a group, the sections of its commands too."""
    inner = getattr(command, "commands", None)
    if inner is not None:
        epilog = [_paragraphs(command.epilog), ""] if command.epilog else []
        below = [line for n, each in inner.items() for line in _command(f"{name} {n}", each, shared, "###")]
        return [f"{level} everspot {name} COMMAND", "", _paragraphs(command.help), "", *epilog, *below]
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    words = [f"{_metavar(p)}" if p.required or _metavar(p).startswith("[") else f"[{_metavar(p)}]" for p in arguments]
    title = f"{level} everspot {name} {' '.join(words)}".rstrip()
    rows = [row for row in _parameters(command) if row[0] != "`--json`"]  # said once: every command takes it
    entries = _entries(row for row in rows if row not in shared)
    if also := [re.split(r"[ `]", shown)[1] for shown, description in rows if (shown, description) in shared]:
        entries.append(_wrapped(f"- Shared: {', '.join(f'`{option}`' for option in also)}.", indent="  "))
    return [title, "", _paragraphs(command.help), "", *entries, ""]


def _entries(rows: Iterable[tuple[str, str]]) -> list[str]:
    """A list with an entry for each option or field: its name, and what it means."""
    return [_wrapped(f"- {shown}: {description}", indent="  ") for shown, description in rows]


def _wrapped(text: str, indent: str = "") -> str:
    """A paragraph or an entry, wrapped as the documents are."""
    return textwrap.fill(text, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _paragraphs(text: str | None) -> str:
    blocks = re.split(r"\n\s*\n", (text or "").strip())
    return "\n\n".join(_wrapped(" ".join(block.split())) for block in blocks)


def _metavar(parameter: Any) -> str:
    if parameter.param_type_name == "option" and parameter.type_descriptor.is_choice:
        return "|".join(str(choice.value) for choice in parameter.type_descriptor.choices)
    return str(parameter.metavar or parameter.name.upper())


def _parameters(command: Any) -> list[tuple[str, str]]:
    """A command's arguments and options: how each is written, and what it means."""
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
        rows.append((shown, description))
    return rows


def spec() -> str:
    """The job file's reference."""
    parts = ["# The job file", MADE, _paragraphs(JobSpec.__doc__), "", EXAMPLE, "",
             _wrapped("A duration has a unit (`45s`, `10m`, `1h30m`, `2d`), and a moment a zone "
                      f"(`2026-01-31T12:00:00Z`). Recipes: {', '.join(f'`{r}`' for r in RECIPES)}."), ""]  # fmt: skip
    waiting: list[tuple[str, type[BaseModel]]] = [("", JobSpec)]
    waiting += [(f"parameters of `{recipe}`", kind) for recipe, kind in RECIPES.items()]
    while waiting:
        path, model = waiting.pop(0)
        if path:
            parts += [f"## {path}", "", _paragraphs(model.__doc__), ""]
        for name, field in model.model_fields.items():
            # One of the two types of an optional part is None.
            inner = next((a for a in get_args(field.annotation) if _is_model(a)), field.annotation)
            name = field.alias or name
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                waiting.append((f"{path}.{name}".lstrip("."), inner))
                parts += _entries([(f"`{name}`", f"see [{name}](#{name}).")])
                continue
            kind = ", ".join(filter(None, [_type(inner, field), _default(field)]))
            meaning = _meaning(field)
            parts.append(_wrapped(f"- `{name}` ({kind}){': ' if meaning else ''}{meaning}", indent="  "))
        parts.append("")
    return "\n".join([*parts, *_clouds()])


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def rules() -> str:
    """The rules' reference."""
    parts = ["# The rules", MADE]
    parts += [_wrapped("Each rule with its level and severity, what has to hold, what to do, and the checks of "
                       "Checkov that look for the same. How to set levels and exceptions: "
                       "[rules](../guide/rules.md)."), ""]  # fmt: skip
    begins = (("aws-", "AWS"), ("gcp-", "Google Cloud"), ("kubernetes-", "Kubernetes"), ("no-", "Every cloud"))
    for begin, title in begins:
        parts += [f"## {title}", ""]
        for rule in (rule for rule in RULES.values() if rule.id.startswith(begin)):
            checkov = f" Checkov: {', '.join(rule.checkov)}." if rule.checkov else ""
            parts.append(_rule(rule, checkov))
        parts.append("")
    parts += ["## Whole stacks", "", *(_rule(rule) for rule in STACK_RULES.values())]
    for model, title in ((EnvironmentRules, "Settings of an environment"), (RuleException, "An exception")):
        parts += ["", f"## {title}", "", _paragraphs(model.__doc__), ""]
        parts += _entries((f"`{camel(name)}`", field.description or "") for name, field in model.model_fields.items())
    return "\n".join(parts) + "\n"


def _rule(rule: Any, details: str = "") -> str:
    levels = f"{rule.level.value}, {rule.severity.value}"
    return _wrapped(f"- `{rule.id}` ({levels}): {rule.title}. {rule.remedy}{details}", indent="  ")


def _clouds() -> list[str]:
    """Return the cells on each cloud's rules for job files. The cloud of a cluster's instances decides which row
    applies."""
    rows = [(cloud, provider(cloud).jobs) for cloud in CLOUDS]
    return [
        "## Rules of the clouds", "",
        _wrapped("`EVERSPOT_*` belongs to the instance everywhere, and so do the variables of each cloud here: a job "
                 "may move. An instance reads secrets of its own cloud."), "",
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
    if get_origin(annotation) in (list, tuple):
        return f"list of {_type(get_args(annotation)[0])}"
    if get_origin(annotation) is dict:
        return f"mapping of {_type(get_args(annotation)[0])} to {_type(get_args(annotation)[1])}"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(f"`{member.value}`" for member in annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "see below"
    if field is not None and any(getattr(m, "func", None) is parse_percentage for m in field.metadata):
        return "percentage"
    names = {
        timedelta: "duration",
        datetime: "moment",
        str: "text",
        int: "integer",
        float: "number",
        bool: "yes or no",
        Window: "hours of the day",
        SkipIf: "condition",
        MinDelta: "number or percentage",
    }
    bounds = [f"{sign} {getattr(m, attribute):g}" for m in (field.metadata if field else [])
              for attribute, sign in (("ge", "≥"), ("gt", ">")) if hasattr(m, attribute)]  # fmt: skip
    return " ".join([names.get(annotation, "any value"), *bounds])


def _default(field: FieldInfo) -> str:
    """Return the value of a field that the file leaves out; empty if the field is then absent."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined or value is None or value in ({}, [], ()):
        return ""
    shown = (
        format_duration(value) if isinstance(value, timedelta) else value.value if isinstance(value, Enum) else value
    )
    return f"default `{shown}`"


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
