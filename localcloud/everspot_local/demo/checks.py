"""What the demonstration promises, each with the figure that was found."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

WAITED = timedelta(minutes=10)
"""The patient job has waited for Spot if its first instance was launched so long after its submission: market time."""


@dataclass(frozen=True)
class Check:
    """One promise: what, whether it holds, and the figure."""

    name: str
    holds: bool
    figure: str


def promises(report: dict[str, Any], checkpoint_steps: int) -> list[Check]:
    """The promises that the report itself can answer."""
    jobs, strokes = report["jobs"], report["interruptions"]
    states = sorted({job["state"] for job in jobs})
    hard = [s for s in strokes if s["kind"] == "lost"]
    noticed = [s for s in strokes if s["kind"] != "lost"]
    redone = report["steps_redone_total"] - report["steps_redone_after_notice"]
    waits = report["notice_to_durable_seconds"]
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
        Check(
            "test accuracy of at least 88 %",
            (report["accuracy"] or 0) >= 0.88,
            f"{100 * (report['accuracy'] or 0):.2f} %",
        ),
        _spot_at_once(report),
        _waited_in_time(report),
        Check("a bill", report["cost_usd"] > 0 and report["on_demand_cost_usd"] > 0, f"${report['cost_usd']:.4f}"),
    ]


def _spot_at_once(report: dict[str, Any]) -> Check:
    first = _first_instance(report, "normal-a")
    return Check("a job without a deadline goes to spot", first["market"] == "spot", first["instance_type"])


def _waited_in_time(report: dict[str, Any]) -> Check:
    """In a drought a job waits for Spot as long as its slack is worth it, gets on-demand then, and is in time."""
    job, first = _job(report, "patient"), _first_instance(report, "patient")
    waited = datetime.fromisoformat(first["launched_at"]) - datetime.fromisoformat(job["submitted_at"])
    left = datetime.fromisoformat(job["deadline_at"]) - datetime.fromisoformat(job["ended_at"])
    holds = first["market"] == "on-demand" and waited >= WAITED and job["deadline_met"]
    minute = timedelta(minutes=1)
    figure = f"{first['market']} after {waited / minute:.0f} min, done {left / minute:.0f} min before the deadline"
    return Check("a drought is waited out while that is safe and pays", bool(holds), figure)


def _job(report: dict[str, Any], name: str) -> dict[str, Any]:
    return next(job for job in report["jobs"] if job["name"] == name)


def _first_instance(report: dict[str, Any], name: str) -> dict[str, Any]:
    """The instance that a job had first."""
    job = _job(report, name)["job_id"]
    return min((i for i in report["instances"] if job in i["jobs"]), key=lambda i: i["launched_at"])
