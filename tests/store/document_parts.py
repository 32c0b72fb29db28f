"""Examples of the parts of stored documents, with every field set."""

from datetime import UTC, datetime, timedelta
from typing import Any

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.capacity.launching import (
    LaunchedInstance,
    LaunchError,
    LaunchIntent,
    LaunchOutcome,
    LaunchPool,
    LaunchTrouble,
)
from everspot_core.capacity.price_table import PriceTable, TypePrice
from everspot_core.cluster.manifest import Elastic, FleetOffer, Limits, Manifest, Metrics, Monitoring, Proxy, Standing
from everspot_core.cluster.notify import Notifications, Occasion
from everspot_core.cluster.peers import Peer
from everspot_core.experiments.precision_comparison import ComparisonSpec, Tolerance
from everspot_core.experiments.sweep import Dimension, Direction, Fidelity, Pruning, SweepBudget, SweepSpec, SweepStop
from everspot_core.governance.thresholds import Thresholds
from everspot_core.jobs.checkpoint import Checkpoint, CheckpointHead, Part
from everspot_core.jobs.early_stop import EarlyStop, StopRule
from everspot_core.jobs.job import (
    Budget,
    CheckpointPolicy,
    JobLimits,
    JobSpec,
    JobSubmission,
    PrecedingJob,
    Priority,
    Resources,
    Retries,
    Series,
    Visit,
    Wheel,
)
from everspot_core.jobs.job_parts import Precision
from everspot_core.jobs.records import (
    Event,
    EventKind,
    InstanceRecord,
    InstanceState,
    JobRecord,
    JobState,
    Market,
    Notice,
    NoticeKind,
    Progress,
    Reason,
    Resident,
    Role,
)
from everspot_core.jobs.shard_traffic import ShardTraffic
from everspot_core.jobs.tracking import Tracking
from everspot_core.jobs.utilization import Utilization
from everspot_core.jobs.visit_records import Away, HostInstance, Trip, TripEnd
from pydantic import BaseModel

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SHA = "0f" * 32
MISSING: set[str] = set()


def every_field(kind: type[BaseModel], /, **fields: Any) -> Any:
    """Return an instance with every field set. A new field of a model needs an example here. Fields without one are
    added to `MISSING`, and a test fails on them."""
    MISSING.update(f"{kind.__name__}.{name}" for name in set(kind.model_fields) - set(fields) - {"version"})
    return kind(version=1, **fields) if "version" in kind.model_fields else kind(**fields)


def a_rule() -> StopRule:
    return every_field(StopRule, metric="val_loss", mode="min", min_delta="0.1%", patience=4)


def a_spec(**program: Any) -> JobSpec:
    fields = {
        "name": "resnet", "recipe": None, "entrypoint": None, "code": None, "parameters": {},
        "env": {"SEED": "1"}, "datasets": ["fashion@0f0f0f"], "stream": ["fashion"], "image": None,
        "requirements": "requirements.lock",
        "setup": ["make"], "secrets": {"TOKEN": "ssm:/token"},
        "resources": every_field(Resources, vcpus=4, memory_gib=8, gpus=1, gpu_memory_gib=24, gpu="A10G",
                                 instance_types=("g5.2xlarge",), shared=True),
        "processes": 1, "priority": Priority.CRITICAL, "deadline": timedelta(hours=8),
        "expected_duration": timedelta(hours=2),
        "checkpoint": every_field(CheckpointPolicy, every=timedelta(minutes=5), steps=100, keep=3, state_gib=2.5),
        "precision": "bf16", "mixed_on_failover": False, "cache": False,
        "budget": every_field(Budget, dollars=12.5, gpu_hours=8, wall_clock=timedelta(hours=9)),
        "limits": JobLimits.model_validate({"gpu_utilization_below": "20%", "for": "30m", "then": "end"}),
        "stop": None if "recipe" in program else a_rule(),  # a recipe has nothing to stop
        "tracking": every_field(Tracking, mlflow="https://mlflow.example.com", experiment="vision", wandb="a/b"),
        "retries": every_field(Retries, errors=1, from_zero=3, stalled=True, backoff=timedelta(seconds=20)),
        "tags": {"Team": "vision"}, "after": ["prepare"], "start_after": timedelta(hours=1),
        "window": "22:00-06:00 Europe/Berlin", "every": timedelta(days=1), "skip_if": "accuracy gain < 0.01",
        "run_if": "last(deployed.accuracy) > 0.5", "continue_from": "last",
        "clouds": [], "clusters": [],
    }  # fmt: skip
    return every_field(JobSpec, **fields | program)


