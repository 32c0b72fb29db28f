"""The HTML page of a workload on several clusters, with and without moves between them."""

from pathlib import Path

from everspot_simulator.federated_figures import ClusterFigures, FederatedFigures
from rich.console import Group, RenderableType
from rich.text import Text

from everspot_cli.session import Session
from everspot_cli.tables import empty_table


def report_figures(path: Path, moving: FederatedFigures, staying: FederatedFigures, session: Session) -> None:
    """Answer with the figures. `staying`: of the same workload if every job stays at its home."""
    if session.json:
        session.answer({"path": str(path), **moving.to_json(), "without_moves": staying.to_json()})
        return
    session.console.print(_page(moving, staying))
    session.console.print("\n".join(_small_print(moving)), style="dim", soft_wrap=True)


def _page(moving: FederatedFigures, staying: FederatedFigures) -> RenderableType:
    totals = empty_table(
        ("", "JOBS", "FINISHED", "REFUSED", "MISSES", "MET %", "INSTANCES $", "EGRESS $", "TOTAL $"), text_columns=1
    )
    for name, figures in (("with moves", moving), ("without", staying)):
        totals.add_row(
            name,
            str(figures.jobs),
            str(figures.finished),
            str(figures.refused),
            Text(str(figures.misses), style="bold red" if figures.misses else ""),
            f"{100 * figures.met_share:.1f}",
            f"{figures.usd:,.2f}",
            f"{figures.egress_usd:,.2f}",
            f"{figures.total_usd:,.2f}",
        )
    each = empty_table(
        ("CLUSTER", "JOBS", "FINISHED", "ARRIVED", "LEFT", "SPOT $", "ON-DEMAND $", "EGRESS $"), text_columns=1
    )
    for name, cluster in moving.clusters.items():
        each.add_row(name, *_row(cluster))
    return Group(totals, Text(), each, Text())


def _row(cluster: ClusterFigures) -> list[str]:
    counts = (cluster.jobs, cluster.finished, cluster.arrived, cluster.left)
    dollars = (cluster.cost.spot, cluster.cost.on_demand, cluster.egress_usd)
    return [*(str(count) for count in counts), *(f"{usd:,.2f}" for usd in dollars)]


def _small_print(figures: FederatedFigures) -> list[str]:
    reasons = ", ".join(f"{count} for {name}" for name, count in _words(figures)) or "none"
    late = f", the latest by {figures.latest_hours:.2f} h" if figures.misses else ""
    waits = figures.undated_waits
    waits_text = f"half of them waited {waits.p50:.2f} h at most, one of 20 more than {waits.p95:.2f} h."
    waited = [f"{waits.jobs} jobs had no deadline: {waits_text}"] if waits.jobs else []
    return [
        f"{figures.hours:.1f} h until the last job was over; {figures.with_deadline} jobs had a deadline{late}.",
        f"Moves: {reasons}; {figures.moved} of {figures.jobs} jobs moved, with {figures.gigabytes:,.0f} GB of "
        f"checkpoints; {figures.declined} offers were declined.",
        *waited,
        "Finished: in that cluster, of whatever home. Total: every instance from its launch to its end, and the bytes "
        "that left a cluster.",
    ]


def _words(figures: FederatedFigures) -> list[tuple[str, int]]:
    words = {"no-capacity": "want of capacity", "late": "a deadline", "cheaper": "money"}
    return [(words.get(name, name), count) for name, count in figures.moves.items()]
