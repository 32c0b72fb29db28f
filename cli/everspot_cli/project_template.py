"""A new project: the files of its first commit, and SETUP.md: the steps in their order, with their cost."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from everspot_clouds.base.project_setup import CloudStarter, ProjectAnswers, SetupStep
from everspot_clouds.estimating import environment, estimated, list_unpriced
from everspot_clouds.price_files import refresh_command
from everspot_clouds.setting_names import PROJECT
from everspot_core.validation.problems import BadInputs
from everspot_core.validation.yaml_text import load

from everspot_cli.installing import own_requirement

PACKAGED = Path(__file__).parent / "project"
"""The files that are the same in every project."""

IGNORED = (".venv/", ".state/", "__pycache__/", "bootstrap.json", "reports/")
EXTRAS = "cli,{components},policy,review"
"""The cloud's own components alone: of every SDK in a program's environment the engine fetches the plugin."""

USUAL_TEAM = "[ml-platform]"
"""The teams of the packaged rules, for which the project's own stands."""

LOCAL = """\
# A path of this machine: a runner cannot install from it. Before the first push, name a URL of your fork with a commit,
# everspot[{extras}] @ git+https://github.com/OWNER/everspot@COMMIT
# or a release that the index of packages has.
"""

PAGE = """\
# Setting up

Written by `everspot init` for {account}, {region}. Each step says what it does and what it costs; run the commands in
this order, in this folder, as an administrator of the account. Nothing is done before you do it.
"""


@dataclass(frozen=True)
class SetupCost:
    """Dollars a month of one stack. `unknown`: what has no price here; `unpriced`: its instance types without one, by
    region."""

    low: float
    expected: float
    high: float
    unknown: tuple[str, ...] = ()
    unpriced: Mapping[str, Collection[str]] = field(default_factory=dict)


def render_files(starter: CloudStarter, answers: ProjectAnswers) -> dict[str, str]:
    """Return the texts of a project's files by path, without SETUP.md."""
    files = {"Pulumi.yaml": _read_packaged("Pulumi.yaml")}
    files["requirements.txt"] = _requirements(EXTRAS.format(components=starter.extras))
    files[".gitignore"] = "".join(f"{line}\n" for line in IGNORED)
    for path in sorted((PACKAGED / "program").glob("*.py.txt")):
        files[f"stacks/{path.name.removesuffix('.txt')}"] = path.read_text(encoding="utf-8")
    files["stacks/rules.yaml"] = _read_packaged("rules.yaml").replace(USUAL_TEAM, f'["{answers.team}"]')
    for stack, text in starter.settings(answers).items():
        files[f"stacks/Pulumi.{stack}.yaml"] = text
    for kind, folder in (("workflows", "workflows"), ("scripts", "everspot")):
        for path in sorted((PACKAGED / kind).iterdir()):
            files[f".github/{folder}/{path.name}"] = path.read_text(encoding="utf-8")
    return files


def _requirements(extras: str) -> str:
    """Return the program's requirements: the running Everspot, from where it was installed."""
    requirement = own_requirement(extras)
    return (LOCAL.format(extras=extras) if requirement.local else "") + f"{requirement.line}\n"


def _read_packaged(name: str) -> str:
    return (PACKAGED / name).read_text(encoding="utf-8")


def estimate_cost(stack: str, text: str) -> SetupCost | None:
    """Return the monthly cost of a stack's settings, or None if they cannot be priced."""
    try:
        declared = environment(stack, load(text)["config"], PROJECT)
    except BadInputs:
        return None
    estimate = estimated([], declared.resources, regions=declared.regions)
    if estimate.after is None or estimate.after.nothing_known:
        return None
    total = estimate.after.total
    unpriced = list_unpriced(declared.resources, declared.regions)
    return SetupCost(total.low, total.expected, total.high, tuple(estimate.unknown), unpriced)


def estimate_costs(steps: Sequence[SetupStep], files: Mapping[str, str]) -> dict[str, SetupCost | None]:
    """Return the monthly cost of the steps' stacks, by stack."""
    return {
        step.stack: estimate_cost(step.stack, files[f"stacks/Pulumi.{step.stack}.yaml"]) for step in steps if step.stack
    }


def describe_cost(step: SetupStep, cost: SetupCost | None) -> str:
    """Return a sentence on the cost of a step."""
    if not step.stack:
        return step.costs or "Costs nothing."
    if cost is None:
        return "What it costs is unknown."
    if cost.high == 0 and not cost.unknown:
        return "Costs nothing."
    if cost.unpriced:
        others = f" The rest costs {_usd(cost.expected)} a month." if cost.high else ""
        return f"{describe_unpriced(cost.unpriced)}{others}"
    spread = f" ({_usd(cost.low)} to {_usd(cost.high)})" if cost.high > cost.low else ""
    lacking = " Some of it has no known price: `everspot cost estimate` names it." if cost.unknown else ""
    return f"Costs {_usd(cost.expected)} a month{spread}, and what is paid by use.{lacking}"


def describe_unpriced(unpriced: Mapping[str, Collection[str]]) -> str:
    """Return the sentence that a month's cost is not known, with the types that lack a price and the command that reads
    their prices."""
    parts = [
        f"no price of {', '.join(sorted(types))} in {region} is known, {refresh_command(region)} reads the price lists"
        for region, types in sorted(unpriced.items())
    ]
    return f"What it costs is unknown: {'; '.join(parts)}."


def page(answers: ProjectAnswers, steps: Sequence[SetupStep], costs: Mapping[str, SetupCost | None]) -> str:
    """Return SETUP.md: the steps, in Markdown."""
    parts = [PAGE.format(account=answers.account, region=answers.region)]
    for number, step in enumerate(steps, 1):
        parts.append(f"## {number}. {step.title}\n\n{step.description} {describe_cost(step, costs.get(step.stack))}\n")
        if step.commands:
            parts.append("```\n{}\n```\n".format("\n".join(step.commands)))
    parts.append("`everspot cost estimate` says in full what the stacks cost.\n")
    return "\n".join(parts)


def document(steps: Sequence[SetupStep], costs: Mapping[str, SetupCost | None]) -> list[dict[str, Any]]:
    """Return the steps for `--json`."""
    return [
        {
            "title": step.title,
            "why": step.description,
            "commands": list(step.commands),
            "stack": step.stack or None,
            "usd_per_month": _figures(costs.get(step.stack)),
            "costs": describe_cost(step, costs.get(step.stack)),
        }
        for step in steps
    ]


def _figures(cost: SetupCost | None) -> dict[str, Any] | None:
    return None if cost is None else {
        "low": cost.low, "expected": cost.expected, "high": cost.high, "unknown": list(cost.unknown),
        "unpriced": {region: sorted(types) for region, types in cost.unpriced.items()},
    }  # fmt: skip


def _usd(amount: float) -> str:
    return f"${amount:,.0f}" if amount >= 100 else f"${amount:,.2f}"
