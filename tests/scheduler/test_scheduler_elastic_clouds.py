"""A scheduler with each cloud's adapter against its local cloud: the reaction to the answers of launches."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
from botocore.exceptions import ReadTimeoutError
from elastic_helpers import TYPE, ZONE, ElasticCluster, LocalAccount, LocalElastic, elastic
from everspot_core.capacity.launching import LaunchIntent
from everspot_core.jobs.records import Market
from everspot_store import ManualClock
from google_helpers import TYPE as GOOGLE_TYPE
from google_helpers import GoogleElastic, GoogleProject
from google_site import TEMPLATE, A
from requests.exceptions import ReadTimeout
from scheduler_helpers import folder_store


class Rig(ABC):
    """A cloud in which launches are refused as a test wills.

    `dry_word`, `gone_word`: what it says of a pool without capacity, and of a template that is not there.
    `deleted_template`: a template that does not exist. `lost`: how an answer is lost.
    """

    dry_word: str
    gone_word: str
    deleted_template: str
    lost: Exception
    quota: tuple[str, float, float]
    """A code, what one instance takes of it, and what there is of it otherwise."""
    pool: str

    def __init__(self, cloud: LocalAccount | GoogleProject) -> None:
        self.cloud = cloud.cloud

    @abstractmethod
    def cluster(self, root: Path) -> ElasticCluster: ...

    @abstractmethod
    def offer(self, here: ElasticCluster, **update: object) -> None:
        """Declare what may be launched; a scheduler that knows it begins."""

    @abstractmethod
    def newer(self) -> dict[str, str]:
        """Return the changes of the manifest after an `up` with a new image."""

    def dry(self) -> None:
        self.cloud.do("drought", pool=self.pool)

    def full(self) -> None:
        self.cloud.do("quota", code=self.quota[0], value=self.quota[1])

    def recover(self) -> None:
        self.cloud.do("recover", pool=self.pool)
        self.cloud.do("quota", code=self.quota[0], value=self.quota[2])


class AwsRig(Rig):
    dry_word, gone_word, deleted_template = (
        "InsufficientInstanceCapacity",
        "InvalidLaunchTemplateId",
        "lt-0123456789abcdef0",
    )
    lost = ReadTimeoutError(endpoint_url="ec2")
    quota, pool = ("L-34B43A08", 2, 1000), f"{TYPE}/{ZONE}"  # standard instances, in vCPUs

    def __init__(self, account: LocalAccount) -> None:
        super().__init__(account)
        self.account = account

    def cluster(self, root: Path) -> ElasticCluster:
        clock = ManualClock(datetime.now(UTC))
        return LocalElastic(folder_store(root, clock), clock, f"c-{uuid4().hex[:6]}", **self.account.where)

    def offer(self, here: ElasticCluster, **update: object) -> None:
        where = {"template": self.account.template, "places": {ZONE: self.account.subnet}}
        here.declare(elastic=elastic(**{**where, **update}))
        here.schedulers = [here.scheduler()]

    def newer(self) -> dict[str, str]:
        return {"template_version": "2"}


class GoogleRig(Rig):
    dry_word, gone_word, deleted_template = "RESOURCE_POOL_EXHAUSTED", "was not found", f"{TEMPLATE}-gone"
    lost = ReadTimeout()
    quota, pool = ("PREEMPTIBLE_CPUS", 8, 2400), f"{GOOGLE_TYPE}/{A}"

    def __init__(self, project: GoogleProject) -> None:
        super().__init__(project)
        self.project = project

    def cluster(self, root: Path) -> ElasticCluster:
        clock = ManualClock(datetime.now(UTC))
        return GoogleElastic(folder_store(root, clock), clock, f"c-{uuid4().hex[:6]}", self.project)

    def offer(self, here: ElasticCluster, **update: object) -> None:
        assert isinstance(here, GoogleElastic)
        here.offer(**update)

    def newer(self) -> dict[str, str]:
        return {"template": f"{TEMPLATE}-newer"}  # a template is never changed


@pytest.fixture(params=["aws", "gcp"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """Empty, and all pools as they are at the beginning."""
    if request.param == "aws":
        rig: Rig = AwsRig(request.getfixturevalue("local"))
    else:
        rig = GoogleRig(request.getfixturevalue("google"))
    yield rig
    rig.recover()


@pytest.fixture
def here(rig: Rig, tmp_path: Path) -> Iterator[ElasticCluster]:
    here = rig.cluster(tmp_path)
    yield here
    here.cloud.terminate(here.living())


def test_a_job_is_moved_to_on_demand_when_it_can_wait_for_spot_no_longer(rig: Rig, here: ElasticCluster) -> None:
    rig.dry()
    here.submit("j", deadline="60m", expected_duration="20m")
    here.run(2)
    assert here.living() == {}
    assert rig.dry_word in here.store.notes.waiting.read().jobs["j"].words
    for _ in range(50):
        here.later(minutes=1)
        here.run(1)
        if here.living():
            break
    assert set(here.living().values()) == {Market.ON_DEMAND}
    here.run(12)
    assert here.state("j") == "SUCCEEDED"


def test_beyond_a_quota_jobs_wait_for_each_other(rig: Rig, here: ElasticCluster) -> None:
    rig.offer(here, markets=[Market.SPOT])
    rig.full()
    for n in range(3):
        here.submit(f"j{n}")
    for _ in range(60):
        here.run(1)
        assert len(here.living()) <= 1
    assert {here.state(f"j{n}") for n in range(3)} == {"SUCCEEDED"}


def test_a_template_that_was_removed_is_asked_for_once(rig: Rig, here: ElasticCluster) -> None:
    rig.offer(here, template=rig.deleted_template)
    here.submit("j")
    for _ in range(4):
        here.run(1)
        here.later(hours=2)
    assert [len(i.outcome.errors) for i in here.intents()].count(1) <= 2, "once in each market"
    assert rig.gone_word in here.store.notes.waiting.read().jobs["j"].words
    rig.offer(here)
    here.run(12)
    assert here.state("j") == "SUCCEEDED"


@pytest.mark.parametrize("changed", ["template", "request"])
def test_what_is_asked_for_again_after_a_change_is_there_once_and_a_tick_later(
    rig: Rig, here: ElasticCluster, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    """After an `up` with a new image the intent still asks for the version of its own; a scheduler of another release
    would write the same intent's request otherwise, and EC2 refuses that token then. Google answers by the operation
    of the first request."""
    launch = here.cloud.launch

    def lose(request: LaunchIntent) -> None:
        launch(request)
        raise rig.lost

    with monkeypatch.context() as lost:
        lost.setattr(here.cloud, "launch", lose)
        lost.setattr(here.cloud, "instances", list)  # the cloud does not describe it yet
        here.submit("j")
        here.run(1)
        assert [i.outcome for i in here.intents()] == [None]
    if changed == "template":
        rig.offer(here, **rig.newer())
    else:
        (name, document), *_ = here.store.launching.scan().items()
        here.store.launching.replace(name, document, document.value.model_copy(update={"tags": {"team": "vision"}}))
        here.schedulers = [here.scheduler()]
    monkeypatch.setattr(here.schedulers[0].services.facts, "describe", lambda *described: None)
    here.boots = False
    here.run(1)
    (brought,) = here.living()
    assert [[i.instance_id for i in intent.outcome.instances] for intent in here.intents()] == [[brought]]
    monkeypatch.undo()
    here.boots = True
    here.run(14)
    assert (here.state("j"), len(here.intents())) == ("SUCCEEDED", 1)
