"""Between clusters with the same prices and capacity, a job goes to the one that has its data already."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from everspot_core.federation.data_locality import Inputs
from everspot_core.federation.decision import Forecast
from everspot_core.federation.forecast import MoveCost, forecast_job
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import Request
from everspot_scheduler.federation.data_presence import DataPresence
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
        self.stores[cluster].datasets.take_over(dataset, self.home.store.datasets, visit="visit-1")

    def submit(self, dataset: Dataset, job_id: str = "j", **more: object) -> JobSubmission:
        """Submit a critical job that reads the dataset, and may go anywhere."""
        values = {"name": job_id, "recipe": "image_classification", "clouds": ["aws"], "priority": "critical"}
        spec = JobSpec.model_validate({**values, "datasets": [dataset.name], "expected_duration": "100h", **more})
        job = JobSubmission(job_id=job_id, spec=spec, submitted_at=self.clock.now(), datasets=[dataset.id])
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
        return self.find_visit("j")

    def find_visit(self, job_id: str) -> Any:
        """Where a job is, by home's record."""
        return self.home.store.records.get(job_id).value.away


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


def test_data_that_a_visit_has_just_taken_along_counts_as_there(three: Triangle) -> None:
    """The first job is still away, so that what the peers had before it left is not five minutes old."""
    images = three.dataset("images", {"one": b"1" * MB})
    three.members["b"].dry()
    three.submit(images)
    three.live(timedelta(minutes=2))
    assert three.away.why.endswith("; 1 MB are sent there for $2.00")
    three.submit(images, "k")
    three.live(timedelta(minutes=2))
    assert three.away.cluster == "a"
    assert three.find_visit("k").why.endswith("; nothing is sent: all 1 MB of its data are there")


def test_an_answer_that_was_asked_before_files_were_copied_does_not_count(tmp_path: Path) -> None:
    three = Triangle(tmp_path)
    images = three.dataset("images", {"one": b"1" * MB})
    ids, host = (images.id,), three.stores["a"]
    presence = DataPresence(three.home.store)
    presence.want([ids])
    measure = host.datasets.measure

    def measure_and_copy(datasets: Sequence[Dataset]) -> Inputs:
        inputs = measure(datasets)
        three.copy(images, "a")
        presence.forget("a")
        return inputs

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host.datasets, "measure", measure_and_copy)
        presence.look({"a": host})
    assert presence.due(["a"]) and not presence.is_known(ids, ["a"]) and presence.at("a") == {}
    presence.look({"a": host})
    assert presence.at("a") == {ids: Inputs(data_bytes=MB, present_bytes=MB)}


def test_an_answer_that_comes_during_a_decision_is_in_it(three: Triangle, monkeypatch: pytest.MonkeyPatch) -> None:
    original, ticks = DataPresence.want, list[int]()

    def want_and_look(self: DataPresence, datasets: Iterable[tuple[str, ...]]) -> None:
        original(self, datasets)
        if self._store is three.home.store:
            ticks.append(len(ticks))
            if len(ticks) > 6:  # so late that the job would have moved long before
                self.look({name: three.stores[name] for name in ("a", "b")})

    monkeypatch.setattr(DataPresence, "want", want_and_look)
    monkeypatch.setattr(DataPresence, "due", lambda *_: False)
    monkeypatch.setattr("everspot_scheduler.federation.data_presence.PATIENCE", timedelta(days=1))
    images = three.dataset("images", {"one": b"1" * MB})
    three.copy(images, "b")
    three.submit(images)
    three.live(timedelta(minutes=5))
    assert three.away.cluster == "b" and len(ticks) > 6


def test_a_peer_that_could_not_be_read_is_asked_as_soon_as_it_can_be(three: Triangle) -> None:
    """The scheduler asks readable peers only. `a` was one when both were first asked, `b` was not."""
    images = three.dataset("images", {"one": b"1" * MB})
    three.copy(images, "b")
    presence, ids = DataPresence(three.home.store), (images.id,)
    presence.want([ids])
    presence.look({"a": three.stores["a"]})
    assert presence.is_known(ids, ["a"]) and not presence.due(["a"])
    assert presence.due(["a", "b"]) and not presence.is_known(ids, ["a", "b"])
    presence.look({name: three.stores[name] for name in ("a", "b")})
    assert presence.is_known(ids, ["a", "b"]) and not presence.due(["a", "b"])
    assert presence.at("b") == {ids: Inputs(data_bytes=MB, present_bytes=MB)}
