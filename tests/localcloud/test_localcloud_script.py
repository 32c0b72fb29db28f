"""Market scripts, traces, and accelerated time."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from everspot_local.controls.script import BadScript, Script
from everspot_local.market.clock import MarketClock


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_script_plays_in_market_time(kit: Any, helpers: Any, tmp_path: Path) -> None:
    script = write(
        tmp_path / "market.yaml",
        """
        types:
          - {name: huge.1x, vcpus: 4, memory_gib: 16, on_demand_usd_per_hour: 2.5}
        actions:
          - {at: 20s, action: price, pool: m6i.large/us-east-1a, usd: 0.07}
          - {at: 40s, action: interrupt, instance: oldest, notice: false}
        """,
    )
    (instance_id,) = kit.spot()
    with kit.still(), kit.cloud.market.lock:
        start = kit.cloud.market.clock.now()
        Script.load(script, None, "us-east-1").play(kit.cloud.market, kit.cloud.actions)
        marks = [kit.mark(start + timedelta(seconds=after)) for after in (20, 40)]
    kit.reaches(instance_id, "terminated")
    # The market itself moves prices every hour, which a busy machine may reach before it looks.
    (price,) = (p for p in kit.log("price") if (p["zone"], p["type"], p["usd"]) == ("us-east-1a", "m6i.large", 0.07))
    times = [price["at"], kit.log("end")[0]["at"]]
    for played_at, after, mark in zip(times, (20, 40), marks, strict=True):
        due = start + timedelta(seconds=after)
        assert helpers.text(due) <= played_at <= helpers.text(helpers.until(lambda mark=mark: mark)[0])
    assert kit.instance(kit.run(InstanceType="huge.1x"))["InstanceType"] == "huge.1x"
    assert kit.log("launch")[-1]["usd_per_hour"] == 2.5


def test_a_repeated_step_repeats(kit: Any, helpers: Any, tmp_path: Path) -> None:
    script = write(
        tmp_path / "market.json",
        json.dumps([{"at": 5, "every": "10s", "action": "price", "pool": "m6i.large/us-east-1a", "factor": 1.1}]),
    )
    kit.cloud.market.pools.get("m6i.large", "us-east-1a")
    with kit.cloud.market.lock:
        Script.load(script, None, "us-east-1").play(kit.cloud.market, kit.cloud.actions)
    helpers.until(lambda: len(kit.log("price")) >= 4)


def test_a_trace_sets_the_depth_and_interrupts_when_it_falls(kit: Any, helpers: Any, tmp_path: Path) -> None:
    pool = "m6i.large/us-east-1a"
    trace = {"metadata": {"gap_seconds": 60}, "data": [2, 2, 0, 3], "prices": [0.03, 0.03, 0.06, 0.03]}
    path = write(tmp_path / "trace.json", json.dumps({pool: trace}))
    script = Script.load(None, path, "us-east-1")
    assert [(s.at.seconds, s.action["action"]) for s in script.steps] == [
        (0, "depth"), (120, "depth"), (180, "depth"), (0, "price"), (120, "price"), (180, "price"),
    ]  # fmt: skip
    only = helpers.override("m6i.large", "a")
    with kit.still():
        with kit.cloud.market.lock:
            script.play(kit.cloud.market, kit.cloud.actions)
        helpers.until(lambda: len(kit.log("price")) >= 1)
        answer = kit.fleet(3, only, Type="instant")
    ids = [i for group in answer["Instances"] for i in group["InstanceIds"]]
    assert len(ids) == 2
    assert [e["ErrorCode"] for e in answer["Errors"]] == ["InsufficientInstanceCapacity"]
    for instance_id in ids:
        kit.reaches(instance_id, "terminated")
    assert kit.fleet(3, only, Type="instant")["Errors"] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- {at: 1s, action: explode}", "step 1"),
        ("- {action: price}", "step 1"),
        ("actions: []\nacts: []", "acts"),
        ("{", "market.yaml"),
    ],
)
def test_a_bad_script_is_refused_before_it_plays(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadScript, match=words):
        Script.load(write(tmp_path / "market.yaml", text), None, "us-east-1")
    with pytest.raises(BadScript):
        Script.load(tmp_path / "none.yaml", None, "us-east-1")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadScript, match=r"bytes\.yaml: "):
        Script.load(tmp_path / "bytes.yaml", None, "us-east-1")


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (
            "- {at: soon, action: price}\n- {at: 1s, action: explode}",
            ["step 1: 'soon' is not a duration", "step 2: needs"],
        ),
        ("- {at: 1s, action: price, every: 0s}", ["step 1: `every` must be more than 0s"]),
        ("types: [{name: x}]\nactions: [{}]", ["type 1: vcpus: ", "type 1: memory_gib: ", "step 1: "]),
        ("types: {name: x}\nactions:", ["types must be a list", "actions must be a list"]),
        ("5", ["actions must be a list"]),
        ("", ["actions must be a list"]),
    ],
)
def test_a_bad_script_is_told_with_its_file_and_everything_that_is_wrong(
    tmp_path: Path, text: str, problems: list[str]
) -> None:
    with pytest.raises(BadScript) as caught:
        Script.load(write(tmp_path / "market.yaml", text), None, "us-east-1")
    assert all(words in str(caught.value) for words in ["market.yaml: ", *problems]), caught.value


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (
            '{"a": {"data": [1]}, "b": {"metadata": {"gap_seconds": 6}, "data": 5}}',
            ["a: needs `meta", "b: needs `meta"],
        ),
        ('{"metadata": {"gap_seconds": -60}, "data": [1]}', ["a duration lies between"]),
        ('{"metadata": {"gap_seconds": 0}, "data": [1]}', ["must be above 0"]),
        ('{"metadata": {"gap_seconds": 60}, "data": [1, -1]}', ["data not below"]),
        ('{"metadata": {"gap_seconds": 60}, "data": [1], "prices": [NaN]}', ["must be above 0"]),
        ("[1]", ["must be a trace, or an object of traces by pool"]),
    ],
)
def test_a_bad_trace_is_told_with_its_file_and_its_pools(tmp_path: Path, text: str, problems: list[str]) -> None:
    with pytest.raises(BadScript) as caught:
        Script.load(None, write(tmp_path / "trace.json", text), "us-east-1")
    assert all(words in str(caught.value) for words in ["trace.json: ", *problems]), caught.value


@pytest.mark.parametrize(
    "figure",
    [{"usd": float("nan")}, {"factor": float("inf")}, {"usd": 0}, {"factor": 0}, {"factor": -1}],
    ids=str,
)
def test_a_price_that_is_none_is_refused_and_changes_nothing(kit: Any, figure: dict[str, Any]) -> None:
    pool = kit.cloud.market.pools.get("m6i.large", "us-east-1a")
    with kit.still():
        before = list(pool.prices)
        with pytest.raises(ValueError, match=r"(usd|factor) must be a number above 0"):
            kit.cloud.actions.do({"action": "price", "pool": "m6i.large/us-east-1a", **figure})
        assert pool.prices == before


@pytest.mark.parametrize("value", [float("nan"), -1])
def test_a_quota_that_is_no_number_is_refused(kit: Any, value: float) -> None:
    with pytest.raises(ValueError, match="must be a number of at least 0"):
        kit.cloud.market.quotas.set("L-34B43A08", value)


def test_market_time_is_the_real_time_stretched_from_its_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [datetime.now(UTC).timestamp()]
    monkeypatch.setattr("everspot_local.market.clock.time", SimpleNamespace(time=lambda: now[0]))
    clock = MarketClock(scale=3600)
    assert clock.variable == f"3600@{int(clock.epoch.timestamp())}"
    assert clock.now().microsecond == 0
    assert 1 - 1 / 3600 < clock.real_until(clock.now() + timedelta(hours=1)) <= 1
    assert clock.real_until(clock.epoch) == 0
    before = clock.now()
    now[0] += 2
    assert clock.now() - before == timedelta(hours=2)
    assert clock.to_real(timedelta(hours=1)) == timedelta(seconds=1)
    with pytest.raises(ValueError, match="above 0"):
        MarketClock(scale=0)


def test_delays_are_set_for_all_or_for_a_pool_and_hold_for_what_launches_then(kit: Any, helpers: Any) -> None:
    far, near = helpers.override("m6i.large", "a"), helpers.override("c6i.large", "b")
    kit.do("delays", pool="m6i.large/us-east-1a", pending="2m", visible=30)
    kit.do("delays", pending="20s")
    with kit.still() as move:
        ids = [kit.fleet(1, way, Type="instant")["Instances"][0]["InstanceIds"][0] for way in (far, near)]
        states_over_time = []
        for seconds in (0, 3, 27, 90):
            move(seconds)
            marks = kit.mark(kit.cloud.market.clock.now())
            helpers.until(lambda marks=marks: marks)
            states = {i["InstanceId"]: i["State"]["Name"] for i in kit.instances()}
            states_over_time.append([states.get(i) for i in ids])
    assert states_over_time == [[None, None], [None, "pending"], ["pending", "running"], ["running", "running"]]
    kit.cloud.reset()
    assert kit.cloud.market.delays == kit.cloud.options.delays


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "name one of submit"),
        ({"boots": "3s"}, "no delay 'boots'"),
        ({"boot": "soon", "walk": -1}, "boot must be a span.*walk must be a span"),
        ({"pool": "m6i.large", "notice": "60s"}, "notice is not of a pool"),
    ],
)
def test_delays_that_cannot_be_are_refused(kit: Any, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        kit.do("delays", **fields)
