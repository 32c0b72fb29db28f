"""A federation of both clouds: when the local Google Cloud has no capacity, a job resumes from its checkpoint on the
local AWS.

Two processes, each with a cloud, a scheduler and agents of its own. Home's scheduler is the only one that reaches both
stores.
"""

import json
from collections.abc import Iterator

import e2e_google
import pytest
from e2e_abroad import Abroad
from e2e_google import KIND, PROGRAMS, SCALE, URLS, GoogleLive, everspot
from everspot_core.cluster.peers import Peer
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import EventKind, JobState
from everspot_core.jobs.visit_records import Origin, TripEnd, visit_id

pytestmark = pytest.mark.timeout(1800)
HOME = "home"
EVERY, STEPS = 20, 240
DATA = 3_000_000
"""Bytes of the dataset."""


class Home(GoogleLive):
    """The cluster to which the job is submitted."""

    peers = True


@pytest.fixture(scope="module")
def abroad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Abroad]:
    abroad = Abroad(tmp_path_factory.mktemp("abroad"), HOME, URLS[0])
    yield abroad
    abroad.close()


@pytest.fixture(scope="module")
def home(abroad: Abroad, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(e2e_google, "CLUSTER", HOME)
        for name, value in abroad.environment.items():  # of the command, which shows what a peer publishes
            patch.setenv(name, value)
        patch.setattr(Home, "variables", abroad.environment)
        patch.setattr(Home, "epoch", abroad.epoch)  # one market time
        with Home(folder) as home:
            patch.setenv("EVERSPOT_CLOCK", home.cloud.market.clock.variable)
            peer = Peer(name=abroad.name, cloud="aws", control_url=abroad.control_url, egress_usd_per_gb=0.12)
            home.store.write_manifest(home.store.manifest().model_copy(update={"federation": (peer,)}))
            yield home


def toy(home: GoogleLive, name: str = "moves") -> str:
    """A job of two hundred steps and more, which checkpoints now and then, reads a dataset and may run on both
    clouds."""
    env = {
        "TOY_STEPS": str(STEPS), "TOY_STEP_SECONDS": str(1 / SCALE), "TOY_EVERY": str(EVERY),
        "TOY_TRACE": str(home.folder / f"{name}.jsonl"),
    }  # fmt: skip
    words = {"name": name, "entrypoint": ["toy_train.py"], "code": str(PROGRAMS / "toy"), "env": env}
    spec = JobSpec.model_validate({**words, "clouds": ["aws", "gcp"], "priority": "critical", "datasets": ["images"]})
    data = [home.store.datasets.find("images").id]
    job = JobSubmission(job_id=name, spec=spec, submitted_at=home.clock.now(), datasets=data)
    return home.store.submit(job, PROGRAMS / "toy").job_id


def first_visit_id(home: GoogleLive) -> str:
    """The id of its first visit."""
    origin = Origin(cluster=home.store.manifest().cluster, control_url=home.store.manifest().control_url)
    return visit_id(origin, "moves", home.store.jobs.get("moves").value.submitted_at, 1)


def test_in_a_drought_a_job_moves_to_the_other_cloud_with_its_checkpoint_and_ends_there(
    home: GoogleLive, abroad: Abroad
) -> None:
    images = home.folder / "images"
    images.mkdir()
    (images / "all.bin").write_bytes(b"x" * DATA)
    everspot("data", "put", str(images), "images")
    job = toy(home)
    first = home.until(lambda: home.trains(job, steps=EVERY + 1))
    for market in ("spot", "on-demand"):
        home.cloud.do("drought", pool=KIND, market=market)
    home.cloud.do("interrupt", instance=first, notice=False)
    assert home.until(lambda: home.ended(job)) is JobState.SUCCEEDED
    record = home.store.records.get(job).value
    (trip,) = record.trips
    assert (trip.cluster, trip.visit, trip.end) == (abroad.name, first_visit_id(home), TripEnd.ENDED)
    assert record.progress.step == STEPS and trip.sent_bytes > DATA and trip.brought_bytes > 0
    steps = [json.loads(line)["step"] for line in (home.folder / "moves.jsonl").read_text().splitlines()]
    assert sorted(set(steps)) == list(range(STEPS)), "no step is missing"
    again = next((n for n in range(1, len(steps)) if steps[n] <= steps[n - 1]), None)  # None: it had just saved
    steps_abroad = steps[again:]
    assert again is None or (steps_abroad[0] % EVERY == 0 and steps_abroad[0] > 0), (
        "it went on from its newest checkpoint"
    )
    assert steps_abroad == list(range(steps_abroad[0], STEPS)), "and there it lost nothing"
    assert [len(home.list_events(job, kind)) for kind in (EventKind.DEPARTED, EventKind.RETURNED)] == [1, 1]


def test_both_reports_add_up(home: GoogleLive, abroad: Abroad) -> None:
    here, host = json.loads(everspot("report", "moves", "--json")), abroad.report(first_visit_id(home))
    assert here["abroad_usd"] == pytest.approx(host["jobs_cost_usd"], abs=0.001) and here["abroad_usd"] > 0
    (row,) = here["jobs"]
    assert row["egress_usd"] == pytest.approx(sum(t["egress_usd"] for t in row["trips"]), abs=1e-6)
    assert here["cost_usd"] > 0


def test_what_the_visit_made_is_at_home(home: GoogleLive) -> None:
    assert home.store.checkpoints("moves").head().checkpoints[0].step == STEPS
    assert everspot("logs", "moves")
    assert "ended at step" in " ".join(everspot("job", "moves").split())
    peers = json.loads(everspot("federation", "--json"))["peers"]
    assert [peer["problem"] for peer in peers] == [None]


def test_a_dry_run_prices_both_clouds_by_what_their_schedulers_publish(home: GoogleLive, abroad: Abroad) -> None:
    file = home.folder / "priced.yaml"
    words = {"name": "priced", "entrypoint": ["toy_train.py"], "code": str(PROGRAMS / "toy")}
    file.write_text(json.dumps(words | {"expected_duration": "10h", "clouds": ["aws", "gcp"]}))
    here, host = json.loads(everspot("submit", str(file), "--dry-run", "--json"))["clusters"]
    assert [(row["cluster"], row["cloud"], row["problem"]) for row in (here, host)] == [
        (HOME, "gcp", None), (abroad.name, "aws", None),
    ]  # fmt: skip
    for row in (here, host):  # ten hours of work and a changeover, at the prices of the local market
        assert 10 * row["usd_per_hour"] < row["expected_usd"] and row["usd_per_hour"] > 0
    assert host["capacity_now"] and host["prices_at"] is not None


def test_the_data_that_a_visit_has_taken_along_is_not_sent_or_counted_again(home: GoogleLive, abroad: Abroad) -> None:
    """Home is still without capacity. The next job with the same dataset is priced, and moves, without it."""
    file = home.folder / "again.yaml"
    words = {"name": "again", "entrypoint": ["toy_train.py"], "code": str(PROGRAMS / "toy"), "datasets": ["images"]}
    file.write_text(json.dumps(words | {"expected_duration": "10h", "clouds": ["aws", "gcp"]}))
    _, host = json.loads(everspot("submit", str(file), "--dry-run", "--json"))["clusters"]
    assert (host["present_bytes"], host["sent_bytes"], host["egress_usd"]) == (DATA, 0, 0)
    job = toy(home, "again")
    home.until(lambda: (doc := home.store.records.get(job)) and doc.value.state is JobState.AWAY)
    away = home.until(lambda: (away := home.store.records.get(job).value.away) and away.sent_at and away)
    assert away.cluster == abroad.name and away.why.endswith("; nothing is sent: all 3 MB of its data are there")
    assert 0 < away.sent_bytes < DATA, "its code alone"
    everspot("cancel", job)
    assert home.until(lambda: home.ended(job)) is JobState.CANCELLED
