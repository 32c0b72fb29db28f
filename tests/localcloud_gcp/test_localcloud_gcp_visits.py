"""Visits between both clouds by the schedulers that the components declare. Both local clouds enforce identities and
permissions: each scheduler has its own role or account, and at its peer the rights that the peer declares for it."""

import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from everspot.aws import federation as at_aws
from everspot.aws import policies as aws_policies
from everspot.federation import ARCHIVE, AWS, CARRIED_READS, GCP, SHARED, build_peers, parse_bucket
from everspot.gcp import federation as at_google
from everspot.gcp import policies
from everspot_clouds.federation_names import pool, pool_provider, visitor_name
from everspot_core.jobs.visit_records import TripEnd, visit_prefix
from everspot_local.cloud import LocalCloud
from everspot_local.gcp.callers import OWNER_TOKEN
from everspot_local.market.delays import Delays
from everspot_local.options import Options
from everspot_scheduler.federation.manager import PeerAccess
from everspot_scheduler.federation.peer_access import open_peer
from everspot_scheduler.loop import Scheduler
from everspot_store import ManualClock, Store
from federation_helpers import Member

REGIONS = {AWS: "eu-west-1", GCP: "europe-west4"}
NO_PROPAGATION = Delays(propagation=timedelta())
"""STS knows of a role as soon as it is made: these tests are about what it may do."""
ROOT = "projects/everspot-local"
SCHEDULER = "arn:aws:iam::123456789012:role/everspot-aws-identity-scheduler-1"
ACCOUNT = "everspot-gcp-scheduler@everspot-local.iam.gserviceaccount.com"
NAMES = {AWS: "everspot-aws", GCP: "everspot-gcp"}
URLS = {
    AWS: [f"s3://aws-{part}?region=eu-west-1" for part in ("control", "data")],
    GCP: [f"gs://gcp-{part}" for part in ("control", "data")],
}
READ, WRITE, ADD = (f"{ROOT}/roles/{name}" for name in ("reader", "writer", "adder"))
FIRST, SECOND = 3, 9
STEP = timedelta(seconds=2)


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Options:
    """Return options with enforced permissions, where grants take effect immediately."""
    folder = Path(tmp_path_factory.mktemp("visits"))
    return Options(folder, cloud="gcp", scale=120.0, boot_command=None, lenient=True)


@pytest.fixture(scope="module")
def aws_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    folder = Path(tmp_path_factory.mktemp("aws"))
    with LocalCloud(
        Options(folder, region="eu-west-1", scale=120.0, boot_command=None, delays=NO_PROPAGATION)
    ) as cloud:
        yield cloud