def a_submission(spec: JobSpec) -> JobSubmission:
    return every_field(
        JobSubmission,
        job_id="resnet-1",
        spec=spec,
        submitted_at=AT,
        deadline_at=AT,
        start_at=AT,
        after=[every_field(PrecedingJob, name="prepare", job_id="prepare-1", reused=True)],
        series=every_field(Series, id="resnet-1", run=1, before={"accuracy": 0.9}),
        code_digest=SHA,
        datasets=[f"fashion@{SHA}"],
        wheels=[every_field(Wheel, name="a-1.whl", sha256=SHA)],
        submitted_by="ann",
        forced=True,
        changeover_bound=timedelta(minutes=15),
        stage_key=SHA,
        same_stage=["resnet-3"],
        retry_of="resnet-0",
        warm_start=True,
        visit=every_field(Visit, home="c", control_url="s3://c", job_id="resnet", number=1, waits_since=AT),
    )


def _place(visit: str) -> dict[str, Any]:
    return {"cluster": "there", "visit": visit, "since": AT, "sent_bytes": 9}


def a_host_instance() -> HostInstance:
    return every_field(HostInstance, instance_type="g5.xlarge", zone="eu-west-1a", market=Market.SPOT, standing=True)


def a_use() -> Utilization:
    return every_field(
        Utilization, seconds=60.5, vcpus=4, cpu_seconds=90.25, memory_gib=7.25, read_bytes=4096, written_bytes=8192,
        io_wait_seconds=1.5, received_bytes=100, sent_bytes=40, gpu_seconds=121.0, gpu_busy_seconds=60.5,
        gpu_memory_gib=11.5, gpu_memory_total_gib=24.0, gpu_joules=18150.5, gpu_celsius=64.0, ecc_errors=1, xids=(79,),
        steps=20, loop_seconds=50.5, data_wait_seconds=12.25,
    )  # fmt: skip


def a_record() -> JobRecord:
    progress = every_field(
        Progress,
        step=10,
        total_steps=100,
        durable_step=8,
        steps_per_second=2.5,
        metrics={"loss": 0.5},
        stalled_seconds=90.0,
        unkept_seconds=1200.0,
        low_gpu_share=0.125,
        early_stop=every_field(
            EarlyStop, metric="val_loss", step=1500, evaluations=4, best=0.412, best_step=1200, min_delta="0.1%"
        ),
        preparing=True,
        memory_gib=7.25,
        gpu_memory_gib=11.5,
        mixed=True,
        new_checkpoints=3,
        steps_per_epoch=25,
        recent_use=a_use(),
        attempt_use=a_use(),
        shard_traffic=every_field(ShardTraffic, fetched_bytes=4096, cached_bytes=12288),
    )
    fields = {
        "job_id": "resnet-1", "state": JobState.RUNNING, "epoch": 2, "owner": "i-1", "incarnation": 1, "beat": 7,
        "progress": progress, "preemptions": 1, "errors": 1, "unstarted": ["i-0"], "from_zero": 1,
        "failed_on": ["i-0"], "failed_step": 5, "fruitless": 2, "fruitless_ended": 1, "idle_attempts": 3,
        "incomplete_ends": 1,
        "assigned_step": 4, "assigned_durable_step": 3,
        "not_before": AT, "last_owner": "i-0", "last_reason": Reason.NOTICE,
        "detail": "why", "exit_code": 1, "reused_from": "resnet-3",
        "changed_at": AT, "assigned_at": AT, "held_seconds": 60.0,
        "waits_since": AT,
        "away": every_field(Away, waits_since=AT, number=2, why="no capacity", reported_state="RUNNING",
                            reported_at=AT, sent_at=AT, usd=0.25, instance=a_host_instance(), **_place("resnet-1-v2")),
        "trips": [every_field(Trip, number=1, until=AT, end=TripEnd.RETURNED, why="cheaper", step=9, usd=0.5,
                              brought_bytes=8, gpu_hours=0.1, egress_usd=0.01, host_failed=True,
                              **_place("resnet-1-v1"))],
    }  # fmt: skip
    return every_field(JobRecord, **fields)


