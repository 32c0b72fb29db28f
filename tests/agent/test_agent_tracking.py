"""A job's metrics at a real MLflow server: one run over all attempts, and a server that is away stops nothing."""

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import program_forks
import pytest
from agent_helpers import Cluster, eventually
from everspot_core.costs.ledger import PricePoint
from everspot_core.jobs.records import JobState, Market, Reason
from everspot_core.jobs.tracking import derive_run_id
from mlflow_server import MlflowServer, serving

LOOPS = Path(__file__).parent / "programs" / "loops"
LONG = 300.0
ENDED = (JobState.PENDING, JobState.FAILED, JobState.SUCCEEDED)


@pytest.fixture
def launcher() -> str:
    return program_forks.launcher()


def knows_attempt(server: MlflowServer, epoch: int) -> bool:
    return any(f"everspot.attempt.{epoch}" in run["data"]["tags"] for run in server.runs())


@pytest.mark.torch
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("program", ["lib.py", pytest.param("hf.py", marks=pytest.mark.nightly)])
def test_an_interrupted_job_is_one_run_with_its_whole_curve(cluster: Cluster, tmp_path: Path, program: str) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    with serving(tmp_path / "mlflow") as server:
        server.start()
        env = {"NOTES": str(notes), "STRIKE": "step 12", "OMP_NUM_THREADS": "1", "BEGIN": "now"}
        tracking = {"mlflow": server.url, "experiment": "loops"}
        cluster.submit(
            "job-1",
            LOOPS,
            name="loop",
            entrypoint=[program],
            env=env,
            tracking=tracking,
            tags={"Team": "a", "Cost center (EU)": "7"},
        )
        price = PricePoint(
            instance_type="m5.large", zone="us-east-1a", market=Market.SPOT,
            at=cluster.clock.now() - timedelta(hours=1), usd_per_hour=0.04, source="test",
        )  # fmt: skip
        cluster.store.add_price(price)
        cluster.assign("job-1", "i-1")
        cluster.start_agent("i-1")
        is_there = lambda: (notes / "here").exists() or cluster.record("job-1").state in ENDED  # noqa: E731
        eventually("it is there", is_there, LONG)
        assert (notes / "here").exists(), cluster.printed()
        eventually("its first attempt is known", lambda: knows_attempt(server, 1), LONG)
        (run,) = server.runs()
        assert run["info"]["status"] == "RUNNING" and run["info"]["run_name"] == "job-1"
        cluster.stop("i-1", Reason.DRILL)
        stops = lambda: list(cluster.root.glob("instances/*/runs/job-1-000001/stop.json"))  # noqa: E731
        eventually("it is asked to stop", stops, LONG)
        server.stop()  # the tracker is away while the job is interrupted, and when it goes on
        (notes / "struck").touch()
        record = cluster.wait_state("job-1", *ENDED, seconds=LONG)
        assert (record.state, record.progress.durable_step) == (JobState.PENDING, 12), cluster.printed()
        server.start()
        cluster.assign("job-1", "i-2")
        cluster.start_agent("i-2")
        run_id = run["info"]["run_id"]
        eventually("its second attempt is known", lambda: knows_attempt(server, 2), LONG)
        (notes / "enough").touch()
        assert cluster.wait_state("job-1", *ENDED, seconds=LONG).state is JobState.SUCCEEDED, cluster.printed()
        (ended,) = server.runs()
        assert ended["info"]["run_id"] == run["info"]["run_id"] and ended["info"]["status"] == "FINISHED"
        assert ended["data"]["params"]["everspot.program"] == program
        tags = ended["data"]["tags"]
        assert tags["everspot.job"] == "job-1" and tags["Team"] == "a" and tags["Cost center _EU_"] == "7"
        assert tags["everspot.interruptions"] == "1"
        assert tags["everspot.attempt.2"] == "from step 12 on i-2"
        steps = {step for step, _ in server.history(run_id, "loss")}
        assert max(steps) == 40 if program == "lib.py" else max(steps) >= 17
        if program == "lib.py":  # names that MLflow refuses, with all metrics of the same request
            assert {server.history(run_id, name)[-1][1] for name in ("acc_1 _", "val__loss", "_x")} == {1.0, 2.0, 3.0}
        assert server.history(run_id, "everspot/interruptions") == [(0, 0.0), (12, 1.0)]
        dollars = [value for _, value in server.history(run_id, "everspot/dollars")]
        assert dollars == sorted(dollars) and 0 < dollars[-1] < 1
        assert server.history(run_id, "everspot/gpu_hours")[-1][1] == 0


