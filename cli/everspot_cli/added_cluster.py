"""A cluster beside the other resources of a Pulumi project that is there already: one Python module."""

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from everspot_clouds.base.project_setup import CloudStarter, ProjectAnswers
from everspot_core.validation.yaml_text import load

from everspot_cli.errors import CliError, Exit
from everspot_cli.installing import own_requirement
from everspot_cli.yamlfile import read_yaml

MODULE = "training_cluster"
"""Name of the module."""

TEXT = '''\
"""A cluster that trains on spot capacity. `everspot init --add` wrote this; it is the project's own now.

Inputs: docs/guide/components.md. {once}("everspot", {{"tags": TAGS}}) declares what an account has once; it belongs
into one of its stacks.
"""

import pulumi
from everspot import {component}
from everspot.parts import outputs

TAGS = {{"Project": pulumi.get_project(), "Team": {team}, "Environment": pulumi.get_stack()}}

cluster = {component}(
    f"everspot-{{pulumi.get_stack()}}",
    {{
        "tags": TAGS,
{inputs}
    }},
)
for name, value in outputs(cluster).items():
    pulumi.export(name, value)
'''
OF_THE_BOOTSTRAP = ("permissionsBoundaryArn",)
"""Settings that name what only a project of `everspot init` makes."""

OF_THE_TRIAL = ("retainStore", "jobRole", "interruptionEvents", "schedulerType")
"""Settings of the stack `dev` that no other stack may have. The module declares the cluster of every stack, so the
components' defaults count: the store stays when the stack is destroyed, a job cannot change another job's data, and
the scheduler does for hundreds of jobs."""


def entry_file(folder: Path) -> Path:
    """Return the file that the engine runs as the program of the Pulumi project in a folder.

    Raises:
        CliError: if there is no project, or if its program is not in Python.
    """
    file = folder / "Pulumi.yaml"
    if not file.is_file():
        hint = "leave out --add to begin a project"
        raise CliError(f"there is no Pulumi.yaml in {folder}", Exit.NOT_FOUND, hint=hint)
    project = read_yaml(file)
    runtime = project.get("runtime") if isinstance(project, dict) else None
    language = runtime.get("name") if isinstance(runtime, dict) else runtime
    if not isinstance(project, dict) or language != "python":
        hint = "pulumi package add adds the components to a program of any language: docs/guide/components.md"
        raise CliError(f"the program of {file} is not in Python, but in {language}", Exit.USER, hint=hint)
    main = folder / str(project.get("main") or ".")
    return main if main.suffix == ".py" else main / "__main__.py"


def render_module(starter: CloudStarter, answers: ProjectAnswers) -> str:
    """Return the module's text, with the inputs of a new project's first cluster that suit every stack."""
    texts = starter.settings(answers)
    settings, production = (load(texts[stack])["config"]["everspot:cluster"] for stack in ("dev", "prod"))
    if "zones" in settings:  # the trial has one where each costs money, and the least spot capacity with it
        settings["zones"] = production["zones"]
    inputs = {
        _snake(key): _as_python(value)
        for key, value in settings.items()
        if key not in ("cloud", "tags", *OF_THE_BOOTSTRAP, *OF_THE_TRIAL)
    }
    return TEXT.format(
        component=starter.cluster_component,
        once=starter.account_component,
        team=_literal(answers.team),
        inputs="\n".join(_lines(inputs, indent=2)),
    )


def next_steps(starter: CloudStarter, answers: ProjectAnswers, entry: Path) -> list[str]:
    """Return what remains to be done, in sentences. `entry`: the file that the engine runs."""
    return [
        f"Add to the project's requirements: {own_requirement(starter.extras).line}",
        f"Add to {entry}: import {MODULE}",
        *starter.module_steps(answers, shlex.quote(str(entry.with_name(f"{MODULE}.py")))),
        "pulumi preview: it names what is wrong with the inputs, and prints what an hour costs.",
    ]


def _as_python(value: Any) -> Any:
    """Return a setting in the words of a component's inputs. An entry of instanceTypes may be its name alone."""
    if isinstance(value, Mapping):
        return {
            _snake(key): [{"type": entry} for entry in inner] if key == "instanceTypes" else _as_python(inner)
            for key, inner in value.items()
        }
    return value


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


def _lines(inputs: Mapping[str, Any], indent: int) -> Iterator[str]:
    """Yield the lines of a mapping's entries; a mapping of mappings or lists has its entries on lines of their own."""
    space = "    " * indent
    for key, value in inputs.items():
        if isinstance(value, Mapping) and any(isinstance(inner, Mapping | list) for inner in value.values()):
            yield f'{space}"{key}": {{'
            yield from _lines(value, indent + 1)
            yield f"{space}}},"
        else:
            yield f'{space}"{key}": {_literal(value)},'


def _literal(value: Any) -> str:
    return repr(value).replace("'", '"')