def an_instance() -> InstanceRecord:
    notice = every_field(Notice, kind=NoticeKind.INTERRUPTION, source="imds", seen_at=AT, action_at=AT)
    fields = {
        "instance_id": "i-1", "cluster": "c", "role": Role.AGENT, "instance_type": "g5.xlarge", "zone": "eu-west-1a",
        "market": Market.SPOT, "vcpus": 4, "memory_gib": 16, "gpus": 1, "gpu": "A10G", "gpu_memory_gib": 24,
        "state": InstanceState.BUSY, "job_id": "resnet-1", "epoch": 2, "notice": notice,
        "residents": (every_field(Resident, job_id="resnet-2", epoch=1),), "agent_version": "0.1.0",
        "python": "3.12", "generation": "g1", "detail": "fine", "booted_at": AT, "beat": 3, "updated_at": AT,
    }  # fmt: skip
    return every_field(InstanceRecord, **fields)


def a_manifest() -> Manifest:
    limits = {name: timedelta(seconds=60 + at) for at, name in enumerate(Limits.model_fields)}
    return every_field(
        Manifest,
        cluster="c",
        cloud="aws",
        team="ml-platform",
        role=Role.SCHEDULER,
        region="eu-west-1",
        account="123456789012",
        notice=timedelta(minutes=2),
        health_port=8080,
        control_url="s3://control?region=eu-west-1",
        data_url="s3://data?region=eu-west-1",
        queue_url="https://sqs.eu-west-1.amazonaws.com/1/q",
        job_role="arn:aws:iam::123456789012:role/c-job",
        further_buckets=True,
        read_buckets=["corpora"],
        generation="g1",
        standing=every_field(Standing, on_demand_units=1, spot_units=3, weights={"g5.xlarge": 1.0}),
        fleet=every_field(FleetOffer, types=["g5.xlarge"], zones=["eu-west-1a"], markets=[Market.SPOT]),
        elastic=every_field(
            Elastic,
            types=["g5.xlarge"],
            markets=[Market.SPOT],
            max_instances=8,
            max_usd_per_hour=9.5,
            idle_limit=timedelta(minutes=5),
            template="lt-1",
            template_version="3",
            places={"eu-west-1a": "subnet-1"},
            tags={"Team": "vision"},
            zones={"g5.xlarge": ["eu-west-1a"]},
            max_prices={"g5.xlarge": 1.5},
        ),
        scheduler_type="t3.small",
        shares={"vision": 2.0},
        shared_instances=True,
        internet=True,
        job_images=False,
        image_repositories=["123456789012.dkr.ecr.eu-west-1.amazonaws.com/team/train"],
        anomalies=every_field(
            Thresholds,
            job_times=3.0,
            team_spreads=5.0,
            team_share=0.25,
            team_usd=10.0,
            idle_for=timedelta(hours=1),
            idle_share=0.75,
            price_times=1.5,
        ),
        federation=(
            every_field(
                Peer,
                name="there",
                cloud="gcp",
                control_url="gs://control",
                data_url="gs://data",
                identity="everspot-1@project.iam.gserviceaccount.com",
                audience="projects/1/locations/global/workloadIdentityPools/everspot-1/providers/aws",
                egress_usd_per_gb=0.09,
                patience=timedelta(minutes=10),
            ),
        ),
        monitoring=every_field(Monitoring, namespace="Everspot"),
        metrics=every_field(Metrics, port=9494),
        proxy=every_field(Proxy, url="http://proxy:3128", no_proxy=("10.0.0.0/8",)),
        notifications=every_field(
            Notifications, topic_arn="arn:aws:sns:eu-west-1:1:t", webhook_secret_arn="arn:aws:x", on=(Occasion.LATE,)
        ),
        limits=every_field(Limits, **limits),
        instance_types=[a_type()],
        list_prices=some_prices(),
    )


