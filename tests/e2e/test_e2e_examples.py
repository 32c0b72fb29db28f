"""The exercises of the guide: the commands of each page run as they are written there, and its claims hold.

Each prints the measured table; `pytest -m nightly -s` shows it.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from e2e_elastic import ElasticLive
from e2e_helpers import BUCKETS, PLAIN, REGION, LiveCluster, everspot
from everspot_core.capacity.catalogue import builtin
from everspot_core.cluster.manifest import FleetOffer, Manifest
from everspot_core.jobs.records import EventKind, Market, Role

# Each trains for minutes. What the features do is shown in seconds by other tests.
pytestmark = [pytest.mark.torch, pytest.mark.nightly, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide"


class ExampleCluster(LiveCluster):
    """A cluster of one pool, so that the costs of two runs differ by their time alone."""

    types = ("c6i.large",)
    zones = ("a",)


class ElasticExampleCluster(ElasticLive):
    """A cluster without standing instances, whose scheduler launches the cheapest type that holds a job."""

    zones = ("a",)
    idle_limit = timedelta(minutes=5)
    own_idle_limit = "5m"

    def _manifest(self, role: Role) -> Manifest:
        fleet = FleetOffer(types=list(self.types), markets=list(Market))
        return super()._manifest(role).model_copy(update={"fleet": fleet})


PROCESSORS_OF_TYPE = """
import os, urllib.request
from everspot_core.capacity.catalogue import builtin
from everspot_train.agent.main import main
url = os.environ["AWS_EC2_METADATA_SERVICE_ENDPOINT"].rstrip("/") + "/latest/"
def ask(path, method, **headers):
    return urllib.request.urlopen(urllib.request.Request(url + path, method=method, headers=headers)).read().decode()
token = ask("api/token", "PUT", **{"X-aws-ec2-metadata-token-ttl-seconds": "60"})
kind = ask("meta-data/instance-type", "GET", **{"X-aws-ec2-metadata-token": token})
os.sched_getaffinity = lambda pid: set(range(builtin().types[kind].vcpus))
main()
"""


class AuditCluster(ElasticExampleCluster):
    """One with two sizes of the same type. Agents see as many processors as their type has, not as this machine has,
    because a job's share of an instance is priced by them."""

    types = ("c6i.large", "c6i.xlarge")

    def agent(self, cpus: int | None) -> tuple[str, ...]:
        return "-c", PROCESSORS_OF_TYPE


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveCluster]:
    with ExampleCluster(tmp_path / "e2e", agent_env=PLAIN) as cluster:
        use(cluster, monkeypatch)
        yield cluster


@pytest.fixture
def elastic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ElasticLive]:
    with ElasticExampleCluster(tmp_path / "e2e", agent_env=PLAIN) as cluster:
        use(cluster, monkeypatch)
        yield cluster


@pytest.fixture
def two_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ElasticLive]:
    with AuditCluster(tmp_path / "e2e", agent_env=PLAIN) as cluster:
        use(cluster, monkeypatch)
        yield cluster