@pytest.mark.torch
@pytest.mark.timeout(900)
def test_a_server_that_never_answers_costs_the_job_its_metrics_there_and_nothing_else(
    cluster: Cluster, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    env = {"NOTES": str(notes), "OMP_NUM_THREADS": "1"}
    spec = {"tracking": {"mlflow": "http://127.0.0.1:9"}}
    cluster.submit("job-1", LOOPS, name="loop", entrypoint=["lib.py"], env=env, **spec)
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1")
    record = cluster.wait_state("job-1", *ENDED, seconds=LONG)
    assert record.state is JobState.SUCCEEDED and record.errors == 0, cluster.printed()
    losses = [json.loads(line) for line in (notes / "record.jsonl").read_text().splitlines()]
    by_hand = tmp_path / "by-hand"
    by_hand.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(by_hand), "NOTES": str(by_hand)}
    command = [*program_forks.command(), str(LOOPS / "lib.py")]
    subprocess.run(command, env=environment, check=True, timeout=LONG, capture_output=True)
    assert losses == [json.loads(line) for line in (by_hand / "record.jsonl").read_text().splitlines()]


WANDB = "wandb==0.31.0"
PROGRAM = """
import os, pathlib, sys, time
sys.path.insert(0, os.environ["WANDB_PACKAGES"])
import wandb
notes = pathlib.Path(os.environ["NOTES"])
first = not (notes / "here").exists()
with wandb.init(settings=wandb.Settings(silent=True)) as run:
    run.log({"loss": 0.5 if first else 0.25, "val/l\u00f6ss": float("nan")}, step=1 if first else 2)
    print("run", run.id, run.project, run.resumed, flush=True)
    fold = f"{os.environ['WANDB_RUN_ID']}-fold-2"
    with wandb.init(id=fold, name=fold, reinit="create_new", settings=wandb.Settings(silent=True)) as second:
        second.log({"loss": 1.0}, step=1)
        print("fold", second.id, flush=True)
if first:
    (notes / "here").touch()
    time.sleep(600)
"""


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_attempts_of_a_program_with_wandb_write_one_run_into_the_outputs(cluster: Cluster, tmp_path: Path) -> None:
    packages, code, notes = (tmp_path / name for name in ("packages", "code", "notes"))
    for folder in (code, notes):
        folder.mkdir()
    (code / "log.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "uv", "pip", "install", "-q", "--target", str(packages), WANDB]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        pytest.skip(f"{WANDB} cannot be installed: {done.stderr[-300:]}")
    env = {"WANDB_PACKAGES": str(packages), "NOTES": str(notes)}
    cluster.submit("job-1", code, name="log", entrypoint=["log.py"], env=env, tracking={"wandb": "vision"})
    for epoch in (1, 2):
        cluster.assign("job-1", f"i-{epoch}")
        cluster.start_agent(f"i-{epoch}")
        if epoch == 1:
            is_there = lambda: (notes / "here").exists() or cluster.record("job-1").state in ENDED  # noqa: E731
            eventually("it has logged", is_there, LONG)
            cluster.stop("i-1", Reason.DRILL)
        record = cluster.wait_state("job-1", *ENDED, seconds=LONG)
    assert record.state is JobState.SUCCEEDED, cluster.printed()
    lines = [line.split() for line in cluster.printed().splitlines() if line.startswith("run ")]
    job = cluster.store.jobs.get("job-1")
    assert job is not None
    run = derive_run_id("job-1", job.value.submitted_at)
    assert [line[:3] for line in lines] == [["run", run, "vision"]] * 2
    folds = [line for line in cluster.printed().splitlines() if line.startswith("fold ")]
    assert folds == [f"fold {run}-fold-2"] * 2, "a second run at the same time has an id of its own, in each attempt"
    runs = [output for output in cluster.store.outputs("job-1").list() if output.path.endswith(".wandb")]
    assert {output.epoch for output in runs} == {1, 2}
    assert all(output.path.startswith("wandb/offline-run-") and "job-1" in output.path for output in runs)


@pytest.mark.parametrize(
    ("rank", "variables", "run"),
    [
        ("0", {"WANDB_RUN_ID": "job-1", "WANDB_NAME": "job-1"}, "job-1 job-1"),
        ("1", {"WANDB_RUN_ID": "job-1", "WANDB_NAME": "job-1"}, "job-1-rank1 job-1-rank1"),
        ("1", {"WANDB_RUN_ID": "own", "WANDB_NAME": "job-1"}, "own job-1"),
        ("1", {}, "None None"),
    ],
)
def test_each_process_of_a_job_has_a_run_of_its_own(
    tmp_path: Path, rank: str, variables: dict[str, str], run: str
) -> None:
    """Two processes with the same id would write into one history at the same time."""
    program = tmp_path / "show.py"
    program.write_text("import os\nprint(os.environ.get('WANDB_RUN_ID'), os.environ.get('WANDB_NAME'))")
    done = subprocess.run(
        [sys.executable, "-m", "everspot_train.worker", str(program)], check=True, capture_output=True, text=True,
        env={"PATH": os.environ["PATH"], "RANK": rank, **variables}, timeout=LONG,
    )  # fmt: skip
    assert done.stdout.strip() == run
