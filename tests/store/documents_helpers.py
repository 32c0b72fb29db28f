"""One example of each kind of stored document, with every field set: what the golden documents were written from.

`python tests/store/documents_helpers.py RELEASE` writes them below golden/RELEASE, for a release that has none yet.
Those of earlier releases are never written again: documents like them lie in people's buckets.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

from everspot_core.budgets import Allowance, Budgets, Caps
from everspot_core.catalogue import InstanceType
from everspot_core.changeover import Changeovers, PartTimes
from everspot_core.checkpoint import Checkpoint, CheckpointHead, Part
from everspot_core.documents import Document
from everspot_core.dossier import Dossier
from everspot_core.job import (
    Budget,
    CheckpointPolicy,
    Earlier,
    JobSpec,
    JobSubmission,
    Priority,
    Resources,
    Retries,
    Series,
    Wheel,
)
from everspot_core.launching import (
    LaunchedInstance,
    LaunchError,
    LaunchIntent,
    LaunchOutcome,
    LaunchPool,
    LaunchTrouble,
)
from everspot_core.ledger import EndRecord, FaultKind, FaultRecord, LaunchRecord, PricePoint
from everspot_core.manifest import Elastic, FleetOffer, Limits, Manifest, Metrics, Monitoring, Proxy, Standing
from everspot_core.notify import Notifications, Occasion
from everspot_core.price_table import PriceTable, TypePrice
from everspot_core.records import (
    Assignment,
    Event,
    EventKind,
    InstanceRecord,
    InstanceState,
    JobRecord,
    JobState,
    Market,
    Notice,
    NoticeKind,
    Order,
    Progress,
    Reason,
    Request,
    Resident,
    Role,
    RollRequest,
    Seat,
)
from everspot_core.sweep import Dimension, Direction, JournalEntry, Pruning, SweepBudget, SweepRecord, SweepSpec
from everspot_store import Dataset, DatasetFile, ElasticUse, FleetState, PoolState, SchedulerBeat
from everspot_store.notes import TeamUsage, Wait, Waiting, WaitPool
from everspot_store.sweeps import Sweep
from pydantic import BaseModel, TypeAdapter, ValidationError

GOLDEN = Path(__file__).parent / "golden"
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SHA = "0f" * 32
MISSING: set[str] = set()


def every_field(kind: type[BaseModel], /, **fields: Any) -> Any:
    """An instance of which each field is given: who adds a field to a model says here what it may look like. What is
    not given is noted in `MISSING`, of which a test makes a complaint."""
    MISSING.update(f"{kind.__name__}.{name}" for name in set(kind.model_fields) - set(fields) - {"version"})
    return kind(version=1, **fields) if "version" in kind.model_fields else kind(**fields)


def _spec(**program: Any) -> JobSpec:
    fields = {
        "name": "resnet", "recipe": None, "entrypoint": None, "code": None, "parameters": {},
        "env": {"SEED": "1"}, "datasets": ["fashion@0f0f0f"], "requirements": "requirements.lock",
        "setup": ["make"], "secrets": {"TOKEN": "ssm:/token"},
        "resources": every_field(Resources, vcpus=4, memory_gib=8, gpus=1, gpu_memory_gib=24, gpu="A10G",
                                 shared=True),
        "priority": Priority.CRITICAL, "deadline": timedelta(hours=8), "expected_duration": timedelta(hours=2),
        "checkpoint": every_field(CheckpointPolicy, every=timedelta(minutes=5), steps=100, keep=3),
        "precision": "bf16",
        "budget": every_field(Budget, dollars=12.5, gpu_hours=8, wall_clock=timedelta(hours=9)),
        "retries": every_field(Retries, errors=1, from_zero=3, stalled=True, backoff=timedelta(seconds=20)),
        "tags": {"Team": "vision"}, "after": ["prepare"], "start_after": timedelta(hours=1),
        "window": "22:00-06:00 Europe/Berlin", "every": timedelta(days=1), "skip_if": "accuracy gain < 0.01",
    }  # fmt: skip
    return every_field(JobSpec, **fields | program)


def _submission(spec: JobSpec) -> JobSubmission:
    return every_field(
        JobSubmission,
        job_id="resnet-1",
        spec=spec,
        submitted_at=AT,
        deadline_at=AT,
        start_at=AT,
        after=[every_field(Earlier, name="prepare", job_id="prepare-1")],
        series=every_field(Series, id="resnet-1", run=1, before={"accuracy": 0.9}),
        code_digest=SHA,
        datasets=[f"fashion@{SHA}"],
        wheels=[every_field(Wheel, name="a-1.whl", sha256=SHA)],
        submitted_by="ann",
        forced=True,
        changeover_bound=timedelta(minutes=15),
        retry_of="resnet-0",
    )


def _record() -> JobRecord:
    progress = every_field(
        Progress,
        step=10,
        total_steps=100,
        durable_step=8,
        steps_per_second=2.5,
        metrics={"loss": 0.5},
        stalled_seconds=90.0,
        preparing=True,
        memory_gib=7.25,
        gpu_memory_gib=11.5,
        mixed=True,
    )
    fields = {
        "job_id": "resnet-1", "state": JobState.RUNNING, "epoch": 2, "owner": "i-1", "incarnation": 1, "beat": 7,
        "progress": progress, "preemptions": 1, "errors": 1, "unstarted": ["i-0"], "from_zero": 1,
        "failed_on": ["i-0"], "failed_step": 5, "not_before": AT, "last_owner": "i-0", "last_reason": Reason.NOTICE,
        "detail": "why", "exit_code": 1, "changed_at": AT, "assigned_at": AT, "held_seconds": 60.0,
    }  # fmt: skip
    return every_field(JobRecord, **fields)


def _instance() -> InstanceRecord:
    notice = every_field(Notice, kind=NoticeKind.INTERRUPTION, source="imds", seen_at=AT, action_at=AT)
    fields = {
        "instance_id": "i-1", "cluster": "c", "role": Role.AGENT, "instance_type": "g5.xlarge", "zone": "eu-west-1a",
        "market": Market.SPOT, "vcpus": 4, "memory_gib": 16, "gpus": 1, "gpu": "A10G", "gpu_memory_gib": 24,
        "state": InstanceState.BUSY, "job_id": "resnet-1", "epoch": 2, "notice": notice,
        "residents": (every_field(Resident, job_id="resnet-2", epoch=1),), "agent_version": "0.1.0",
        "python": "3.12", "generation": "g1", "detail": "fine", "booted_at": AT, "beat": 3, "updated_at": AT,
    }  # fmt: skip
    return every_field(InstanceRecord, **fields)


def _manifest() -> Manifest:
    limits = {name: timedelta(seconds=60 + at) for at, name in enumerate(Limits.model_fields)}
    kind = every_field(
        InstanceType, name="new.large", arch="arm64", vcpus=2, memory_gib=8, gpus=1, gpu="L4", gpu_memory_gib=24,
        local_nvme_gb=100, on_demand_usd_per_hour=1.5,
    )  # fmt: skip
    return every_field(
        Manifest,
        cluster="c",
        cloud="aws",
        role=Role.SCHEDULER,
        region="eu-west-1",
        account="123456789012",
        notice=timedelta(minutes=2),
        health_port=8080,
        control_url="s3://control?region=eu-west-1",
        data_url="s3://data?region=eu-west-1",
        queue_url="https://sqs.eu-west-1.amazonaws.com/1/q",
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
        shares={"vision": 2.0},
        shared_instances=True,
        monitoring=every_field(Monitoring, namespace="Everspot"),
        metrics=every_field(Metrics, port=9494),
        proxy=every_field(Proxy, url="http://proxy:3128", no_proxy=("10.0.0.0/8",)),
        notifications=every_field(
            Notifications, topic_arn="arn:aws:sns:eu-west-1:1:t", webhook_secret_arn="arn:aws:x", on=(Occasion.LATE,)
        ),
        limits=every_field(Limits, **limits),
        instance_types=[kind],
    )


def _head() -> CheckpointHead:
    part = every_field(Part, name="rank-0.pt", key="jobs/resnet-1/checkpoints/2/10/rank-0.pt", size=9, sha256=SHA)
    checkpoint = every_field(Checkpoint, step=10, epoch=2, created_at=AT, parts=[part], info={"torch": "2.15"})
    return every_field(
        CheckpointHead, job_id="resnet-1", epoch=2, incarnation=1, checkpoints=[checkpoint], emptied=True
    )


def _event() -> Event:
    return every_field(
        Event, job_id="resnet-1", kind=EventKind.STARTED, at=AT, epoch=2, writer="i-1", seq=3, instance_id="i-1",
        data={"from_zero": 1},
    )  # fmt: skip


def _prices() -> PriceTable:
    row = every_field(
        TypePrice, instance_type="g5.xlarge", on_demand_usd_per_hour=1.1, spot_usd_per_hour={"eu-west-1a": 0.4}
    )
    return every_field(
        PriceTable, cloud="aws", region="eu-west-1", as_of=AT, on_demand_source="a", spot_source="b", prices=[row]
    )


def _intent(pool: dict[str, Any]) -> LaunchIntent:
    launched = every_field(LaunchedInstance, instance_id="i-1", job_id="resnet-1", **pool)
    error = every_field(LaunchError, kind=LaunchTrouble.CAPACITY, code="InsufficientCapacity", message="m", **pool)
    return every_field(
        LaunchIntent, seq=7, token=SHA[:32], jobs=("resnet-1", "resnet-2"),
        pools=(every_field(LaunchPool, place="subnet-1", max_price=1.5, **pool),), ordered=True, whole=False,
        template="lt-1", template_version="3", tags={"Team": "vision"}, usd_per_hour=0.8, made_at=AT,
        scheduler_id="s-1",
        outcome=every_field(LaunchOutcome, instances=(launched,), errors=(error,), settled_at=AT),
    )  # fmt: skip


def _sweep() -> SweepSpec:
    lr = {"low": 0.001, "high": 0.1, "step": None, "log": True, "choices": None}
    size = {"low": None, "high": None, "step": None, "log": False, "choices": [32, 64]}
    return every_field(
        SweepSpec, name="rates", job="train.yaml", metric="accuracy", direction=Direction.MAXIMIZE,
        fields={"parameters.lr": every_field(Dimension, **lr), "parameters.batch": every_field(Dimension, **size)},
        trials=20, parallel=2, budget=every_field(SweepBudget, dollars=5, gpu_hours=3), pruner=Pruning.HYPERBAND,
        min_steps=10, seed=1,
    )  # fmt: skip


def examples() -> dict[str, Document]:
    """By the name of the golden file: the kind's, and behind a hyphen which one it is where one does not do."""
    own = _submission(_spec(entrypoint=["train.py", "--fast"], code="src"))
    recipe = _submission(_spec(recipe="image-classification", parameters={"epochs": 2}))
    pool = {"instance_type": "g5.xlarge", "zone": "eu-west-1a", "market": Market.SPOT}
    found: dict[str, Document] = {
        "JobSubmission": own,
        "JobSubmission-recipe": recipe,
        "JobRecord": _record(),
        "InstanceRecord": _instance(),
        "Manifest": _manifest(),
        "CheckpointHead": _head(),
        "Event": _event(),
        "PriceTable": _prices(),
        "Dossier": every_field(Dossier, submission=own, record=_record(), events=[_event()], archived_at=AT),
        "Request": every_field(Request, at=AT, by="ann", note="why"),
        "RollRequest": every_field(RollRequest, at=AT, by="ann", note="why", generation="g2"),
    }
    seat = every_field(
        Seat, job_id="resnet-2", epoch=1, vcpus=2, memory_gib=4.0, gpus=(1,), share=0.5, order=Order.STOP,
        reason=Reason.CANCEL, deadline=AT, changed_at=AT,
    )  # fmt: skip
    found["Assignment"] = every_field(
        Assignment, instance_id="i-1", job_id="resnet-1", epoch=2, order=Order.STOP, reason=Reason.NOTICE,
        deadline=AT, cordoned=True, seats=(seat,), changed_at=AT,
    )  # fmt: skip
    found["LaunchRecord"] = every_field(
        LaunchRecord, instance_id="i-1", role=Role.AGENT, image="ami-1", launched_at=AT, **pool
    )
    found["LaunchIntent"] = _intent(pool)
    found["EndRecord"] = every_field(EndRecord, instance_id="i-1", ended_at=AT, interrupted=True, source="event")
    found["PricePoint"] = every_field(PricePoint, at=AT, usd_per_hour=0.4, source="describe", **pool)
    found["FaultRecord"] = every_field(
        FaultRecord,
        instance_id="i-1",
        kind=FaultKind.GPUS,
        generation="g1",
        image="ami-1",
        detail="3 of 4",
        at=AT,
        **pool,
    )
    file = every_field(DatasetFile, path="a/b.npy", size=9, sha256=SHA)
    found["Dataset"] = every_field(Dataset, name="fashion", digest=SHA, created_at=AT, files=[file])
    wait = every_field(
        Wait, why="budget", words="soon", since=AT, waits_for=every_field(WaitPool, **pool), on_demand_at=AT
    )
    found["Waiting"] = every_field(
        Waiting,
        scheduler_id="s-1",
        updated_at=AT,
        jobs={"resnet-1": wait},
    )
    found["FleetState"] = every_field(
        FleetState,
        scheduler_id="s-1",
        updated_at=AT,
        pools=[every_field(PoolState, usd_per_hour=0.4, placement_score=7, refused_at=[AT], noticed_at=AT, **pool)],
        elastic=every_field(ElasticUse, instances=2, max_instances=8, usd_per_hour=0.8, max_usd_per_hour=4.5),
    )
    took = every_field(PartTimes, part="boot", seconds=[41.5, 38.25], **pool)
    found["Changeovers"] = every_field(Changeovers, updated_at=AT, counted={"resnet-1": 2}, times=[took])
    found["TeamUsage"] = every_field(TeamUsage, at=AT, dollars={"vision": 1.5})
    allowance = every_field(Allowance, dollars=12.5, gpu_hours=8)
    caps = every_field(Caps, day=allowance, month=allowance)
    found["Budgets"] = every_field(Budgets, environment=caps, teams={"vision": caps}, changed_at=AT, changed_by="ann")
    found["SweepRecord"] = every_field(SweepRecord, spec=_sweep(), made_at=AT, made_by="ann")
    found["JournalEntry"] = every_field(JournalEntry, logs=[{"op_code": 4, "study_id": 0}])
    found["Sweep"] = every_field(Sweep, keys=[f"code/{SHA}.tar.gz"])
    found["SchedulerBeat"] = every_field(
        SchedulerBeat, scheduler_id="s-1", instance_id="i-9", started_at=AT, updated_at=AT, ticks=4,
        agent_version="0.1.0", detail="fine",
    )  # fmt: skip
    return found


