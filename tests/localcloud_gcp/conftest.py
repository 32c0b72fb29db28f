"""A local Google Cloud in this process for each test module, emptied before every test, with plain HTTP to it."""

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from everspot_local.cloud import LocalCloud
from everspot_local.gcp.callers import OWNER_TOKEN
from everspot_local.market.delays import Delays
from everspot_local.options import Options

sys.path.insert(0, str(Path(__file__).parent))  # for the helpers of several test files
sys.path.insert(0, str(Path(__file__).parents[1] / "localcloud"))
sys.path.insert(0, str(Path(__file__).parents[1] / "scheduler"))  # federation_helpers

from peer_clouds import GUEST, HOME, POOL, SCHEDULER, VISITOR, Clouds, google_trust
from stillness import standing_still

SCALE = 120.0  # a notice of 120 s takes one real second
NO_PROPAGATION = Delays(propagation=timedelta())
"""STS knows of a role as soon as it is made: these tests are about what it may do."""
COMPUTE = "/compute/v1/projects/everspot-local"
HERE = f"{COMPUTE}/regions/europe-west4"
ZONE = "europe-west4-a"
IMAGE = "projects/debian-cloud/global/images/family/debian-12"
DISK = {"diskType": "pd-balanced", "diskSizeGb": "20"}


class Answer:
    """One answer: its status, and its JSON."""

    def __init__(self, status: int, body: Any) -> None:
        self.status, self.body = status, body

    @property
    def reason(self) -> str:
        return str(self.body["error"]["errors"][0]["reason"])

    @property
    def message(self) -> str:
        return str(self.body["error"]["message"])


class GcpKit:
    """Common operations of the tests, through the API only."""

    def __init__(self, cloud: LocalCloud, patch: pytest.MonkeyPatch) -> None:
        self.cloud = cloud
        self._patch = patch

    def call(self, verb: str, path: str, body: Any = None, *, token: str = OWNER_TOKEN) -> Answer:
        """One request; a path without the product's prefix is one of Compute's."""
        data = None if body is None else json.dumps(body).encode()
        url = self.cloud.endpoint + (path if path.startswith("/") else f"{COMPUTE}/{path}")
        request = urllib.request.Request(url, method=verb, data=data, headers={"Content-Type": "application/json"})
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request) as answer:
                text = answer.read()
                return Answer(answer.status, json.loads(text) if text else None)
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, json.loads(error.read() or b"null"))

    def get(self, path: str, **more: Any) -> Any:
        """Return an existing resource."""
        answer = self.call("GET", path, **more)
        assert answer.status == 200, answer.body
        return answer.body

    def begin(self, verb: str, path: str, body: Any = None) -> Any:
        """Begin a change; return its operation in the first state."""
        answer = self.call(verb, path, body)
        assert answer.status == 200, answer.body
        assert answer.body["kind"] == "compute#operation"
        return answer.body

    def wait(self, operation: Any) -> Any:
        """Return an operation once it is done."""
        link = operation["selfLink"].removeprefix(self.cloud.endpoint)
        finished = self.call("POST", f"{link}/wait").body
        assert finished["status"] == "DONE"
        return finished

    def do(self, verb: str, path: str, body: Any = None) -> Any:
        """Carry out a change; return its finished operation."""
        done = self.wait(self.begin(verb, path, body))
        assert "error" not in done, done
        return done

    def network(self, name: str = "net") -> None:
        """Create a network with one subnetwork of the same name."""
        self.do("POST", "global/networks", {"name": name, "autoCreateSubnetworks": False})
        body = {"name": name, "network": f"global/networks/{name}", "ipCidrRange": "10.0.0.0/20"}
        self.do("POST", f"{HERE}/subnetworks", body)

    def properties(self, machine_type: str = "g2-standard-4", **more: Any) -> Any:
        """Return the properties of a Spot instance that is deleted when it is preempted."""
        gpus = not machine_type.startswith(("e2", "n2", "c3"))
        scheduling = {"provisioningModel": "SPOT", "instanceTerminationAction": "DELETE"}
        if more.pop("standard", False):
            scheduling = {"onHostMaintenance": "TERMINATE"} if gpus else {}
        return {
            "machineType": machine_type,
            "disks": [{"boot": True, "autoDelete": True, "initializeParams": {"sourceImage": IMAGE, **DISK}}],
            "networkInterfaces": [{"subnetwork": "regions/europe-west4/subnetworks/net"}],
            "scheduling": {**scheduling, **more.pop("scheduling", {})},
            **more,
        }

    def template(self, name: str = "t1", **more: Any) -> str:
        """Create a regional template; return its link."""
        self.do("POST", f"{HERE}/instanceTemplates", {"name": name, "properties": self.properties(**more)})
        return f"regions/europe-west4/instanceTemplates/{name}"

    def run(self, name: str, zone: str = ZONE, **more: Any) -> Any:
        """Create an instance; return its document once it runs."""
        machine_type = more.pop("machine_type", "g2-standard-4")
        body = {"name": name, **self.properties(f"zones/{zone}/machineTypes/{machine_type}", **more)}
        self.do("POST", f"zones/{zone}/instances", body)
        return self.get(f"zones/{zone}/instances/{name}")

    def bulk(self, count: int, least: int | None = None, **more: Any) -> Any:
        """Create instances in bulk; return the finished operation, with or without an error."""
        body = {"count": count, **({} if least is None else {"minCount": least}), "namePattern": "vm-###", **more}
        return self.wait(self.begin("POST", f"{HERE}/instances/bulkInsert", body))

    def instances(self, query: str = "") -> list[Any]:
        by_scope = self.get(f"aggregated/instances{query}").get("items", {})
        return [instance for scope in by_scope.values() for instance in scope.get("instances", [])]

    def wait_until_deleted(self, name: str, zone: str = ZONE) -> None:
        """Wait until an instance is deleted."""
        self.until(lambda: self.call("GET", f"zones/{zone}/instances/{name}").status == 404)

    def zone_operations(self, kind: str, zone: str = ZONE) -> list[Any]:
        """Return the zone's operations of a type."""
        operations = self.get(f"zones/{zone}/operations").get("items", [])
        return [operation for operation in operations if operation["operationType"] == kind]

    def still(self) -> AbstractContextManager[Callable[[float], None]]:
        return standing_still(self.cloud, self._patch)

    def market(self, action: str, **fields: Any) -> dict[str, Any]:
        return self.cloud.do(action, **fields)

    def log(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.cloud.market.log.read() if line["event"] == event]

    def until(self, condition: Callable[[], Any], seconds: float = 60.0) -> Any:
        """Poll a condition until it gives something."""
        end = time.monotonic() + seconds
        while not (value := condition()):
            assert time.monotonic() < end, "it did not happen in time"
            time.sleep(0.02)
        return value


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Options:
    """Settings of the module's cloud: instances without processes."""
    return Options(Path(tmp_path_factory.mktemp("cloud")), cloud="gcp", scale=SCALE, boot_command=None)


