"""Programs without the trainer library are recognized, saved and restored, and their exit codes are theirs."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from agent_helpers import Cluster, eventually, market_in
from everspot_core.costs.attempts import attempts, interruptions
from everspot_core.jobs.records import EventKind, InstanceState, JobState, Reason

PLAIN = Path(__file__).parent / "programs" / "plain"


def submit(cluster: Cluster, job_id: str, mode: str, env: dict[str, str] | None = None, **spec: Any) -> None:
    env = {"PLAIN": mode, **(env or {})}
    cluster.submit(job_id, PLAIN, name="plain", entrypoint=["plain.py"], env=env, **spec)


def printed(cluster: Cluster, job_id: str, epoch: int) -> str:
    chunks = cluster.store.read_logs(job_id)
    return b"".join(chunk.data for chunk in chunks if chunk.epoch == epoch).decode()


def started(cluster: Cluster, job_id: str, epoch: int, line: str = "at 1") -> None:
    """Wait until the program has printed a text. Read from the output file, which is sooner than from the store."""

    def look() -> bool:
        files = cluster.root.glob(f"instances/*/runs/{job_id}-{epoch:06d}/output.log")
        return any(f"{line}\n" in file.read_text() for file in files)

    eventually(f"{job_id} prints {line}", look)


def test_what_a_plain_program_saves_at_a_notice_is_put_back_on_the_next_instance(cluster: Cluster) -> None:
    server = cluster.metadata_server("i-1")
    submit(cluster, "job-1", "count", {"PLAIN_UNTIL": "100000", "PLAIN_SAVE_SECONDS": "1"})
    cluster.assign("job-1", "i-1")
    cluster.start_with_metadata(server, "i-1")
    started(cluster, "job-1", 1, "at 3")

    server.announce_interruption(market_in(20))
    record = cluster.wait_state("job-1", JobState.PENDING)

    assert (record.last_reason, record.preemptions, record.errors) == (Reason.NOTICE, 1, 0)
    (checkpoint_event,) = cluster.events("job-1", EventKind.CHECKPOINTED)
    assert (checkpoint_event.data["files"], checkpoint_event.data["trigger"]) == (1, "final")

    cluster.assign("job-1", "i-2")
    cluster.start_agent("i-2")
    started(cluster, "job-1", 2, "at 50")
    cluster.stop("i-2", Reason.CANCEL)
    cluster.wait_state("job-1", JobState.CANCELLED)
    header, _, remainder = printed(cluster, "job-1", 2).partition("began at ")
    assert header == "everspot: ---- attempt 2 on i-2: its folder checkpoints was put back ----\n"
    began = int(remainder.split()[0])
    assert began >= 3
    (first, second) = cluster.events("job-1", EventKind.TRAINING)
    assert (first.data["restored"], second.data["restored"]) == (False, True)
    (interruption,) = interruptions(attempts(cluster.events("job-1")))
    assert interruption.resumed_on == "i-2"
    assert interruption.attempt.training_at is not None


def test_a_program_that_keeps_nothing_is_started_over_as_often_as_it_may(cluster: Cluster) -> None:
    submit(cluster, "job-1", "idle", retries={"from_zero": 1})
    cluster.start_agent("i-1")
    for epoch in (1, 2):
        cluster.assign("job-1", "i-1")
        started(cluster, "job-1", epoch)
        cluster.stop("i-1", Reason.DRILL)
        record = cluster.wait_state("job-1", JobState.PENDING)
        assert record.from_zero == epoch - 1
    assert [e.data.get("from_zero") for e in cluster.events("job-1", EventKind.STARTED)] == [None, 1]

    line = "everspot: ---- attempt 2 on i-1: restarted from zero (1): no checkpoint was kept ----"
    assert printed(cluster, "job-1", 2).splitlines()[0] == line
    assert "attempt" not in printed(cluster, "job-1", 1)
    stroke, _ = interruptions(attempts(cluster.events("job-1")))
    assert stroke.steps_redone is None
    assert stroke.attempt.training_at is not None and stroke.attempt.end is not None
    assert stroke.seconds_redone == (stroke.attempt.end - stroke.attempt.training_at).total_seconds()

    cluster.assign("job-1", "i-1")
    record = cluster.wait_state("job-1", JobState.FAILED)

    assert record.detail.startswith(
        "it had to begin from zero after an interruption (2 times; retries.from_zero allows"
    )
    assert cluster.kinds("job-1")[-1] == "failed"


def test_a_crash_checkpoint_and_outputs_of_odd_names_are_kept(cluster: Cluster) -> None:
    submit(cluster, "job-1", "crash", retries={"errors": 1, "backoff": "1s"})
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1")
    cluster.wait_state("job-1", JobState.PENDING)
    cluster.assign("job-1", "i-1")
    cluster.wait_state("job-1", JobState.SUCCEEDED)
    assert "began at 7" in printed(cluster, "job-1", 2)
    assert [output.path for output in cluster.store.outputs("job-1").list()] == ["caf%E9%0D.json", "good.csv"]
    assert cluster.events("job-1", EventKind.SKIPPED) == []


def test_a_state_that_is_half_written_when_sigterm_kills_is_never_put_back(cluster: Cluster, tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.mkdir()
    submit(cluster, "job-1", "halves", {"PLAIN_GO": str(go)}, checkpoint={"every": "5s"})
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1")
    started(cluster, "job-1", 1, "began at 0")
    time.sleep(3)  # for the agent to see the first state; if it does not, the second is kept a little later
    (go / "1").touch()
    eventually("the state is kept", lambda: cluster.store.data.list("jobs/job-1/checkpoints/"))
    (go / "2").touch()
    started(cluster, "job-1", 1, "at half")
    cluster.stop("i-1", Reason.DRILL)
    record = cluster.wait_state("job-1", JobState.PENDING)
    assert record.last_reason is Reason.DRILL
    cluster.assign("job-1", "i-1")
    cluster.wait_state("job-1", JobState.SUCCEEDED)
    assert printed(cluster, "job-1", 2).split()[-1] in ("1", "2")


@pytest.mark.parametrize(
    ("mode", "code", "signal_name", "message"),
    [
        ("fail", 1, None, "ValueError: the learning rate is negative"),
        ("exits", 3, None, "the program exited with 3"),
        ("killed", -9, "SIGKILL", "the program was killed by SIGKILL"),
    ],
)
def test_an_ending_is_told_in_the_programs_own_words(
    cluster: Cluster, mode: str, code: int, signal_name: str | None, message: str
) -> None:
    submit(cluster, "job-1", mode, retries={"errors": 0})
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1")

    record = cluster.wait_state("job-1", JobState.FAILED)

    (error,) = cluster.events("job-1", EventKind.ERROR)
    assert (error.data["exit_code"], error.data["signal"], error.data["message"]) == (code, signal_name, message)
    assert (record.exit_code, record.detail.splitlines()[0]) == (code, message)
    files = [line for line in str(error.data["traceback"]).splitlines() if "File " in line]
    assert [Path(line.split('"')[1]).name for line in files] == (["plain.py"] * 2 if mode == "fail" else [])


@pytest.mark.torch
@pytest.mark.parametrize(
    ("mode", "code", "first"),
    [
        ("fail", 1, "ValueError: "),
        ("killed", -9, "the program was ki"),
        ("lose_peer", 1, "ValueError: label 1001 is out of range"),
    ],
)
def test_torchrun_hands_the_first_failure_on(tmp_path: Path, mode: str, code: int, first: str) -> None:
    from everspot_core.jobs.job import JobSpec, Resources
    from everspot_train.agent.endings import judge_ending
    from everspot_train.agent.failures import read_failure
    from everspot_train.agent.program import command_for, environment_for

    spec = JobSpec(
        name="plain", entrypoint=["plain.py"], code=".", env={"PLAIN": mode}, resources=Resources(vcpus=2, gpus=2)
    )
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir()
    env = environment_for(spec, {"PATH": "/usr/bin:/bin"}, 2, tmp_path, PLAIN, tmp_path / "tmp")
    done = subprocess.run(command_for(spec, None), cwd=PLAIN, env=env, capture_output=True, text=True)

    ending = judge_ending(None, done.returncode, None, read_failure(tmp_path, done.stderr))
    assert (ending.reason, ending.exit_code) == (Reason.ERROR, code)
    assert ending.message.startswith(first)
    assert "ChildFailedError" not in done.stderr
    assert "Root Cause" not in done.stderr


@pytest.mark.torch
def test_a_program_of_one_process_may_open_a_process_group_and_torch_is_imported_once(tmp_path: Path) -> None:
    from everspot_core.jobs.job import JobSpec
    from everspot_train.agent.program import command_for, environment_for

    (tmp_path / "group.py").write_text(
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "whole = torch.ones(1) * 7\n"
        "dist.all_reduce(whole)\n"
        "print(whole.item(), dist.get_rank(), dist.get_world_size(), os.environ['LOCAL_RANK'], os.getpid())\n"
        "dist.destroy_process_group()\n"
    )
    spec = JobSpec(name="plain", entrypoint=["group.py"], code=".")
    env = environment_for(spec, {"PATH": "/usr/bin:/bin"}, 2, tmp_path, tmp_path, tmp_path / "tmp")
    process = subprocess.Popen(command_for(spec, None), cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
    output, _ = process.communicate(timeout=120)
    assert (process.returncode, output.split()) == (0, ["7.0", "0", "1", "0", str(process.pid)])


@pytest.mark.torch
def test_under_torchrun_a_program_has_as_long_to_save_as_its_agent_leaves_it(tmp_path: Path) -> None:
    """torchrun kills after 30 s by default; the variable that sets the default is made a second here."""
    from everspot_core.jobs.job import JobSpec, Resources
    from everspot_train.agent.program import command_for, environment_for

    env = {"PLAIN": "count", "PLAIN_UNTIL": "100000", "PLAIN_SAVE_SECONDS": "3", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "1"}
    spec = JobSpec(name="plain", entrypoint=["plain.py"], code=".", env=env, resources=Resources(vcpus=2, gpus=2))
    shutil.copy(PLAIN / "plain.py", tmp_path)
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir()
    (tmp_path / "checkpoints").mkdir()
    whole = environment_for(spec, {"PATH": "/usr/bin:/bin"}, 2, tmp_path, tmp_path, tmp_path / "tmp")
    with (tmp_path / "output").open("wb") as output:
        alone = [part.replace("per-node=2", "per-node=1") for part in command_for(spec, None)]
        process = subprocess.Popen(alone, cwd=tmp_path, env=whole, stdout=output, stderr=output)
    try:
        eventually("it trains", lambda: b"at 3\n" in (tmp_path / "output").read_bytes(), seconds=120)
        process.terminate()
        process.wait(60)
    finally:
        process.kill()
    assert int((tmp_path / "checkpoints/deep/count.txt").read_text()) >= 3


@pytest.mark.parametrize(
    ("mode", "gpu_message"), [("full", ""), ("print_and_fail", "CUDA error: uncorrectable ECC error encountered")]
)
def test_a_fault_of_the_machine_moves_the_job_and_spends_none_of_its_retries(
    cluster: Cluster, mode: str, gpu_message: str
) -> None:
    resources = {"gpus": 1} if gpu_message else {}
    submit(cluster, "job-1", mode, {"PLAIN_SAYS": gpu_message}, retries={"errors": 0}, resources=resources)
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1")

    record = cluster.wait_state("job-1", JobState.PENDING)

    assert (record.last_reason, record.errors, record.unstarted) == (Reason.MACHINE, 0, ["i-1"])
    assert record.not_before is not None
    (interrupted,) = cluster.events("job-1", EventKind.INTERRUPTED)
    assert interrupted.data["reason"] == "machine"
    if gpu_message:
        assert record.detail.splitlines()[0] == f"a GPU of the machine failed: {gpu_message}"
        instance_record = cluster.wait_instance("i-1", lambda record: record.state is InstanceState.CORDONED)
        assert gpu_message in instance_record.detail
    else:
        assert record.detail.splitlines()[0] == "the machine's disk is full"


def _litter(below: Path) -> list[str]:
    """Return the folders with such files. Folders that vanish during the walk are skipped (Path.rglob raises)."""
    return [folder for folder, folders, files in os.walk(below) if "litter" in [*folders, *files]]


def test_what_a_job_leaves_is_gone_files_and_processes(cluster: Cluster) -> None:
    mark = f"left-by-{cluster.root.name}"
    submit(cluster, "job-1", "litter", {"PLAIN_MARK": mark})
    cluster.assign("job-1", "i-1")
    agent = cluster.start_agent("i-1")
    started(cluster, "job-1", 1)
    assert hidden(mark)

    cluster.stop("i-1", Reason.CANCEL)
    cluster.wait_state("job-1", JobState.CANCELLED)

    assert hidden(mark) == []
    eventually("the files are gone", lambda: not _litter(agent.home))


def hidden(mark: str) -> list[int]:
    pids = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "cmdline").read_bytes():
                pids.append(int(entry.name))
        except OSError:
            continue
    return pids


def test_without_control_groups_orphans_are_adopted_and_found(tmp_path: Path) -> None:
    mark = f"orphan-{tmp_path.name}"
    code = f"""
