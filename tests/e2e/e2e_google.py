"""A cluster on the local Google Cloud without standing instances. Its scheduler process launches instances for jobs,
and an instance that leaves requests its own deletion."""

import base64
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from e2e_google_roles import JOB_ROLE, account, grant, send_as
from e2e_helpers import LIMITS, MORE_PROCESSORS, PROGRAMS, run_command
from everspot.manifest import with_idle_limit
from everspot_clouds.gcp.http_api import Api
from everspot_clouds.gcp.rules import CLUSTER_LABEL, LAUNCH_LABEL, LOG_FILTER, MANIFEST_KEY, ROLE_LABEL
from everspot_core.cluster.manifest import Elastic, Limits, Manifest
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import Event, EventKind, JobState, Market, Role
from everspot_local.cloud import LocalCloud
from everspot_local.gcp.callers import OWNER_TOKEN
from everspot_local.gcp.environment import owner
from everspot_local.options import Options
from everspot_store import Store, SystemClock

SCALE = 12.0
CLUSTER, REGION, PROJECT = "e2e", "europe-west4", "projects/everspot-local"
KIND = "e2-standard-4"
BUCKETS = ("e2e-control", "e2e-data")
URLS = tuple(f"gs://{bucket}" for bucket in BUCKETS)
PROGRAM = "import time\nfor step in range({steps}):\n    time.sleep(0.2)\n    print(step, flush=True)\n"
PROCESSORS = 8
"""The pretended number of this machine's processors."""
SPOT = {
    "provisioningModel": "SPOT", "preemptible": True, "automaticRestart": False, "onHostMaintenance": "TERMINATE",
    "instanceTerminationAction": "DELETE",
}  # fmt: skip
NOTICE = timedelta(seconds=120)
T = TypeVar("T")


