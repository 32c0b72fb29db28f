"""A day of market time without capacity in one of three clusters: the share of deadlines that they keep by moving jobs.

200 jobs of three days each, with deadlines after 1.3 to 4 times their length, run in three clusters. For a day one
cluster has no spot or on-demand capacity. The same workload without moves is the baseline.

`federation.generated_met_share`: over workloads with the repository's own generators. `federation.traces_met_share`:
with recorded traces of several regions as the spot pools, if EVERSPOT_TRACES names the folder that holds them.
`federation.undated_wait_hours`: with a drought of spot alone, and no deadline for half of the jobs: the 95th percentile
of the hours that the jobs without deadline wait, over generated traces. `federation.…_usd_ratio`: the dollars for
instances and egress, divided by those without moves.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from everspot_core.capacity.catalogue import builtin
from everspot_simulator.federated import parse_federated
from everspot_simulator.federated_drive import simulate_federated
from everspot_simulator.federated_figures import FederatedFigures, federated_figures
from everspot_simulator.federated_generator import dried, generate_federated
from everspot_simulator.trace import Trace
from everspot_simulator.trace import parse as parse_trace
from everspot_simulator.workload import load_traces

JOBS, CLUSTERS, DRY, BEGIN, HOURS = 200, 3, "east", 24.0, 24.0
SEEDS = (1, 2, 3)
MET, NO_DEARER = 0.99, 1.0
UNDATED, WAITED = 0.5, 2.0
FOLDER = "EVERSPOT_TRACES"
RECORDED = {
    "east-a": "availability/1-node/aws-02-15-2023/us-east-1a_v100_1.json",
    "east-b": "availability/1-node/aws-02-15-2023/us-east-1c_v100_1.json",
    "west-a": "availability/1-node/aws-02-15-2023/us-west-2a_v100_1.json",
    "west-b": "availability/1-node/aws-10-26-2022/us-west-2a_v100_1.json",
    "north-a": "availability/1-node/aws-02-15-2023/us-east-2a_v100_1.json",
    "north-b": "preemption/1-node/gcp-04-30-2023/us-east1-b_c3-88.json",
}
"""The trace of each spot pool; an instance in it counts for as many as the generated pools have."""


def recorded(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same workload, with recorded traces as spot pools."""
    traces = {name: {"file": RECORDED[name], "times": trace["instances"]} for name, trace in values["traces"].items()}
    return {**values, "traces": traces}


def load(name: str) -> Trace:
    return parse_trace(Path(os.environ[FOLDER], name).read_text(encoding="utf-8"), name)


def simulate_both(values: Mapping[str, Any], *, on_demand: bool = True) -> tuple[FederatedFigures, FederatedFigures]:
    """With moves, and without. `on_demand`: whether it has run dry as well."""
    read = parse_federated(dried(values, DRY, BEGIN, HOURS, on_demand=on_demand), "bench", builtin())
    traces = load_traces(read, load)
    moving, staying = (federated_figures(simulate_federated(read, traces, moving=moves)) for moves in (True, False))
    return moving, staying


def compare(kind: str, workloads: list[dict[str, Any]]) -> bool:
    """Print the figures of these workloads; whether they are within their limits."""
    began = time.monotonic()
    runs = [simulate_both(values) for values in workloads]
    met, home = (_met([run[n] for run in runs]) for n in (0, 1))
    usd, usd_home = (sum(run[n].total_usd for run in runs) for n in (0, 1))
    egress = sum(moving.egress_usd for moving, _ in runs)
    moves = {reason: sum(r[0].moves.get(reason, 0) for r in runs) for reason in ("no-capacity", "late", "cheaper")}
    move_counts = ", ".join(f"{count} {reason}" for reason, count in moves.items())
    note = (
        f"{len(runs)} x {JOBS} jobs; without moves {home:.4f}. Moves: {move_counts}; "
        f"{sum(r[0].declined for r in runs)} offers declined; {time.monotonic() - began:.0f} s"
    )
    line(f"{kind}_met_share", met, {"at_least": MET}, "fraction of the feasible deadlines", note)
    note = f"${usd:,.2f}, ${egress:,.2f} of it egress, instead of ${usd_home:,.2f}"
    line(f"{kind}_usd_ratio", usd / usd_home, {"limit": NO_DEARER}, "of the dollars without moves", note)
    return met >= MET and usd / usd_home <= NO_DEARER


def tell_waits() -> bool:
    """Print how long jobs without a deadline wait; whether that is within its limit."""
    runs = [simulate_both(generate_federated(JOBS, seed, CLUSTERS, UNDATED), on_demand=False) for seed in SEEDS]
    hours, home = (max(run[n].undated_waits.p95 for run in runs) for n in (0, 1))
    usd, usd_home = (sum(run[n].total_usd for run in runs) for n in (0, 1))
    note = f"the most of {len(runs)} workloads; without moves {home:.2f}; ${usd:,.2f} instead of ${usd_home:,.2f}"
    line("undated_wait_hours", hours, {"limit": WAITED}, "hours", note)
    return hours <= WAITED


def _met(each: list[FederatedFigures]) -> float:
    return 1 - sum(f.misses for f in each) / sum(f.with_deadline for f in each)


def line(name: str, value: float, limit: dict[str, float], unit: str, note: str) -> None:
    figure = {"name": f"federation.{name}", "value": round(value, 4), **limit, "unit": unit, "note": note}
    print(json.dumps(figure), flush=True)


def main() -> int:
    """Print all figures; 1 if one is beyond its limit."""
    workloads = [generate_federated(JOBS, seed, CLUSTERS) for seed in SEEDS]
    within = [compare("generated", workloads), tell_waits()]
    if os.environ.get(FOLDER):
        within.append(compare("traces", [recorded(values) for values in workloads]))
    else:
        print(f"federation: {FOLDER} is not set: recorded traces are left out", file=sys.stderr)
    return int(not all(within))


if __name__ == "__main__":
    sys.exit(main())
