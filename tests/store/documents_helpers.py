"""One example of each kind of stored document, with every field set, for writing the golden documents.

`python tests/store/documents_helpers.py RELEASE` writes them below golden/RELEASE, for a release that has none yet.
Those of earlier releases are never written again: documents like them lie in people's buckets.
"""

import json
import sys
from pathlib import Path

from document_kinds import kinds, least, words
from document_parts import (
    AT,
    SHA,
    a_comparison,
    a_head,
    a_host_instance,
    a_manifest,
    a_record,
    a_spec,
    a_submission,
    a_sweep,
    a_use,
    an_event,
    an_instance,
    an_intent,
    every_field,
    some_prices,
)
from document_review import a_change, a_report
from everspot_core.cluster.manifest import DeclaredCapacity
from everspot_core.costs.ledger import EndRecord, FaultKind, FaultRecord, LaunchRecord, PricePoint
from everspot_core.costs.team_budgets import Allowance, Budgets, Caps
from everspot_core.documents import Document
from everspot_core.experiments.precision_comparison import ComparisonRecord
from everspot_core.experiments.sweep import JournalEntry, SweepRecord
from everspot_core.federation.offer import OfferState, VisitOffer
from everspot_core.governance.anomalies import Anomalies, Anomaly, DailySpending
from everspot_core.jobs.changeover import Changeovers, PartTimes
from everspot_core.jobs.job_archive import Dossier
from everspot_core.jobs.profile import DataLoading, Operation, Profile, ProfileRequest
from everspot_core.jobs.records import (
    Assignment,
    JobState,
    Market,
    Order,
    Reason,
    Request,
    Role,
    RollRequest,
    Seat,
)
from everspot_core.jobs.stage_cache import StageClaim
from everspot_core.jobs.utilization import UtilizationWindow
from everspot_store import (
    Dataset,
    DatasetFile,
    ElasticUse,
    FleetState,
    IdleState,
    PeerMarket,
    PeerSight,
    PoolState,
    SchedulerBeat,
)
from everspot_store.file_tree import EntryKind, FileTree, TreeEntry
from everspot_store.gc_announcements import AnnouncedKeys
from everspot_store.status_documents import TeamUsage, Wait, Waiting, WaitPool

GOLDEN = Path(__file__).parent / "golden"