class GoogleLive:
    """One cluster. While it exists, the process has the environment of the project's owner.

    Attributes:
        variables: additional environment of its machines.
        scale: market seconds in a real second.
        limits: time limits of its machines.
        own_idle_limit: real time after which idle agents end themselves.
        only: zones that a type is launched in, by type.
        peers: whether the cluster sends jobs to peers.
        job_role: whether jobs have tokens that are limited to them.
    """

    variables: Mapping[str, str] = MappingProxyType({})
    scale: float = SCALE
    limits: Limits = LIMITS
    types: tuple[str, ...] = (KIND,)
    zones: tuple[str, ...] = ("a", "b")
    idle_limit = timedelta(minutes=1)
    own_idle_limit = "1m"
    max_instances = 4
    max_usd_per_hour: float | None = None
    only: Mapping[str, list[str]] = MappingProxyType({})
    shared = False
    peers = False
    job_role = True
    epoch: int | None = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        boot = self.boot_command()
        options = Options(state_dir=folder, cloud="gcp", scale=self.scale, boot_command=boot, epoch=self.epoch)
        self.cloud = LocalCloud(options)
        self._before = dict(os.environ)

    def boot_command(self) -> tuple[str, ...]:
        """The command that every machine runs: the agent of this checkout."""
        words = (
            "EVERSPOT_CLOUD=gcp",
            f"EVERSPOT_LAUNCHER={sys.executable}",
            *(f"{k}={v}" for k, v in self.variables.items()),
        )
        return ("/usr/bin/env", *words, sys.executable, *self.agent(PROCESSORS))

    def agent(self, cpus: int) -> tuple[str, ...]:
        """The command that the image starts."""
        return "-c", MORE_PROCESSORS.format(cpus=cpus)

    def __enter__(self) -> "GoogleLive":
        self.cloud.__enter__()
        os.environ |= owner(self.cloud.endpoint, REGION)
        self.clock = SystemClock(self.scale, self.cloud.market.clock.epoch.timestamp())
        self.api = Api(self.clock)
        self._create()
        self.store = Store.open(*URLS, clock=self.clock)
        return self

    def __exit__(self, *_: Any) -> None:
        self.cloud.close()
        for name in set(os.environ) - set(self._before):
            del os.environ[name]

    def _create(self) -> None:
        for bucket in BUCKETS:
            body = {
                "name": bucket, "location": REGION, "softDeletePolicy": {"retentionDurationSeconds": "0"},
                "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}},
            }  # fmt: skip
            self.api.call("POST", "storage", "b", body=body, query={"project": "everspot-local"})
        self._queue()
        grant(self._send, self.clock, CLUSTER, *BUCKETS, self.queue, peers=self.peers)
        self.do("POST", "global/networks", {"name": "net", "autoCreateSubnetworks": False})
        subnet = {"name": "net", "network": "global/networks/net", "ipCidrRange": "10.0.0.0/20"}
        self.do("POST", f"regions/{REGION}/subnetworks", subnet)
        manifest = self.manifest(Role.AGENT)
        idle = with_idle_limit(manifest.to_json().decode(), self.own_idle_limit)
        self.do(
            "POST",
            f"regions/{REGION}/instanceTemplates",
            {"name": "e2e", "properties": self._instance_properties(idle)},
        )
        elastic = Elastic(
            types=list(self.types), markets=list(Market), max_instances=self.max_instances,
            max_usd_per_hour=self.max_usd_per_hour, zones=dict(self.only), idle_limit=self.idle_limit,
            template=f"{PROJECT}/regions/{REGION}/instanceTemplates/e2e", template_version="",
            places={f"{REGION}-{letter}": "net" for letter in self.zones},
        )  # fmt: skip
        declared = {"elastic": elastic, "shared_instances": self.shared}
        Store.open(*URLS, clock=self.clock).write_manifest(manifest.model_copy(update=declared))
        properties = self._instance_properties(self.manifest(Role.SCHEDULER).to_json().decode(), role=Role.SCHEDULER)
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
        sink_answer = self._send("POST", f"logging/v2/{PROJECT}/sinks?uniqueWriterIdentity=true", sink)
        bindings = [{"role": "roles/pubsub.publisher", "members": [sink_answer["writerIdentity"]]}]
        self.api.post("pubsub", f"{topic}:setIamPolicy", {"policy": {"bindings": bindings}})

    def _send(self, method: str, path: str, body: Any) -> Any:
        """Call an API that the product never calls."""
        return send_as(self.cloud.endpoint, OWNER_TOKEN)(method, path, body)

    def manifest(self, role: Role, notice: timedelta = NOTICE) -> Manifest:
        return Manifest(
            cluster=CLUSTER, cloud="gcp", account="everspot-local", role=role, region=REGION, limits=self.limits,
            queue_url=self.queue if role is Role.SCHEDULER else None, control_url=URLS[0], data_url=URLS[1],
            notice=notice, job_role=JOB_ROLE if self.job_role else None,
        )  # fmt: skip

    def stand(self, kind: str) -> str:
        """Create a group of one Spot instance of a type, and return its name."""
        manifest = self.manifest(Role.AGENT, timedelta(0)).to_json().decode()
        properties = {**self._instance_properties(manifest), "machineType": kind, "scheduling": SPOT}
        template = f"regions/{REGION}/instanceTemplates"
        self.do("POST", template, {"name": "standing", "properties": properties})
        group = {
            "name": "standing", "baseInstanceName": f"{CLUSTER}-agent", "targetSize": 1,
            "versions": [{"instanceTemplate": f"{template}/standing"}],
            "distributionPolicy": {"targetShape": "ANY", "zones": [{"zone": f"zones/{REGION}-a"}]},
        }  # fmt: skip
        self.do("POST", f"regions/{REGION}/instanceGroupManagers", group)
        return "standing"

    def spot(self, name: str) -> str:
        """The id of a Spot instance of the cluster that somebody makes by hand."""
        zone = f"{REGION}-a"
        kind = f"zones/{zone}/machineTypes/{KIND}"
        properties = self._instance_properties(self.manifest(Role.AGENT).to_json().decode())
        self.do(
            "POST", f"zones/{zone}/instances", {"name": name, **properties, "machineType": kind, "scheduling": SPOT}
        )
        return str(self.api.get("compute", f"{PROJECT}/zones/{zone}/instances/{name}")["id"])

    def member(self, group: str) -> tuple[str, str] | None:
        """Name and id of a group's only instance, once it runs."""
        path = f"{PROJECT}/regions/{REGION}/instanceGroupManagers/{group}/listManagedInstances"
        (managed,) = self.api.call("POST", "compute", path)["managedInstances"]
        return (managed["name"], managed["id"]) if managed.get("instanceStatus") == "RUNNING" else None

    def _instance_properties(self, manifest: str, role: Role = Role.AGENT) -> dict[str, Any]:
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
                {"email": account(role), "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}
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

    # A user's actions and views ----------------------------------------------------------------------------------

    def program(self, name: str, folder: Path, steps: int = 20, **more: Any) -> str:
        """A job whose program needs nothing but Python."""
        (folder / "main.py").write_text(PROGRAM.format(steps=steps))
        spec = JobSpec.model_validate({"name": name, "code": str(folder), "entrypoint": ["main.py"], **more})
        job = JobSubmission(job_id=f"{name}-1", spec=spec, submitted_at=self.clock.now())
        return self.store.submit(job, folder).job_id

    def toy(self, name: str, trace: Path, checkpoint_every: int = 1_000_000, **fields: Any) -> str:
        """A job without end whose steps are of one second of the market; its id is its name. `trace`: where it notes
        its steps; `checkpoint_every`: after so many it checkpoints by itself."""
        env = {
            "TOY_STEPS": "1000000", "TOY_STEP_SECONDS": str(1 / self.scale), "TOY_EVERY": str(checkpoint_every),
            "TOY_TRACE": str(trace),
        }  # fmt: skip
        words = {"name": name, "entrypoint": ["toy_train.py"], "code": str(PROGRAMS / "toy"), "env": env}
        spec = JobSpec.model_validate(words | fields)
        job = JobSubmission(job_id=name, spec=spec, submitted_at=self.clock.now())
        return self.store.submit(job, PROGRAMS / "toy").job_id

    def waiting(self, subscription: str = "") -> list[tuple[str, str]]:
        """Method and instance of the entries that wait in the scheduler's subscription, or another one."""
        body = {"maxMessages": 100, "returnImmediately": True}
        answer = self.api.post("pubsub", f"{self.queue}{subscription}:pull", body)
        entries = [json.loads(base64.b64decode(m["message"]["data"])) for m in answer.get("receivedMessages") or ()]
        return [(e["protoPayload"]["methodName"], e["resource"]["labels"]["instance_id"]) for e in entries]

    def agents(self) -> dict[str, dict[str, Any]]:
        """Return the existing launched instances by id."""
        answer = self.api.get("compute", f"{PROJECT}/aggregated/instances")
        instances = [i for scope in (answer.get("items") or {}).values() for i in scope.get("instances") or ()]
        return {i["id"]: i for i in instances if LAUNCH_LABEL in i["labels"]}

    def owner(self, job: str) -> str | None:
        record = self.store.records.get(job)
        return record.value.owner if record is not None and record.value.state is JobState.RUNNING else None

    def trains(self, job: str, steps: int = 1) -> str | None:
        """The owner of a job that has done so many steps."""
        record = self.store.records.get(job)
        if record is None or record.value.state is not JobState.RUNNING or record.value.progress.step < steps:
            return None
        return record.value.owner

    def list_events(self, job: str, *kinds: EventKind) -> list[Event]:
        return [e for e in self.store.events(job) if e.kind in kinds]

    def ended(self, job: str) -> JobState | None:
        record = self.store.records.get(job)
        return record.value.state if record is not None and record.value.state.final else None

    def until(self, condition: Callable[[], T | None], limit: timedelta = timedelta(seconds=240)) -> T:
        """Wait for a true result of `check`. On a timeout show the last output of all processes."""
        end = time.monotonic() + limit.total_seconds()
        while time.monotonic() < end:
            if value := condition():
                return value
            time.sleep(0.3)
        logs = sorted(self.folder.glob("instances/*/console.log"))
        consoles = "\n".join(f"--- {log.parent.name}\n{log.read_text()[-3000:]}" for log in logs)
        raise AssertionError(f"it did not come in {limit}; consoles:\n{consoles}")


def everspot(*arguments: str) -> str:
    """Return the output of the command, as a user types it."""
    code, out, err = run_command(URLS[0], *arguments)
    assert code == 0, (arguments, out, err)
    return out
