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
    "submit": CommandEntry("submit", "Submit a job. Once the command returns, the job cannot be lost.", "Jobs"),
    "rehearse": CommandEntry(
        "rehearse",
        "Run a few steps of a job on this machine, undisturbed and interrupted, and show the first difference.",
        "Jobs",
    ),
    "retry": CommandEntry(
        "submit", "Submit a failed or cancelled job again; it continues from its newest checkpoint.", "Jobs"
    ),
    "sweep": CommandEntry(
        "sweep",
        "Run a job many times with different values of some fields, and find the best. Run it again to continue.",
        "Jobs",
    ),
    "plan": CommandEntry(
        "plan", "Propose a sweep of a job that fits a budget, as a file to edit. Nothing is submitted.", "Jobs"
    ),
    "ab": CommandEntry(
        "ab",
        "Compare number formats: does a cheaper one reach the same metric? Run it again to continue.",
        "Jobs",
    ),
    "jobs": CommandEntry("jobs", "List the jobs with their states, durations and interruptions.", "Jobs"),
    "job": CommandEntry(
        "job", "Show one job: its state, the reason why it waits or failed, its progress and its history.", "Jobs"
    ),
    "top": CommandEntry(
        "top",
        "Show what a running job uses of its machine: GPUs, processors, memory, disk, network, steps.",
        "Jobs",
    ),
    "profile": CommandEntry(
        "profile",
        "Record some steps of a running job with torch's profiler: its most expensive operations and its waits for "
        "data.",
        "Jobs",
    ),
    "tensorboard": CommandEntry(
        "tensorboard",
        "Show the metrics of jobs, or of a sweep's trials, in TensorBoard, kept up to date until Ctrl-C.",
        "Jobs",
    ),
    "logs": CommandEntry("logs", "Print the output of a job, from all its attempts and instances.", "Jobs"),
    "cancel": CommandEntry(
        "control", "Cancel a job. Its instance is free for other jobs immediately; its checkpoints stay.", "Jobs"
    ),
    "exec": CommandEntry(
        "shell", "Run a command beside a running job: on its instance, in its folder, as its user.", "Jobs"
    ),
    "forward": CommandEntry(
        "shell", "Forward a port of a running job's instance, such as TensorBoard's, to this machine.", "Jobs"
    ),
    "data": CommandEntry(
        "data",
        "List the cluster's datasets, or upload a folder as a dataset. Files that are already stored are not "
        "sent again.",
        "Data and results",
    ),
    "pull": CommandEntry(
        "data",
        "Download the files of a job's folder `outputs/`: the newest version of each, from all its attempts.",
        "Data and results",
    ),
    "gc": CommandEntry(
        "gc",
        "Show the unused objects of the data bucket and their size; with --delete, remove them.",
        "Data and results",
    ),
    "instances": CommandEntry(
        "instances", "List the cluster's instances with type, zone, market, activity and notices.", "Fleet"
    ),
    "fleet": CommandEntry(
        "fleet",
        "Show the pools: price, placement score, instances, lifetime of spot, and refused launches.",
        "Fleet",
    ),
    "gpus": CommandEntry(
        "gpus",
        "Show the GPUs of every cloud by region with their prices, the cheapest GPU first.",
        "Fleet",
    ),
    "federation": CommandEntry(
        "federation",
        "Show the peer clusters, the jobs that are away there, and the visiting jobs here.",
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
    "cost": CommandEntry(
        None, "Show and estimate the spending, compare it with the cloud's bill, and set budgets.", "Cost"
    ),
    "init": CommandEntry(
        "init",
        "Create a project whose environments are changed by pull requests: settings, program, workflows, and "
        "a set-up guide.",
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
        "Review a change of environments in one comment on its pull request, apply the reviewed change, and "
        "find drift.",
        "Environments",
    ),
    "changes": CommandEntry(
        "changes",
        "List the reviewed changes that were applied: pull request, effect, monthly cost before and after.",
        "Environments",
    ),
    "simulate": CommandEntry(
        "simulate",
        "Simulate one job on traces of spot capacity, submitted at many moments, and show the savings of a policy.",
        "Simulation",
    ),
    "ui": CommandEntry("ui", "Show jobs, fleet and spending in a web UI, kept up to date until Ctrl-C.", "Web UI"),
}
"""The commands of `everspot`, in the order of its help."""

GROUPS: dict[str, dict[str, CommandEntry]] = {
    "cluster": {
        "use": CommandEntry("clusters", "Choose the cluster that all commands use from now on, in any folder."),
        "list": CommandEntry("clusters", "List the user's saved clusters, and mark the one in use."),
        "drain": CommandEntry(
            "control", "Let every job checkpoint and wait, and assign no jobs: before an upgrade or a destroy."
        ),
        "roll": CommandEntry(
            "roll",
            "Replace instances of an older image or older settings, including busy ones, a quarter at a time.",
        ),
        "down": CommandEntry(
            "down",
            "Take the cluster down: drain it, release its instances, destroy its stack, and check for "
            "remaining resources.",
        ),
        "interrupt": CommandEntry("control", "Interrupt a running job as the cloud would, as a drill."),
    },
    "cost": {
        "report": CommandEntry(
            "report",
            "Report the jobs, their cost, the cost of the same work on-demand, and the losses by interruptions.",
        ),
        "compare": CommandEntry(
            "compare",
            "Compare a job with the same job on-demand, two jobs, or two sets of jobs: cost, time, interruptions.",
        ),
        "chargeback": CommandEntry(
            "chargeback",
            "Allocate a month's cost to teams, and to time without a job, in lines that add up to the total.",
        ),
        "export": CommandEntry(
            "export", "Export a month of the ledger as FOCUS, a row for each use of an instance in each hour."
        ),
        "reconcile": CommandEntry(
            "reconcile", "Compare a month of the ledger with the cloud's own bill, by instance and hour."
        ),
        "audit": CommandEntry(
            "audit",
            "Audit a month or a job: how the machines were used, what that cost, and the measures that would save "
            "most.",
        ),
        "anomalies": CommandEntry(
            "anomalies",
            "Show anomalies: jobs far over their estimate, teams over their norm, idle instances, expensive pools.",
        ),
        "commitments": CommandEntry(
            "commitments",
            "Show which commitments would save: Savings Plans, Reserved Instances, committed use discounts.",
        ),
        "estimate": CommandEntry(
            "estimate",
            "Estimate the monthly cost of environments from their settings: low, expected, high, all on-demand.",
        ),
        "prices": CommandEntry("prices", "Show the known prices, or read newer ones from the cloud's price lists."),
        "budget": CommandEntry("budget", "Show the spending and the caps of teams and the environment, or set a cap."),
    },
}
"""The commands of each group, in the order of its help."""

ALIASES: dict[str, tuple[str, str]] = {
    name: (group, name) for group, entries in GROUPS.items() for name in entries if name != "list"
} | {"clusters": ("cluster", "list")}
"""Hidden top-level names of the commands in groups, for scripts of before there were groups. They take precedence over
`COMMANDS`."""


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