@pytest.fixture(scope="module")
def module_cloud(options: Options) -> Iterator[LocalCloud]:
    with LocalCloud(options) as cloud:
        yield cloud


@pytest.fixture(scope="session")
def gcp_kit() -> type[GcpKit]:
    """For modules with a cloud of their own."""
    return GcpKit


@pytest.fixture
def kit(module_cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> GcpKit:
    module_cloud.reset()
    return GcpKit(module_cloud, monkeypatch)


@pytest.fixture(scope="module")
def aws_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    folder = Path(tmp_path_factory.mktemp("aws"))
    with LocalCloud(
        Options(folder, region="eu-west-1", scale=120.0, boot_command=None, delays=NO_PROPAGATION)
    ) as cloud:
        yield cloud


@pytest.fixture
def clouds(kit: Any, aws_cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> Clouds:
    aws_cloud.reset()
    for name in ("AWS_PROFILE", "GOOGLE_OAUTH_ACCESS_TOKEN", "GCE_METADATA_HOST"):
        monkeypatch.delenv(name, raising=False)
    return Clouds(kit, aws_cloud, monkeypatch)


@pytest.fixture
def from_aws(clouds: Any) -> Any:
    """A scheduler on AWS whose peer on Google Cloud let it in: to `visits/` and no further."""
    clouds.role(SCHEDULER, {"Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}, [])
    clouds.account(VISITOR)
    clouds.pool("assertion.arn.startsWith('arn:aws:sts::123456789012:assumed-role/home-scheduler/')")
    clouds.admit(
        f"principalSet://iam.googleapis.com/{POOL}/attribute.aws_role/home-scheduler",
        'resource.name.startsWith("projects/_/buckets/gcp-control/objects/visits/")',
    )
    clouds.on_aws()
    return clouds


@pytest.fixture
def from_google(clouds: Any) -> Any:
    """A scheduler on Google Cloud whose peer on AWS let it in: to `visits/` and no further."""
    unique = clouds.account(HOME)
    trust = google_trust(unique)
    may = [{"Action": ["s3:PutObject", "s3:GetObject"], "Resource": "arn:aws:s3:::aws-control/visits/*"}]
    clouds.role(GUEST, trust, may)
    clouds.on_google(HOME)
    clouds.unique = unique
    return clouds
