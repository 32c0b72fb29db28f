"""A whole cluster on the local cloud, created by boto3 with the components' policies. Instances are real processes."""

import base64
import io
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import boto3
from botocore.exceptions import ClientError
from everspot.aws import policies
from everspot_cli.main import main
from everspot_core.cluster.manifest import Limits, Manifest, Standing
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import Event, EventKind, JobState, Role
from everspot_local.cloud import LocalCloud
from everspot_local.market.delays import Delays
from everspot_local.market.disturbances import DisturbanceRates
from everspot_local.options import Options
from everspot_store import Store, SystemClock

SCALE = 12.0
CLUSTER = "e2e"
REGION = "eu-west-1"
JOB_ROLE = "arn:aws:iam::123456789012:role/e2e-job"
PLAIN = {"EVERSPOT_LAUNCHER": "python3"}
"""For agents whose jobs run without torchrun, because its import takes as long as torch's."""
BUCKETS = ("e2e-control", "e2e-data")
URLS = tuple(f"s3://{bucket}?region={REGION}" for bucket in BUCKETS)
LIMITS = Limits(lease_ttl="15s", beat_every="5s", poll_every="1s", tick_every="1s", notice_poll="0.5s")  # type: ignore[arg-type]
PROGRAMS = Path(__file__).parents[1] / "agent" / "programs"
EVENTS = json.dumps({"source": ["aws.ec2"]})
MORE_PROCESSORS = """
import os
os.sched_getaffinity = lambda pid: set(range({cpus}))
from everspot_train.agent.main import main
main()
"""
T = TypeVar("T")


def forking() -> dict[str, str]:
    """Return the environment of agents whose jobs' programs start with torch imported."""
    import program_forks  # which other folders that import this module have not on their path

    return {"EVERSPOT_LAUNCHER": program_forks.launcher()}


