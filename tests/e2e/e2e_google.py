"""A cluster on the local Google Cloud whose groups hold nothing: its scheduler's own process launches what jobs need,
and an instance that leaves has itself deleted. It is laid by plain calls; instances are real processes."""

import base64
import json
import os
import sys
import time
import urllib.request
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from everspot.limits import with_idle_limit
from everspot_clouds.gcp.rest import Api
from everspot_clouds.gcp.rules import CLUSTER_LABEL, LAUNCH_LABEL, LOG_FILTER, MANIFEST_KEY, ROLE_LABEL
from everspot_core.job import JobSpec, JobSubmission
from everspot_core.manifest import Elastic, Limits, Manifest
from everspot_core.records import JobState, Market, Role
from everspot_local.cloud import LocalCloud
from everspot_local.gcp.callers import OWNER_TOKEN
from everspot_local.gcp.environment import owner
from everspot_local.options import Options
from everspot_store import Store, SystemClock

SCALE = 12.0
CLUSTER, REGION, PROJECT = "e2e", "europe-west4", "projects/everspot-local"
KIND = "n2-standard-8"
BUCKETS = ("e2e-control", "e2e-data")
URLS = tuple(f"gs://{bucket}" for bucket in BUCKETS)
LIMITS = Limits.model_validate(
    {"lease_ttl": "15s", "beat_every": "5s", "poll_every": "1s", "tick_every": "1s", "notice_poll": "0.5s"}
)
PROGRAM = "import time\nfor step in range({steps}):\n    time.sleep(0.2)\n    print(step, flush=True)\n"
MORE_PROCESSORS = (
    "import os\nos.sched_getaffinity = lambda pid: set(range(8))\nfrom everspot_train.agent.main import main\nmain()\n"
)
T = TypeVar("T")


