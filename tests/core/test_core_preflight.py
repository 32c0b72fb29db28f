"""A preflight's checks from given facts: permissions by service, and a probe's findings on a market."""

from datetime import UTC, datetime

import pytest
from everspot_core.capacity.launching import LaunchTrouble
from everspot_core.capacity.market import Market
from everspot_core.cluster.checks import Check, Verdict
from everspot_core.cluster.preflight import ProbeFacts, permission_checks, probe_checks
from everspot_core.jobs.records import InstanceRecord, InstanceState, JobState, Role

NOW = datetime(2026, 3, 1, tzinfo=UTC)
REPORT = {"python": "3.12.1", "torch": "2.15.0", "gpu": "NVIDIA L4", "capability": "8.9", "difference": 1e-7}


def instance(market: Market = Market.SPOT) -> InstanceRecord:
    return InstanceRecord(
        instance_id="i-1", cluster="train", role=Role.AGENT, instance_type="g6.xlarge", zone="us-east-2a",
        market=market, vcpus=4, memory_gib=16, state=InstanceState.READY, booted_at=NOW, updated_at=NOW,
    )  # fmt: skip


def probed(**more: object) -> dict[str, Check]:
    """The checks of a probe of Spot, by what follows the market in their names."""
    facts = {
        "market": Market.SPOT, "job_id": "preflight-spot-1", "state": JobState.SUCCEEDED, "instance": instance(),
        "gpus": 1, "report": REPORT,
    }  # fmt: skip
    return {check.name.partition(": ")[2]: check for check in probe_checks(ProbeFacts(**{**facts, **more}))}


def test_permissions_are_told_by_service_with_the_sentence_that_allows_them() -> None:
    grants = {"s3:GetObject": True, "s3:PutObject": False, "iam:PassRole": None, "ec2:DescribeImages": True}
    rows = {c.name: c for c in permission_checks("ann", grants, separator=":", how_to_ask="let ann simulate")}
    assert {name: row.verdict for name, row in rows.items()} == {
        "permissions: ec2": Verdict.OK,
        "permissions: iam": Verdict.SKIP,
        "permissions: s3": Verdict.FAIL,
    }
    assert rows["permissions: s3"].fix == "allow s3:PutObject to ann"
    assert rows["permissions: iam"].fix == "let ann simulate"


def test_a_probe_that_succeeds_proves_everything() -> None:
    rows = probed()
    assert list(rows) == ["launch", "agent", "lease", "store", "CUDA"]
    assert {row.verdict for row in rows.values()} == {Verdict.OK}
    assert list(probed(gpus=0)) == ["launch", "agent", "lease", "store"]


@pytest.mark.parametrize(
    ("more", "name", "verdict", "words"),
    [
        ({"instance": instance(Market.ON_DEMAND)}, "launch", Verdict.WARN, "ran on a free on-demand instance"),
        ({"report": None}, "store", Verdict.FAIL, "have not arrived"),
        ({"report": {**REPORT, "difference": 0.3}}, "CUDA", Verdict.FAIL, "is wrong on NVIDIA L4"),
        ({"state": JobState.FAILED, "failure": "CUDA error: 802"}, "CUDA", Verdict.FAIL, "CUDA error: 802"),
        ({"state": JobState.ASSIGNED, "report": None}, "job", Verdict.FAIL, "has not ended in time"),
    ],
)
def test_what_a_probe_does_not_prove_is_named(more: dict[str, object], name: str, verdict: Verdict, words: str) -> None:
    row = probed(**more)[name]
    assert (row.verdict, words in row.detail) == (verdict, True)


def test_without_an_instance_the_refusals_say_why_before_the_scheduler_does() -> None:
    bare = {"instance": None, "state": JobState.PENDING, "report": None, "waits_because": "no capacity"}
    (waiting,) = probed(**bare).values()
    assert (waiting.verdict, waiting.detail) == (Verdict.FAIL, "no capacity")
    denial = ("g6.xlarge UnauthorizedOperation: ec2:RunInstances",)
    (refused,) = probed(**bare, refusals=denial, troubles=frozenset({LaunchTrouble.CREDENTIALS})).values()
    assert "UnauthorizedOperation" in refused.detail
    assert "scheduler's role" in refused.fix


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        ({LaunchTrouble.CAPACITY}, "add types and zones"),
        ({LaunchTrouble.QUOTA, LaunchTrouble.CAPACITY}, "request more of the quota"),
        ({LaunchTrouble.REQUEST, LaunchTrouble.QUOTA}, "correct the setting that the refusal names"),
        ({LaunchTrouble.PRICE}, "capacity.maxPrice"),
        ({LaunchTrouble.TRANSIENT}, "everspot doctor"),
        ({LaunchTrouble.CAPACITY, LaunchTrouble.CREDENTIALS}, "scheduler's role"),
    ],
)
def test_a_refused_launch_has_the_fix_of_its_kind(kinds: set[LaunchTrouble], words: str) -> None:
    bare = {"instance": None, "state": JobState.PENDING, "report": None}
    (check,) = probed(**bare, refusals=("Code: words",), troubles=frozenset(kinds)).values()
    assert (check.verdict, check.detail, words in check.fix) == (Verdict.FAIL, "Code: words", True)


def test_an_instance_that_never_reports_is_no_failure_of_its_launch() -> None:
    """Metadata, DNS or the store cannot be reached from it, or it died seconds after its launch."""
    bare = {"instance": None, "state": JobState.PENDING, "report": None}
    rows = probed(**bare, launched=("i-1", "i-2"), waits_because="the last instance died: Client.InternalError")
    assert {name: row.verdict for name, row in rows.items()} == {"launch": Verdict.OK, "agent": Verdict.FAIL}
    agent = rows["agent"]
    assert agent.detail == "i-1, i-2: no agent has reported; the last instance died: Client.InternalError"
    assert "metadata service, DNS" in agent.fix and "console output" in agent.fix
