"""A job with `image` on instances that boot the image: each of its attempts runs in a container, as the job's user."""

import json
from pathlib import Path

import pytest
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import EventKind, JobState, Reason
from everspot_local.options import DOORS
from image_cluster import ImageCluster, find_events
from image_machine import BOOT
from oci_layout import write_python_image

pytestmark = [pytest.mark.timeout(1800), pytest.mark.nightly]
CODE = Path(__file__).parents[1] / "agent" / "programs" / "container"


def test_a_job_in_a_container_is_interrupted_and_goes_on_elsewhere(tmp_path: Path, image: Path) -> None:
    write_python_image(tmp_path / "layout")
    with ImageCluster(tmp_path / "cluster", boot=(*BOOT, "--image", str(image), *DOORS["aws"])) as live:
        dataset = live.store.datasets.put("my-image", tmp_path / "layout")
        spec = JobSpec(name="contained", entrypoint=["main.py"], code=str(CODE), image="my-image", env={"OWN": "x"})
        now = live.clock.now()
        live.store.submit(JobSubmission(job_id="job-1", spec=spec, submitted_at=now, datasets=[dataset.id]), CODE)
        first = live.until(lambda: live.trains("job-1", steps=20))
        machine = live.machine(first)
        find = "for p in /proc/[0-9]*; do grep -qa main.py $p/cmdline && stat --format=%U $p; done; true"
        assert set(machine.run("sh", "-c", find).split()) - {"root"} == {"everspot-job-0"}
        live.cloud.do("interrupt", instance=first)
        (interrupted,) = live.until(lambda: find_events(live, "job-1", EventKind.INTERRUPTED, first))
        assert interrupted.data["reason"] == Reason.NOTICE.value
        assert live.until(lambda: live.ended("job-1")) is JobState.SUCCEEDED
        outputs = live.store.outputs("job-1")
        (steps,) = outputs.list()
        outputs.fetch(steps, tmp_path / "fetched")
        assert (tmp_path / "fetched" / "steps").read_text() == "20 40"
        log = b"".join(chunk.data for chunk in live.store.read_logs("job-1")).decode()
        sights = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
        assert len(sights) == 2 and sights[0] == sights[1]
        assert sights[0]["marker"] == "of the image" and sights[0]["uid"] > 0 and sights[0]["capabilities"] == 0
        assert not sights[0]["root_writable"] and not sights[0]["of_machine"]
