"""A job in an image of its own streams its dataset through a small cache. After a notice it goes on at the very
sample."""

import json
import os
import sys
import sysconfig
from pathlib import Path

import pytest
from e2e_helpers import LiveCluster
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import EventKind, JobState, Reason
from oci_layout import write_trainer_image
from test_agent_streaming import SAMPLES, SHARDS, expected_keys, write_shards

# Whole starts of instances and of torch, where others show containers and streams by themselves.
pytestmark = [pytest.mark.torch, pytest.mark.nightly, pytest.mark.timeout(1800)]
PROGRAM = Path(__file__).parents[1] / "agent" / "programs" / "streaming_image"
SLOW_STEPS, STEPS = 40, 150


PACKAGES = Path(sysconfig.get_path("purelib"))


BOOT = """
set -e
mkdir -p cache/packages
mount --bind -o ro "$0" cache/packages
exec "$@"
"""
"""Shows the installed packages, read-only, in the cache of an instance. The mount ends with the instance, as its mount
namespace does."""


def read_log(live: LiveCluster) -> str:
    return b"".join(chunk.data for chunk in live.store.read_logs("job-1")).decode()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount the packages into instances")
def test_a_job_in_an_image_streams_and_goes_on_at_the_very_sample(tmp_path: Path) -> None:
    write_trainer_image(tmp_path / "layout", PACKAGES)
    agent = (sys.executable, "-m", "everspot_train.agent.main")
    boot = ("unshare", "--mount", "--propagation", "private", "sh", "-c", BOOT, str(PACKAGES), *agent)
    with LiveCluster(tmp_path / "e2e", boot=boot) as live:
        image = live.store.datasets.put("trainer", tmp_path / "layout")
        web = live.store.datasets.put("web", write_shards(tmp_path / "shards"))
        shard = next(file.size for file in web.files if file.path.endswith(".tar"))
        fields = {
            "name": "web", "entrypoint": ["fit.py"], "code": str(PROGRAM), "image": "trainer", "datasets": ["web"],
            "stream": ["web"], "env": {"CACHE_GB": str(3.5 * shard / 1e9)},
        }  # fmt: skip
        spec = JobSpec.model_validate(fields)
        datasets = [web.id, image.id]
        job = JobSubmission(job_id="job-1", spec=spec, submitted_at=live.clock.now(), datasets=datasets)
        live.store.submit(job, PROGRAM)
        first = live.until(lambda: live.trains("job-1", steps=4) or live.ended("job-1"))
        assert isinstance(first, str) and first.startswith("i-"), read_log(live)
        live.cloud.do("interrupt", instance=first)
        (interrupted,) = live.until(lambda: live.list_events("job-1", EventKind.INTERRUPTED))
        assert interrupted.data["reason"] == Reason.NOTICE.value
        assert live.until(lambda: live.ended("job-1")) is JobState.SUCCEEDED, read_log(live)
        log = read_log(live)
        (finished,) = live.list_events("job-1", EventKind.FINISHED)
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    starts = [line for line in lines if "torch" in line]
    assert len(starts) == 2
    assert all("packages" in start["root"] and not {"home", "mnt"} & set(start["root"]) for start in starts)
    steps = [(line["step"], line["keys"]) for line in lines if "step" in line]
    assert [step for step, _ in steps] == list(range(1, STEPS + 1)), "each step once: the notice lost none"
    expected = expected_keys(web, 0, 1)
    assert all(keys == expected[step] for step, keys in steps)
    assert interrupted.data["step"] < SLOW_STEPS
    traffic = finished.data["shard_traffic"]
    assert traffic["fetched_bytes"] > web.size > SHARDS * SAMPLES and traffic["cached_bytes"] > 0