class GoogleLive:
    """One cluster. Its environment is that of the project's owner while it lasts."""

    def __init__(self, folder: Path) -> None:
        boot = ("/usr/bin/env", "EVERSPOT_CLOUD=gcp", sys.executable, "-c", MORE_PROCESSORS)
        self.folder = folder
        self.cloud = LocalCloud(Options(state_dir=folder, cloud="gcp", scale=SCALE, boot_command=boot))
        self._before = dict(os.environ)

    def __enter__(self) -> "GoogleLive":
        self.cloud.__enter__()
        os.environ |= owner(self.cloud.endpoint, REGION)
        self.clock = SystemClock(SCALE, self.cloud.market.clock.epoch.timestamp())
        self.api = Api(self.clock)
        self._lay()
        self.store = Store.open(*URLS, clock=self.clock)
        return self

    def __exit__(self, *_: Any) -> None:
        self.cloud.close()
        for name in set(os.environ) - set(self._before):
            del os.environ[name]

    def _lay(self) -> None:
        for bucket in BUCKETS:
            body = {"name": bucket, "location": REGION, "softDeletePolicy": {"retentionDurationSeconds": "0"}}
            self.api.call("POST", "storage", "b", body=body, query={"project": "everspot-local"})
        self._queue()
        self.do("POST", "global/networks", {"name": "net", "autoCreateSubnetworks": False})
        subnet = {"name": "net", "network": "global/networks/net", "ipCidrRange": "10.0.0.0/20"}
        self.do("POST", f"regions/{REGION}/subnetworks", subnet)
        manifest = self.manifest(Role.AGENT)
        idle = with_idle_limit(manifest.to_json().decode(), "1m")
        self.do("POST", f"regions/{REGION}/instanceTemplates", {"name": "e2e", "properties": self._of(idle)})
        elastic = Elastic(
            types=[KIND], markets=list(Market), max_instances=4, idle_limit=timedelta(minutes=1),
            template=f"{PROJECT}/regions/{REGION}/instanceTemplates/e2e", template_version="",
            places={f"{REGION}-{letter}": "net" for letter in "ab"},
        )  # fmt: skip
        Store.open(*URLS, clock=self.clock).write_manifest(manifest.model_copy(update={"elastic": elastic}))
        properties = self._of(self.manifest(Role.SCHEDULER).to_json().decode(), role=Role.SCHEDULER)
        zone = f"{REGION}-a"
        properties["machineType"] = f"zones/{zone}/machineTypes/{KIND}"
        self.do("POST", f"zones/{zone}/instances", {"name": "scheduler", **properties})

    def _queue(self) -> None:
        topic, subscription = f"{PROJECT}/topics/e2e", f"{PROJECT}/subscriptions/e2e"
        self.api.call("PUT", "pubsub", topic, body={})
        for name in (subscription, f"{subscription}-watch"):  # the scheduler's, and this test's
            self.api.call("PUT", "pubsub", name, body={"topic": topic, "ackDeadlineSeconds": 60})
        self.queue = subscription
        sink = {"name": "e2e", "destination": f"pubsub.googleapis.com/{topic}", "filter": LOG_FILTER}
        made = self._logging(f"v2/{PROJECT}/sinks?uniqueWriterIdentity=true", sink)
        bindings = [{"role": "roles/pubsub.publisher", "members": [made["writerIdentity"]]}]
        self.api.post("pubsub", f"{topic}:setIamPolicy", {"policy": {"bindings": bindings}})

    def _logging(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """A call of an API that the product itself never calls."""
        headers = {"Authorization": f"Bearer {OWNER_TOKEN}", "Content-Type": "application/json"}
        url = f"{self.cloud.endpoint}/logging/{path}"
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as answer:
            return json.loads(answer.read())

    def manifest(self, role: Role) -> Manifest:
        return Manifest(
            cluster=CLUSTER, cloud="gcp", account="everspot-local", role=role, region=REGION, limits=LIMITS,
            queue_url=self.queue if role is Role.SCHEDULER else None, control_url=URLS[0], data_url=URLS[1],
            notice=timedelta(seconds=120),
        )  # fmt: skip

    def _of(self, manifest: str, role: Role = Role.AGENT) -> dict[str, Any]:
        image = "projects/debian-cloud/global/images/family/debian-12"
        return {
            "machineType": KIND,
            "disks": [
                {
                    "boot": True, "autoDelete": True,
                    "initializeParams": {"sourceImage": image, "diskType": "pd-balanced"},
                }
            ],
            "networkInterfaces": [{"subnetwork": f"regions/{REGION}/subnetworks/net"}],
            "metadata": {"items": [{"key": MANIFEST_KEY, "value": manifest}]},
            "serviceAccounts": [
                {"email": "default", "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}
            ],
            "labels": {CLUSTER_LABEL: CLUSTER, ROLE_LABEL: role.value},
            "scheduling": {"automaticRestart": False},
        }  # fmt: skip

    def do(self, verb: str, path: str, body: Any) -> None:
        """A change of Compute that is carried out."""
        operation = self.api.call(verb, "compute", f"{PROJECT}/{path}", body=body)
        link = operation["selfLink"].partition("/compute/v1/")[2]
        while operation["status"] != "DONE":
            operation = self.api.call("POST", "compute", f"{link}/wait")
        assert "error" not in operation, operation

    # What a user does and sees ----------------------------------------------------------------------------------

    def program(self, name: str, folder: Path, steps: int = 20, **more: Any) -> str:
        """A job whose program needs nothing but Python."""
        (folder / "main.py").write_text(PROGRAM.format(steps=steps))
        spec = JobSpec.model_validate({"name": name, "code": str(folder), "entrypoint": ["main.py"], **more})
        job = JobSubmission(job_id=f"{name}-1", spec=spec, submitted_at=self.clock.now())
        return self.store.submit(job, folder).job_id

    def waiting(self, subscription: str = "") -> list[tuple[str, str]]:
        """Method and instance of the entries that wait in the scheduler's subscription, or another one."""
        body = {"maxMessages": 100, "returnImmediately": True}
        answer = self.api.post("pubsub", f"{self.queue}{subscription}:pull", body)
        entries = [json.loads(base64.b64decode(m["message"]["data"])) for m in answer.get("receivedMessages") or ()]
        return [(e["protoPayload"]["methodName"], e["resource"]["labels"]["instance_id"]) for e in entries]

    def agents(self) -> dict[str, dict[str, Any]]:
        """Launched instances that there are, by id."""
        answer = self.api.get("compute", f"{PROJECT}/aggregated/instances")
        found = [i for scope in (answer.get("items") or {}).values() for i in scope.get("instances") or ()]
        return {i["id"]: i for i in found if LAUNCH_LABEL in i["labels"]}

    def owner(self, job: str) -> str | None:
        record = self.store.records.get(job)
        return record.value.owner if record is not None and record.value.state is JobState.RUNNING else None

    def ended(self, job: str) -> JobState | None:
        record = self.store.records.get(job)
        return record.value.state if record is not None and record.value.state.final else None

    def until(self, what: Callable[[], T | None], limit: timedelta = timedelta(seconds=300)) -> T:
        """Wait until it is there; with what everybody last said if it never is."""
        end = time.monotonic() + limit.total_seconds()
        while time.monotonic() < end:
            if found := what():
                return found
            time.sleep(0.3)
        logs = sorted(self.folder.glob("instances/*/console.log"))
        said = "\n".join(f"--- {log.parent.name}\n{log.read_text()[-3000:]}" for log in logs)
        raise AssertionError(f"it did not come in {limit}; consoles:\n{said}")