class Declared:
    """Both local clouds with what the two clusters' stacks declare for a federation."""

    def __init__(self, kit: Any, aws: LocalCloud, patch: pytest.MonkeyPatch) -> None:
        self.kit, self.aws, self.patch, self.clock = kit, aws, patch, ManualClock()
        kit.cloud.meet("aws", aws.endpoint)
        aws.meet("gcp", kit.cloud.endpoint)
        patch.setenv("GOOGLE_BASE_URL", f"{kit.cloud.endpoint}/xml")
        patch.setenv("EVERSPOT_GCP_ENDPOINT", kit.cloud.endpoint)
        patch.setenv("AWS_ENDPOINT_URL", aws.endpoint)
        self.unique = str(self._account(ACCOUNT.partition("@")[0]))
        self.peers = {
            GCP: {"name": NAMES[AWS], "cloud": AWS, "control": URLS[AWS][0], "data": URLS[AWS][1],
                  "scheduler": SCHEDULER},
            AWS: {"name": NAMES[GCP], "cloud": GCP, "control": URLS[GCP][0], "data": URLS[GCP][1],
                  "scheduler": ACCOUNT, "scheduler_id": self.unique, "project_number": "100000000001"},
        }  # fmt: skip
        self._on_aws()
        self._on_google()

    def _on_aws(self) -> None:
        owner = boto3.Session(region_name="eu-west-1", aws_access_key_id="test", aws_secret_access_key="test")
        s3, iam, sts = (owner.client(name, endpoint_url=self.aws.endpoint) for name in ("s3", "iam", "sts"))
        control, data = (f"arn:aws:s3:::{parse_bucket(url)}" for url in URLS[AWS])
        for url in URLS[AWS]:
            place: Any = {"LocationConstraint": "eu-west-1"}
            s3.create_bucket(Bucket=parse_bucket(url), CreateBucketConfiguration=place)
        guest = f"arn:aws:iam::123456789012:role/{visitor_name(NAMES[AWS], NAMES[GCP])}"
        queue = "arn:aws:sqs:eu-west-1:123456789012:events"
        own = aws_policies.scheduler_policy(cluster=NAMES[AWS], control_arn=control, queue_arn=queue)
        for arn, trust, may in (
            (SCHEDULER, aws_policies.trust_ec2(), [own, at_aws.home_policy(control, data, [])]),
            (guest, at_aws.trust(self.peers[AWS], guest), [at_aws.visitor_policy(control, data, None, NAMES[GCP])]),
        ):
            name = arn.rpartition("/")[2]
            iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust))
            for index, policy in enumerate(may):
                iam.put_role_policy(RoleName=name, PolicyName=f"may-{index}", PolicyDocument=json.dumps(policy))
        keys = sts.assume_role(RoleArn=SCHEDULER, RoleSessionName="i-0123456789abcdef0")["Credentials"]
        self.patch.setenv("AWS_ACCESS_KEY_ID", keys["AccessKeyId"])
        self.patch.setenv("AWS_SECRET_ACCESS_KEY", keys["SecretAccessKey"])
        self.patch.setenv("AWS_SESSION_TOKEN", keys["SessionToken"])

    def _on_google(self) -> None:
        for role, permissions in (("reader", policies.READ), ("writer", policies.WRITE), ("adder", policies.ADD)):
            body = {"roleId": role, "role": {"includedPermissions": list(permissions)}}
            self._ok("POST", f"/iam/v1/{ROOT}/roles", body)
        for url in URLS[GCP]:
            access = {"uniformBucketLevelAccess": {"enabled": True}}
            body = {"name": parse_bucket(url), "location": "EUROPE-WEST4", "iamConfiguration": access}
            self._ok("POST", "/storage/v1/b?project=everspot-local", body)
        guest = f"{visitor_name(NAMES[GCP], NAMES[AWS])}@everspot-local.iam.gserviceaccount.com"
        self._account(guest.partition("@")[0])
        pools, pool_id = f"/iam/v1/{ROOT}/locations/global/workloadIdentityPools", pool(self.unique)
        self._ok("POST", f"{pools}?workloadIdentityPoolId={pool_id}", {"displayName": "peers"})
        provider = {
            "aws": {"accountId": "123456789012"}, "attributeMapping": at_google.MAPPING,
            "attributeCondition": at_google.only(SCHEDULER),
        }  # fmt: skip
        self._ok(
            "POST", f"{pools}/{pool_id}/providers?workloadIdentityPoolProviderId={pool_provider(NAMES[AWS])}", provider
        )
        whole = f"projects/100000000001/locations/global/workloadIdentityPools/{pool_id}"
        members = [f"principalSet://iam.googleapis.com/{whole}/attribute.aws_role/{SCHEDULER.rpartition('/')[2]}"]
        user = {"bindings": [{"role": at_google.USER, "members": members}]}
        self._ok("POST", f"/iam/v1/{ROOT}/serviceAccounts/{guest}:setIamPolicy", {"policy": user})
        control, data = (parse_bucket(url) for url in URLS[GCP])
        reach = at_google.VisitorReach.for_home(NAMES[AWS])
        self._bind(control, [
            (ACCOUNT, READ, [None]),
            (ACCOUNT, WRITE, policies.below(control, policies.SCHEDULER_WRITES)),
            (ACCOUNT, WRITE, policies.below(control, at_google.HOME_WRITES)),
            (guest, READ, listed(control, reach.control_read)),
            (guest, READ, [policies.archived(control, ARCHIVE, visit_prefix(NAMES[AWS]))]),
            (guest, WRITE, policies.below(control, reach.control_write)),
        ])  # fmt: skip
        self._bind(data, [
            (ACCOUNT, READ, listed(data, CARRIED_READS)),
            (ACCOUNT, WRITE, policies.below(data, ("jobs/",))),
            (guest, READ, listed(data, reach.data_read)),
            (guest, WRITE, policies.below(data, reach.data_write)),
            (guest, ADD, policies.below(data, SHARED)),
        ])  # fmt: skip
        self.kit.network()
        scopes = ["https://www.googleapis.com/auth/cloud-platform"]
        machine = self.kit.run("scheduler", serviceAccounts=[{"email": ACCOUNT, "scopes": scopes}])
        self.patch.setenv("GCE_METADATA_HOST", self.kit.cloud.project.metadata.address(machine["id"]))

    def _bind(self, bucket: str, granted: Sequence[tuple[str, str, Sequence[policies.Condition | None]]]) -> None:
        bindings = []
        for email, role, conditions in granted:
            for condition in conditions:
                binding: dict[str, Any] = {"role": role, "members": [f"serviceAccount:{email}"]}
                if condition is not None:
                    binding["condition"] = {"title": condition.title, "expression": condition.expression}
                bindings.append(binding)
        self._ok("PUT", f"/storage/v1/b/{bucket}/iam", {"version": 3, "bindings": bindings})

    def _account(self, name: str) -> Any:
        return self._ok("POST", f"/iam/v1/{ROOT}/serviceAccounts", {"accountId": name})["uniqueId"]

    def _ok(self, verb: str, path: str, body: Any) -> Any:
        answer = self.kit.call(verb, path, body)
        assert answer.status == 200, answer.body
        return answer.body

    def owned(self, cloud: str) -> Store:
        """A cluster's store as its agents and people have it, whose permissions are not meant here."""
        owner: dict[str, Any] = {
            AWS: {"access_key_id": "test", "secret_access_key": "test", "expires_at": None},
            GCP: {"token": OWNER_TOKEN, "expires_at": None},
        }
        return Store.open(*URLS[cloud], clock=self.clock, credentials=lambda: owner[cloud])

    def denied(self) -> list[Any]:
        """Return the requests that either cloud refused because of missing permissions."""
        return [c for book in (self.aws.calls, self.kit.cloud.calls) for c in book.read() if not c["allowed"]]


