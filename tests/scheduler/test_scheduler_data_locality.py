"""Between clusters with the same prices and capacity, a job goes to the one that has its data already."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from everspot_core.federation.data_locality import Inputs
from everspot_core.federation.decision import Forecast
from everspot_core.federation.forecast import MoveCost, forecast_job
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import Request
from everspot_store import Dataset, ManualClock, StoreUnavailable
from federation_helpers import memory_store
from test_scheduler_federation_choosing import ElasticMember

USD_PER_GB = 2000.0
"""The price of egress here: so high that two files of 1 MB are dollars."""
MB = 1_000_000


class Triangle:
    """A home without capacity, and two clusters with the same prices. A tie would go to `a`, by its name."""

    def __init__(self, root: Path) -> None:
        self.clock, self.root = ManualClock(), root
        self.stores = {name: memory_store(name, self.clock) for name in ("home", "a", "b")}
        self.members = {name: ElasticMember(store, self.clock) for name, store in self.stores.items()}
        for name, member in self.members.items():
            member.length = 10_000
            member.join(name, self.stores)
            peers = tuple(
                peer.model_copy(update={"egress_usd_per_gb": USD_PER_GB}) for peer in member.manifest.federation
            )
            member.declare(cluster=name, federation=peers)
            member.schedulers = [member.scheduler()]
        self.home = self.members["home"]
        self.home.dry()

    def dataset(self, name: str, files: Mapping[str, bytes]) -> Dataset:
        """Put a version of a dataset into home."""
        folder = self.root / name
        folder.mkdir(exist_ok=True)
        for file, content in files.items():
            (folder / file).write_bytes(content)
        return self.home.store.datasets.put(name, folder, region="us-east-1")

    def copy(self, dataset: Dataset, cluster: str) -> None:
        """Copy a dataset from home to another cluster, as an earlier visit did."""
        self.stores[cluster].datasets.take_over(dataset, self.home.store.datasets)

    def submit(self, dataset: Dataset, **more: object) -> JobSubmission:
        """Submit a critical job that reads the dataset, and may go anywhere."""
        values = {"name": "j", "recipe": "image_classification", "clouds": ["aws"], "priority": "critical"}
        spec = JobSpec.model_validate({**values, "datasets": [dataset.name], "expected_duration": "100h", **more})
        job = JobSubmission(job_id="j", spec=spec, submitted_at=self.clock.now(), datasets=[dataset.id])
        return self.home.store.submit(job)

    def live(self, span: timedelta, step: timedelta = timedelta(seconds=20)) -> None:
        """Advance the time in steps, with heartbeats of the agents."""
        for _ in range(int(span / step)):
            for member in self.members.values():
                for scheduler in member.schedulers:
                    scheduler.tick()
                for agent in member.agents.values():
                    agent.turn()
                member.boot()
            self.clock.advance(step)

    @property
    def away(self) -> Any:
        """Where the job is, by home's record."""
        return self.home.store.records.get("j").value.away


@pytest.fixture
def three(tmp_path: Path) -> Triangle:
    return Triangle(tmp_path)


def test_a_job_goes_where_its_data_is_and_the_reason_says_so(three: Triangle) -> None:
    images = three.dataset("images", {"one": b"1" * MB, "two": b"2" * MB})
    three.copy(images, "b")
    three.submit(images)
    three.live(timedelta(minutes=5))
    assert three.away.cluster == "b" and three.away.sent_bytes == 0
    assert three.away.why.endswith("; nothing is sent: all 2 MB of its data are there")


def test_only_the_files_that_a_cluster_lacks_count(three: Triangle) -> None:
    """`b` has an earlier version of the same dataset, with one of its two files."""
    three.copy(three.dataset("images", {"one": b"1" * MB}), "b")
    images = three.dataset("images", {"two": b"2" * MB})
    three.submit(images)
    three.live(timedelta(minutes=5))
    assert three.away.cluster == "b" and three.away.sent_bytes == MB
    assert three.away.why.endswith("; 1 MB are sent there for $2.00; 1 MB of its data are there already")


def test_the_bytes_that_nobody_has_are_in_the_reason(three: Triangle) -> None:
    three.submit(three.dataset("images", {"one": b"1" * MB}))
    three.live(timedelta(minutes=5))
    assert three.away.cluster == "a" and three.away.why.endswith("; 1 MB are sent there for $2.00")


def test_a_peer_whose_datasets_cannot_be_read_counts_as_without_data(
    three: Triangle, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    images = three.dataset("images", {"one": b"1" * MB})
    three.copy(images, "a")

    def refuse(_: Dataset) -> set[str]:
        raise StoreUnavailable("no route to it")

    monkeypatch.setattr(three.stores["a"].datasets, "present_files", refuse)
    three.copy(images, "b")
    three.submit(images)
    three.live(timedelta(minutes=5))
    assert three.away.cluster == "b"
    assert [r.message for r in caplog.records if "which data peer a has" in r.message] != []


def test_a_job_waits_a_minute_at_most_for_peers_that_do_not_say_what_they_have(
    three: Triangle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question hangs, as behind a dead network: another thread has it, which never comes back."""
    monkeypatch.setattr("everspot_scheduler.federation.data_presence.DataPresence.look", lambda *_: None)
    three.live(timedelta(minutes=1))
    three.submit(three.dataset("images", {"one": b"1" * MB}))
    three.live(timedelta(seconds=40))
    assert three.home.state("j") == "PENDING"
    three.live(timedelta(minutes=2))
    assert three.home.state("j") == "AWAY"


def test_the_way_home_carries_no_data_and_the_way_to_a_third_cluster_leads_home(
    three: Triangle, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways: dict[str, MoveCost] = {}

    def noted(*args: Any, **kwargs: Any) -> Forecast:
        if three.home.state("j") == "AWAY":
            ways[args[1].cluster] = kwargs["move_cost"]
        return forecast_job(*args, **kwargs)

    monkeypatch.setattr("everspot_scheduler.federation.choosing.forecast_job", noted)
    images = three.dataset("images", {"one": b"1" * MB, "two": b"2" * MB})
    three.copy(images, "b")
    three.submit(images)
    three.live(timedelta(minutes=10))
    assert three.away.cluster == "b"
    assert ways["home"].inputs == Inputs() and ways["home"].usd == 0
    assert ways["a"].inputs == Inputs(data_bytes=2 * MB) and ways["a"].usd == pytest.approx(4.0)
    assert ways["a"].expected > ways["home"].expected > timedelta(0), "two legs take longer than one"


def test_what_a_peer_has_is_asked_once_in_five_minutes_and_forgotten_with_the_job(
    three: Triangle, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = list[str]()
    datasets = three.stores["a"].datasets
    present_files = datasets.present_files

    def counted(dataset: Dataset) -> set[str]:
        questions.append(dataset.name)
        return present_files(dataset)

    monkeypatch.setattr(datasets, "present_files", counted)
    for name in ("a", "b"):
        three.members[name].dry()
    images = three.dataset("images", {"one": b"1" * MB})
    three.submit(images, expected_duration="1h", priority="normal")
    three.live(timedelta(minutes=12))
    assert len(questions) == 3
    three.home.store.cancels.create("j", Request(at=three.clock.now(), by="a user"))
    three.live(timedelta(minutes=12))
    assert len(questions) <= 4
