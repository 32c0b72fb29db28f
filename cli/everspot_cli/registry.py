"""The table of commands. A command's module is imported only when that command is run."""

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

COMMANDS: dict[str, tuple[str, str]] = {
    "submit": ("submit", "Submit a job. Once this returns, the job is never lost."),
    "rehearse": (
        "rehearse",
        "Run a job on this machine for a few steps, undisturbed and interrupted, and name the first thing that "
        "differs.",
    ),
    "retry": ("submit", "Submit a failed or cancelled job again; it goes on from its newest checkpoint."),
    "sweep": (
        "sweep",
        "Run a job many times with different values of some fields, and find the best. Run it again to continue.",
    ),
    "jobs": ("jobs", "List the jobs: state, both durations, interruptions."),
    "job": ("job", "Show one job: why it failed or waits, state, progress, and its history."),
    "logs": ("logs", "Print what a job has printed, over all its attempts and instances."),
    "cancel": ("control", "End a job. Its instance is free for others at once; what it has checkpointed stays."),
    "interrupt": ("control", "Drill: interrupt a running job as the cloud would, and see it resume."),
    "exec": (
        "shell",
        "Run a command beside a running job: on its instance, in its folder, as its user.",
    ),
    "forward": (
        "shell",
        "Forward a port of a running job's instance, such as TensorBoard's, to this machine.",
    ),
    "data": (
        "data",
        "List the cluster's datasets, or upload a folder as one: files that are there already are not sent again.",
    ),
    "pull": (
        "data",
        "Download what a job has left in its folder `outputs/`: the newest of each file, over all its attempts.",
    ),
    "drain": ("control", "Have every job checkpoint and wait, and assign nothing new: before an upgrade or a destroy."),
    "roll": (
        "roll",
        "Replace busy instances too, by ones of the current image and settings: drained, a quarter at a time.",
    ),
    "down": (
        "down",
        "Take the cluster down: drain it, release its instances, destroy its stack, and check that nothing is left.",
    ),
    "instances": ("instances", "List the cluster's instances: type, zone, market, what each does, and notices."),
    "fleet": (
        "fleet",
        "Show the pools: price, placement score, what runs and comes, how long spot lasted, and what was refused.",
    ),
    "federation": (
        "federation",
        "Show the clusters with which jobs are exchanged, the jobs that are away there, and those that visit here.",
    ),
    "report": ("report", "Show what was trained, what it cost, what on-demand would have cost, and what was lost."),
    "compare": (
        "compare",
        "Compare a job with the same on-demand, two jobs, or two sets of jobs: cost, time, interruptions.",
    ),
    "export": ("export", "Export a month of the ledger as FOCUS, a row for each use of an instance in each hour."),
    "chargeback": (
        "chargeback",
        "Show who bears a month's costs: each team, and what nobody asked for, in lines that add up to the whole.",
    ),
    "reconcile": (
        "reconcile",
        "Compare a month of the ledger with the cloud's own bill, by instance and hour.",
    ),
    "audit": (
        "audit",
        "Audit a month: utilisation, idle time, right-sizing, lost work, and the three measures that would save most.",
    ),
    "anomalies": (
        "anomalies",
        "Show what is not as usual: jobs far over their estimate, teams over their norm, idle instances, dear pools.",
    ),
    "budget": ("budget", "Show what teams and the environment have spent and may spend, or set a cap."),
    "commitments": (
        "commitments",
        "Show which commitments would save: Savings Plans, Reserved Instances, committed use discounts.",
    ),
    "simulate": (
        "simulate",
        "Run one job through traces of spot capacity, from many moments of submission, and show what a policy saves.",
    ),
    "prices": (
        "prices",
        "Show the prices that the cluster uses, or read newer ones from the cloud's own price lists.",
    ),
    "estimate": (
        "estimate",
        "Show what environments cost a month, from their settings alone: low, expected, high, all on-demand.",
    ),
    "init": (
        "init",
        "Begin a project of environments that are changed by pull requests: settings, program, workflows, and the "
        "steps.",
    ),
    "ui": ("ui", "Show jobs, fleet and spending on a page in the browser, kept up to date until Ctrl-C."),
    "gc": ("gc", "Show what nobody needs any more in the data bucket, and how large it is; with --delete, remove it."),
    "doctor": (
        "doctor",
        "Check the cluster: store, scheduler, instances, peers, credentials, quotas, clock, its stack, orphans.",
    ),
    "review": (
        "review",
        "Review changes of environments: what a pull request changes, breaks and costs, in one comment; apply what was "
        "reviewed; find what has drifted.",
    ),
    "changes": (
        "changes",
        "List the reviewed changes that were applied: pull request, what each did, a month's cost before and after.",
    ),
    "use": ("clusters", "Choose the cluster that all commands talk to from now on, in any folder."),
    "clusters": ("clusters", "List the clusters that this user knows, and which of them is in use."),
}
"""Command → (module below `commands/`, first line of its help)."""


class Command(TyperCommand):
    """A command whose help shows no type for flags."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its arguments and options."""
        return plain_flags(super().get_params(ctx))


def plain_flags(params: list[Any]) -> list[Any]:
    """The parameters. Flags show no type in the command's help, because they take no value."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


class LazyGroup(TyperGroup):
    """The `everspot` group. It knows each command's name and line of help, and imports only the command that is run."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, imported now; None if there is none of this name."""
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            self.commands.update(_of_module(COMMANDS[cmd_name][0]))
        return self.commands[cmd_name]

    def all(self) -> dict[str, Any]:
        """Every command, imported. The references and the tests need it."""
        return {name: self.get_command(None, name) for name in COMMANDS}

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands, without importing any."""
        _Listed.of(self).show(ctx, formatter)

    def get_params(self, ctx: Any) -> list[Any]:
        """Its options."""
        return plain_flags(super().get_params(ctx))

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Names and help lines of the commands, without importing any."""
        return _Listed.of(self).complete(ctx, incomplete)


class _Listed(TyperGroup):
    """The same group with commands that have only a line of help."""

    @classmethod
    def of(cls, group: TyperGroup) -> "_Listed":
        brief: dict[str, Any] = {name: TyperCommand(name=name, help=line) for name, (_, line) in COMMANDS.items()}
        return cls(
            name=group.name, commands=brief, params=group.params, help=group.help, epilog=group.epilog,
            rich_markup_mode=group.rich_markup_mode, context_settings=group.context_settings,
        )  # fmt: skip

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def get_params(self, ctx: Any) -> list[Any]:
        return plain_flags(super().get_params(ctx))

    def show(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)

    def complete(self, ctx: Any, incomplete: str) -> Any:
        return super().shell_complete(ctx, incomplete)


def _of_module(name: str) -> dict[str, Any]:
    app = typer.Typer()
    module = import_module(f"everspot_cli.commands.{name}")
    if not hasattr(module, "register"):
        raise SystemExit(f"{module.__name__} has no register(app), which adds its commands: see CONTRIBUTING.md")
    module.register(app)
    for info in app.registered_commands:
        info.cls = info.cls if info.cls is not TyperCommand and info.cls is not None else Command
    return dict(typer.main.get_group(app).commands)
