"""A cluster whose instances boot the image, and what a job on it must show after one of them has ended."""

from datetime import timedelta
from pathlib import Path
from typing import Any

from e2e_helpers import LiveCluster
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import EventKind, JobState
from everspot_local.market.delays import Delays
from image_machine import BootedMachine

SCALE = 4.0
HUNGRY = Path(__file__).parent / "programs" / "hungry.py"


class ImageCluster(LiveCluster):
    """One agent and the scheduler, each on a machine of its own. A notice is half a minute of real time."""

    scale = SCALE
    target = 1
    delays = Delays(shutdown=timedelta(seconds=90 * SCALE))

    def machine(self, instance_id: str) -> BootedMachine:
        return BootedMachine.from_instance(self.cloud, instance_id)

    def console(self, instance_id: str) -> str:
        return str(self.client("ec2").get_console_output(InstanceId=instance_id).get("Output", ""))

    def await_end(self, instance_id: str) -> dict[str, Any]:
        """Wait until EC2 has an instance terminated; return it."""

        def describe() -> dict[str, Any] | None:
            answer = self.client("ec2").describe_instances(InstanceIds=[instance_id])
            (instance,) = answer["Reservations"][0]["Instances"]
            return instance if instance["State"]["Name"] == "terminated" else None

        return self.until(describe)

    def await_owner(self, job: str, other_than: str = "") -> str:
        """Wait until a job trains, on another instance than one; return which."""
        return self.until(lambda: next((o for o in [self.trains(job)] if o not in (None, other_than)), None))

    def beats(self, instance_id: str) -> int:
        """Return how many heartbeats an instance's agent has written since it started."""
        heartbeat = self.store.instances.get(instance_id)
        assert heartbeat is not None
        return heartbeat.value.beat

    def step(self, job: str) -> int:
        record = self.store.records.get(job)
        assert record is not None
        return int(record.value.progress.step)


def check_resumption(live: ImageCluster, job: str, instance_id: str, step: int) -> str:
    """Wait until a job that was at a step has left an instance and trains elsewhere; return where.

    It was durable before the instance was off, and goes on from the very step.
    """
    interrupted = live.until(lambda: next(iter(find_events(live, job, EventKind.INTERRUPTED, instance_id)), None))
    durable = interrupted.data["durable_step"]
    assert durable is not None and durable >= step
    live.await_end(instance_id)
    owner = live.await_owner(job, other_than=instance_id)
    (training,) = live.until(lambda: find_events(live, job, EventKind.TRAINING, owner))
    assert (training.data["from_step"], training.data["restored"]) == (durable, True)
    return owner


def check_out_of_memory(live: ImageCluster) -> None:
    """Let a job take more than its part of an instance's memory: the kernel ends it at that limit, its error says so,
    and the agent goes on reporting."""
    live.store.write_manifest(live.store.manifest().model_copy(update={"shared_instances": True}))
    live.until(lambda: "cluster.json has changed" in live.consoles() or None)
    words = {"name": "hungry", "entrypoint": [HUNGRY.name], "code": str(HUNGRY.parent), "retries": {"errors": 0}}
    spec = JobSpec.model_validate(words | {"resources": {"vcpus": 1, "memory_gib": 0.5, "shared": True}})
    live.store.submit(JobSubmission(job_id="hungry", spec=spec, submitted_at=live.clock.now()), HUNGRY.parent)
    assert live.until(lambda: live.ended("hungry")) is JobState.FAILED
    (failed,) = live.list_events("hungry", EventKind.ERROR)
    message = "it took more memory than its part of the instance, 0.5 GiB: raise resources.memory_gib"
    assert failed.data["message"] == message
    before = live.beats(failed.instance_id)
    live.until(lambda: live.beats(failed.instance_id) > before or None)


def check_shutdown(live: ImageCluster, job: str, instance_id: str) -> None:
    """Terminate the instance of a job: the job writes its checkpoint first, and the instance ends by the request."""
    step = live.step(job)
    live.client("ec2").terminate_instances(InstanceIds=[instance_id])
    interrupted = live.until(lambda: next(iter(find_events(live, job, EventKind.INTERRUPTED, instance_id)), None))
    assert interrupted.data["durable_step"] >= step
    assert live.await_end(instance_id)["StateReason"]["Code"] == "Client.UserInitiatedShutdown"


def find_events(live: ImageCluster, job: str, kind: EventKind, instance_id: str) -> list[Any]:
    return [event for event in live.list_events(job, kind) if event.instance_id == instance_id]
