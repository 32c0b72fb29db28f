"""The conclusion from several unusable instances."""

from datetime import UTC, datetime, timedelta

import pytest
from everspot_core.cluster.suspects import WINDOW, find_suspects
from everspot_core.costs.ledger import FaultKind, FaultRecord, LaunchRecord
from everspot_core.jobs.records import Market, Role

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
POOL = {"instance_type": "g5.xlarge", "zone": "us-east-1a", "market": Market.SPOT}


def fault(name, kind=FaultKind.NEVER_REPORTED, image="ami-1", at=NOW, detail="why", **pool):
    return FaultRecord(instance_id=name, kind=kind, image=image, at=at, detail=detail, **{**POOL, **pool})


def launched(*names, image="ami-1", role=Role.AGENT, ago=timedelta(hours=1), **pool):
    fields = {"image": image, "role": role, "launched_at": NOW - ago, **POOL, **pool}
    return {name: LaunchRecord(instance_id=name, **fields) for name in names}


SILENT = "never reported"
TABLE = [
    ([], launched("a"), []),
    ([fault("a")], launched("a"), [("a (g5.xlarge, us-east-1a): why", False)]),
    (
        [fault("a"), fault("b")],
        launched("a", "b"),
        [(f"2 of 2 instances of image ami-1 {SILENT}: the image or its egress is at fault", True)],
    ),
    (
        [fault("a"), fault("b", zone="us-east-1b")],
        launched("a") | launched("b", zone="us-east-1b") | launched("s", role=Role.SCHEDULER),
        [(f"2 of 2 instances of image ami-1 {SILENT}: the image or its egress is at fault", True)],
    ),
    (
        [fault("a"), fault("b")],
        launched("a", "b", "c"),
        [(f"2 of 3 instances of g5.xlarge in us-east-1a {SILENT}", False)],
    ),
    (
        [fault("a"), fault("b")],
        launched("a", "b") | launched("old", ago=WINDOW),
        [(f"2 of 2 instances of image ami-1 {SILENT}: the image or its egress is at fault", True)],
    ),
    ([fault("a", at=NOW - WINDOW)], launched("a"), []),
    (
        [fault("c", kind=FaultKind.DISK), fault("a", kind=FaultKind.GPUS), fault("b", kind=FaultKind.GPUS)],
        launched("a", "b", "c"),
        [
            ("2 of 3 instances of g5.xlarge in us-east-1a had fewer GPUs than their type has, or broken ones", False),
            ("c (g5.xlarge, us-east-1a): why", False),
        ],
    ),
]


@pytest.mark.parametrize(("faults", "launches", "expected"), TABLE)
def test_suspects_by_fault_pattern(faults, launches, expected):
    assert [(d.words, d.grave) for d in find_suspects(faults, launches, NOW)] == expected
