"""The market replays the pools of a workload and of a trace with the same counts and prices as the simulator."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from everspot_core.capacity.catalogue import builtin
from everspot_core.jobs.records import Market
from everspot_core.schedule.view import PoolKey
from everspot_local.controls.schedules import load
from everspot_local.controls.script import BadScript
from everspot_simulator.supply import BEGIN, PoolSupply
from everspot_simulator.trace import parse as parse_trace
from everspot_simulator.workload import load_traces
from everspot_simulator.workload_file import parse as parse_workload

POOL, OTHER = "m6i.large/us-east-1a", "c6i.large/us-east-1b"
TRACE = {"metadata": {"gap_seconds": 60}, "data": [3, 3, 0, 2]}
ON_DEMAND = builtin().on_demand("m6i.large", "us-east-1")


def workload(folder: Path, **pool: Any) -> Path:
    """One Spot pool by a trace, one that is always there, and on-demand beside."""
    (folder / "drought.json").write_text(json.dumps(TRACE))
    assert ON_DEMAND is not None
    first = {"instance_type": "m6i.large", "zone": "us-east-1a", "market": "spot", "usd_per_hour": 0.031}
    pools = [
        {**first, "availability": "drought", **pool},
        {**first, "instance_type": "c6i.large", "zone": "us-east-1b", "usd_per_hour": 0.04},
        {**first, "market": "on-demand", "usd_per_hour": ON_DEMAND.usd_per_hour},
    ]
    values = {
        "jobs": [{"id": "one", "arrival_hours": 0, "hours": 1}],
        "fleet": {"pools": pools},
        "traces": {"drought": {"file": "drought.json"}},
    }
    path = folder / "workload.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def settle(kit: Any, helpers: Any) -> None:
    """Until the market has come to all that is due."""
    marks = kit.mark(kit.cloud.market.clock.now())
    helpers.until(lambda: marks)


def test_the_market_gives_what_the_simulator_reckons_with(kit: Any, helpers: Any, tmp_path: Path) -> None:
    path = workload(tmp_path)
    read = parse_workload(yaml.safe_load(path.read_text()), "workload", builtin())
    traces = load_traces(read, lambda name: parse_trace((tmp_path / name).read_text(), name))
    supply, key = PoolSupply(read.fleet, traces), PoolKey("m6i.large", "us-east-1a", Market.SPOT)
    depths, expected = [], []
    with kit.still() as move:
        pool = kit.cloud.market.pools.get("m6i.large", "us-east-1a")
        kit.do("replay", **load(path, builtin()))
        for tick in range(10):
            settle(kit, helpers)
            depths.append(pool.depth[Market.SPOT])
            expected.append(supply.count(key, BEGIN + timedelta(seconds=60 * tick)))
            move(60)
    assert depths == expected == [3, 3, 0, 2, 3, 3, 0, 2, 3, 3]


def test_a_market_that_gives_notice_falls_so_much_sooner_and_takes_when_the_trace_falls(
    kit: Any, helpers: Any, tmp_path: Path
) -> None:
    path = workload(tmp_path)
    values = yaml.safe_load(path.read_text())
    values["fleet"]["notice_seconds"] = 90
    path.write_text(yaml.safe_dump(values))
    depths = []
    with kit.still() as move:
        pool = kit.cloud.market.pools.get("m6i.large", "us-east-1a")
        kit.do("replay", **load(path, builtin()))
        began = kit.cloud.market.clock.now()
        settle(kit, helpers)
        instances = kit.fleet(2, helpers.override("m6i.large", "a"), Type="instant")["Instances"][0]["InstanceIds"]
        for _ in range(10):
            settle(kit, helpers)
            depths.append(pool.depth[Market.SPOT])
            move(30)
        assert depths == [3, 0, 0, 0, 0, 0, 2, 2, 3, 0]
    for name in instances:
        kit.reaches(name, "terminated")
    ends = {line["id"]: datetime.fromisoformat(line["at"]) - began for line in kit.log("end") if line["interrupted"]}
    assert ends == dict.fromkeys(instances, timedelta(seconds=120))


def test_a_workloads_market_has_its_pools_alone(kit: Any, helpers: Any, tmp_path: Path) -> None:
    (group,) = kit.fleet(1, helpers.override("m7i.large", "c"), Type="instant")["Instances"]
    answer = kit.do("replay", **load(workload(tmp_path), builtin()))
    assert kit.cloud.market.delays.boot == timedelta(minutes=3)  # the workload's launch_hours
    assert kit.cloud.market.delays.notice == timedelta()  # and its notice_seconds
    assert answer["pools"] == [OTHER, POOL]
    for kind, zone in (("m7i.large", "c"), ("m6i.xlarge", "a")):  # one that was open, and one that opens now
        errors = kit.fleet(1, helpers.override(kind, zone), Type="instant")["Errors"]
        assert [e["ErrorCode"] for e in errors] == ["InsufficientInstanceCapacity"]
    assert len(kit.fleet(12, helpers.override("c6i.large", "b"), Type="instant")["Instances"][0]["InstanceIds"]) == 12
    assert kit.run(InstanceType="m6i.xlarge")  # on-demand is as it was
    kit.reaches(group["InstanceIds"][0], "terminated")


def test_prices_are_the_workloads_and_do_not_walk(kit: Any, helpers: Any, tmp_path: Path) -> None:
    kit.do("replay", **load(workload(tmp_path), builtin()))
    settle(kit, helpers)
    kit.cloud.market.pools.walk(kit.cloud.market.clock.now())
    history = kit.ec2.describe_spot_price_history(InstanceTypes=["m6i.large"], AvailabilityZone="us-east-1a")
    assert history["SpotPriceHistory"][0]["SpotPrice"] == "0.031000"
    assert [p["usd"] for p in kit.log("price") if f"{p['type']}/{p['zone']}" == OTHER][-1] == 0.04


def test_a_replay_takes_the_place_of_the_one_before(kit: Any, helpers: Any) -> None:
    def traces(*data: int, usd: float) -> dict[str, Any]:
        pool = {"pool": POOL, "gap_seconds": 10, "data": list(data), "prices": [usd] * len(data)}
        return {"pools": [pool]}

    with kit.still() as move:
        pool = kit.cloud.market.pools.get("m6i.large", "us-east-1a")
        kit.do("replay", **traces(1, 2, usd=0.05))
        kit.do("replay", **traces(7, usd=0.06))
        for _ in range(3):
            settle(kit, helpers)
            assert (pool.depth[Market.SPOT], pool.spot_usd) == (7, 0.06)
            move(10)


def test_traces_by_pool_are_replayed_too(kit: Any, helpers: Any, tmp_path: Path) -> None:
    path = tmp_path / "traces.json"
    path.write_text(json.dumps({POOL: {**TRACE, "prices": [0.03, 0.03, 0.05, 0.03]}}))
    with kit.still() as move:
        kit.do("replay", **load(path, builtin()))
        pool = kit.cloud.market.pools.get("m6i.large", "us-east-1a")
        move(120)
        settle(kit, helpers)
        assert (pool.available(Market.SPOT), pool.spot_usd) == (0, 0.05)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"pools": []}, "not empty"),
        ({"pools": [{"data": [1]}]}, "`pool`"),
        ({"pools": [{"pool": "m6i.large/mars", "data": [1]}]}, "no pool 'm6i.large/mars'"),
        ({"pools": [{"pool": POOL, "data": [-1]}]}, "not below"),
        ({"pools": [{"pool": POOL, "data": [1], "notice_seconds": -1}]}, "not below"),
        ({"pools": [{"pool": POOL, "depth": [1]}]}, "unknown fields depth"),
        ({"pools": [{"pool": POOL, "market": "on-demand", "prices": [7.0]}]}, "on-demand"),
    ],
)
def test_a_replay_that_cannot_be_is_refused(kit: Any, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        kit.do("replay", **fields)


def test_a_file_that_cannot_be_replayed_names_all_that_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(BadScript, match=r"availability.*nothing.*instance_type|instance_type.*availability"):
        load(workload(tmp_path, availability="nothing", instance_type="m6i.enormous"), builtin())
    for text in ("[1, 2]", "{", json.dumps({POOL: {"data": [1]}})):
        bad = tmp_path / "bad.json"
        bad.write_text(text)
        with pytest.raises(BadScript, match=r"bad\.json"):
            load(bad, builtin())
    with pytest.raises(BadScript, match="launch_hours of a pool"):
        load(workload(tmp_path, launch_hours=1), builtin())
    with pytest.raises(BadScript, match=r"none\.json"):
        load(tmp_path / "none.json", builtin())
