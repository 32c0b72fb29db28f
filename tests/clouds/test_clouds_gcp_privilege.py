"""Least privilege on Google Cloud: what a scheduler and an agent call is allowed, and what they are allowed is called.

The permissions and conditions are the components'; the local cloud evaluates them, and its log lists the calls.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from everspot.gcp import policies
from everspot_clouds.base import MetadataError
from everspot_clouds.gcp.cloud import GcpCloud
from everspot_clouds.gcp.metadata import GcpMetadata, MetadataServer
from everspot_clouds.gcp.names import agents
from everspot_clouds.gcp.rules import LOG_FILTER, name_prefix
from everspot_core.cluster.gauges import Gauge
from everspot_local.cloud import LocalCloud
from everspot_local.gcp.environment import owner
from everspot_local.options import Options
from everspot_store import Bucket, StoreDenied, TransferCancelled
from google_site import CLUSTER, SPOT, A, B, C, GoogleSite

PROJECT = "projects/everspot-local"
TOPIC, SUBSCRIPTION = f"{PROJECT}/topics/train", f"{PROJECT}/subscriptions/train"
AGENT, SCHEDULER = (f"{CLUSTER}-{role}@everspot-local.iam.gserviceaccount.com" for role in ("agent", "scheduler"))
CONTROL, DATA = f"{CLUSTER}-control", f"{CLUSTER}-data"
FOUR = "g2-standard-4"
PART = 17 << 20
"""Bytes of a part that is uploaded in two pieces."""
ACCOUNT = [{"email": AGENT, "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}]


class Granted:
    """Makes roles and bindings as the components do, and knows what was called."""

    def __init__(self, site: GoogleSite) -> None:
        self._site, self._api = site, site.api
        self.roles: dict[str, set[str]] = {AGENT: set(), SCHEDULER: set()}

    def role(self, name: str, permissions: Sequence[str]) -> str:
        body = {"roleId": name, "role": {"includedPermissions": list(permissions)}}
        return str(self._call("POST", f"iam/v1/{PROJECT}/roles", body)["name"])

    def bind(self, path: str, email: str, role: str, permissions: Sequence[str], *about: policies.Condition) -> None:
        """On the resource at a path of one of the JSON APIs, under each of the conditions; without one, freely."""
        self.roles[email] |= set(permissions)
        storage = path.startswith("storage/")
        suffix = "/iam" if storage else ":getIamPolicy"
        options = {"options": {"requestedPolicyVersion": 3}} if path.startswith("resourcemanager") else None
        reads = "GET" if storage or path.startswith("pubsub") else "POST"
        query = (
            "?optionsRequestedPolicyVersion=3" if storage else "" if options else "?options.requestedPolicyVersion=3"
        )
        policy_before = self._call(reads, f"{path}{suffix}{query}", options)
        bindings = policy_before.get("bindings", [])
        for condition in about or (None,):
            binding: dict[str, Any] = {"role": role, "members": [f"serviceAccount:{email}"]}
            if condition is not None:
                binding["condition"] = {"title": condition.title, "expression": condition.expression}
            bindings.append(binding)
        policy = {"bindings": bindings, "etag": policy_before["etag"], "version": 3}
        if storage:
            self._call("PUT", f"{path}/iam", policy)
        else:
            self._call("POST", f"{path}:setIamPolicy", {"policy": policy})

    def token(self, email: str) -> str:
        path = f"iamcredentials/v1/projects/-/serviceAccounts/{email}:generateAccessToken"
        return str(self._call("POST", path, {"scope": ["cloud-platform"]})["accessToken"])

    def called(self, email: str, *, refused: int = 0) -> set[str]:
        """Permissions of all calls in an account's name that were allowed: all but so many."""
        calls = [c for c in self._site.cloud.calls.read() if c["principal"] == f"serviceAccount:{email}"]
        assert len([c for c in calls if not c["allowed"]]) == refused
        return {checked["action"] for call in calls if call["allowed"] for checked in call["checked"]}

    def _call(self, verb: str, path: str, body: Any = None) -> dict[str, Any]:
        return self._api._once(verb, f"{self._site.cloud.endpoint}/{path}", body, None, timedelta(seconds=30))


