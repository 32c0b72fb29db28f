"""The demonstration's promises, each with the measured figure."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from rich.text import Text

from everspot_local.demo.site import Site
from everspot_local.demo.trials import NAME as SWEEP

TRIALS = 8
CENT = 0.01


@dataclass(frozen=True)
class Check:
    """One promise: its text, whether it is kept, and the figure."""

    name: str
    holds: bool
    figure: str

    def verdict(self) -> Text:
        """Return whether the promise is kept, in color."""
        return Text("yes", style="green") if self.holds else Text("NO", style="red")


def promises(report: dict[str, Any], checkpoint_steps: int) -> list[Check]:
    """Return the promises that the report itself can prove."""
    jobs, strokes = [job for job in report["jobs"] if job["name"] != SWEEP], report["interruptions"]
    states = sorted({job["state"] for job in jobs})
    hard = [s for s in strokes if s["kind"] == "lost"]
    noticed = [s for s in strokes if s["kind"] != "lost"]
    redone = report["steps_redone_total"] - report["steps_redone_after_notice"]
    waits = report["notice_to_durable_seconds"]
    accuracy = min((job["accuracy"] or 0 for job in jobs), default=0)
    return [
        Check("all four jobs succeeded", len(jobs) == 4 and states == ["SUCCEEDED"], ", ".join(states)),
        Check("at least two interruptions with notice", len(noticed) >= 2, str(len(noticed))),
        Check("a hard kill without notice", len(hard) >= 1, str(len(hard))),
        Check(
            "no step redone after a notice",
            report["steps_redone_after_notice"] == 0,
            str(report["steps_redone_after_notice"]),
        ),
        Check(
            "at most one checkpoint interval redone per hard kill",
            redone <= checkpoint_steps * len(hard),
            f"{redone} of {checkpoint_steps} steps",
        ),
        Check(
            "durable within the notice", bool(waits) and max(waits) < 120, f"{max(waits, default=-1):.1f} s of 120 s"
        ),
        Check("test accuracy of at least 88 %", accuracy >= 0.88, f"{100 * accuracy:.2f} %, the lowest of the four"),
        _spot_at_once(report),
        Check("a bill", report["cost_usd"] > 0 and report["on_demand_cost_usd"] > 0, f"${report['cost_usd']:.4f}"),
    ]


def waited_in_time(report: dict[str, Any], until: datetime | None, site: Site) -> Check:
    """Check that in a drought a job waits for Spot, gets on-demand at its last safe moment or sooner, and meets its
    deadline.

    Args:
        until: the last safe moment, as the job's owner was told while it waited. Sooner is right where the slack that
            is left is not worth what Spot would save.
        site: says how long is waiting, and how late is in time.
    """
    job, first = _job(report, "patient"), _first_instance(report, "patient")
    submitted, launched = datetime.fromisoformat(job["submitted_at"]), datetime.fromisoformat(first["launched_at"])
    margin = datetime.fromisoformat(job["deadline_at"]) - datetime.fromisoformat(job["ended_at"])
    in_time = until is not None and launched <= until + site.moment and job["deadline_met"]
    passed = first["market"] == "on-demand" and launched - submitted >= site.waited and in_time
    minute = timedelta(minutes=1)
    latest = f"{(until - submitted) / minute:.0f}" if until is not None else "?"
    figure = f"{first['market']} after {(launched - submitted) / minute:.0f} min, {latest} at the latest; "
    figure += f"done {margin / minute:.0f} min before the deadline"
    return Check("a drought is waited out until the last safe moment at most", bool(passed), figure)


def sweep_promises(report: dict[str, Any], shown: dict[str, Any], max_concurrent: int) -> list[Check]:
    """Return the promises of the sweep.

    Args:
        shown: what `everspot sweep --show` answers.
        max_concurrent: the most of its trials that were seen on one instance at the same moment.
    """
    trials, states = shown["trials"], [trial["state"] for trial in shown["trials"]]
    ended = states.count("COMPLETE"), states.count("PRUNED")
    names = {trial["job_id"] for trial in trials}
    homes = [i for i in report["instances"] if names & set(i["jobs"])]
    billed: dict[str, Any] = next((row for row in report["sweeps"] if row["sweep"] == SWEEP), {})
    each, useful = shown["cost_per_trial_usd"] or 0, shown["cost_per_useful_trial_usd"] or 0
    equal = all(
        abs((billed.get(figure) or 0) - (shown[figure] or 0)) < CENT / 100
        for figure in ("cost_usd", "cost_per_trial_usd", "cost_per_useful_trial_usd")
    )
    return [
        Check(
            "a sweep of eight small trials",
            len(trials) == sum(ended) == TRIALS and ended[0] > 0 and shown["over"],
            f"{ended[0]} done, {ended[1]} ended early",
        ),
        Check(
            "its trials share instances",
            max_concurrent >= 2 and len(homes) < TRIALS,
            f"{len(names)} on {len(homes)} instances, {max_concurrent} at once on one",
        ),
        Check(
            "its dollars are the report's",
            equal and each > 0 and useful > 0,
            f"${each:.4f} for each trial, ${useful:.4f} for each useful one",
        ),
    ]


def _spot_at_once(report: dict[str, Any]) -> Check:
    first = _first_instance(report, "normal-a")
    return Check("a job without a deadline goes to spot", first["market"] == "spot", first["instance_type"])


def _job(report: dict[str, Any], name: str) -> dict[str, Any]:
    return next(job for job in report["jobs"] if job["name"] == name)


def _first_instance(report: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the instance that a job had first: the one that was taken from it first, or the oldest. A later one may be
    older, because it stands or had another job before."""
    job = _job(report, name)["job_id"]
    job_instances = [i for i in report["instances"] if job in i["jobs"]]
    interruption = min(
        (s for s in report["interruptions"] if s["job_id"] == job), key=lambda s: s["epoch"], default=None
    )
    lost = [i for i in job_instances if interruption is not None and i["instance_id"] == interruption["instance_id"]]
    return min(lost or job_instances, key=lambda i: i["launched_at"])
