"""The preview's warning about jobs that the end of a fleet would end. tests/engine has the engine's part."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pulumi
import pytest
from everspot import guard as guard_room
from everspot.aws import network as aws_network
from everspot.gcp import network as gcp_network
from everspot.guard import PlaceChange, busy_jobs, describe_change, refuse_while_jobs_run
from everspot_core.capacity.launching import LaunchedInstance, LaunchIntent, LaunchOutcome, LaunchPool
from everspot_core.costs.ledger import EndRecord, LaunchRecord
from everspot_core.jobs.records import InstanceRecord, InstanceState, JobRecord, JobState, Market, Role
from everspot_store import Store, StoreError
from pulumi.output import Unknown

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def cluster(folder: Path, **jobs: tuple[JobState, Market | None]) -> str:
    """A store in which each job has an instance of its own; None: one that has not reported."""
    url = f"file://{folder}"
    store = Store.open(url, url)
    for job, (state, market) in jobs.items():
        owner = f"i-{job}"
        store.records.create(job, JobRecord(job_id=job, state=state, owner=owner, changed_at=NOW))
        if market is not None:
            instance = InstanceRecord(
                instance_id=owner, cluster="c", role=Role.AGENT, instance_type="g5.xlarge", zone="us-east-2a",
                market=market, vcpus=4, memory_gib=16, state=InstanceState.BUSY, booted_at=NOW, updated_at=NOW,
            )  # fmt: skip
            store.instances.create(owner, instance)
    return url


def test_the_jobs_are_those_on_the_fleets_own_instances(tmp_path: Path) -> None:
    url = cluster(
        tmp_path,
        a=(JobState.RUNNING, Market.SPOT),
        b=(JobState.ASSIGNED, Market.SPOT),
        c=(JobState.RUNNING, Market.ON_DEMAND),
        d=(JobState.PENDING, Market.SPOT),
        e=(JobState.RUNNING, None),  # which may be of either
    )
    assert busy_jobs(url, Market.SPOT) == ["a", "b", "e"]
    assert busy_jobs(url, Market.ON_DEMAND) == ["c", "e"]
    assert busy_jobs(url) == ["a", "b", "c", "e"]
    message = describe_change(url, Market.SPOT, refused=True)
    assert "it ends its instances; 3 jobs run on its instances now: a, b, e. Their instances are shut down" in message
    assert message.endswith(
        "Not done while they run: `everspot cluster drain --wait` first, or EVERSPOT_FORCE_DESTROY=1"
    )
    assert "Not done" not in describe_change(url, Market.SPOT, refused=False)


def test_of_many_jobs_five_are_named(tmp_path: Path) -> None:
    url = cluster(tmp_path, **{f"j{n}": (JobState.RUNNING, Market.SPOT) for n in range(8)})
    assert "8 jobs run on its instances now: j0, j1, j2, j3, j4 and 3 more. " in describe_change(
        url, Market.SPOT, refused=True
    )


def test_where_no_job_runs_nothing_is_lost(tmp_path: Path) -> None:
    url = cluster(tmp_path, a=(JobState.RUNNING, Market.ON_DEMAND))
    assert describe_change(url, Market.SPOT, refused=True).endswith("it ends its instances; no job runs on them now")


def test_a_store_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    for url in ("", f"ftp://{tmp_path}"):
        message = describe_change(url, Market.SPOT, refused=True)
        assert "whether jobs run on its instances could not be read from the store (" in message
        assert "agents get SIGTERM and 80 s to checkpoint" in message
        with pytest.raises(StoreError):
            busy_jobs(url, Market.SPOT)


@pytest.mark.parametrize("torn", [False, True], ids=["of a newer release", "torn"])
def test_a_record_that_cannot_be_read_may_be_of_a_running_job(tmp_path: Path, torn: bool) -> None:
    url = cluster(tmp_path, a=(JobState.RUNNING, Market.SPOT), b=(JobState.SUCCEEDED, None))
    record = tmp_path / "records" / "a.json"
    text = record.read_text()
    record.write_text(text[:40] if torn else text.replace('"RUNNING"', '"MIGRATING"'))
    assert record.read_text() != text
    with pytest.raises(StoreError, match=r"1 record of jobs cannot be read, so that they may run \(records/a\.json\)"):
        busy_jobs(url)
    for market in Market:
        message = describe_change(url, market, refused=True)
        assert "could not be read from the store (1 record of jobs cannot be read" in message
        assert "no job runs" not in message
        assert "Not done while they run" in message
    with pytest.raises(pulumi.RunError, match="EVERSPOT_FORCE_DESTROY=1 goes on nevertheless"):
        refuse_while_jobs_run(pulumi.ResourceHookArgs("urn", "id", "name", "type", old_inputs={"input": url}))


def test_an_instance_that_cannot_be_read_may_be_of_either_market(tmp_path: Path) -> None:
    url = cluster(tmp_path, a=(JobState.RUNNING, Market.SPOT))
    record = tmp_path / "instances" / "i-a.json"
    assert busy_jobs(url, Market.ON_DEMAND) == []
    text = record.read_text()
    record.write_text(text.replace('"BUSY"', '"DREAMING"'))
    assert record.read_text() != text
    assert busy_jobs(url, Market.SPOT) == busy_jobs(url, Market.ON_DEMAND) == ["a"]


def launch(url: str, *instances: str) -> None:
    """Record a launch with these instances."""
    pool = LaunchPool(instance_type="g5.xlarge", zone="us-east-2a", market=Market.SPOT, place="subnet-1")
    brought = tuple(
        LaunchedInstance(instance_id=name, instance_type="g5.xlarge", zone="us-east-2a", market=Market.SPOT, job_id="a")
        for name in instances
    )
    intent = LaunchIntent(
        seq=1, token="0" * 32, jobs=tuple("a" for _ in instances), pools=(pool,), ordered=False, whole=False,
        template="lt-1", template_version="1", usd_per_hour=1, made_at=NOW, scheduler_id="s",
        outcome=LaunchOutcome(instances=brought, settled_at=NOW),
    )  # fmt: skip
    Store.open(url, url).launching.create(intent.name, intent)


def test_a_destroy_that_would_leave_launched_instances_running_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = cluster(tmp_path, a=(JobState.SUCCEEDED, Market.SPOT), b=(JobState.SUCCEEDED, Market.SPOT))
    hook = pulumi.ResourceHookArgs("urn", "id", "name", "type", old_inputs={"input": url})
    refuse_while_jobs_run(hook)
    launch(url, "i-a", "i-b", "i-new")
    Store.open(url, url).ends.create("i-b", EndRecord(instance_id="i-b", ended_at=NOW, interrupted=False))
    with pytest.raises(pulumi.RunError, match=r"1 instance that the scheduler launched would be left running: i-a\. "):
        refuse_while_jobs_run(hook)
    assert "no job runs on them now, and these are not ended yet: i-a. " in describe_change(url, None, refused=True)
    with monkeypatch.context() as forced:
        forced.setenv("EVERSPOT_FORCE_DESTROY", "1")
        refuse_while_jobs_run(hook)
    Store.open(url, url).ends.create("i-a", EndRecord(instance_id="i-a", ended_at=NOW, interrupted=False))
    refuse_while_jobs_run(hook)
    boots = LaunchRecord(
        instance_id="i-new", instance_type="g5.xlarge", zone="us-east-2a", market=Market.SPOT, launched_at=NOW
    )
    Store.open(url, url).launches.create(boots.instance_id, boots)
    with pytest.raises(pulumi.RunError, match="would be left running: i-new"):
        refuse_while_jobs_run(hook)


def test_jobs_on_launched_instances_outlive_the_fleets(tmp_path: Path) -> None:
    url = cluster(tmp_path, a=(JobState.RUNNING, Market.SPOT), b=(JobState.RUNNING, Market.SPOT))
    launch(url, "i-a")
    assert busy_jobs(url, Market.SPOT) == ["b"]
    assert busy_jobs(url) == ["a", "b"]


def hooks_of_a_group(url: str) -> guard_room._FleetHooks:
    hooks = guard_room._FleetHooks.__new__(guard_room._FleetHooks)
    hooks._parent, hooks._name, hooks._market, hooks._on = None, "spot", Market.SPOT, True  # type: ignore[assignment]
    hooks._effect, hooks._size, hooks._stores = "They go on elsewhere", "targetSize", [url]
    return hooks


def test_a_group_may_be_made_smaller_beside_idle_instances_that_were_launched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = cluster(tmp_path, a=(JobState.SUCCEEDED, Market.SPOT))
    launch(url, "i-a")
    monkeypatch.setattr(pulumi.runtime, "is_dry_run", lambda: False)
    sizes = {"old_inputs": {"targetSize": 5}, "new_inputs": {"targetSize": 3}}
    hooks_of_a_group(url).before_update(pulumi.ResourceHookArgs("urn", "id", "spot", "type", **sizes))
    destroy = pulumi.ResourceHookArgs("urn", "id", "name", "type", old_inputs={"input": url})
    with pytest.raises(pulumi.RunError, match="would be left running: i-a"):
        refuse_while_jobs_run(destroy)


SMALLER = "spot: made smaller, from 5 to 3, it ends instances of the cloud's choice; 1 job runs on its instances now: a"


@pytest.mark.parametrize(
    ("old", "new", "preview", "warns", "refused"),
    [
        (5, 3, True, True, False),
        (5, 3, False, False, True),
        (3, 5, True, False, False),
        (3, 5, False, False, False),
        (3, None, False, False, False),
    ],
)
def test_a_group_is_not_made_smaller_while_jobs_run_on_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    old: int,
    new: int | None,
    preview: bool,
    warns: bool,
    refused: bool,
) -> None:
    url = cluster(tmp_path, a=(JobState.RUNNING, Market.SPOT), b=(JobState.RUNNING, Market.ON_DEMAND))
    warned: list[str] = []
    monkeypatch.setattr(pulumi.runtime, "is_dry_run", lambda: preview)
    monkeypatch.setattr(pulumi.log, "warn", lambda message, _: warned.append(message))
    hooks = hooks_of_a_group(url)
    sizes = {"old_inputs": {"targetSize": old}, "new_inputs": {"targetSize": new}}
    args = pulumi.ResourceHookArgs("urn", "id", "spot", "type", **sizes)
    if refused:
        with pytest.raises(pulumi.RunError, match="1 job would be ended: a"):
            hooks.before_update(args)
    else:
        hooks.before_update(args)
    assert [message.startswith(SMALLER) for message in warned] == [True] * warns


@pytest.mark.parametrize(
    ("move", "old", "new", "moved"),
    [
        (
            aws_network.CUT_OFF,
            {"zones": {"a": "10.0.0.0/19"}},
            {"zones": {"a": "10.0.0.0/19", "b": "10.0.32.0/19"}},
            [],
        ),
        (aws_network.CUT_OFF, {"zones": {"a": "10.0.0.0/19"}}, {"zones": {"b": "10.0.0.0/19"}}, ["list of zones"]),
        (aws_network.CUT_OFF, {"vpcId": "vpc-1"}, {"vpcCidr": "10.0.0.0/16", "zones": {}}, ["vpcId"]),
        (aws_network.CUT_OFF, {"vpcId": "vpc-1"}, {"vpcId": Unknown()}, []),
        (aws_network.CUT_OFF, {"jobRole": True}, {"jobRole": False}, ["jobRole"]),
        (aws_network.CUT_OFF, {"jobRole": False}, {"jobRole": True}, []),
        (gcp_network.CUT_OFF, {"vpcCidr": "10.64.0.0/20"}, {"vpcCidr": "10.64.0.0/16"}, []),  # it only grows
        (gcp_network.CUT_OFF, {"vpcCidr": "10.64.0.0/16"}, {"vpcCidr": "10.64.0.0/20"}, ["vpcCidr"]),
        (gcp_network.CUT_OFF, {"network": "projects/p/global/networks/a"}, {"vpcCidr": "10.64.0.0/16"}, ["network"]),
    ],
)
def test_settings_that_take_their_network_or_role_from_instances_are_known(
    move: PlaceChange, old: dict[str, Any], new: dict[str, Any], moved: list[str]
) -> None:
    assert move.moved(old, new) == moved