@pytest.fixture(scope="module")
def strict_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    """A cloud that holds service accounts to their permissions."""
    folder = Path(tmp_path_factory.mktemp("privilege"))
    with LocalCloud(Options(folder, cloud="gcp", scale=120.0, boot_command=None)) as cloud:
        yield cloud


@pytest.fixture
def site(strict_cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> GoogleSite:
    """The cluster's network, buckets, queue and accounts."""
    for name, value in owner(strict_cloud.endpoint, "europe-west4").items():
        monkeypatch.setenv(name, value)
    strict_cloud.reset()
    return GoogleSite(strict_cloud)


@pytest.fixture
def granted(site: GoogleSite) -> Granted:
    """Return the permissions that the components declare, once the whole cloud has them."""
    grants = Granted(site)
    call = grants._call
    for email in (AGENT, SCHEDULER):
        call("POST", f"iam/v1/{PROJECT}/serviceAccounts", {"accountId": email.partition("@")[0]})
    wait(site, 11)
    access = {"uniformBucketLevelAccess": {"enabled": True}}
    for bucket in (CONTROL, DATA):
        call("POST", "storage/v1/b?project=everspot-local", {"name": bucket, "iamConfiguration": access})
        wait(site, 3)
    call("PUT", f"pubsub/v1/{TOPIC}", {})
    call("PUT", f"pubsub/v1/{SUBSCRIPTION}", {"topic": TOPIC, "ackDeadlineSeconds": 30})
    sink = {"name": CLUSTER, "destination": f"pubsub.googleapis.com/{TOPIC}", "filter": LOG_FILTER}
    writer = call("POST", f"logging/v2/{PROJECT}/sinks?uniqueWriterIdentity=true", sink)["writerIdentity"]
    publisher = {"role": "roles/pubsub.publisher", "members": [writer]}
    call("POST", f"pubsub/v1/{TOPIC}:setIamPolicy", {"policy": {"bindings": [publisher]}})
    _bind_scheduler(grants)
    _bind_agent(grants)
    own = "projects/everspot-local/global/images/family/everspot"
    properties = site.properties(
        serviceAccounts=ACCOUNT, tags={"items": ["everspot"]},
        metadata={"items": [{"key": "everspot-manifest", "value": "{}"}]},
    )  # fmt: skip
    properties["disks"][0]["initializeParams"] |= {"sourceImage": own, "diskSizeGb": "50"}
    site.build(**{key: properties[key] for key in ("serviceAccounts", "tags", "metadata", "disks")})
    wait(site, 121)
    return grants


def _bind_scheduler(grants: Granted) -> None:
    project = f"resourcemanager/v1/{PROJECT}"
    for name, permissions in (("watcher", policies.WATCH), ("gauges", policies.PUT_METRICS)):
        grants.bind(project, SCHEDULER, grants.role(name, permissions), permissions)
    launch = grants.role("launcher", policies.LAUNCH)
    grants.bind(project, SCHEDULER, launch, policies.LAUNCH, policies.match_machines([name_prefix(CLUSTER)]))
    act = grants.role("actor", policies.ACT_AS)
    grants.bind(f"iam/v1/{PROJECT}/serviceAccounts/{AGENT}", SCHEDULER, act, policies.ACT_AS)
    listen = grants.role("listener", policies.LISTEN)
    grants.bind(f"pubsub/v1/{SUBSCRIPTION}", SCHEDULER, listen, policies.LISTEN)


def _bind_agent(grants: Granted) -> None:
    read, write = grants.role("reader", policies.READ), grants.role("writer", policies.WRITE)
    control, data = (f"storage/v1/b/{bucket}" for bucket in (CONTROL, DATA))
    grants.bind(control, AGENT, read, policies.READ)
    grants.bind(control, AGENT, write, policies.WRITE, *policies.below(CONTROL, policies.AGENT_WRITES))
    grants.bind(data, AGENT, read, policies.READ, policies.below_or_list(DATA, policies.AGENT_READS))
    grants.bind(data, AGENT, write, policies.WRITE, *policies.below(DATA, policies.AGENT_KEEPS))
    leave = grants.role("leaver", policies.LEAVE)
    grants.bind(f"resourcemanager/v1/{PROJECT}", AGENT, leave, policies.LEAVE, policies.match_machines(agents(CLUSTER)))


def wait(site: GoogleSite, seconds: float) -> None:
    """Until so much market time has passed."""
    clock = site.cloud.market.clock
    site.clock.sleep(timedelta(seconds=clock.real_until(clock.now() + timedelta(seconds=seconds + 1))))


def test_what_a_scheduler_calls_is_what_it_may(
    site: GoogleSite, granted: Granted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", granted.token(SCHEDULER))
    cloud = GcpCloud.open(site.manifest(queue_url=SUBSCRIPTION, notice=timedelta(seconds=120)), site.clock)
    terminated, preempted = cloud.launch(site.intent((FOUR, A), jobs=2)).instances
    assert len(cloud.instances()) == 2
    prices = cloud.spot_prices([(FOUR, A)], site.clock.now())
    assert prices and {point.source for point in prices} == {"compute:advice.capacityHistory"}
    assert {score.zone for score in cloud.placement_scores([FOUR], 2)} == {A, B, C}
    cloud.publish_gauges("Everspot", {Gauge.JOBS_RUNNING: 2.0}, site.clock.now())
    cloud.terminate([terminated.instance_id])
    site.cloud.do("interrupt", instance=preempted.instance_id, notice=False)
    heard = set()
    while heard != {terminated.instance_id, preempted.instance_id}:
        messages = cloud.messages()
        cloud.acknowledge(messages)
        heard |= {str(message.instance_id) for message in messages}
        wait(site, 1)
    while cloud.instances():
        wait(site, 1)
    assert {end.instance_id for end in cloud.ends()} == heard
    cloud.close()
    assert granted.called(SCHEDULER) == granted.roles[SCHEDULER]


def test_what_an_agent_calls_is_what_it_may(
    site: GoogleSite, granted: Granted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    getenv = {"EVERSPOT_GCP_ENDPOINT": site.cloud.endpoint}.get
    own = site.run(f"{CLUSTER}-agent-spot-0001", scheduling=SPOT, serviceAccounts=ACCOUNT)
    other = site.run(f"{CLUSTER}-scheduler-0001", scheduling=SPOT, serviceAccounts=ACCOUNT)
    for machine, ends in ((other, False), (own, True)):
        address = site.cloud.project.metadata.address(machine)
        metadata = GcpMetadata(MetadataServer(f"http://{address}/computeMetadata/v1", site.clock), site.clock, getenv)
        if ends:
            assert metadata.end()
        else:
            with pytest.raises(MetadataError, match="403"):
                metadata.end()
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", granted.token(AGENT))
    control, data = (Bucket.open(f"gs://{bucket}", clock=site.clock) for bucket in (CONTROL, DATA))
    for bucket, key in ((control, "records/a"), (data, "jobs/j/part")):
        bucket.create(key, b"1")
        assert bucket.get(key) is not None and bucket.list(f"{key.partition('/')[0]}/")
        assert bucket.get(f"{key}-none") is None
    _upload_in_pieces(data, tmp_path / "large")
    with pytest.raises(StoreDenied):
        control.create("assignments/a", b"1")
    refused = [call for call in site.cloud.calls.read() if not call["allowed"]]
    assert [(c["checked"][0]["action"], c["checked"][0]["resource"].rpartition("/")[0]) for c in refused] == [
        ("compute.instances.delete", f"{PROJECT}/zones/{A}/instances"),
        ("storage.objects.create", f"projects/_/buckets/{CONTROL}/objects/assignments"),
    ]
    for bucket, key in ((control, "records/a"), (data, "jobs/j/part")):
        wait(site, 200)  # a name is written once a second of real time
        bucket.delete(key)
    assert granted.called(AGENT, refused=2) == granted.roles[AGENT]


def _upload_in_pieces(bucket: Bucket, file: Path) -> None:
    """A part that is too large for one request: all of it, and one that is given up on the way."""

    def give_up(moved: int) -> None:
        raise TransferCancelled(f"after {moved} bytes")

    with file.open("wb") as large:
        large.truncate(PART)
    assert bucket.upload("jobs/j/large", file).size == PART
    with pytest.raises(TransferCancelled):
        bucket.upload("jobs/j/given-up", file, give_up)
    assert bucket.get("jobs/j/given-up") is None
