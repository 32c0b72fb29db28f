"""The table of commands. A command's module is imported only when that command is run."""

from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup


class CommandEntry(NamedTuple):
    """A line of the table of commands.

    Attributes:
        module: The module below `commands/` that registers the command; None for a group of `GROUPS`.
        summary: The first line of the command's help.
        panel: The heading of `everspot --help` below which the command is listed.
    """

    module: str | None
    summary: str
    panel: str | None = None


COMMANDS: dict[str, CommandEntry] = {
    "submit": CommandEntry("submit", "Submit a job. Once this returns, the job is never lost.", "Jobs"),
    "rehearse": CommandEntry(
        "rehearse",
        "Run a job on this machine for a few steps, undisturbed and interrupted, and name the first thing "
        "that differs.",
        "Jobs",
    ),
    "retry": CommandEntry(
        "submit", "Submit a failed or cancelled job again; it goes on from its newest checkpoint.", "Jobs"
    ),
    "sweep": CommandEntry(
        "sweep",
        "Run a job many times with different values of some fields, and find the best. Run it again to continue.",
        "Jobs",
    ),
    "ab": CommandEntry(
        "ab",
        "Compare number formats: does a cheaper one reach the same metric? Run it again to continue.",
        "Jobs",
    ),
    "jobs": CommandEntry("jobs", "List the jobs: state, both durations, interruptions.", "Jobs"),
    "job": CommandEntry("job", "Show one job: why it failed or waits, state, progress, and its history.", "Jobs"),
    "logs": CommandEntry("logs", "Print what a job has printed, over all its attempts and instances.", "Jobs"),
    "cancel": CommandEntry(
        "control", "End a job. Its instance is free for others immediately; its checkpoints stay.", "Jobs"
    ),
    "exec": CommandEntry(
        "shell", "Run a command beside a running job: on its instance, in its folder, as its user.", "Jobs"
    ),
    "forward": CommandEntry(
        "shell", "Forward a port of a running job's instance, such as TensorBoard's, to this machine.", "Jobs"
    ),
    "data": CommandEntry(
        "data",
        "List the cluster's datasets, or upload a folder as one: files that are there already are not sent again.",
        "Data and results",
    ),
    "pull": CommandEntry(
        "data",
        "Download what a job has left in its folder `outputs/`: the newest of each file, over all its attempts.",
        "Data and results",
    ),
    "gc": CommandEntry(
        "gc",
        "Show what nobody needs any more in the data bucket, and how large it is; with --delete, remove it.",
        "Data and results",
    ),
    "instances": CommandEntry(
        "instances", "List the cluster's instances: type, zone, market, what each does, and notices.", "Fleet"
    ),
    "fleet": CommandEntry(
        "fleet",
        "Show the pools: price, placement score, what runs and comes, how long spot lasted, and what was refused.",
        "Fleet",
    ),
    "gpus": CommandEntry(
        "gpus",
        "Show which GPUs there are in which regions of both clouds, and what they cost, the cheapest GPU first.",
        "Fleet",
    ),
    "federation": CommandEntry(
        "federation",
        "Show the clusters with which jobs are exchanged, the jobs that are away there, and those that visit here.",
        "Fleet",
    ),
    "doctor": CommandEntry(
        "doctor",
        "Check the cluster: store, scheduler, instances, peers, credentials, quotas, clock, its stack, orphans.",
        "Cluster",
    ),
    "cluster": CommandEntry(
        None, "Choose, drain, upgrade or take down a cluster, or drill an interruption.", "Cluster"
    ),
    "cost": CommandEntry(None, "Show what was spent and will be, compare it with the bill, and set budgets.", "Cost"),
    "init": CommandEntry(
        "init",
        "Begin a project of environments that are changed by pull requests: settings, program, workflows, "
        "and the steps.",
        "Environments",
    ),
    "preflight": CommandEntry(
        "preflight",
        "Check an account before `pulumi up`: permissions of your credentials, quotas, the machine image, a dry "
        "launch.",
        "Environments",
    ),
    "review": CommandEntry(
        "review",
        "Review changes of environments: what a pull request changes, breaks and costs, in one comment; "
        "apply what was reviewed; find what has drifted.",
        "Environments",
    ),
    "changes": CommandEntry(
        "changes",
        "List the reviewed changes that were applied: pull request, what each did, a month's cost before and after.",
        "Environments",
    ),
    "simulate": CommandEntry(
        "simulate",
        "Run one job through traces of spot capacity, from many moments of submission, and show what a policy saves.",
        "Simulation",
    ),
    "ui": CommandEntry(
        "ui", "Show jobs, fleet and spending on a page in the browser, kept up to date until Ctrl-C.", "Web UI"
    ),
}
"""The commands of `everspot`, in the order of its help."""

