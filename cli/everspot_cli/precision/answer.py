"""A comparison as JSON and as one table."""

from typing import Any

from everspot_core.experiments.arm_results import Interval
from everspot_core.experiments.precision_comparison import ComparisonSpec
from everspot_core.jobs.records import JobState
from everspot_core.jobs.smaller_types import SmallerType
from rich.table import Table
from rich.text import Text

from everspot_cli.precision.runner import Arm, ComparisonStanding
from everspot_cli.precision.trial import TypeTrial
from everspot_cli.tables import duration, empty_table

TYPES_SHOWN = 3
"""The most smaller types of an arm in the table; `--json` has all."""
VERDICT_STYLE = {"equivalent": "green", "better": "bold green", "worse": "bold red", "undecided": "yellow"}


def build_answer(spec: ComparisonSpec, standing: ComparisonStanding, trial: TypeTrial | None) -> dict[str, Any]:
    """Return the comparison as `--json` answers it."""
    winner = standing.winner
    return {
        "comparison": spec.name,
        "metric": spec.metric,
        "direction": spec.direction.value,
        "tolerance": str(spec.tolerance),
        "seeds": spec.seeds,
        "over": standing.over,
        "passed": standing.passed and (trial is None or trial.passed),
        "winner": winner.precision.value if winner is not None else None,
        "cost_usd": round(sum(run.spent.dollars for run in standing.runs), 6),
        "arms": [_arm_fields(arm) for arm in standing.arms],
        "try": _trial_fields(trial) if trial is not None else None,
    }


def build_table(spec: ComparisonSpec, standing: ComparisonStanding) -> Table:
    """Return the table: a row for each arm. Cells of several words are wrapped, so that 80 columns show all figures."""
    several_words = (spec.metric.upper(), "DIFFERENCE", "VERDICT")
    table = empty_table(
        ["ARM", *several_words, "PEAK GIB", "EPOCH", "$/EPOCH", "SKIPPED"], text_columns=1, fold=several_words
    )
    for arm in standing.arms:
        result = arm.result
        verdict = describe_verdict(arm)
        style = VERDICT_STYLE.get(result.verdict.value, "") if result.verdict is not None else "dim"
        peak = arm.footprint.peak_gib
        table.add_row(
            arm.precision.value,
            _interval_text(result.metric, "{:.5g}"),
            _interval_text(result.difference, "{:+.3g}"),
            Text(verdict, style=style),
            f"{peak:.2f}" if peak is not None else "—",
            duration(arm.epoch_seconds) if arm.epoch_seconds is not None else "—",
            f"{arm.epoch_usd:.4f}" if arm.epoch_usd is not None else "—",
            str(arm.skipped_steps) if arm.skipped_steps is not None else "—",
        )
    return table


def describe_smaller_types(arm: Arm) -> list[str]:
    """Return the cheaper types that also hold an arm, a line for each."""
    return [f"{arm.precision.value} also held by {_describe_type(kind)}" for kind in arm.smaller[:TYPES_SHOWN]]


def describe_verdict(arm: Arm) -> str:
    """Return the verdict on an arm in a few words."""
    result = arm.result
    verdict = result.verdict.value if result.verdict is not None else "the baseline"
    if arm.diverged:
        return f"{verdict}, {len(arm.diverged)} of {len(arm.runs)} runs diverged"
    if result.verdict is None:
        return verdict
    if arm.failed:
        return f"{verdict}, {len(arm.failed)} of {len(arm.runs)} runs failed"
    if result.seeds_needed is not None:
        return f"{verdict}, about {result.seeds_needed} seeds decide"
    return verdict


def describe_progress(standing: ComparisonStanding) -> str:
    """Return the state of the runs in one line."""
    runs = standing.runs
    ended = [run for run in runs if run.state.final]
    succeeded = sum(run.state is JobState.SUCCEEDED and not run.diverged for run in ended)
    running = sum(run.state in (JobState.RUNNING, JobState.ASSIGNED) for run in runs)
    return (
        f"{len(ended)} of {len(runs)} runs ended, {len(ended) - succeeded} of them without success; {running} under "
        f"way; ${sum(run.spent.dollars for run in runs):.4f}"
    )


def describe_trial(trial: TypeTrial) -> str:
    """Return what came of a trial on another type."""
    run = trial.run
    if not run.state.final:
        return f"{trial.instance_type}: {run.job_id} is {run.state.value}"
    if not trial.passed:
        return f"{trial.instance_type} does not pass: {'; '.join(trial.problems)}"
    peak = f", peak {run.footprint.peak_gib:.2f} GiB" if run.footprint.peak_gib is not None else ""
    return (
        f"{trial.instance_type} passes: {run.job_id} differs by {trial.difference:+.4g}{peak}, ${run.spent.dollars:.4f}"
    )


def _interval_text(interval: Interval | None, form: str) -> str:
    if interval is None:
        return "—"
    mean = form.format(interval.mean)
    return mean if interval.half is None else f"{mean} ± {interval.half:.2g}"


def _describe_type(kind: SmallerType) -> str:
    time = f", {duration(kind.epoch_seconds)} and ${kind.epoch_usd:.4f} an epoch" if kind.epoch_usd is not None else ""
    return f"{kind.instance_type} ${kind.usd_per_hour:g}/h{time}{' (new)' if kind.new else ''}"


def _arm_fields(arm: Arm) -> dict[str, Any]:
    result = arm.result
    return {
        "precision": arm.precision.value,
        "metric": _interval_fields(result.metric),
        "difference": _interval_fields(result.difference),
        "verdict": result.verdict.value if result.verdict is not None else None,
        "seeds_needed": result.seeds_needed,
        "failed": [run.job_id for run in arm.failed],
        "diverged": [run.job_id for run in arm.diverged],
        "peak_gpu_memory_gib": arm.footprint.gpu_gib,
        "peak_memory_gib": arm.footprint.memory_gib,
        "seconds_per_epoch": arm.epoch_seconds,
        "usd_per_epoch": arm.epoch_usd,
        "skipped_steps": arm.skipped_steps,
        "smaller_types": [
            {
                "instance_type": kind.instance_type,
                "usd_per_hour": kind.usd_per_hour,
                "new": kind.new,
                "seconds_per_epoch": kind.epoch_seconds,
                "usd_per_epoch": kind.epoch_usd,
            }
            for kind in arm.smaller
        ],
        "runs": [
            {
                "job_id": run.job_id,
                "seed_number": run.number,
                "state": run.state.value,
                "value": run.value,
                "step": run.step,
                "epochs": run.epochs,
                "interruptions": run.interruptions,
                "instance_type": run.instance_type,
                "cost_usd": round(run.spent.dollars, 6),
                "seconds": run.seconds,
            }
            for run in arm.runs
        ],
    }


def _interval_fields(interval: Interval | None) -> dict[str, Any] | None:
    if interval is None:
        return None
    return {"mean": interval.mean, "low": interval.low, "high": interval.high, "seeds": interval.count}


def _trial_fields(trial: TypeTrial) -> dict[str, Any]:
    return {
        "instance_type": trial.instance_type,
        "job_id": trial.run.job_id,
        "state": trial.run.state.value,
        "ran_on": trial.run.instance_type,
        "value": trial.run.value,
        "difference": trial.difference,
        "peak_gpu_memory_gib": trial.run.footprint.gpu_gib,
        "peak_memory_gib": trial.run.footprint.memory_gib,
        "cost_usd": round(trial.run.spent.dollars, 6),
        "passed": trial.passed,
        "problems": list(trial.problems),
    }