def kinds() -> set[type[Document]]:
    """Every kind of document that the store keeps."""
    return {kind for kind in _below(Document) if kind.__module__.startswith(("everspot_core.", "everspot_store."))}


def words(kind: type[BaseModel], path: str = "") -> dict[str, list[str]]:
    """The members of every enumeration in it, by the path of the field."""
    found: dict[str, list[str]] = {}
    for name, field in kind.model_fields.items():
        at = f"{path or kind.__name__}.{name}"
        for part in _leaves(field.annotation):
            if isinstance(part, type) and issubclass(part, Enum):
                found[at] = [member.value for member in part]
            elif isinstance(part, type) and issubclass(part, BaseModel):
                found |= words(part, at)
    return found


def takes(kind: type[BaseModel], path: str, word: str) -> bool:
    """Whether the field at a path takes a word."""
    name, _, rest = path.partition(".")
    annotation = kind.model_fields[name].annotation
    if rest:
        inner = [p for p in _leaves(annotation) if isinstance(p, type) and issubclass(p, BaseModel)]
        return any(takes(part, rest, word) for part in inner)
    for value in (word, [word]):
        with suppress(ValidationError):
            TypeAdapter(annotation).validate_python(value)
            return True
    return False


def least(kind: type[BaseModel], full: dict[str, Any]) -> dict[str, Any]:
    """What `full` holds in the fields that have to be given, at every depth."""
    known = {name: field for name, field in kind.model_fields.items() if field.is_required()}
    found = {name: full[name] for name in known}
    for name, field in known.items():
        if get_origin(field.annotation) is dict:  # its values have rules between their fields
            continue
        for part in _leaves(field.annotation):
            if isinstance(part, type) and issubclass(part, BaseModel) and isinstance(found[name], dict):
                found[name] = least(part, found[name])
    if kind is JobSpec:  # which has to have one of two programs
        found |= {name: full[name] for name in ("recipe", "entrypoint", "code") if name in full}
    return found


def _below(kind: type[Any]) -> Iterator[type[Any]]:
    for sub in kind.__subclasses__():
        yield sub
        yield from _below(sub)


def _leaves(annotation: Any) -> Iterator[Any]:
    parts = get_args(annotation)
    if not parts:
        yield annotation
    for part in parts:
        yield from _leaves(part)


def write(folder: Path) -> None:
    """Write the documents of a release. Refuses to write one that is there."""
    folder.mkdir(parents=True)
    for name, document in examples().items():
        full = json.loads(document.to_json())
        for file, content in ((name, full), (f"{name}.least", least(type(document), full))):
            (folder / f"{file}.json").write_text(json.dumps(content, indent=1) + "\n")
    said: dict[str, list[str]] = {}
    for kind in kinds():
        said |= words(kind)
    (folder / "words.json").write_text(json.dumps(dict(sorted(said.items())), indent=1) + "\n")


if __name__ == "__main__":
    write(GOLDEN / sys.argv[1])