def examples() -> dict[str, Document]:
    """Return the examples by the name of their golden file: the kind, with a suffix after a hyphen if a kind has
    several."""
    own = a_submission(a_spec(entrypoint=["train.py", "--fast"], code="src"))
    recipe = a_submission(a_spec(recipe="image-classification", parameters={"epochs": 2}))
    pool = {"instance_type": "g5.xlarge", "zone": "eu-west-1a", "market": Market.SPOT}
    documents: dict[str, Document] = {
        "JobSubmission": own,
        "JobSubmission-recipe": recipe,
        "JobRecord": a_record(),
        "InstanceRecord": an_instance(),
        "Manifest": a_manifest(),
        "CheckpointHead": a_head(),
        "Event": an_event(),
        "PriceTable": some_prices(),
        "Dossier": every_field(
            Dossier, submission=own, record=a_record(), events=[an_event()], archived_at=AT, record_written_at=AT
        ),
        "Request": every_field(Request, at=AT, by="ann", note="why"),
        "RollRequest": every_field(RollRequest, at=AT, by="ann", note="why", generation="g2"),
    }
    documents["VisitOffer"] = every_field(
        VisitOffer, visit="resnet-1", home="c", state=OfferState.ENDED, submission=own, progress=a_record().progress,
        at=AT, changed_at=AT, why="no capacity", end=JobState.SUCCEEDED, returned=True, usd=1.5, gpu_hours=0.5,
        instance=a_host_instance(),
    )  # fmt: skip
    seat = every_field(
        Seat, job_id="resnet-2", epoch=1, vcpus=2, memory_gib=4.0, gpus=(1,), share=0.5, order=Order.STOP,
        reason=Reason.CANCEL, deadline=AT, changed_at=AT,
    )  # fmt: skip
    documents["Assignment"] = every_field(
        Assignment, instance_id="i-1", job_id="resnet-1", epoch=2, order=Order.STOP, reason=Reason.NOTICE,
        deadline=AT, cordoned=True, seats=(seat,), hours_between_interruptions=9.5, changed_at=AT,
    )  # fmt: skip
    documents["LaunchRecord"] = every_field(
        LaunchRecord, instance_id="i-1", role=Role.AGENT, image="ami-1", launched_at=AT, node="i-9", node_share=0.5,
        **pool,
    )  # fmt: skip
    documents["LaunchIntent"] = an_intent(pool)
    documents["EndRecord"] = every_field(EndRecord, instance_id="i-1", ended_at=AT, interrupted=True, source="event")
    documents["PricePoint"] = every_field(PricePoint, at=AT, usd_per_hour=0.4, source="describe", **pool)
    documents["FaultRecord"] = every_field(
        FaultRecord,
        instance_id="i-1",
        kind=FaultKind.GPUS,
        generation="g1",
        image="ami-1",
        detail="3 of 4",
        at=AT,
        **pool,
    )
    file = every_field(DatasetFile, path="a/b.npy", size=9, sha256=SHA, escaped=True)
    documents["Dataset"] = every_field(
        Dataset, name="fashion", digest=SHA, created_at=AT, files=[file], region="eu-west-1", visit="visit-us-1"
    )
    entry = every_field(
        TreeEntry, path="step-1/model.pt", kind=EntryKind.LINK, mode=0o640, mtime_ns=1, ctime_ns=2, size=9,
        content="f0", same_as="best.pt", target="step-0", inside=True, unit="step-1",
    )  # fmt: skip
    documents["FileTree"] = every_field(FileTree, entries=[entry])
    wait = every_field(
        Wait,
        why="budget",
        words="soon",
        since=AT,
        withheld_seconds=60.0,
        waits_for=every_field(WaitPool, **pool),
        on_demand_at=AT,
    )
    documents["Waiting"] = every_field(
        Waiting,
        scheduler_id="s-1",
        updated_at=AT,
        jobs={"resnet-1": wait},
    )
    state = every_field(
        PoolState, usd_per_hour=0.4, placement_score=7, refused_at=[AT], noticed_at=AT, open=False, up=True, since=AT,
        ups=[2.5], downs=[0.5, 1.25], changeover_seconds=200.5, changeover_upper_seconds=480.0, **pool,
    )  # fmt: skip
    documents["FleetState"] = every_field(
        FleetState,
        scheduler_id="s-1",
        updated_at=AT,
        pools=[state],
        tick_seconds=5.0,
        promised=3,
        idle=[every_field(IdleState, instance_type="g5.xlarge", market=Market.SPOT, count=2, memory_gib=15.4)],
        elastic=every_field(ElasticUse, instances=2, max_instances=8, usd_per_hour=0.8, max_usd_per_hour=4.5),
    )
    took = every_field(PartTimes, part="boot", seconds=[41.5, 38.25], **pool)
    documents["Changeovers"] = every_field(Changeovers, updated_at=AT, counted={"resnet-1": 2}, times=[took])
    documents["TeamUsage"] = every_field(TeamUsage, at=AT, dollars={"vision": 1.5})
    unusual = every_field(
        Anomaly, kind="idle-fleet", subject="fleet", words="2 of 3", figures={"idle": 2.0}, since=AT, over_at=AT
    )
    documents["Anomalies"] = every_field(Anomalies, scheduler_id="s-1", updated_at=AT, open=[unusual], over=[unusual])
    documents["DeclaredCapacity"] = every_field(DeclaredCapacity, capacity=["fleet-1", "train-scheduler"])
    documents["DailySpending"] = every_field(DailySpending, updated_at=AT, days={AT.date(): {"vision": 1.5}})
    allowance = every_field(Allowance, dollars=12.5, gpu_hours=8)
    caps = every_field(Caps, day=allowance, month=allowance)
    documents["Budgets"] = every_field(
        Budgets, environment=caps, teams={"vision": caps}, changed_at=AT, changed_by="ann"
    )
    documents["SweepRecord"] = every_field(SweepRecord, spec=a_sweep(), made_at=AT, made_by="ann")
    documents["ComparisonRecord"] = every_field(
        ComparisonRecord, spec=a_comparison(), job_digest=SHA, made_at=AT, made_by="ann"
    )
    documents["StageClaim"] = every_field(StageClaim, key=SHA, jobs=["resnet-3", "resnet-1"], changed_at=AT)
    documents["JournalEntry"] = every_field(JournalEntry, logs=[{"op_code": 4, "study_id": 0}])
    documents["AnnouncedKeys"] = every_field(AnnouncedKeys, keys=[f"code/{SHA}.tar.gz"])
    documents["PeerMarket"] = every_field(
        PeerMarket, fleet=documents["FleetState"], instance_types=a_manifest().instance_types
    )
    sight = every_field(
        PeerSight, name="there", seen_at=AT, heard_at=AT, beat_at=AT, alive=True, clock_apart_seconds=-90.0,
        down=True, problem="no",
    )  # fmt: skip
    documents["SchedulerBeat"] = every_field(
        SchedulerBeat, scheduler_id="s-1", instance_id="i-9", started_at=AT, updated_at=AT, ticks=4,
        agent_version="0.1.0", detail="fine", peers=[sight],
    )  # fmt: skip
    documents["UtilizationWindow"] = every_field(UtilizationWindow, at=AT, utilization=a_use())
    documents["ProfileRequest"] = every_field(
        ProfileRequest, id="0a1b2c3d", epoch=2, steps=20, at=AT, by="ann", valid_until=AT
    )
    documents["Profile"] = every_field(
        Profile, id="0a1b2c3d", state="done", message="fine", first_step=121, steps=20, step_seconds=0.012,
        median_step_seconds=0.012, plain_step_seconds=0.01, plain_steps=10, stopped_seconds=0.4, ranks=2,
        cpu_seconds=0.2, gpu_seconds=0.1,
        data=every_field(DataLoading, wait_seconds=0.06, loader="DataLoader", workers=3),
        operations=(every_field(Operation, name="aten::mm", calls=40, cpu_seconds=0.02, gpu_seconds=0.075),),
        trace="steps-121-140-0a1b2c3d.trace.json.gz", trace_bytes=9, trace_note="why",
    )  # fmt: skip
    documents["AppliedChange"] = a_change()
    documents["EnvironmentReport"] = a_report()
    return documents


def write(folder: Path) -> None:
    """Write the documents of a release. Refuses to write one that is there."""
    folder.mkdir(parents=True)
    for name, document in examples().items():
        full = json.loads(document.to_json())
        for file, content in ((name, full), (f"{name}.least", least(type(document), full))):
            (folder / f"{file}.json").write_text(json.dumps(content, indent=1) + "\n")
    members: dict[str, list[str]] = {}
    for kind in kinds():
        members |= words(kind)
    (folder / "words.json").write_text(json.dumps(dict(sorted(members.items())), indent=1) + "\n")


if __name__ == "__main__":
    write(GOLDEN / sys.argv[1])
