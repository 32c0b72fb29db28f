"""A cluster on a local cloud with nothing standing: what the scheduler launches are real agents in processes."""

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import boto3
from everspot_core.capacity.market import Market
from everspot_core.cluster.manifest import Elastic, Limits, Manifest
from everspot_core.jobs.records import Role
from everspot_local.cloud import LocalCloud
from everspot_local.market.delays import Delays
from everspot_local.options import Options
from everspot_store import Store, SystemClock

REGION, ZONE, TYPE = "us-east-1", "us-east-1a", "c6i.large"
CONTROL, DATA = (f"s3://bench-{name}?region={REGION}" for name in ("control", "data"))
TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}
TAGS = {"everspot:cluster": "bench", "everspot:role": Role.AGENT.value}
LONGEST = 600.0
"""Real seconds after which something that does not come is an error."""
T = TypeVar("T")


class LiveCluster:
    """A cluster on a local cloud, as a context manager. `scale`: market seconds in a real second; `most`: the cap on
    instances; `limits`: by default those of a cluster without settings for them; `usd`: the constant price of an hour
    of Spot."""

    def __init__(
        self, folder: Path, *, scale: float, idle_limit: timedelta, most: int, limits: Limits | None = None,
        usd: float = 0.031,
    ) -> None:  # fmt: skip
        folder.mkdir()
        self.folder = folder
        delays = Delays(remembered=timedelta(days=1), walk=timedelta(days=1))
        self.cloud = LocalCloud(Options(state_dir=folder / "cloud", scale=scale, delays=delays))
        self._usd = usd
        self._elastic = {"idle_limit": idle_limit, "max_instances": most}
        self._limits = limits or Limits()
        self._scheduler: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "LiveCluster":
        self.cloud.__enter__()
        try:
            self.cloud.do("price", pool=f"{TYPE}/{ZONE}", usd=self._usd)
            self.clock = SystemClock(self.cloud.options.scale, self.cloud.market.clock.epoch.timestamp())
            os.environ.update(self.environment)
            self._lay()
            self.store = Store.open(CONTROL, DATA, clock=self.clock)
            self._schedule()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._scheduler is not None:
            self._scheduler.terminate()
            self._scheduler.wait()
        self.cloud.close()
        for name in self.environment:
            os.environ.pop(name, None)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of programs that run outside of the cloud's machines."""
        return {
            "AWS_ENDPOINT_URL": self.cloud.endpoint,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "bench",
            "AWS_SECRET_ACCESS_KEY": "bench",
            "EVERSPOT_CLOCK": self.cloud.market.clock.variable,
        }

    @property
    def boot(self) -> timedelta:
        """Market time from a launch until the image's boot command starts."""
        return self.cloud.market.delays.boot

    def everspot(self, *arguments: str) -> Any:
        """Return the answer of the command, as a user types it."""
        command = [sys.executable, "-m", "everspot_cli.main", "--store", CONTROL, "--json", *arguments]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    def living(self) -> int:
        """How many instances cost something."""
        with self.cloud.market.lock:
            return len(self.cloud.machines.living())

    def until(self, probe: Callable[[], T | None]) -> T:
        """Wait until it is there."""
        end = time.monotonic() + LONGEST
        while time.monotonic() < end:
            if value := probe():
                return value
            time.sleep(0.02)
        consoles = [log.read_text()[-1500:] for log in self.folder.glob("cloud/instances/*/console.log")]
        raise TimeoutError("\n---\n".join([(self.folder / "scheduler.log").read_text()[-3000:], *consoles]))

    def sleep(self, span: timedelta) -> None:
        """Let market time pass."""
        self.clock.sleep(self.clock.to_real(span))

    # What `pulumi up` would make -------------------------------------------------------------------------------

    def _lay(self) -> None:
        s3, ec2, iam = (boto3.client(name, region_name=REGION) for name in ("s3", "ec2", "iam"))
        for name in ("control", "data"):
            s3.create_bucket(Bucket=f"bench-{name}")
        for service in ("ec2fleet", "spot"):
            iam.create_service_linked_role(AWSServiceName=f"{service}.amazonaws.com")
        iam.create_role(RoleName="bench", AssumeRolePolicyDocument=json.dumps(TRUST))
        iam.create_instance_profile(InstanceProfileName="bench")
        iam.add_role_to_instance_profile(InstanceProfileName="bench", RoleName="bench")
        zone = [{"Name": "availability-zone", "Values": [ZONE]}]
        (subnet,) = ec2.describe_subnets(Filters=zone)["Subnets"]
        template = ec2.create_launch_template(LaunchTemplateName="bench", LaunchTemplateData=self._template())
        elastic = Elastic.model_validate(
            {
                "types": [TYPE],
                "markets": list(Market),
                "template": template["LaunchTemplate"]["LaunchTemplateId"],
                "template_version": "1",
                "places": {ZONE: subnet["SubnetId"]},
                **self._elastic,
            }
        )
        declared = self._manifest(Role.AGENT).model_copy(update={"elastic": elastic})
        s3.put_object(Bucket="bench-control", Key="cluster.json", Body=declared.to_json())

    def _template(self) -> dict[str, Any]:
        tags = [{"Key": key, "Value": value} for key, value in TAGS.items()]
        return {
            "ImageId": "ami-12c6146b",
            "InstanceType": TYPE,
            "IamInstanceProfile": {"Name": "bench"},
            "UserData": base64.b64encode(self._manifest(Role.AGENT).to_json()).decode(),
            "InstanceInitiatedShutdownBehavior": "terminate",
            "TagSpecifications": [{"ResourceType": "instance", "Tags": tags}],
        }

    def _manifest(self, role: Role) -> Manifest:
        return Manifest(
            cluster="bench", cloud="aws", role=role, region=REGION, limits=self._limits, control_url=CONTROL,
            data_url=DATA,
        )  # fmt: skip

    def _schedule(self) -> None:
        (self.folder / "manifest.json").write_bytes(self._manifest(Role.SCHEDULER).to_json())
        command = [sys.executable, "-m", "everspot_scheduler.main", "--manifest", str(self.folder / "manifest.json")]
        with (self.folder / "scheduler.log").open("wb") as log:
            self._scheduler = subprocess.Popen([*command, "--metrics", "off"], stdout=log, stderr=log)
