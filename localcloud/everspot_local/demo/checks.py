"""What the demonstration promises, each with the figure that was found."""

from dataclasses import dataclass
from typing import Any


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
        Check("all three jobs succeeded", len(jobs) == 3 and states == ["SUCCEEDED"], ", ".join(states)),
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
        Check("a bill", report["cost_usd"] > 0 and report["on_demand_cost_usd"] > 0, f"${report['cost_usd']:.4f}"),
    ]
