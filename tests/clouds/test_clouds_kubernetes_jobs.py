"""A job on Kubernetes: Everspot's own scheduler and agent, a real API server, pods as processes."""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from everspot_clouds.kubernetes.client import KubernetesClient
from everspot_clouds.kubernetes.cloud import KubernetesCloud
from everspot_clouds.null_cloud import NullCloud
from everspot_core.capacity.market import Market
from everspot_core.cluster.manifest import Elastic, FleetOffer, Limits, Manifest
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import JobState
from everspot_scheduler.loop import Scheduler
from everspot_store import Store, SystemClock
from kubernetes_place import MISSING, PROGRAM, TYPE, ZONE, Place, eventually

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=MISSING)
PLAIN = Path(__file__).parents[1] / "agent" / "programs" / "plain"
REGION = "us-east-1"
LIMITS = Limits(lease_ttl="15s", beat_every="5s", poll_every="0.5s", tick_every="1s", notice_poll="1s")  # type: ignore[arg-type]


class KubernetesCluster:
    """A cluster whose store is a folder. Its scheduler runs in this process."""

    def __init__(self, place: Place, markets: Sequence[Market] = (Market.SPOT, Market.ON_DEMAND)) -> None:
        self.place, folder = place, place.folder / "store"
        urls = {name: (folder / name).as_uri() for name in ("control", "data")}
        for name in urls:
            (folder / name).mkdir(parents=True)
        self.store = Store.open(urls["control"], urls["data"], clock=SystemClock())
        self.manifest = Manifest(
            cluster="fleet", cloud="kubernetes", region=REGION, control_url=urls["control"], data_url=urls["data"],
            limits=LIMITS, fleet=FleetOffer(types=[TYPE], zones=[ZONE], markets=list(markets)),
            elastic=Elastic(
                types=[TYPE], markets=list(markets), max_instances=2, idle_limit="10s", template="train",  # type: ignore[arg-type]
                template_version="1", places={ZONE: place.name},
            ),
        )  # fmt: skip
        self.store.write_manifest(self.manifest)
        own = self.manifest.model_copy(update={"fleet": None, "elastic": None})
        place.template(
            sys.executable, "-m", "everspot_train.agent.main", grace=60,
            env={
                "EVERSPOT_MANIFEST": own.to_json().decode(),
                "EVERSPOT_HOME": str(place.folder / "home"), "EVERSPOT_LAUNCHER": sys.executable,
                "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1",
            },
        )  # fmt: skip

    def submit(self, job: str, until: int) -> None:
        env = {"PLAIN": "count", "PLAIN_UNTIL": str(until)}
        spec = JobSpec(name="plain", entrypoint=["plain.py"], code=str(PLAIN), env=env)
        self.store.submit(JobSubmission(job_id=job, spec=spec, submitted_at=self.store.clock.now()), PLAIN)

    @contextmanager
    def scheduler(self) -> Iterator[None]:
        """Run a scheduler until the block ends."""
        cloud = KubernetesCloud(KubernetesClient.open(), self.manifest, NullCloud(), self.store.clock, reads=False)
        scheduler = Scheduler(self.store, self.manifest, cloud, "scheduler")
        closed = threading.Event()

        def run() -> None:
            while not closed.wait(0.5):
                scheduler.tick()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            closed.set()
            thread.join()
            cloud.close()

    def runner(self, job: str) -> str | None:
        """The pod on which a job trains."""
        record = self.store.records.get(job)
        running = record is not None and record.value.state is JobState.RUNNING
        return record.value.owner if running and record is not None else None

    def has_printed(self, job: str, line: str) -> bool:
        """Whether a job prints a line: read where it is written, which is sooner than it is in the store."""
        files = (self.place.folder / "home").glob(f"runs/{job}-*/output.log")
        return any(f"{line}\n" in file.read_text() for file in files)

    def printed(self, job: str) -> str:
        """What a job has printed, as far as it is in the store."""
        return b"".join(chunk.data for chunk in self.store.read_logs(job)).decode()

    def has_ended(self, job: str) -> bool:
        record = self.store.records.get(job)
        return record is not None and record.value.state is JobState.SUCCEEDED


@pytest.fixture
def cluster(place: Place) -> KubernetesCluster:
    return KubernetesCluster(place)


def test_an_evicted_job_goes_on_in_the_next_pod(cluster: KubernetesCluster) -> None:
    place = cluster.place
    place.node()
    cluster.submit("job-1", 1200)
    with cluster.scheduler():
        first = eventually(lambda: cluster.runner("job-1"))
        eventually(lambda: cluster.has_printed("job-1", "at 20"))
        place.node()
        place.evict(first)
        second = eventually(lambda: (pod := cluster.runner("job-1")) != first and pod)
        eventually(lambda: cluster.has_ended("job-1"))
        eventually(lambda: first in cluster.store.ends.scan())
        eventually(lambda: second in cluster.store.ends.scan())
    began = [int(line.split()[-1]) for line in cluster.printed("job-1").splitlines() if line.startswith("began at")]
    assert len(began) == 2 and began[0] == 0 and began[1] >= 20
    record = cluster.store.records.get("job-1")
    assert record is not None and (record.value.preemptions, record.value.errors) == (1, 0)
    ends = {name: document.value for name, document in cluster.store.ends.scan().items()}
    assert {name: end.interrupted for name, end in ends.items()} == {first: True, second: False}
    launches = {name: document.value for name, document in cluster.store.launches.scan().items()}
    assert {(launch.instance_type, launch.zone, launch.market) for launch in launches.values()} == {
        (TYPE, ZONE, Market.SPOT)
    }
