"""`everspot simulate`."""

from pathlib import Path
from typing import Annotated

import typer
from everspot_simulator import GENERATORS

from everspot_cli.commands.options import Json, current_session
from everspot_cli.commands.simulate import inputs, runs, tables, workload

_KNOWN = ", ".join(inputs.KNOWN)
_GENERATORS = ", ".join(GENERATORS)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("simulate")(simulate)


_Traces = Annotated[
    list[Path] | None,
    typer.Option("--trace", metavar="FILE", help="A trace of spot capacity, as JSON; repeatable."),
]
_Synthetic = Annotated[
    list[str] | None,
    typer.Option("--synthetic", metavar="NAME", help=f"Generate a trace, by --seed. One of: {_GENERATORS}."),
]
_Days = Annotated[float | None, typer.Option("--days", metavar="N", help="Length of synthetic traces. Default: 30.")]
_Gap = Annotated[
    float | None,
    typer.Option("--gap-seconds", metavar="N", help="Time between two ticks of synthetic traces. Default: 300."),
]
_WriteTraces = Annotated[
    Path | None, typer.Option("--write-traces", metavar="DIR", help="Write the synthetic traces there, as JSON.")
]
_Job = Annotated[
    float,
    typer.Option("--job-hours", metavar="H", help="Computing that the job needs. Default: 48.", show_default=False),
]
_Deadline = Annotated[
    float,
    typer.Option("--deadline-hours", metavar="H", help="Time from submission. Default: 60.", show_default=False),
]
_Changeover = Annotated[
    float,
    typer.Option(
        "--changeover-hours", metavar="H", show_default=False,
        help="Launch, set-up and lost progress at each entry to spot or on-demand. Default: 0.2.",
    ),
]  # fmt: skip
_PriceRatio = Annotated[
    float,
    typer.Option(
        "--price-ratio", metavar="K", show_default=False,
        help="Price of on-demand over the mean price of spot. Default: 3.1446.",
    ),
]  # fmt: skip
_Nodes = Annotated[
    int,
    typer.Option(
        "--nodes", metavar="N", help="Instances that the job needs at the same time. Default: 1.", show_default=False
    ),
]
_Tick = Annotated[
    float | None,
    typer.Option(
        "--tick", metavar="SECONDS",
        help="Time between two decisions; every changeover then ends with one, up to a tick late. Default: that of the "
        "trace, and changeovers end when they are done.",
    ),
]  # fmt: skip
_Pools = Annotated[bool, typer.Option("--pools", help="Treat the traces as the pools of one job.")]
_Region = Annotated[
    list[str] | None,
    typer.Option(
        "--region", metavar="NAME[:K]",
        help="Each pool's region, in the traces' order, and its price ratio.",
    ),
]  # fmt: skip
_Checkpoint = Annotated[
    float | None, typer.Option("--checkpoint-gb", metavar="GB", help="What a move copies. Default: 20.")
]
_Egress = Annotated[
    float | None, typer.Option("--egress-usd", metavar="USD", help="For a GB that leaves a region. Default: 0.02.")
]
_Starts = Annotated[
    str,
    typer.Option(
        "--starts", metavar="N", show_default=False,
        help="Random moments of submission for each trace, or `all` that the deadline allows. Default: 100.",
    ),
]  # fmt: skip
_Seed = Annotated[
    int, typer.Option("--seed", metavar="N", help="Same seed, same draws. Default: 1.", show_default=False)
]
_Policy = Annotated[
    list[str] | None,
    typer.Option(
        "--policy", metavar="NAME", help=f"The policy; repeatable. One of: {_KNOWN} (which knows the "
        "future). Default: everspot.",
    ),
]  # fmt: skip
_Compare = Annotated[bool, typer.Option("--compare", help="Compare all policies.")]
_Plot = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        metavar="FILE",
        help="Draw the first run of the first trace: .png, .svg or .pdf. Needs the extra `simulate`.",
    ),
]
_Workload = Annotated[
    Path | None,
    typer.Option(
        "--workload",
        metavar="FILE",
        help="Simulate the jobs of many users on one fleet or several clusters instead, from YAML or JSON.",
    ),
]
_Generate = Annotated[
    Path | None,
    typer.Option("--generate-workload", metavar="FILE", help="Generate such a workload, by --seed, and write it."),
]
_JobCount = Annotated[
    int | None, typer.Option("--jobs", metavar="N", help="Jobs of a generated workload. Default: 300.")
]
_Clusters = Annotated[
    int | None,
    typer.Option("--clusters", metavar="N", help="Clusters of a generated workload, from 2 to 8. Default: one fleet."),
]


def simulate(
    context: typer.Context,
    trace: _Traces = None,
    synthetic: _Synthetic = None,
    days: _Days = None,
    gap_seconds: _Gap = None,
    write_traces: _WriteTraces = None,
    job_hours: _Job = 48.0,
    deadline_hours: _Deadline = 60.0,
    changeover_hours: _Changeover = 0.2,
    price_ratio: _PriceRatio = 3.1446,
    nodes: _Nodes = 1,
    tick: _Tick = None,
    pools: _Pools = False,
    region: _Region = None,
    checkpoint_gb: _Checkpoint = None,
    egress_usd: _Egress = None,
    starts: _Starts = "100",
    seed: _Seed = 1,
    policy: _Policy = None,
    compare: _Compare = False,
    plot: _Plot = None,
    workload_file: _Workload = None,
    generate_workload: _Generate = None,
    jobs: _JobCount = None,
    clusters: _Clusters = None,
    json: Json = False,
) -> None:
    """Simulate one job on traces of spot capacity, submitted at many moments, and show the savings of a policy.

    It needs neither a store nor a cloud. A trace is `{"metadata": {"gap_seconds": 300}, "data": [1, 0, …]}`: the
    available instances at each tick, and the seconds between ticks. It may have `"prices"`, dollars an hour by tick.
    """
    session = current_session(context, json)
    if workload.run_workload_options(context, workload_file, generate_workload, jobs, seed, clusters, session):
        return
    request = inputs.check_options(
        inputs.SimulationOptions(
            files=tuple(trace or ()), synthetic=tuple(synthetic or ()), days=days, gap_seconds=gap_seconds,
            write_traces=write_traces, job_hours=job_hours, deadline_hours=deadline_hours,
            changeover_hours=changeover_hours, price_ratio=price_ratio, nodes=nodes, tick=tick, pools=pools,
            regions=tuple(region or ()), checkpoint_gb=checkpoint_gb, egress_usd=egress_usd,
            starts=starts, seed=seed, policies=tuple(policy or ()), compare=compare, plot=plot,
        )
    )  # fmt: skip
    # Files are written before the long simulation, so that an error in writing is reported immediately.
    notes = inputs.write(request.synthetic, write_traces) if write_traces else []
    if plot is not None:
        # matplotlib is an extra and slow to import.
        from everspot_cli.commands.simulate import plot as plotting

        notes.append(plotting.draw(request, plot))
    results = runs.simulate(request, session)
    if session.json:
        session.answer(tables.document(results))
    else:
        session.console.print(tables.page(request, results))
        # Not wrapped, because the text has paths in it.
        footnotes = "\n".join([*notes, *tables.small_print(request)])
        session.console.print(footnotes, style="dim", soft_wrap=True)
