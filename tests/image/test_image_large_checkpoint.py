"""A machine is terminated while its job's writer uploads a checkpoint, in the booted image."""

import re
import time
from collections import Counter
from pathlib import Path

import pytest
from e2e_helpers import BUCKETS
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_local.options import DOORS
from image_cluster import ImageCluster, check_resumption
from image_machine import BOOT

pytestmark = [pytest.mark.timeout(1800), pytest.mark.nightly]  # a minute, and 2 GB of the tests' folder
CODE = Path(__file__).with_name("programs")
PROGRAM = CODE / "large_state.py"
MIB = 512
"""Of the buffer: eight segments, of which the writer uploads some at a time."""
SEGMENT_BYTES = 64 << 20
JOB = "large"


def list_steps(live: ImageCluster) -> set[int]:
    """Return the steps of the complete checkpoints."""
    head = live.store.checkpoints(JOB).head()
    return {checkpoint.step for checkpoint in head.checkpoints} if head is not None else set()


def find_write(live: ImageCluster) -> int | None:
    """Return the step of an incomplete checkpoint in the bucket after a complete one, or None."""
    complete = list_steps(live)
    listed = live.client("s3").list_objects_v2(Bucket=BUCKETS[1], Prefix=f"jobs/{JOB}/checkpoints/")
    segments = Counter(
        int(Path(each["Key"]).parent.name) for each in listed.get("Contents", []) if each["Size"] == SEGMENT_BYTES
    )
    if not complete:
        return None
    return next((step for step, number in segments.items() if step > max(complete) and number <= MIB // 128), None)


def await_write(live: ImageCluster) -> int:
    """Wait for the moment at which the writer is writing; return the step."""
    end = time.monotonic() + 600
    while (step := find_write(live)) is None:
        assert time.monotonic() < end, live.consoles()
    return step


def read_losses(text: str) -> list[tuple[int, str]]:
    return [(int(step), loss) for step, loss in re.findall(r"^step (\d+) loss (\S+)$", text, re.MULTILINE)]


def test_terminating_a_machine_during_a_write_loses_no_step(tmp_path: Path, image: Path) -> None:
    with ImageCluster(tmp_path / "cluster", boot=(*BOOT, "--image", str(image), *DOORS["aws"])) as live:
        words = {"name": JOB, "entrypoint": [PROGRAM.name], "code": str(CODE), "checkpoint": {"steps": 10}}
        env = {"MIB": str(MIB), "STEPS": "1000000", "PAUSE_SECONDS": "0.2"}
        spec = JobSpec.model_validate(words | {"env": env})
        live.store.submit(JobSubmission(job_id=JOB, spec=spec, submitted_at=live.clock.now()), CODE)
        first = live.await_owner(JOB)

        writing = await_write(live)
        live.client("ec2").terminate_instances(InstanceIds=[first])
        assert writing not in list_steps(live), "the write had ended before the request"
        second = check_resumption(live, JOB, first, writing)
        assert live.await_end(first)["StateReason"]["Code"] == "Client.UserInitiatedShutdown"

        resumed = live.step(JOB)
        live.until(lambda: live.step(JOB) >= resumed + 5 or None)
        log = b"".join(chunk.data for chunk in live.store.read_logs(JOB)).decode()
        losses = read_losses(log)
        steps = [step for step, _ in losses]
        assert steps == list(range(1, len(steps) + 1)), "a step was done again, or is missing"
        assert max(steps) > writing
        reference = f'cd $(mktemp -d) && MIB=1 STEPS={len(steps)} PAUSE_SECONDS=0 /opt/everspot/bin/python -c "$1"'
        undisturbed = live.machine(second).run("sh", "-c", reference, "sh", PROGRAM.read_text())
        assert losses == read_losses(undisturbed)
