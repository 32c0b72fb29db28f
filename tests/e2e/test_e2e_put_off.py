"""Jobs that wait for other jobs, a start time, hours or a budget, on a whole cluster: real agents, trainers and
schedulers."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e_helpers import BUCKETS, PLAIN, PROGRAMS, LiveCluster, everspot
from everspot_core.costs.attempts import attempts
from everspot_core.jobs.records import EventKind, JobState, Reason

pytestmark = [pytest.mark.torch, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path_factory.mktemp("e2e"), agent_env=PLAIN) as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVERSPOT_CLOCK", cluster.cloud.market.clock.variable)  # the command reckons in the market's time
        yield cluster


def budget(*arguments: str) -> dict[str, Any]:
    rows = json.loads(everspot("budget", *arguments, "--team", "vision", "--json"))["budgets"]
    monthly: dict[str, Any] = next(row for row in rows if (row["period"], row["unit"]) == ("month", "dollars"))
    return monthly


def test_a_job_at_its_teams_cap_checkpoints_and_waits_and_goes_on_when_it_is_raised(live: LiveCluster) -> None:
    job = live.submit_toy("capped", steps=1_000_000, seconds=1, tags={"Team": "vision"})
    live.until(lambda: live.trains(job, 20))
    spent = live.until(lambda: budget()["spent"])
    assert budget("set", "--per", "month", "--dollars", f"{spent:.9f}")["cap"] == pytest.approx(spent)

    def put_off() -> Any:
        current = live.store.records.get(job).value
        return current if current.state is JobState.PENDING else None

    record = live.until(put_off)
    assert (record.last_reason, record.errors) == (Reason.CAP, 0)
    (interruption,) = (e for e in live.list_events(job, EventKind.INTERRUPTED) if e.data["reason"] == "cap")
    last_step = interruption.data["step"]
    assert interruption.data["durable_step"] == last_step >= record.progress.step > 0, "no step is done again"
    waits = live.until(lambda: (waiting := live.store.notes.waiting.read()) and waiting.jobs.get(job))
    assert waits.why == "team-budget"
    (row,) = (r for r in json.loads(everspot("jobs", "--json")) if r["job_id"] == job)
    assert row["waits_because"].startswith("team vision has spent $")

    over = budget()
    assert spent <= over["spent"] < 2 * spent + 0.01, "it is held within a tick or two"
    budget("set", "--per", "month", "--dollars", "1000")
    live.until(lambda: live.trains(job, last_step + 10))
    history = attempts(live.store.events(job))
    capped = [n for n, attempt in enumerate(history) if attempt.reason is Reason.CAP]
    assert len(capped) == 1, [(a.reason, a.last_step) for a in history]
    assert not history[capped[0]].interrupted
    assert history[capped[0] + 1].from_step == last_step
    everspot("cancel", job)
    assert live.until(lambda: live.ended(job)) is JobState.CANCELLED


WRITES = """
import os, pathlib, time
while not pathlib.Path({go!r}).exists():
    time.sleep(0.1)
kept = pathlib.Path(os.environ["EVERSPOT_OUTPUT_DIR"])
kept.mkdir(exist_ok=True)
(kept / "weights.txt").write_text("seven")
"""
READS = """
import os, pathlib
print("found", (pathlib.Path(os.environ["EVERSPOT_INPUTS"]) / "writes/weights.txt").read_text(), flush=True)
"""


def test_a_job_begins_when_the_one_before_it_is_done_and_finds_its_outputs(live: LiveCluster, tmp_path: Path) -> None:
    ids, go = {}, tmp_path / "go"  # the first one goes on until the second one waits for it: by name, it is the newest
    for name, text, after in (("writes", WRITES.format(go=str(go)), []), ("reads", READS, ["writes"])):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "main.py").write_text(text)
        job = {"name": name, "code": str(folder), "entrypoint": ["main.py"], "after": after}
        job |= {"every": "24h"} if name == "writes" else {}
        (tmp_path / f"{name}.yaml").write_text(json.dumps(job))
        ids[name] = json.loads(everspot("submit", str(tmp_path / f"{name}.yaml"), "--json"))["job_id"]
    go.touch()
    assert live.until(lambda: live.ended(ids["reads"])) is JobState.SUCCEEDED
    log = b"".join(chunk.data for chunk in live.store.read_logs(ids["reads"])).decode()
    assert "found seven" in log
    (ended,) = live.list_events(ids["writes"], EventKind.FINISHED)
    (began,) = live.list_events(ids["reads"], EventKind.ASSIGNED)
    assert ended.at <= began.at

    following = f"{ids['writes']}-2"
    assert live.until(lambda: live.store.jobs.get(following)).value.start_at > live.clock.now()
    everspot("cancel", ids["writes"])
    assert live.until(lambda: live.ended(following)) is JobState.CANCELLED


def test_a_sweep_goes_on_where_a_command_that_was_killed_has_left_it_and_promotes_its_best(
    live: LiveCluster, tmp_path: Path
) -> None:
    fidelity = {"field": "env.TOY_STEPS", "values": [40, 60], "warm_start": True}
    env = {"TOY_STEPS": "60", "TOY_STEP_SECONDS": "0.05"}
    job = {"name": "train", "code": str(PROGRAMS / "toy"), "entrypoint": ["toy_train.py"], "env": env}
    (tmp_path / "train.yaml").write_text(json.dumps(job))
    sweep = {"name": "rates", "job": "train.yaml", "metric": "loss", "trials": 3, "parallel": 2}
    fields = {"env.LEARNING_RATE": {"low": 0.001, "high": 0.1, "log": True}}
    (tmp_path / "sweep.yaml").write_text(json.dumps(sweep | {"fields": fields, "fidelity": fidelity}))
    line = [sys.executable, "-m", "everspot_cli.main", "--store", f"s3://{BUCKETS[0]}", "sweep"]
    with subprocess.Popen([*line, str(tmp_path / "sweep.yaml")], stderr=subprocess.DEVNULL) as first:
        live.until(lambda: live.store.records.get("rates-t0000"))  # it is on an instance, or was
        first.kill()
    answer = json.loads(everspot("sweep", str(tmp_path / "sweep.yaml"), "--json"))
    assert [trial["state"] for trial in answer["trials"]] == ["COMPLETE"] * 4
    small, promoted = answer["trials"][:3], answer["trials"][3]
    losses = {trial["job_id"]: trial["value"] for trial in small}
    best = max(losses, key=lambda job: losses[job])  # `maximize` is the default
    assert (sorted(losses), promoted["job_id"]) == ([f"rates-t000{n}" for n in range(3)], f"{best}-r1")
    (training,) = live.list_events(promoted["job_id"], EventKind.TRAINING)
    assert (training.data["restored"], training.data["from_step"], promoted["step"]) == (True, 40, 60)
    assert len({trial["fields"]["env.LEARNING_RATE"] for trial in small}) == 3
    assert (answer["over"], answer["best"]) == (True, promoted["job_id"])
    assert sum(row["cost_usd"] for row in answer["rungs"]) == pytest.approx(answer["cost_usd"], abs=2e-6)
    assert answer["cost_usd"] > 0
    assert answer["cost_per_useful_trial_usd"] == pytest.approx(answer["cost_usd"] / 4, rel=1e-2)