def a_type() -> InstanceType:
    return every_field(
        InstanceType, name="new.large", arch="arm64", vcpus=2, memory_gib=8, gpus=1, gpu="L4", gpu_memory_gib=24,
        local_nvme_gb=100, network_gbps=12.5, efa_interfaces=1, nvswitch=True, on_demand_usd_per_hour=1.5,
    )  # fmt: skip


def a_head() -> CheckpointHead:
    part = every_field(
        Part,
        name="stream-00000-001",
        key="jobs/resnet-1/checkpoints/2/10/stream-00000-001",
        size=9,
        sha256=SHA,
        xxh3=SHA[:32],
        stream="stream-00000",
        offset=64,
        stored_at=AT,
    )
    checkpoint = every_field(Checkpoint, step=10, epoch=2, created_at=AT, parts=[part], info={"torch": "2.15"},
                             failed_loads=1)  # fmt: skip
    return every_field(
        CheckpointHead, job_id="resnet-1", epoch=2, incarnation=1, checkpoints=[checkpoint], emptied=True
    )


def an_event() -> Event:
    return every_field(
        Event, job_id="resnet-1", kind=EventKind.STARTED, at=AT, epoch=2, writer="i-1", seq=3, instance_id="i-1",
        data={"from_zero": 1},
    )  # fmt: skip


def some_prices() -> PriceTable:
    row = every_field(
        TypePrice, instance_type="g5.xlarge", on_demand_usd_per_hour=1.1, spot_usd_per_hour={"eu-west-1a": 0.4}
    )
    return every_field(
        PriceTable, cloud="aws", region="eu-west-1", as_of=AT, on_demand_source="a", spot_source="b", prices=[row],
        types=[a_type()], unpriced={"new.large": "not sold"}, other_usd={"endpoint_hour": 0.011},
    )  # fmt: skip


def an_intent(pool: dict[str, Any]) -> LaunchIntent:
    launched = every_field(
        LaunchedInstance, instance_id="i-1", job_id="resnet-1", node="i-9", node_share=0.5, **pool
    )  # fmt: skip
    error = every_field(
        LaunchError, kind=LaunchTrouble.CAPACITY, code="InsufficientCapacity", message="m", unresolved=True, **pool
    )
    return every_field(
        LaunchIntent, seq=7, token=SHA[:32], jobs=("resnet-1", "resnet-2"),
        pools=(every_field(LaunchPool, place="subnet-1", max_price=1.5, **pool),), ordered=True, whole=False,
        template="lt-1", template_version="3", tags={"Team": "vision"}, usd_per_hour=0.8, made_at=AT,
        scheduler_id="s-1",
        outcome=every_field(LaunchOutcome, instances=(launched,), errors=(error,), settled_at=AT),
    )  # fmt: skip


def a_comparison() -> ComparisonSpec:
    return every_field(
        ComparisonSpec, name="formats", precisions=[Precision.FP32, Precision.BF16], seeds=3, first_seed=1,
        seed_field="parameters.seed", metric="accuracy", direction=Direction.MAXIMIZE,
        tolerance=every_field(Tolerance, amount=0.005, relative=True),
    )  # fmt: skip


def a_sweep() -> SweepSpec:
    lr = {"low": 0.001, "high": 0.1, "step": None, "log": True, "choices": None}
    size = {"low": None, "high": None, "step": None, "log": False, "choices": [32, 64]}
    return every_field(
        SweepSpec, name="rates", job="train.yaml", metric="accuracy", direction=Direction.MAXIMIZE,
        fields={"parameters.lr": every_field(Dimension, **lr), "parameters.batch": every_field(Dimension, **size)},
        trials=20, parallel=2, budget=every_field(SweepBudget, dollars=5, gpu_hours=3), pruner=Pruning.NONE,
        fidelity=every_field(Fidelity, field="parameters.epochs", values=[1, 3], keep=3, warm_start=True),
        min_steps=10, seed=1, stop=every_field(SweepStop, min_delta="0.1%", trials=5, usd=12.5),
    )  # fmt: skip
