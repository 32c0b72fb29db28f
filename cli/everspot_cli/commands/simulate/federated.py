"""The page of a workload on several clusters: with moves between them, beside the same without."""

from pathlib import Path

from everspot_core.simulate.federated_figures import ClusterFigures, FederatedFigures
from rich.console import Group, RenderableType
from rich.text import Text

from everspot_cli.session import Session
from everspot_cli.tables import sheet


def tell(path: Path, moving: FederatedFigures, staying: FederatedFigures, session: Session) -> None:
    """Answer with the figures. `staying`: of the same workload if every job stays at its home."""
    if session.json:
        session.answer({"path": str(path), **moving.to_json(), "without_moves": staying.to_json()})
        return
    session.console.print(_page(moving, staying))
    session.console.print("\n".join(_small_print(moving)), style="dim", soft_wrap=True)


def _page(moving: FederatedFigures, staying: FederatedFigures) -> RenderableType:
    both = sheet(("", "JOBS", "FINISHED", "REFUSED", "MISSES", "MET %", "INSTANCES $", "EGRESS $", "TOTAL $"), left=1)
    for name, told in (("with moves", moving), ("without", staying)):
        both.add_row(
            name,
            str(told.jobs),
            str(told.finished),
            str(told.refused),
            Text(str(told.misses), style="bold red" if told.misses else ""),
            f"{100 * told.met_share:.1f}",
            f"{told.usd:,.2f}",
            f"{told.egress_usd:,.2f}",
            f"{told.total_usd:,.2f}",
        )
    each = sheet(("CLUSTER", "JOBS", "FINISHED", "ARRIVED", "LEFT", "SPOT $", "ON-DEMAND $", "EGRESS $"), left=1)
    for name, cluster in moving.clusters.items():
        each.add_row(name, *_row(cluster))
    return Group(both, Text(), each, Text())


def _row(cluster: ClusterFigures) -> list[str]:
    counts = (cluster.jobs, cluster.finished, cluster.arrived, cluster.left)
    dollars = (cluster.cost.spot, cluster.cost.on_demand, cluster.egress_usd)
    return [*(str(count) for count in counts), *(f"{usd:,.2f}" for usd in dollars)]


def _small_print(told: FederatedFigures) -> list[str]:
    reasons = ", ".join(f"{count} for {name}" for name, count in _words(told)) or "none"
    late = f", the latest by {told.latest_hours:.2f} h" if told.misses else ""
    waits = told.undated_waits
    told_waits = f"half of them waited {waits.p50:.2f} h at most, one of 20 more than {waits.p95:.2f} h."
    waited = [f"{waits.jobs} jobs had no deadline: {told_waits}"] if waits.jobs else []
    return [
        f"{told.hours:.1f} h until the last job was over; {told.with_deadline} jobs had a deadline{late}.",
        f"Moves: {reasons}; {told.moved} of {told.jobs} jobs moved, with {told.gigabytes:,.0f} GB of checkpoints; "
        f"{told.declined} offers were declined.",
        *waited,
        "Finished: in that cluster, of whatever home. Total: every instance from its launch to its end, and the bytes "
        "that left a cluster.",
    ]


def _words(told: FederatedFigures) -> list[tuple[str, int]]:
    words = {"no-capacity": "want of capacity", "late": "a deadline", "cheaper": "money"}
    return [(words.get(name, name), count) for name, count in told.moves.items()]