def listed(bucket: str, prefixes: Sequence[str]) -> list[policies.Condition | None]:
    """The conditions under which a role that reads is bound below prefixes."""
    first = policies.below_or_list(bucket, prefixes[: policies.PREFIXES_AT_ONCE])
    return [first, *policies.below(bucket, prefixes)[1:]]


class Partner(Member):
    """A cluster in one of the clouds, with its scheduler as its cloud has it, and agents of the owner."""

    def __init__(self, declared: Declared, cloud: str) -> None:
        super().__init__(declared.owned(cloud), declared.clock, NAMES[cloud], {}, 30)
        peers = build_peers(NAMES[cloud], cloud, REGIONS[cloud], {"federation": [declared.peers[cloud]]})
        self.declare(cloud=cloud, region=REGIONS[cloud], federation=peers)
        peer_access = PeerAccess(
            opener=lambda p: open_peer(p, self.manifest, self.clock), chooser=self.choose, threads=0
        )
        own = Store.open(*URLS[cloud], clock=declared.clock)  # by what the machine is
        self.schedulers = [Scheduler(own, self.manifest, self.cloud, "s1", peer_access=peer_access)]

    def turn(self) -> None:
        """Run its scheduler and its agents once."""
        for scheduler in self.schedulers:
            scheduler.tick()
        for agent in self.agents.values():
            agent.turn()

    def save(self, job: str, step: int, folder: Path) -> None:
        """Publish a checkpoint as the job's trainer does."""
        path = folder / f"{job}-{step}.pt"
        path.write_bytes(f"state of {step}".encode())
        self.store.checkpoints(job, self.store.records.get(job).value.epoch).publish(step, {"rank-0.pt": path})


@pytest.mark.parametrize(("home_cloud", "host_cloud"), [(AWS, GCP), (GCP, AWS)])
def test_a_job_goes_to_the_other_cloud_and_back_by_what_both_declare_and_nothing_is_denied(
    kit: Any, aws_cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home_cloud: str, host_cloud: str
) -> None:
    aws_cloud.reset()
    # The clusters' clock stands still between their turns, and an object may be written once a second by a real one.
    monkeypatch.setattr("everspot_local.gcp.storage.objects.WRITE_EVERY", timedelta(0))
    for name in ("AWS_PROFILE", "GOOGLE_OAUTH_ACCESS_TOKEN", "GCE_METADATA_HOST"):
        monkeypatch.delenv(name, raising=False)
    declared = Declared(kit, aws_cloud, monkeypatch)
    home, host = Partner(declared, home_cloud), Partner(declared, host_cloud)

    def until(member: Partner, job: str, state: str) -> None:
        for _ in range(40):
            if member.state(job) == state:
                return
            home.turn()
            host.turn()
            declared.clock.advance(STEP)
        raise AssertionError(f"{job} is {member.state(job)}: {declared.denied()[-3:]}")

    home.agent("i-home")
    host.agent("i-host")
    home.submit("j", clouds=[home_cloud, host_cloud])
    until(home, "j", "RUNNING")
    home.save("j", FIRST, tmp_path)
    home.wishes["j"], visit = NAMES[host_cloud], home.visit("j")
    until(host, visit, "RUNNING")
    assert host.store.checkpoints(visit).restore(tmp_path / "there").step == FIRST
    host.save(visit, SECOND, tmp_path)
    host.store.logs.append(visit, 1, 0, b"abroad\n")
    home.wishes["j"] = NAMES[home_cloud]
    until(home, "j", "RUNNING")
    assert home.store.checkpoints("j").restore(tmp_path / "back").step == SECOND
    (trip,) = home.store.records.get("j").value.trips
    assert trip.end is TripEnd.RETURNED and trip.sent_bytes > 0 and trip.brought_bytes > trip.sent_bytes
    assert b"".join(chunk.data for chunk in home.store.read_logs("j")) == b"abroad\n"
    until(home, "j", "SUCCEEDED")
    assert declared.denied() == []