GROUPS: dict[str, dict[str, CommandEntry]] = {
    "cluster": {
        "use": CommandEntry("clusters", "Choose the cluster that all commands talk to from now on, in any folder."),
        "list": CommandEntry("clusters", "List the clusters that this user knows, and which of them is in use."),
        "drain": CommandEntry(
            "control", "Have every job checkpoint and wait, and assign nothing new: before an upgrade or a destroy."
        ),
        "roll": CommandEntry(
            "roll",
            "Replace busy instances too, by ones of the current image and settings: drained, a quarter at a time.",
        ),
        "down": CommandEntry(
            "down",
            "Take the cluster down: drain it, release its instances, destroy its stack, and check that nothing "
            "is left.",
        ),
        "interrupt": CommandEntry("control", "Drill: interrupt a running job as the cloud would, and see it resume."),
    },
    "cost": {
        "report": CommandEntry(
            "report", "Show what was trained, what it cost, what on-demand would have cost, and what was lost."
        ),
        "compare": CommandEntry(
            "compare",
            "Compare a job with the same on-demand, two jobs, or two sets of jobs: cost, time, interruptions.",
        ),
        "chargeback": CommandEntry(
            "chargeback",
            "Show who bears a month's costs: each team, and what nobody asked for, in lines that add up to the whole.",
        ),
        "export": CommandEntry(
            "export", "Export a month of the ledger as FOCUS, a row for each use of an instance in each hour."
        ),
        "reconcile": CommandEntry(
            "reconcile", "Compare a month of the ledger with the cloud's own bill, by instance and hour."
        ),
        "audit": CommandEntry(
            "audit",
            "Audit a month: utilisation, idle time, right-sizing, lost work, and the three measures that would "
            "save most.",
        ),
        "anomalies": CommandEntry(
            "anomalies",
            "Show what is not as usual: jobs far over their estimate, teams over their norm, idle instances, "
            "expensive pools.",
        ),
        "commitments": CommandEntry(
            "commitments",
            "Show which commitments would save: Savings Plans, Reserved Instances, committed use discounts.",
        ),
        "estimate": CommandEntry(
            "estimate",
            "Show what environments cost a month, from their settings alone: low, expected, high, all on-demand.",
        ),
        "prices": CommandEntry(
            "prices", "Show the prices that are known, or read newer ones from the cloud's own price lists."
        ),
        "budget": CommandEntry("budget", "Show what teams and the environment have spent and may spend, or set a cap."),
    },
}
"""The commands of each group, in the order of its help."""

ALIASES: dict[str, tuple[str, str]] = {
    name: (group, name) for group, entries in GROUPS.items() for name in entries if name != "list"
} | {"clusters": ("cluster", "list")}
"""Names that commands had before they moved into a group. They still work, and no help lists them."""


class Command(TyperCommand):
    """A command whose help shows no type for flags."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return its arguments and options."""
        return plain_flags(super().get_params(ctx))


def plain_flags(params: list[Any]) -> list[Any]:
    """Return the parameters. Flags show no type in the command's help, because they take no value."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


class LazyGroup(TyperGroup):
    """A group that knows each command's name and summary, and imports only the command that is run.

    Without `entries` it is the group of all commands, `everspot`, which also accepts the names of `ALIASES`.
    """

    def __init__(self, *args: Any, entries: dict[str, CommandEntry] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.entries = COMMANDS if entries is None else entries

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, in the order of the table."""
        return list(self.entries)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import and return the command; None if no command has this name."""
        if self.entries is COMMANDS and cmd_name in ALIASES:
            group, name = ALIASES[cmd_name]
            return self.get_command(ctx, group).get_command(ctx, name)
        if cmd_name not in self.entries:
            return None
        if cmd_name not in self.commands:
            entry = self.entries[cmd_name]
            if entry.module is None:
                self.commands[cmd_name] = LazyGroup(
                    name=cmd_name, entries=GROUPS[cmd_name], help=entry.summary, no_args_is_help=True
                )
            else:
                self.commands.update(_load_commands(entry.module))
        return self.commands[cmd_name]

    def all(self) -> dict[str, Any]:
        """Import and return all commands by their names as typed, such as `cost report`."""
        commands: dict[str, Any] = {}
        for name, entry in self.entries.items():
            command = self.get_command(None, name)
            if entry.module is None:
                commands |= {f"{name} {inner}": leaf for inner, leaf in command.all().items()}
            else:
                commands[name] = command
        return commands

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands, without importing any."""
        self._summarize().show(ctx, formatter)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the group's options."""
        return plain_flags(super().get_params(ctx))

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Return names and summaries of the commands, without importing any."""
        return self._summarize().complete(ctx, incomplete)

    def _summarize(self) -> "_SummaryGroup":
        commands: dict[str, Any] = {
            name: TyperCommand(name=name, help=entry.summary, rich_help_panel=entry.panel)
            for name, entry in self.entries.items()
        }
        return _SummaryGroup(
            name=self.name, commands=commands, params=self.params, help=self.help, epilog=self.epilog,
            rich_markup_mode=self.rich_markup_mode, context_settings=self.context_settings,
        )  # fmt: skip


class _SummaryGroup(TyperGroup):
    """A group whose commands have only a summary."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def get_params(self, ctx: Any) -> list[Any]:
        return plain_flags(super().get_params(ctx))

    def show(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)

    def complete(self, ctx: Any, incomplete: str) -> Any:
        return super().shell_complete(ctx, incomplete)


def _load_commands(name: str) -> dict[str, Any]:
    app = typer.Typer()
    module = import_module(f"everspot_cli.commands.{name}")
    if not hasattr(module, "register"):
        raise SystemExit(f"{module.__name__} has no register(app), which adds its commands: see CONTRIBUTING.md")
    module.register(app)
    for info in app.registered_commands:
        info.cls = info.cls if info.cls is not TyperCommand and info.cls is not None else Command
    return dict(typer.main.get_group(app).commands)
