"""Copies that take hours: what else happens at home meanwhile. Home calls its peer from threads, as a real one does."""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import Request
from everspot_core.jobs.visit_records import TripEnd
from everspot_scheduler.federation.manager import PeerAccess
from everspot_scheduler.loop import Scheduler
from everspot_store import ManualClock
from everspot_store.testing import MemoryBackend
from federation_helpers import Pair

LARGE = [f"large{n}" for n in range(5)]
"""One job more than copies run at once."""


class Federated:
    """Home and its host.

    Attributes:
        arrive: Files of datasets arrive at no store before this is set.
        copying: A file waits to arrive.
        reads: How often each document was read.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.arrive, self.copying, self.reads = Event(), Event(), Counter[str]()
        pair = self.pair = Pair(None, ManualClock(), length=10**6)
        self.home, self.host = pair.home, pair.host
        access = PeerAccess(opener=self.home.open, chooser=self.home.choose)
        self.home.schedulers = [
            Scheduler(self.home.store, self.home.manifest, self.home.cloud, "s1", peer_access=access)
        ]
        (folder / "file").write_bytes(b"large")
        self.dataset = self.home.store.datasets.put("d", folder, region="us-east-1").id
        upload, get = MemoryBackend.upload, MemoryBackend.get

        def wait_and_upload(backend: MemoryBackend, key: str, *arguments: Any) -> Any:
            if key.startswith("datasets/_files/"):
                self.copying.set()
                assert self.arrive.wait(60)
            return upload(backend, key, *arguments)

        def count_and_get(backend: MemoryBackend, key: str) -> Any:
            self.reads[key] += 1
            return get(backend, key)

        monkeypatch.setattr(MemoryBackend, "upload", wait_and_upload)
        monkeypatch.setattr(MemoryBackend, "get", count_and_get)

    def send(self, name: str, *datasets: str) -> None:
        """Submit a job at home that is wanted at the host."""
        spec = JobSpec.model_validate({"name": name, "recipe": "image_classification", "clouds": ["aws"]})
        now = self.pair.clock.now()
        self.home.store.submit(JobSubmission(job_id=name, spec=spec, submitted_at=now, datasets=list(datasets)))
        self.home.wishes[name] = "host"

    def cancel(self, name: str) -> None:
        """Cancel a job at home."""
        self.home.store.cancels.create(name, Request(at=self.pair.clock.now()))

    def run_until(self, done: Callable[[], bool]) -> None:
        """Go on until then. The threads get as much real time as they need."""
        for _ in range(2_000):
            if done():
                return
            self.pair.run(1)
            time.sleep(0.01)
        raise AssertionError("it does not happen ")


@pytest.fixture
def federated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Federated:
    return Federated(tmp_path, monkeypatch)


def test_copies_to_a_peer_delay_no_cancel_no_end_and_no_news(federated: Federated) -> None:
    home, host = federated.home, federated.host
    host.agent("i-1")
    federated.send("runs")
    federated.run_until(lambda: host.state(home.visit("runs")) == "RUNNING")
    try:
        for name in LARGE:
            federated.send(name, federated.dataset)
        federated.run_until(lambda: all(home.state(name) == "AWAY" for name in LARGE))
        began = federated.pair.clock.now()
        for name in ("runs", LARGE[-1]):
            federated.cancel(name)
        federated.run_until(lambda: all(home.state(name) == "CANCELLED" for name in ("runs", LARGE[-1])))
        (sight,) = home.schedulers[0].services.federation.sights()
        federated.run_until(lambda: home.schedulers[0].services.federation.sights()[0].seen_at > began)
        assert host.state(home.visit("runs")) == "CANCELLED" and sight.alive
        assert all(host.store.visits.get(home.visit(name)) is None for name in LARGE)
    finally:
        federated.arrive.set()
    federated.run_until(lambda: all(host.store.visits.get(home.visit(name)) for name in LARGE[:-1]))


def test_the_copy_of_a_cancelled_job_is_cut_off_and_paid_and_never_offered(federated: Federated) -> None:
    home, host, cancel = federated.home, federated.host, federated.home.store.cancels.key("large")
    federated.send("large", federated.dataset)
    try:
        federated.run_until(federated.copying.is_set)
        federated.cancel("large")
        federated.reads.clear()
        federated.run_until(lambda: federated.reads[cancel] > 3)  # then a step after it has ended
    finally:
        federated.arrive.set()
    federated.run_until(lambda: home.state("large") == "CANCELLED")
    (trip,) = home.store.records.get("large").value.trips
    assert (trip.end, trip.why, trip.sent_bytes) == (TripEnd.WITHDRAWN, "it was cancelled", len(b"large"))
    assert host.store.visits.get(home.visit("large")) is None
