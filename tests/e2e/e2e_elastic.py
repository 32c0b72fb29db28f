"""A cluster without standing instances: its scheduler process launches and releases instances for jobs."""

import json
import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

from e2e_helpers import BUCKETS, CLUSTER, REGION, LiveCluster
from everspot.aws import launch_policy
from everspot.manifest import with_idle_limit
from everspot_core.cluster.manifest import Elastic, Manifest
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import Market, Role

PROGRAM = "import time\nfor step in range(20):\n    time.sleep(0.2)\n    print(step, flush=True)\n"


class ElasticLive(LiveCluster):
    """One whose fleets hold nothing, and whose scheduler may launch.

    `own_idle_limit`: after which its agents end themselves, real time. `only`: by type, the zones in which it is
    launched.
    """

    idle_limit = timedelta(minutes=1)
    own_idle_limit = "1m"
    max_instances = 4
    max_usd_per_hour: float | None = None
    only: Mapping[str, list[str]] = MappingProxyType({})
    shared = True

    def _fleet(self) -> None:
        """The launch template of elastic instances, the permissions to launch from it, and what is declared of it."""
        ec2 = self.client("ec2")
        template = self._template(Role.AGENT, self.types[0])
        subnets = {s["AvailabilityZone"]: s["SubnetId"] for s in ec2.describe_subnets()["Subnets"]}
        self.places = {f"{REGION}{zone}": subnets[f"{REGION}{zone}"] for zone in self.zones}
        vpc = {s["VpcId"] for s in ec2.describe_subnets()["Subnets"]}.pop()
        groups = ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["SecurityGroups"]
        account = self.client("sts").get_caller_identity()["Account"]
        policy = launch_policy.launch_policy(
            cluster=CLUSTER,
            template_arn=f"arn:aws:ec2:{REGION}:{account}:launch-template/{template}",
            image_id="ami-12c6146b",
            agent_role_arn=f"arn:aws:iam::{account}:role/e2e-agent",
            agent_profile_arn=f"arn:aws:iam::{account}:instance-profile/e2e-agent",
            subnet_ids=list(self.places.values()),
            security_group_ids=[group["GroupId"] for group in groups],
        )
        self.allow("e2e-scheduler", "launch", policy)
        elastic = Elastic(
            types=list(self.types), markets=list(Market), max_instances=self.max_instances,
            max_usd_per_hour=self.max_usd_per_hour, zones=dict(self.only),
            idle_limit=self.idle_limit, template=template, template_version="1", places=self.places,
        )  # fmt: skip
        declared = {"elastic": elastic, "shared_instances": self.shared}
        manifest = self._manifest(Role.AGENT).model_copy(update=declared)
        self.client("s3").put_object(Bucket=BUCKETS[0], Key="cluster.json", Body=manifest.to_json())

    def _manifest(self, role: Role) -> Manifest:
        plain = super()._manifest(role)
        return (
            Manifest.read(with_idle_limit(plain.to_json().decode(), self.own_idle_limit))
            if role is Role.AGENT
            else plain
        )

    def program(self, name: str, folder: Path, **more: Any) -> str:
        """A job whose program needs nothing but Python."""
        (folder / "main.py").write_text(PROGRAM)
        spec = JobSpec.model_validate({"name": name, "code": str(folder), "entrypoint": ["main.py"], **more})
        job = JobSubmission(job_id=f"{name}-1", spec=spec, submitted_at=self.clock.now())
        return self.store.submit(job, folder).job_id

    def agents(self, *states: str) -> dict[str, dict[str, Any]]:
        filters = [
            {"Name": "tag:everspot:cluster", "Values": [CLUSTER]},
            {"Name": "tag-key", "Values": ["everspot:launch"]},
        ]
        pages = self.client("ec2").get_paginator("describe_instances").paginate(Filters=filters)
        instances = {i["InstanceId"]: i for page in pages for r in page["Reservations"] for i in r["Instances"]}
        return {name: i for name, i in instances.items() if not states or i["State"]["Name"] in states}


def probe(*options: str) -> tuple[int, dict[str, tuple[str, str, str]]]:
    """Probe the cluster. Return the exit code, and verdict, detail and fix of each check by its name."""
    command = [sys.executable, "-m", "everspot_cli.main", "--store", f"s3://{BUCKETS[0]}", "--json"]
    done = subprocess.run([*command, "preflight", "--probe", *options], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    (cluster,) = json.loads(done.stdout)["clusters"].values()
    assert cluster["ok"] is (done.returncode == 0)
    return done.returncode, {c["name"]: (c["verdict"], c["detail"], c["fix"]) for c in cluster["checks"]}