import sys, time
from pathlib import Path
from everspot_train.agent.process import JobLaunch, LocalLauncher
run = Path({str(tmp_path)!r}); (run / "tmp").mkdir()
env = dict(PLAIN="litter", PLAIN_MARK={mark!r}, HOME=str(run), TMPDIR=str(run / "tmp"), EVERSPOT_HOME=str(run))
command = [sys.executable, {str(PLAIN / "plain.py")!r}]
process = LocalLauncher(run, adopt=True, groups=False).launch(JobLaunch(command, run, run, env))
while "at 1" not in (run / "output.log").read_text():
    time.sleep(0.05)
print("started", flush=True)
sys.stdin.readline()
process.kill()
"""
    agent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert agent.stdin is not None and agent.stdout is not None
    assert agent.stdout.readline() == b"started\n"
    assert len(hidden(mark)) >= 1
    agent.communicate(b"\n", timeout=60)
    assert hidden(mark) == []


def test_orphans_that_have_ended_are_reaped_and_other_processes_keep_their_exit_codes(tmp_path: Path) -> None:
    (tmp_path / "spawn.py").write_text(
        "import os\nfor _ in range(9):\n    os.system('sh -c \"true &\"; setsid -f true')\nos._exit(7)\n"
    )
    code = f"""