class LiveCluster:
    """One cluster.

    Attributes:
        scale: market seconds in a real second.
        limits: time limits of its machines.
        further_buckets: whether jobs may read other buckets.
        target: number of agents' instances that the fleet has.
        types: instance types of the fleet.
        zones: their zones.
        delays: those of the cloud.

    Args:
        folder: of the local cloud's state.
        agent_env: additional environment of the agents.
        events: whether EventBridge sends events to the queue.
        generation: of the first instances.
        cpus: number of processors that agents see, where the machine has fewer than a test needs.
        boot: what every instance runs, in place of the agent of this checkout.
    """

    scale: float = SCALE
    limits: Limits = LIMITS
    target: int = 2
    types: tuple[str, ...] = ("c6i.large", "m6i.large")
    zones: tuple[str, ...] = ("a", "b")
    further_buckets: bool = False
    job_role: str | None = JOB_ROLE
    delays: Delays = Delays()

    def __init__(
        self,
        folder: Path,
        *,
        agent_env: dict[str, str] | None = None,
        events: bool = True,
        generation: str = "",
        cpus: int | None = None,
        boot: tuple[str, ...] | None = None,
    ) -> None:
        words = [f"{k}={v}" for k, v in (agent_env or {}).items()]
        boot = ("/usr/bin/env", *words, *(boot or (sys.executable, *self.agent(cpus))))
        self.folder = folder
        # Ended instances stay visible until the end of the test, also on a busy machine.
        delays = replace(self.delays, remembered=timedelta(days=1))
        busy = DisturbanceRates(conflict=0.03, slow_down=0.03, throttle=0.03)
        self.cloud = LocalCloud(
            Options(folder, region=REGION, scale=self.scale, boot_command=boot, delays=delays, disturbances=busy)
        )
        self.events = events
        self.generation = generation

    def agent(self, cpus: int | None) -> tuple[str, ...]:
        """What the image starts."""
        return ("-m", "everspot_train.agent.main") if cpus is None else ("-c", MORE_PROCESSORS.format(cpus=cpus))

    def __enter__(self) -> "LiveCluster":
        self.cloud.__enter__()
        for name in ("AWS_ENDPOINT_URL", "AWS_REGION"):
            assert name not in os.environ, f"{name} is set: this test would not know where it goes"
        # Unset the developer's own AWS region.
        os.environ |= {"AWS_ENDPOINT_URL": self.cloud.endpoint, "AWS_REGION": "us-west-2"}
        os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        self._create()
        self.store = Store.open(*URLS, clock=self.clock)
        return self

    def __exit__(self, *_: Any) -> None:
        self.cloud.close()
        for name in ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            os.environ.pop(name, None)

    @property
    def clock(self) -> SystemClock:
        return SystemClock(self.scale, self.cloud.market.clock.epoch.timestamp())

    @cache  # noqa: B019 - a cluster lives as long as its test, and to make a client takes longer than to ask
    def client(self, service: str) -> Any:
        return boto3.client(service, endpoint_url=self.cloud.endpoint, region_name=REGION)

    # What the components lay ------------------------------------------------------------------------------------

    def _create(self) -> None:
        for service in ("ec2fleet", "spot"):
            self.client("iam").create_service_linked_role(AWSServiceName=f"{service}.amazonaws.com")
        for bucket in BUCKETS:
            self.client("s3").create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
        control, data = (f"arn:aws:s3:::{bucket}" for bucket in BUCKETS)
        self.queue_url, queue_arn = self._queue()
        self._role("agent", policies.agent_policy(control_arn=control, data_arn=data))
        self._job_role(policies.job_policy(control_arn=control, data_arn=data))
        self._role("scheduler", policies.scheduler_policy(cluster=CLUSTER, control_arn=control, queue_arn=queue_arn))
        self.client("s3").put_object(Bucket=BUCKETS[0], Key="cluster.json", Body=self._manifest(Role.AGENT).to_json())
        for role in (Role.AGENT, Role.SCHEDULER):
            self.until(lambda name=f"e2e-{role.value}": self._usable(name))
        self._fleet()
        self._scheduler()

    def _manifest(self, role: Role) -> Manifest:
        return Manifest(
            cluster=CLUSTER, cloud="aws", role=role, region=REGION, limits=self.limits, queue_url=self.queue_url,
            control_url=URLS[0], data_url=URLS[1], generation=self.generation, job_role=self.job_role,
            further_buckets=self.further_buckets,
        )  # fmt: skip

    def _queue(self) -> tuple[str, str]:
        sqs, events = self.client("sqs"), self.client("events")
        url = sqs.create_queue(QueueName="e2e-interruptions")["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        if self.events:
            rule = events.put_rule(Name="e2e-ec2", EventPattern=EVENTS, State="ENABLED")["RuleArn"]
            events.put_targets(Rule="e2e-ec2", Targets=[{"Id": "queue", "Arn": arn}])
            policy = json.dumps(policies.interruption_queue(arn, [rule]))
            sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
        return url, arn

    def _role(self, name: str, policy: dict[str, Any]) -> None:
        iam = self.client("iam")
        iam.create_role(RoleName=f"e2e-{name}", AssumeRolePolicyDocument=json.dumps(policies.trust_ec2()))
        self.allow(f"e2e-{name}", "all", policy)
        iam.create_instance_profile(InstanceProfileName=f"e2e-{name}")
        iam.add_role_to_instance_profile(InstanceProfileName=f"e2e-{name}", RoleName=f"e2e-{name}")

    def _job_role(self, policy: dict[str, Any]) -> None:
        trust = json.dumps(policies.trust_role("arn:aws:iam::123456789012:role/e2e-agent"))
        self.client("iam").create_role(RoleName="e2e-job", AssumeRolePolicyDocument=trust)
        self.allow("e2e-job", "all", policy)
        self.allow("e2e-agent", "become", policies.assume_policy(JOB_ROLE))

    def allow(self, role: str, name: str, policy: dict[str, Any]) -> None:
        self.client("iam").put_role_policy(RoleName=role, PolicyName=name, PolicyDocument=json.dumps(policy))

    def _usable(self, profile: str) -> bool:
        """Whether EC2 has heard of an instance profile."""
        try:
            self.client("ec2").run_instances(
                ImageId="ami-12c6146b", InstanceType="t3.small", MinCount=1, MaxCount=1, DryRun=True,
                IamInstanceProfile={"Name": profile},
            )  # fmt: skip
        except ClientError as error:
            return error.response["Error"]["Code"] == "DryRunOperation"
        return False

    def _template(self, role: Role, kind: str) -> str:
        answer = self.client("ec2").create_launch_template(
            LaunchTemplateName=f"e2e-{role.value}", LaunchTemplateData=self._template_data(role, kind)
        )
        return str(answer["LaunchTemplate"]["LaunchTemplateId"])

    def _template_data(self, role: Role, kind: str) -> dict[str, Any]:
        tags = {"everspot:cluster": CLUSTER, "everspot:role": role.value}
        return {
            "ImageId": "ami-12c6146b",
            "InstanceType": kind,
            "IamInstanceProfile": {"Name": f"e2e-{role.value}"},
            "MetadataOptions": {"HttpTokens": "required"},
            "UserData": self._user_data(role),
            "InstanceInitiatedShutdownBehavior": "terminate",
            "TagSpecifications": [
                {"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}
            ],
        }

    def _user_data(self, role: Role) -> str:
        return base64.b64encode(self._manifest(role).to_json()).decode()

    def declare(self, generation: str, target: int) -> None:
        """Change the template, the fleet and cluster.json, as `up` does for a new image or setting and a new target."""
        self.generation = generation
        ec2 = self.client("ec2")
        answer = ec2.create_launch_template_version(
            LaunchTemplateName="e2e-agent", LaunchTemplateData=self._template_data(Role.AGENT, self.types[0])
        )
        (fleet,) = ec2.describe_fleets()["Fleets"]
        (config,) = fleet["LaunchTemplateConfigs"]
        template = config["LaunchTemplateSpecification"]["LaunchTemplateId"]
        version = str(answer["LaunchTemplateVersion"]["VersionNumber"])
        specification = {"LaunchTemplateId": template, "Version": version}
        ec2.modify_fleet(
            FleetId=fleet["FleetId"],
            LaunchTemplateConfigs=[{"LaunchTemplateSpecification": specification, "Overrides": config["Overrides"]}],
            TargetCapacitySpecification={"TotalTargetCapacity": target},
            ExcessCapacityTerminationPolicy="no-termination",
        )
        changed = {"generation": generation, "standing": Standing(spot_units=target)}
        self.store.write_manifest(self.store.manifest().model_copy(update=changed))

    def launch(self, kind: str) -> str:
        """Launch an instance of another type from the agents' template."""
        ec2 = self.client("ec2")
        subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
        answer = ec2.run_instances(
            LaunchTemplate={"LaunchTemplateName": "e2e-agent", "Version": "$Latest"},
            InstanceType=kind, SubnetId=subnet, MinCount=1, MaxCount=1,
        )  # fmt: skip
        return str(answer["Instances"][0]["InstanceId"])

    def _fleet(self) -> None:
        subnets = {s["AvailabilityZone"]: s["SubnetId"] for s in self.client("ec2").describe_subnets()["Subnets"]}
        overrides = [
            {"InstanceType": kind, "SubnetId": subnets[f"{REGION}{zone}"]} for kind in self.types for zone in self.zones
        ]
        self.client("ec2").create_fleet(
            Type="maintain",
            SpotOptions={"AllocationStrategy": "price-capacity-optimized"},
            TargetCapacitySpecification={"TotalTargetCapacity": self.target, "DefaultTargetCapacityType": "spot"},
            LaunchTemplateConfigs=[
                {
                    "LaunchTemplateSpecification": {
                        "LaunchTemplateId": self._template(Role.AGENT, self.types[0]),
                        "Version": "$Latest",
                    },
                    "Overrides": overrides,
                }
            ],
        )

    def _scheduler(self) -> None:
        subnet = self.client("ec2").describe_subnets()["Subnets"][0]["SubnetId"]
        self.client("autoscaling").create_auto_scaling_group(
            AutoScalingGroupName="e2e-scheduler",
            MinSize=1, MaxSize=1, DesiredCapacity=1, VPCZoneIdentifier=subnet,
            LaunchTemplate={"LaunchTemplateId": self._template(Role.SCHEDULER, "t3.small"), "Version": "$Latest"},
        )  # fmt: skip

    # What a user does and sees ----------------------------------------------------------------------------------

    def submit_toy(self, name: str, steps: int, seconds: float, trace: Path | None = None, **fields: Any) -> str:
        """Submit a job whose steps sleep a fixed market time, so that it lasts equally long on any machine and uses no
        processor. Its id is its name. `trace`: the file for its steps."""
        env = {"TOY_STEPS": str(steps), "TOY_STEP_SECONDS": str(seconds / self.scale), "TOY_EVERY": "1000000"}
        env |= {"TOY_TRACE": str(trace)} if trace else {}
        words = {"name": name, "entrypoint": ["toy_train.py"], "code": str(PROGRAMS / "toy"), "env": env}
        spec = JobSpec.model_validate(words | fields)
        job = JobSubmission(job_id=name, spec=spec, submitted_at=self.clock.now())
        return self.store.submit(job, PROGRAMS / "toy").job_id

    def until(self, condition: Callable[[], T | None], limit: timedelta = timedelta(seconds=900)) -> T:
        """Wait for a true result of `check`. On a timeout show the last output of all processes."""
        end = time.monotonic() + limit.total_seconds()
        while time.monotonic() < end:
            value = condition()
            if value:
                return value
            time.sleep(0.3)
        raise AssertionError(f"it did not come in {limit}; consoles:\n{self.consoles()}")

    def trains(self, job: str, steps: int = 1) -> str | None:
        """Return the owner of a job that has done this many steps."""
        record = self.store.records.get(job)
        if record is None or record.value.state is not JobState.RUNNING or record.value.progress.step < steps:
            return None
        return record.value.owner

    def ended(self, job: str) -> JobState | None:
        record = self.store.records.get(job)
        return record.value.state if record is not None and record.value.state.final else None

    def list_events(self, job: str, *kinds: EventKind) -> list[Event]:
        return [e for e in self.store.events(job) if e.kind in kinds]

    def consoles(self) -> str:
        logs = sorted(self.folder.glob("instances/*/console.log"))
        return "\n".join(f"--- {log.parent.name}\n{log.read_text()[-1500:]}" for log in logs)

    def calls(self) -> list[dict[str, Any]]:
        return self.cloud.account.calls.read()


def run_command(store: str, *arguments: str) -> tuple[int, str, str]:
    """Run the command in this process, whose start takes a second less than another one's. Return the exit code, and
    what it writes to standard output and standard error."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code = 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(["--store", store, *arguments])
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode()


def everspot(*arguments: str) -> str:
    """Run the command like a user."""
    code, out, err = run_command(f"s3://{BUCKETS[0]}", *arguments)
    assert code == 0, (arguments, out, err)
    return out


def everspot_output(*arguments: str) -> str:
    """Return the command's output, whether it succeeds or not."""
    return run_command(f"s3://{BUCKETS[0]}", *arguments)[1]
