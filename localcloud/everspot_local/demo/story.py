"""The demonstration's events: four jobs, a drought that one of them waits out, two interruptions with notice, one
without, and a sweep."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from everspot_local.demo.trials import FINAL, Trials
from everspot_local.demo.world import DemoError, DemoWorld

SPECS = Path(__file__).parent / "jobs"
PATIENT = "patient"
"""The job that waits: it fits the types whose Spot pools are dry, and no others."""
LOOK_SECONDS = 2.0
"""Real time between two looks at the jobs: each is a command of its own, and the jobs have the same cores."""


@dataclass
class Stroke:
    """One event of the market: which job it is for, at which share of its steps, and the action."""

    job: str
    at: float
    name: str
    deal: Callable[["Story", dict[str, Any]], str]
    done: bool = False


@dataclass
class Story:
    """The jobs by their names, their events, and the sweep beside them. `on_demand_at`: until when the patient job was
    last said to wait."""

    world: DemoWorld
    trials: Trials
    ids: dict[str, str] = field(default_factory=dict)
    strokes: list[Stroke] = field(default_factory=list)
    on_demand_at: datetime | None = None

    def submit(self) -> None:
        """Remove the capacity of the large types, and submit the four jobs."""
        for pool in self.world.site.dry:
            self.world.local("drought", pool, "--for", "1d")
        for spec in sorted(SPECS.glob("*.yaml")):
            more = self.world.site.patient if spec.stem == PATIENT else ()
            answer = self.world.everspot_json("submit", str(spec), *more)
            self.ids[spec.stem] = answer["job_id"]
            self.world.print_line(f"submitted {answer['job_id']}")

    def plan_strokes(self) -> None:
        """Plan two interruptions with notice, the second because its pool loses its capacity; a sweep; and a kill
        without notice."""
        self.strokes = [
            Stroke("normal-a", 0.25, "interruption with notice", interrupt),
            Stroke("normal-b", 0.35, "its pool dries up", dry_up),
            Stroke("normal-b", 0.50, "a sweep", sweep),
            Stroke("normal-a", 0.60, "hard kill without notice", kill),
        ]

    def run(self, limit: timedelta, tick: Callable[[str], None]) -> list[dict[str, Any]]:
        """Cause the events and wait until every job and the sweep have ended.

        Raises:
            DemoError: if they have not within `limit` of real time.
        """
        until = time.monotonic() + limit.total_seconds()
        while time.monotonic() < until:
            jobs = self.world.everspot_json("jobs")
            own_jobs = [job for job in jobs if job["job_id"] in self.ids.values()]
            tick("  ".join([*(_progress(job) for job in own_jobs), self.trials.describe_progress(jobs)]))
            self._listen(own_jobs)
            self.trials.look(jobs)
            ended = len(own_jobs) == len(self.ids) and all(job["state"] in FINAL for job in own_jobs)
            if self.trials.over() and ended:
                return own_jobs
            self._deal({job["job_id"]: job for job in own_jobs})
            time.sleep(LOOK_SECONDS)
        raise DemoError(f"the jobs had not ended after {limit}: {[(j['job_id'], j['state']) for j in own_jobs]}")

    def _listen(self, jobs: list[dict[str, Any]]) -> None:
        """Record until when the patient job will wait, and print it the first time."""
        timestamp = next((job["on_demand_at"] for job in jobs if job["job_id"] == self.ids[PATIENT]), None)
        if timestamp is None:
            return
        at = datetime.fromisoformat(timestamp)
        if self.on_demand_at is None:
            self.world.print_line(f"{self.ids['patient']} waits for Spot until {at:%H:%M:%S} at the latest")
        self.on_demand_at = at

    def _deal(self, jobs: dict[str, dict[str, Any]]) -> None:
        for stroke in self.strokes:
            job = jobs.get(self.ids[stroke.job])
            if stroke.done or not job or job["state"] != "RUNNING" or not job.get("owner"):
                continue
            step, total = job["step"] or 0, job["total_steps"] or 0
            if total and step / total >= stroke.at:
                stroke.done = True
                self.world.print_line(
                    f"{stroke.name}: {job['job_id']} at step {step} of {total}; {stroke.deal(self, job)}"
                )


def _progress(job: dict[str, Any]) -> str:
    step, total = job.get("step") or 0, job.get("total_steps") or 0
    return f"{job['name']}: {job['state'].lower()} {100 * step // total if total else 0} %"


def sweep(story: Story, job: dict[str, Any]) -> str:
    """Start a sweep beside everything else."""
    story.trials.begin()
    return "eight small trials begin beside it"


def interrupt(story: Story, job: dict[str, Any]) -> str:
    """Take the job's instance back with its notice."""
    story.world.local("interrupt", story.world.find_machine(job["owner"]))
    return f"{job['owner']} gets its two minutes"


def kill(story: Story, job: dict[str, Any]) -> str:
    """End the job's instance immediately, as when its host fails."""
    story.world.local("interrupt", story.world.find_machine(job["owner"]), "--no-notice")
    return f"{job['owner']} dies at once"


def dry_up(story: Story, job: dict[str, Any]) -> str:
    """Remove all capacity from the pool of the job's instance."""
    owner = next(i for i in story.world.everspot_json("instances") if i["instance_id"] == job["owner"])
    pool = f"{owner['instance_type']}/{owner['zone']}"
    story.world.local("drought", pool)
    return f"{pool} has no capacity left"
