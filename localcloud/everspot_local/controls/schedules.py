"""Reads schedules of pools from files, so that the market gives what the simulator assumes.

A workload is the file of `everspot simulate --workload`: of it, its fleet's pools with their prices and the traces that
they name, `always` being as many as are asked for. Its jobs are for others to submit. Traces are those of the same
command's `--trace`, in an object by pool.
"""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from everspot_core.capacity.catalogue import Catalogue
from everspot_core.jobs.records import Market
from everspot_core.validation.problems import BadInputs
from everspot_core.validation.yaml_text import BadYaml
from everspot_core.validation.yaml_text import load as read_yaml
from everspot_simulator.trace import parse as parse_trace
from everspot_simulator.workload import ALWAYS, load_traces
from everspot_simulator.workload_file import parse as parse_workload

from everspot_local.controls.replay import PoolSchedule
from everspot_local.controls.script import BadScript
from everspot_local.market.pools import UNBOUNDED

MOST_VALUES = 5_000_000
"""Of a workload's file, as `everspot simulate` takes them."""


def load(path: Path, catalogue: Catalogue) -> dict[str, Any]:
    """Return the fields of the action `replay` from a workload's file, or from traces by pool.

    Raises:
        BadScript: naming the file and everything that is wrong in it.
    """
    try:
        values = read_yaml(path.read_text(encoding="utf-8"), nodes=MOST_VALUES)
    except BadYaml as error:
        raise BadScript(f"{path} {error}") from None
    except OSError as error:
        raise BadScript(f"{path}: {error}") from None
    try:
        if isinstance(values, dict) and "fleet" in values:
            return _of_workload(values, path, catalogue)
        return {"pools": [_of_trace(pool, trace).document() for pool, trace in dict(values).items()]}
    except BadInputs as error:
        raise BadScript(f"{path}: {'; '.join(str(problem) for problem in error.problems)}") from None
    except (OSError, TypeError, ValueError) as error:
        raise BadScript(f"{path} is neither a workload nor traces by pool: {error}") from None


def _of_workload(values: dict[str, Any], path: Path, catalogue: Catalogue) -> dict[str, Any]:
    workload = parse_workload(values, str(path), catalogue)
    traces = load_traces(workload, lambda name: parse_trace((path.parent / name).read_text(encoding="utf-8"), name))
    schedules = []
    own = sorted({k.instance_type for k, o in workload.fleet.offers().items() if o.launch_hours is not None})
    if own:
        raise BadScript(f"{path}: launch_hours of a pool ({', '.join(own)}): machines here all boot as long")
    for key, offer in workload.fleet.offers().items():
        trace = None if offer.availability == ALWAYS else traces[offer.availability]
        schedules.append(
            PoolSchedule(
                pool=f"{key.instance_type}/{key.zone}",
                market=key.market,
                gap=timedelta(minutes=5) if trace is None else trace.gap,
                data=(UNBOUNDED,) if trace is None else tuple(trace.available.tolist()),
                prices=(offer.usd_per_hour,),
                notice=workload.fleet.notice,
            )
        )
    declared = [kind.model_dump(mode="json") for kind in workload.fleet.types if kind.name not in catalogue.types]
    delays = {"boot": workload.fleet.launch_hours * 3600, "notice": workload.fleet.notice_seconds}  # seconds
    return {"pools": [c.document() for c in schedules], "types": declared, "alone": True, "delays": delays}


def _of_trace(pool: str, document: Any) -> PoolSchedule:
    trace = parse_trace(document if isinstance(document, dict) else json.dumps(document), pool)
    prices = () if trace.prices is None else tuple(trace.prices.tolist())
    return PoolSchedule(pool, Market.SPOT, trace.gap, tuple(trace.available.tolist()), prices)