import os, subprocess, sys, time
from pathlib import Path
from everspot_train.agent.process import JobLaunch, LocalLauncher
run = Path({str(tmp_path)!r})
command = subprocess.Popen(["sh", "-c", "exit 5"])
job = JobLaunch([sys.executable, str(run / "spawn.py")], run, run, dict(PATH=os.environ["PATH"]))
process = LocalLauncher(run, adopt=True, groups=False).launch(job)
def count_children():
    stats = [path.read_text().rpartition(")")[2].split() for path in Path("/proc").glob("[0-9]*/stat") if path.exists()]
    return sum(fields[1] == str(os.getpid()) for fields in stats)
while process.exit_code() is None or count_children() > 1:
    time.sleep(0.05)
process.kill()
assert (command.wait(), process.exit_code()) == (5, 7)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_program_that_fails_after_its_last_checkpoint_has_not_succeeded(cluster: Cluster) -> None:
    cluster.submit("job-1", env={"TOY_STEPS": "3", "TOY_EXIT": "3"}, retries={"errors": 0})
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1")
    record = cluster.wait_state("job-1", JobState.FAILED)
    assert (record.exit_code, record.last_reason) == (3, Reason.ERROR)
    assert record.detail.startswith("the program exited with 3 after its last checkpoint")


def test_checkpoints_that_are_all_damaged_are_a_reason_of_their_own(cluster: Cluster) -> None:
    cluster.submit("job-1", env={"TOY_STEPS": "1000", "TOY_EVERY": "2"}, retries={"errors": 0})
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1")
    cluster.wait_steps(5)
    cluster.stop("i-1", Reason.DRILL)
    cluster.wait_state("job-1", JobState.PENDING)
    for entry in cluster.store.data.list("jobs/job-1/checkpoints/"):
        cluster.store.data.delete(entry.key)

    cluster.assign("job-1", "i-1")
    cluster.wait_state("job-1", JobState.RUNNING, JobState.PENDING)
    record = cluster.wait_state("job-1", JobState.PENDING)

    assert (record.last_reason, record.errors) == (Reason.DAMAGED, 0)
    assert record.detail.startswith("none of the job's checkpoints is whole: ")
