"""Launches that the cloud accepts and that come to nothing: what a scheduler makes of each, through boto3."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from elastic_helpers import TYPE, ZONE, LocalAccount, LocalElastic, elastic, words
from everspot_clouds.base import Phase
from everspot_core.capacity.launching import LaunchTrouble
from everspot_core.jobs.records import Market
from everspot_scheduler.elastic.refusals import QUOTA_REST, REST_MOST
from everspot_store import ManualClock
from google_helpers import TYPE as GOOGLE_TYPE
from google_helpers import A, GoogleElastic, GoogleProject
from scheduler_helpers import folder_store

POOL = f"{TYPE}/{ZONE}"


class Failing:
    """A cluster that launches Spot instances of one pool, whose next launches fail by a code."""

    def __init__(self, account: LocalAccount, root: Path) -> None:
        self.account, clock = account, ManualClock(datetime.now(UTC))
        self.here = LocalElastic(folder_store(root, clock), clock, f"c-{uuid4().hex[:6]}", **account.where)
        self.offer()
        self.here.boots = False  # a machine that dies at its launch starts no agent

    def offer(self, **update: object) -> None:
        where = {"template": self.account.template, "places": {ZONE: self.account.subnet}}
        self.here.declare(elastic=elastic(**{**where, "markets": [Market.SPOT], **update}))
        self.here.schedulers = [self.here.scheduler()]

    def fail(self, code: str, instances: int = 1000) -> None:
        self.account.cloud.do("fail_launches", pool=POOL, code=code, instances=instances)

    def pass_time(self, span: timedelta, step: timedelta = timedelta(seconds=30)) -> int:
        """Let the scheduler tick, and each launched instance die before the next tick. Returns the launches so far."""
        for _ in range(span // step):
            self.here.run(1)
            self.wait_until_dead()
            self.here.clock.advance(step)
        return len(self.here.launched())

    def wait_until_dead(self) -> None:
        end = time.monotonic() + 60
        while self.here.living():
            assert time.monotonic() < end, "an instance lives that was to die"
            time.sleep(0.01)


@pytest.fixture
def failing(local: LocalAccount, tmp_path: Path) -> Iterator[Failing]:
    failing = Failing(local, tmp_path)
    yield failing
    failing.fail("Client.InternalError", 0)
    here = failing.here
    here.cloud.terminate(i.instance_id for i in here.cloud.instances() if i.phase is Phase.ALIVE)
    here.cloud.close()


@pytest.mark.parametrize(
    ("code", "kind", "launches"),
    [
        ("Server.InternalError", LaunchTrouble.TRANSIENT, range(3, 8)),  # the machine: after 1, 2, 4, 8, 8, 8 minutes
        ("Server.InsufficientInstanceCapacity", LaunchTrouble.CAPACITY, range(3, 8)),
        ("Client.InternalError", LaunchTrouble.CREDENTIALS, range(3, 8)),
        ("Client.VolumeLimitExceeded", LaunchTrouble.QUOTA, range(2, 5)),  # after 5, 10, 20 minutes
        ("Client.InvalidKMSKey.InvalidState", LaunchTrouble.REQUEST, range(1, 2)),  # until the stack is corrected
        ("Client.InvalidSnapshot.NotFound", LaunchTrouble.REQUEST, range(1, 2)),
    ],
)
def test_an_instance_that_dies_at_its_launch_is_not_launched_again_and_again(
    failing: Failing, code: str, kind: LaunchTrouble, launches: range
) -> None:
    failing.fail(code)
    failing.here.submit("j")
    assert failing.pass_time(timedelta(minutes=30), timedelta(minutes=1)) in launches
    (failure,) = {(i.failure.kind, i.failure.code) for i in failing.here.cloud.instances() if i.failure is not None}
    assert failure == (kind, code)
    assert code in words(failing.here, "j")
    # The next scheduler knows as much: the cloud still describes what has ended.
    failing.here.schedulers = [failing.here.scheduler("s2")]
    before = len(failing.here.launched())
    assert failing.pass_time(timedelta(seconds=30)) <= before + 1


@pytest.mark.parametrize(
    ("code", "pause"),
    [("Server.InternalError", REST_MOST), ("Client.VolumeLimitExceeded", QUOTA_REST)],
)
def test_what_passes_is_found_to_have_passed(failing: Failing, code: str, pause: timedelta) -> None:
    failing.fail(code, 1)
    failing.here.submit("j")
    assert failing.pass_time(timedelta(seconds=30)) == 1
    failing.here.boots = True
    for _ in range(pause // timedelta(seconds=30) + 20):
        failing.here.run(1)
        failing.here.clock.advance(timedelta(seconds=30) if failing.here.state("j") == "PENDING" else timedelta())
    assert len(failing.here.launched()) == 2
    assert failing.here.state("j") == "SUCCEEDED"


def test_a_corrected_template_is_tried_at_once(failing: Failing) -> None:
    failing.fail("Client.InvalidKMSKey.InvalidState", 1)
    failing.here.submit("j")
    assert failing.pass_time(timedelta(minutes=5)) == 1
    data = {"ImageId": "ami-12c6146b", "InstanceType": "m6i.large"}
    ec2 = failing.account.ec2
    ec2.create_launch_template_version(LaunchTemplateId=failing.account.template, LaunchTemplateData=data)
    failing.offer(template_version="2")
    failing.here.run(2)
    assert len(failing.here.launched()) == 2


@pytest.mark.parametrize("published", [True, False])
def test_a_template_version_that_ec2_does_not_know_yet_is_asked_for_again_for_a_while(
    failing: Failing, published: bool
) -> None:
    """EC2 may not know a version for a while after it was created. One that does not exist is given up."""
    ec2, template = failing.account.ec2, failing.account.template
    (described,) = ec2.describe_launch_templates(LaunchTemplateIds=[template])["LaunchTemplates"]
    failing.offer(template_version=str(described["LatestVersionNumber"] + 1))
    failing.here.submit("j")
    assert failing.pass_time(timedelta(seconds=90)) == 0
    assert "InvalidLaunchTemplateId.VersionNotFound" in words(failing.here, "j")
    if published:
        data = {"ImageId": "ami-12c6146b", "InstanceType": "m6i.large"}
        ec2.create_launch_template_version(LaunchTemplateId=template, LaunchTemplateData=data)
        failing.here.boots = True
        for _ in range(40):
            failing.here.run(1)
            failing.here.clock.advance(timedelta(seconds=30) if failing.here.state("j") == "PENDING" else timedelta())
        assert failing.here.state("j") == "SUCCEEDED"
        return
    failing.pass_time(timedelta(hours=1))
    intent_count = len(failing.here.intents())
    assert 3 <= intent_count <= 6, "after 1, 2, 4 and 8 minutes"
    failing.here.schedulers = [failing.here.scheduler("s2")]
    failing.pass_time(timedelta(hours=1))
    assert len(failing.here.intents()) == intent_count, "the next scheduler knows as much"
    assert "until the stack is corrected" in words(failing.here, "j")


def test_a_full_subnet_is_like_a_dry_pool(failing: Failing) -> None:
    ec2 = failing.account.ec2
    vpc = ec2.create_vpc(CidrBlock="10.60.0.0/16")["Vpc"]["VpcId"]
    small = ec2.create_subnet(VpcId=vpc, CidrBlock="10.60.0.0/28", AvailabilityZone=ZONE)["Subnet"]["SubnetId"]
    for _ in range(11):  # of 16 addresses, AWS keeps five
        ec2.create_network_interface(SubnetId=small)
    failing.offer(places={ZONE: small})
    failing.here.submit("j")
    failing.pass_time(timedelta(minutes=10))
    assert failing.here.launched() == set()
    assert "InsufficientFreeAddressesInSubnet" in words(failing.here, "j")
    errors = [e for intent in failing.here.intents() if intent.outcome for e in intent.outcome.errors]
    assert {e.kind for e in errors} == {LaunchTrouble.CAPACITY} and len(errors) <= 4


def test_google_capacity_that_runs_out_late_is_waited_for_and_costs_nothing(
    google: GoogleProject, tmp_path: Path
) -> None:
    """A launch that was accepted and fails seconds later is a shortage of its pool, as one that is refused is."""
    code, pool, clock = (
        "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
        f"{GOOGLE_TYPE}/{A}",
        ManualClock(datetime.now(UTC)),
    )
    here = GoogleElastic(folder_store(tmp_path, clock), clock, f"c-{uuid4().hex[:6]}", google)
    here.boots = False
    google.cloud.do("fail_launches", pool=pool, code=code, instances=1000)
    here.submit("j")
    for _ in range(40):
        here.run(1)
        assert here.living() == {}
        clock.advance(timedelta(seconds=30))
    errors = [e for intent in here.intents() if intent.outcome for e in intent.outcome.errors]
    assert {(e.code, e.kind) for e in errors} == {(code, LaunchTrouble.CAPACITY)}
    assert 3 <= len(here.intents()) <= 8, "after 1, 2, 4, 8 minutes"
    assert code in words(here, "j")
    google.cloud.do("fail_launches", pool=pool, code=code, instances=0)
    clock.advance(REST_MOST)
    here.run(2)
    assert len(here.living()) == 1
    here.cloud.terminate(list(here.living()))
