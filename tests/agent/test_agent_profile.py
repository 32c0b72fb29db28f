"""`everspot profile` of jobs under a real agent: of the trainer library and of frameworks; refused; interrupted."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import program_forks
import pytest
from agent_helpers import Cluster, eventually
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.profile import Profile, ProfileRequest, ProfileState
from everspot_core.jobs.records import JobState, Reason
from everspot_store import ManualClock, Store
from everspot_train.agent.actions import JobKey
from everspot_train.agent.mailbox import Mailbox
from everspot_train.agent.profiles import GRACE, LOOK_EVERY, ProfileRelay
from everspot_train.rundir import ProfileOrder, ProfileReport, RunDir

LOOPS = Path(__file__).parent / "programs" / "loops"
LONG = 300.0
ENDED = (JobState.PENDING, JobState.FAILED, JobState.SUCCEEDED)


@pytest.fixture
def launcher() -> str:
    return program_forks.launcher()


@contextmanager
def profiling(cluster: Cluster, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """The command, once its request is in the store: an agent that starts now finds it at its first look."""
    url = cluster.manifest.control_url
    command = [sys.executable, "-m", "everspot_cli.main", "--store", url, "profile", "job-1", *options]
    env = {"PATH": os.environ["PATH"], "HOME": str(cluster.root), "COLUMNS": "200"}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as popen:
        try:
            eventually("it is requested", lambda: cluster.store.profile_requests.get("job-1") or popen.poll(), LONG)
            yield popen
        finally:
            popen.kill()


def run_everspot(cluster: Cluster, *arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "everspot_cli.main", "--store", cluster.manifest.control_url, *arguments]
    env = {"PATH": os.environ["PATH"], "HOME": str(cluster.root)}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=LONG, check=False)


def submit(cluster: Cluster, notes: Path, program: str, place: str, **spec: Any) -> None:
    notes.mkdir(exist_ok=True)
    env = {"NOTES": str(notes), "STRIKE": place, "OMP_NUM_THREADS": "1", "USE_LIBUV": "0"}
    cluster.submit("job-1", LOOPS, name="loop", entrypoint=[program], env=env, **spec)
    cluster.assign("job-1", "i-1")


def has_order(cluster: Cluster) -> bool:
    return any(cluster.root.glob("instances/*/runs/job-1-000001/profile-order.json"))


def wait_until_there(cluster: Cluster, notes: Path) -> None:
    eventually("the loop is there", lambda: (notes / "here").exists() or cluster.record("job-1").state in ENDED, LONG)
    assert (notes / "here").exists(), cluster.printed()


@pytest.mark.torch
@pytest.mark.timeout(900)
def test_a_running_loop_is_profiled_and_its_trace_is_an_output_at_once(cluster: Cluster, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    submit(cluster, notes, "lib.py", "step 30")
    with profiling(cluster, "--steps", "5") as popen:
        cluster.start_agent("i-1")
        out, err = popen.communicate(timeout=LONG)
    assert popen.returncode == 0, err + cluster.printed()
    assert "job-1 waits for the instance" in err
    recorded, step, _, data = (line.strip() for line in out.splitlines()[:4])
    assert recorded.startswith("recorded ") and " steps " in recorded
    assert re.match(r"step +[\d.]+ [mµ]?s while recorded, [\d.]+ [mµ]?s in \d+ steps around it: ", step), step
    assert data.startswith("waits for data ") and " a step (" in data and data.endswith("DataLoader, 0 workers")
    assert any(line.split()[:2] == ["aten::addmm", "10"] for line in out.splitlines()), out
    trace = next(text for text in out.split() if text.startswith("profile/"))
    wait_until_there(cluster, notes)  # it still runs
    pulled = run_everspot(cluster, "pull", "job-1", trace, cwd=tmp_path)
    assert pulled.returncode == 0 and (tmp_path / "job-1" / trace).stat().st_size > 1000, pulled.stderr
    assert cluster.store.profile_requests.get("job-1") is None
    (notes / "struck").touch()
    assert cluster.wait_state("job-1", *ENDED, seconds=LONG).state is JobState.SUCCEEDED, cluster.printed()
    assert "everspot: a profile of 5 steps was requested by" in cluster.printed()
    assert [output.path for output in cluster.store.outputs("job-1").list()] == [trace]


@pytest.mark.torch
@pytest.mark.timeout(900)
def test_an_interruption_ends_the_profile_and_costs_the_job_nothing(cluster: Cluster, tmp_path: Path) -> None:
    undisturbed, notes = tmp_path / "undisturbed", tmp_path / "notes"
    undisturbed.mkdir()
    by_hand = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NOTES": str(undisturbed)}
    subprocess.run(
        [*program_forks.command(), str(LOOPS / "lib.py")], env=by_hand, check=True, timeout=LONG, capture_output=True
    )
    submit(cluster, notes, "lib.py", "step 12")
    with profiling(cluster, "--steps", "200") as popen:
        cluster.start_agent("i-1")
        wait_until_there(cluster, notes)
        eventually("it is recorded", lambda: list(cluster.store.profiles.read("job-1")) or popen.poll(), LONG)
        cluster.stop("i-1", Reason.DRILL)
        stops = lambda: list(cluster.root.glob("instances/*/runs/job-1-000001/stop.json"))  # noqa: E731
        eventually("it is asked to stop", stops, LONG)
        (notes / "struck").touch()
        out, err = popen.communicate(timeout=LONG)
    assert (popen.returncode, out) == (1, ""), err
    assert "job-1 was interrupted while it was being profiled" in err and "loses nothing" in err
    record = cluster.wait_state("job-1", *ENDED, seconds=LONG)
    assert (record.state, record.progress.durable_step) == (JobState.PENDING, 12), cluster.printed()
    cluster.assign("job-1", "i-2")
    cluster.start_agent("i-2")
    assert cluster.wait_state("job-1", *ENDED, seconds=LONG).state is JobState.SUCCEEDED, cluster.printed()
    assert (notes / "record.jsonl").read_text() == (undisturbed / "record.jsonl").read_text()


@pytest.mark.torch
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "program",
    ["hf.py", pytest.param("lit.py", marks=pytest.mark.nightly), pytest.param("acc.py", marks=pytest.mark.nightly)],
)
def test_a_loop_of_a_framework_is_profiled(cluster: Cluster, tmp_path: Path, program: str) -> None:
    notes = tmp_path / "notes"
    submit(cluster, notes, program, "step 2")
    with profiling(cluster, "--steps", "4", "--json") as popen:
        cluster.start_agent("i-1")
        wait_until_there(cluster, notes)
        eventually("it is ordered", lambda: has_order(cluster), LONG)
        (notes / "struck").touch()
        out, err = popen.communicate(timeout=LONG)
    assert popen.returncode == 0, err + cluster.printed()
    answer = json.loads(out)
    assert answer["job_id"] == "job-1" and answer["steps"] == 4 and answer["step_seconds"] > 0
    names = {operation["name"] for operation in answer["operations"]}
    assert "aten::mm" in names and any(name.startswith("Optimizer.step") for name in names)
    assert answer["data"]["wait_seconds"] > 0 and answer["trace"].startswith("outputs/profile/steps-")
    assert cluster.wait_state("job-1", *ENDED, seconds=LONG).state is JobState.SUCCEEDED, cluster.printed()


@pytest.mark.timeout(600)
def test_a_plain_program_is_refused_with_what_to_use_instead(cluster: Cluster, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "plain.py").write_text(
        "import os, pathlib, time\n"
        "print('EVERSPOT step=1', flush=True)\n"
        "while not pathlib.Path(os.environ['ENOUGH']).exists(): time.sleep(0.05)\n"
    )
    env = {"ENOUGH": str(tmp_path / "enough")}
    cluster.submit("job-1", code, name="plain", entrypoint=["plain.py"], env=env)
    cluster.assign("job-1", "i-1")
    with profiling(cluster) as popen:
        cluster.start_agent("i-1")
        out, err = popen.communicate(timeout=LONG)
    assert (popen.returncode, out) == (1, "")
    assert "job-1 cannot be profiled: everspot profile records steps of the trainer library and of" in err
    (tmp_path / "enough").touch()
    assert cluster.wait_state("job-1", *ENDED, seconds=LONG).state is JobState.SUCCEEDED


class Relay:
    """The agent's part of one ownership, by a clock that is turned by hand, and the program's files."""

    def __init__(self, root: Path) -> None:
        for name in ("control", "data", "run"):
            (root / name).mkdir()
        self.outputs = root / "outputs"
        (self.outputs / "profile").mkdir(parents=True)
        self.clock = ManualClock()
        self.store = Store.open(f"file://{root}/control", f"file://{root}/data", clock=self.clock)
        self.rundir, self.notes = RunDir(root / "run"), list[str]()
        spec = JobSpec(name="toy", recipe="image_classification")
        self.store.submit(JobSubmission(job_id="j", spec=spec, submitted_at=self.clock.now()))
        mailbox = Mailbox(self.rundir, "j")
        self.relay = ProfileRelay(self.store, JobKey("j", 2), mailbox, self.clock, self.notes.append)

    def request(self, id: str = "0a1b2c3d", epoch: int = 2) -> None:
        now = self.clock.now()
        self.store.profile_requests.put("j", ProfileRequest(id=id, epoch=epoch, at=now, valid_until=now, by="ann"))

    def look(self, *, is_followed: bool = True, reports_steps: bool = False) -> ProfileOrder | None:
        self.clock.advance(LOOK_EVERY)
        self.relay.look(is_followed=is_followed, reports_steps=reports_steps)
        return self.rundir.read(ProfileOrder)

    def report(self, **fields: Any) -> list[Profile]:
        profile = Profile(**({"id": "0a1b2c3d", "state": ProfileState.DONE} | fields))
        self.rundir.write(ProfileReport(profile=profile))
        self.relay.publish(self.outputs)
        return self.store.read_profiles("j", "0a1b2c3d")


@pytest.fixture
def relay(tmp_path: Path) -> Relay:
    return Relay(tmp_path)


def test_a_request_is_looked_for_while_somebody_follows_and_only_for_this_attempt(relay: Relay) -> None:
    relay.request()
    assert relay.look(is_followed=False) is None
    relay.request(epoch=1)
    assert relay.look() is None
    relay.request()
    assert relay.look() == ProfileOrder(id="0a1b2c3d", steps=20)
    assert relay.notes == ["a profile of 20 steps was requested by ann"]


def test_an_order_is_taken_back_with_its_request(relay: Relay) -> None:
    relay.request()
    assert relay.look() is not None
    relay.store.profile_requests.delete("j")
    assert relay.look(is_followed=False) is None


def test_a_program_that_is_silent_for_long_is_refused_and_one_that_takes_orders_is_not(relay: Relay) -> None:
    relay.request()
    relay.look()
    relay.clock.advance(GRACE)
    relay.look()
    relay.look()
    (refused,) = relay.store.read_profiles("j", "0a1b2c3d")
    assert refused.state is ProfileState.REFUSED
    relay.rundir.write(ProfileReport())
    relay.request("ffffffff")
    relay.look()
    relay.clock.advance(GRACE)
    relay.look(reports_steps=True)
    assert relay.store.read_profiles("j", "ffffffff") == []


def test_each_state_of_the_profile_that_was_ordered_is_written_once(relay: Relay) -> None:
    relay.request()
    assert relay.report() == []  # of an earlier agent's order
    relay.look()
    assert relay.report(id="ffffffff") == []
    assert [p.state for p in relay.report(state=ProfileState.RECORDING)] == ["recording"]
    (relay.outputs / "profile" / "a.json.gz").write_bytes(b"trace")
    for _ in range(3):
        profiles = relay.report(trace="a.json.gz", trace_bytes=10**9)
    assert [(p.state, p.trace_bytes) for p in profiles] == [("recording", 0), ("done", 5)]
    (output,) = relay.store.outputs("j").list()
    assert (output.path, output.epoch, output.size) == ("profile/a.json.gz", 2, 5)


@pytest.mark.parametrize("where", ["file", "folder", "pipe"])
def test_no_link_out_of_the_outputs_is_followed(relay: Relay, tmp_path: Path, where: str) -> None:
    folder = relay.outputs / "profile"
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "a.json.gz").write_text("a secret")
    if where == "file":
        (folder / "a.json.gz").symlink_to(tmp_path / "private" / "a.json.gz")
    elif where == "folder":
        folder.rmdir()
        folder.symlink_to(tmp_path / "private")
    else:
        os.mkfifo(folder / "a.json.gz")
    relay.request()
    relay.look()
    (profile,) = relay.report(trace="a.json.gz", trace_bytes=8)
    assert profile.trace == "" and "no file of at most 64 MiB" in profile.trace_note
    assert relay.store.outputs("j").list() == []


@pytest.mark.parametrize("name", ["../escape", "a/b", ".hidden", "a" * 200])
def test_a_report_with_an_impossible_name_counts_as_none(relay: Relay, name: str) -> None:
    relay.request()
    relay.look()
    report = {"profile": {"id": "0a1b2c3d", "state": "done", "trace": name}}
    (relay.rundir.path / "profile.json").write_text(json.dumps(report))
    relay.relay.publish(relay.outputs)
    assert relay.store.read_profiles("j", "0a1b2c3d") == []