def use(cluster: LiveCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands talk to a cluster, in the market's time."""
    monkeypatch.setenv("EVERSPOT_CLOCK", cluster.cloud.market.clock.variable)
    monkeypatch.setenv("EVERSPOT_STORE", f"s3://{BUCKETS[0]}")


def run_page(name: str, live: LiveCluster, tmp_path: Path) -> str:
    """Run the commands of a page in a copy of the examples, and return their output."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (GUIDE / f"{name}.md").read_text(), re.DOTALL | re.MULTILINE)
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / ".everspot").symlink_to(ROOT / ".everspot")
    subprocess.run(["cp", "-r", ROOT / "examples", checkout], check=True)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/bash", "-euo", "pipefail", "-c", "".join(blocks)],
        cwd=checkout, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{live.consoles()}"
    return done.stdout


def read_jobs() -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """Return the report, and its jobs by name in the order of their submission."""
    report = json.loads(everspot("report", "--json"))
    jobs: dict[str, list[dict[str, Any]]] = {}
    for job in sorted(report["jobs"], key=lambda job: str(job["submitted_at"])):
        jobs.setdefault(job["name"], []).append(job)
    return report, jobs


def show(columns: str, rows: list[tuple[object, ...]]) -> None:
    names = columns.split(", ")
    print(f"\n| {' | '.join(names)} |\n| {' | '.join('---' for _ in names)} |")
    for row in rows:
        print(f"| {' | '.join(f'{cell:.4f}' if isinstance(cell, float) else str(cell) for cell in row)} |")


def test_the_daily_pipeline_deploys_only_a_model_that_is_better_by_half_a_percent(
    live: LiveCluster, tmp_path: Path
) -> None:
    run_page("exercise-pipeline", live, tmp_path)
    report, jobs = read_jobs()
    days = list(zip(jobs["prepare"], jobs["train"], jobs["deployed"], strict=True))
    rows = [
        (number, train["metrics"]["accuracy"], deployed["state"], *(job["cost_usd"] for job in day))
        for number, day in enumerate(days, 1)
        for _, train, deployed in [day]
    ]
    show("day, accuracy, deployment, prepare $, train $, deploy $", rows)
    print(report["reused_stages"])
    first, second, third = (train["metrics"]["accuracy"] for _, train, _ in days)
    assert second <= first * 1.005 < third, "the example's models no longer show the difference"
    assert [deployed["state"] for _, _, deployed in days] == ["SUCCEEDED", "SKIPPED", "SUCCEEDED"]
    assert [deployed["cost_usd"] > 0 for _, _, deployed in days] == [True, False, True]
    assert days[2][2]["metrics"]["accuracy"] == third
    (origin, *repeats) = (prepare for prepare, _, _ in days)
    assert [job["reused"]["job_id"] for job in repeats] == [origin["job_id"]] * 2
    assert report["reused_stages"]["usd_not_spent"] == pytest.approx(2 * origin["cost_usd"], abs=2e-6)
    assert not [job["job_id"] for job in repeats if live.list_events(job["job_id"], EventKind.ASSIGNED)]


def test_the_weekly_retraining_is_cut_by_a_quarter(live: LiveCluster, tmp_path: Path) -> None:
    run_page("exercise-retraining", live, tmp_path)
    report, jobs = read_jobs()
    first, again, reused = jobs["prepare"]
    (scratch,), (week, continued, *_) = jobs["from-scratch"], jobs["weekly"]
    weeks = {
        "1, from scratch": (first, week),
        "2, from scratch": (again, scratch),
        "2, continued": (reused, continued),
    }
    dollars = {name: prepare["cost_usd"] + train["cost_usd"] for name, (prepare, train) in weeks.items()}
    rows = [
        (name, train["steps"], train["metrics"]["accuracy"], prepare["cost_usd"], train["cost_usd"], dollars[name])
        for name, (prepare, train) in weeks.items()
    ]
    show("week, steps, accuracy, prepare $, train $, sum $", rows)
    print(continued["continued"], report["reused_stages"])
    assert scratch["steps"] / week["steps"] == pytest.approx(1.5, abs=0.01)
    assert dollars["2, continued"] < 0.75 * dollars["2, from scratch"]
    assert continued["metrics"]["accuracy"] > scratch["metrics"]["accuracy"] - 0.01
    assert report["reused_stages"]["usd_not_spent"] == pytest.approx(first["cost_usd"], abs=2e-6)
    saving = continued["continued"]
    assert (saving["job_id"], saving["from_scratch"]) == (week["job_id"], week["job_id"])
    assert saving["usd_saved"] == pytest.approx(week["cost_usd"] - continued["cost_usd"], abs=2e-6)
    assert continued["cost_usd"] > 0 and saving["usd_saved"] > 0


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # proc_pid_stat(5): utime and stime


def test_the_audited_run_keeps_37_percent_of_four_processors_busy_on_any_machine() -> None:
    """Given a worker that never pauses, when it has used some processor time, then the loop has used half as much."""
    env = os.environ | {"EVERSPOT_DATA": str(ROOT / ".everspot/data"), "WORKERS": "1", "SECONDS": "600", "EPOCHS": "99"}
    program = ROOT / "examples/audited_training/train/main.py"
    with subprocess.Popen([sys.executable, program], env=env, stderr=subprocess.DEVNULL) as loop:
        try:
            children = Path(f"/proc/{loop.pid}/task/{loop.pid}/children")
            while not (workers := [int(pid) for pid in children.read_text().split()]):
                time.sleep(0.2)
            (worker,) = workers
            while processor_seconds(worker) < 2:  # the first batches are slower
                time.sleep(0.2)
            before = processor_seconds(loop.pid), processor_seconds(worker)
            while processor_seconds(worker) < before[1] + 6:
                time.sleep(0.2)
            used = processor_seconds(loop.pid) - before[0], processor_seconds(worker) - before[1]
        finally:
            loop.kill()
    assert sum(used) / used[1] / 4 == pytest.approx(0.37, abs=0.04)


def test_the_audit_of_a_run_that_waits_for_its_data_shows_that_two_changes_help(
    two_sizes: ElasticLive, tmp_path: Path
) -> None:
    output = run_page("exercise-audit", two_sizes, tmp_path)
    print(output[output.index("audit of") :])
    _, jobs = read_jobs()
    before, after = (job["job_id"] for job in jobs["audited"])
    document = json.loads(everspot("cost", "audit", before, "--against", after, "--json"))
    assert document["machine"]["bottleneck"] == "data"
    # One worker without a pause and the loop beside it. Other programs can only take from this.
    assert document["machine"]["cpu_share"] < 0.42
    assert [change["change"] for change in document["changes"]] == ["loader-workers", "smaller-type"]
    assert all(change["gain"] for change in document["changes"])
    comparison = document["comparison"]
    changed = {change["field"]: (change["before"], change["after"]) for change in comparison["changed"]}
    assert changed["env.WORKERS"] == ("1", "3") and changed["resources.vcpus"] == (4, 2)
    slow, fast = comparison["runs"]
    # By how much the workers help depends on the processors that other programs leave.
    assert fast["data_wait_share"] < slow["data_wait_share"]
    assert (comparison["cost"]["outcome"], comparison["quality"]["outcome"]) == ("better", "same")
    assert (comparison["metric"], slow["metric"]) == ("test_accuracy", fast["metric"])


def test_bf16_reaches_the_same_accuracy_on_a_smaller_type_of_a_lower_price(
    elastic: ElasticLive, tmp_path: Path
) -> None:
    print(run_page("exercise-precision", elastic, tmp_path))
    command = ("ab", "train.yaml", "--precision", "fp32,bf16", "--metric", "test_accuracy", "--tolerance", "2%")
    with contextlib.chdir(tmp_path / "checkout" / "examples" / "lower_precision"):
        answer = json.loads(everspot(*command, "--try", "c6i.large", "--json"))
    rows = []
    for arm in answer["arms"]:
        usd = [run["cost_usd"] for run in arm["runs"]]
        types = {run["instance_type"] for run in arm["runs"]}
        rows.append((arm["precision"], *types, sum(usd) / len(usd), arm["metric"]["mean"], arm["peak_memory_gib"]))
        assert types == {"m6i.large"}
    trial = answer["try"]
    rows.append((answer["winner"], trial["ran_on"], trial["cost_usd"], trial["value"], trial["peak_memory_gib"]))
    show("format, type, $ per trial, accuracy, peak GiB", rows)
    assert (answer["passed"], answer["arms"][1]["verdict"], answer["winner"]) == (True, "equivalent", "bf16")
    assert (trial["passed"], trial["ran_on"]) == (True, "c6i.large")
    (smaller,) = [kind for kind in answer["arms"][1]["smaller_types"] if kind["instance_type"] == "c6i.large"]
    price = builtin().on_demand("m6i.large", REGION)
    assert price is not None and smaller["usd_per_hour"] < price.usd_per_hour


def test_the_sweep_for_a_budget_states_its_cost_before_and_the_spending_of_each_rung_after(
    elastic: ElasticLive, tmp_path: Path
) -> None:
    output = run_page("exercise-sweep", elastic, tmp_path)
    print(output)
    with contextlib.chdir(tmp_path / "checkout" / "examples" / "budgeted_sweep"):
        print(Path("sweep.yaml").read_text())
        answer = json.loads(everspot("sweep", "sweep.yaml", "--json"))
    ranges = re.findall(r"^rung \d .* each, \$([\d.]+) to \$([\d.]+) on spot", output, re.MULTILINE)
    expected = [(float(low), float(high)) for low, high in ranges]
    spent = [row["cost_usd"] for row in answer["rungs"]]
    rows = [
        (row["value"], row["trials"], *span, row["cost_usd"])
        for span, row in zip(expected, answer["rungs"], strict=True)
    ]
    show("epochs, trials, expected $ from, to, spent $", rows)
    assert [(row["value"], row["trials"]) for row in answer["rungs"]] == [(1, 9), (3, 3), (9, 1)]
    assert answer["over"] and answer["best"].endswith("-r2")
    assert all(low <= usd <= high for (low, high), usd in zip(expected, spent, strict=True)), rows
    assert sum(spent) == pytest.approx(answer["cost_usd"], abs=3e-6)
    report = json.loads(everspot("report", "--json"))
    (sweep,) = report["sweeps"]
    assert [row["cost_usd"] for row in sweep["rungs"]] == pytest.approx(spent, abs=3e-6)
    trials = [job["cost_usd"] for job in report["jobs"] if job["name"] != "clothes"]
    assert (len(trials), len(report["jobs"])) == (13, 14)
    assert sum(trials) == pytest.approx(sum(spent), abs=2e-5)
    assert answer["cost_usd"] < 100
