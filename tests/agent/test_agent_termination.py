"""Which processes of a job are told to end, and how long they have for it."""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from agent_helpers import Cluster, eventually, market_in
from everspot_core.jobs.records import EventKind, JobState, Reason
from everspot_train.agent.process_table import read_processes
from everspot_train.agent.termination import SETTLE, ProcessInfo, Termination, program_name

HEED = Path(__file__).parent / "programs" / "heed"
TORCHRUN = "-m torch.distributed.run --standalone --nproc-per-node=1 heed.py"


def output(cluster: Cluster, job_id: str) -> str:
    return b"".join(chunk.data for chunk in cluster.store.read_logs(job_id)).decode()


def stopped(cluster: Cluster, entrypoint: list[str], env: dict[str, str]) -> str:
    """What the program printed until it was given back after a drill."""
    cluster.submit("job-1", HEED, entrypoint=entrypoint, env=env, retries={"errors": 0})
    cluster.assign("job-1", "i-1")
    agent = cluster.start_agent("i-1")

    def trains() -> bool:
        return any("trains\n" in file.read_text() for file in agent.home.glob("runs/*/output.log"))

    eventually("it trains", trains, seconds=180)
    cluster.stop("i-1", Reason.DRILL)
    record = cluster.wait_state("job-1", JobState.PENDING, JobState.FAILED, seconds=120)
    assert (record.state, record.last_reason) == (JobState.PENDING, Reason.DRILL)
    return output(cluster, "job-1")


@pytest.mark.parametrize(
    "wrapped",
    [
        'bash -c "echo begins; TRAIN; echo goes on"',
        "bash -c \"trap 'kill -TERM $child; wait $child' TERM; TRAIN & child=$!; wait $child\"",
        'bash -c "TRAIN & setsid TRAIN & wait"',
        "timeout 1h TRAIN",
        'setsid bash -c "sleep 300 & TRAIN"',
    ],
    ids=["shell", "trap", "two sessions", "timeout", "helper"],
)
def test_under_a_wrapper_the_training_process_gets_the_signal_once_and_its_whole_time(
    cluster: Cluster, wrapped: str
) -> None:
    printed = stopped(cluster, ["wrap.py"], {"HEED_WRAP": wrapped})
    assert printed.count("saved\n") == wrapped.count("TRAIN")
    assert "a second signal" not in printed
    checkpoints = cluster.events("job-1", EventKind.CHECKPOINTED)
    assert checkpoints[-1].data["files"] == 1


def test_wrapper_that_swallows_sigterm_gets_final_signal_to_training_process(
    cluster: Cluster,
) -> None:
    cluster.submit("job-1", HEED, entrypoint=["hold.py"], env={"HEED_SECONDS": "1"}, retries={"errors": 0})
    cluster.assign("job-1", "i-1")
    agent = cluster.start_agent("i-1")
    eventually(
        "it trains", lambda: any("trains\n" in file.read_text() for file in agent.home.glob("runs/*/output.log"))
    )
    deadline = market_in(60)
    cluster.stop("i-1", Reason.NOTICE, cordoned=True, deadline=deadline)
    record = cluster.wait_state("job-1", JobState.PENDING, JobState.FAILED, seconds=120)
    assert (record.state, record.last_reason) == (JobState.PENDING, Reason.NOTICE)

    # Before a deadline the job is given back first, and its log is uploaded then.
    eventually("its log is uploaded", lambda: "saved\n" in output(cluster, "job-1"))
    lines = [line for line in output(cluster, "job-1").splitlines() if not line.startswith("everspot")]
    assert lines == ["trains", "the wrapper was told", "saved"]
    (checkpointed,) = cluster.events("job-1", EventKind.CHECKPOINTED)
    assert (checkpointed.data["files"], checkpointed.data["trigger"]) == (1, "final")
    assert deadline - timedelta(seconds=20) < checkpointed.at < deadline


@pytest.mark.torch
@pytest.mark.parametrize(
    "entrypoint",
    [
        pytest.param(["heed.py"], id="plain"),
        pytest.param(TORCHRUN.split(), id="torchrun"),
        # A launcher that runs the program as a child, as torchrun does.
        pytest.param(
            ["-m", "accelerate.commands.launch", "--cpu", "heed.py"], id="accelerate", marks=pytest.mark.nightly
        ),
    ],
)
def test_workers_of_a_data_loader_do_not_disturb_the_last_save(cluster: Cluster, entrypoint: list[str]) -> None:
    printed = stopped(cluster, entrypoint, {"HEED_WORKERS": "2"})
    assert printed.count("saved\n") == 1
    assert "DataLoader worker" not in printed
    assert "a second signal" not in printed


def test_a_job_without_a_handler_ends_at_once(cluster: Cluster) -> None:
    code = cluster.root / "code"
    code.mkdir()
    (code / "deaf.py").write_text(
        "import subprocess\nsubprocess.call(['bash', '-c', 'echo trains; sleep 300 & sleep 300'])\n"
    )
    cluster.submit("job-1", code, entrypoint=["deaf.py"])
    cluster.assign("job-1", "i-1")
    agent = cluster.start_agent("i-1")
    eventually("it trains", lambda: any("trains" in f.read_text() for f in agent.home.glob("runs/*/output.log")))
    cluster.stop("i-1", Reason.DRILL)
    cluster.wait_state("job-1", JobState.PENDING)


SECOND = timedelta(seconds=1)
NOW = timedelta(seconds=100)


def table(*rows: tuple[int, int, str, str]) -> dict[int, ProcessInfo]:
    """Processes: number, parent, command line, and what they do: `h`andle SIGTERM, data `w`orker."""
    return {
        pid: ProcessInfo(pid, parent, tuple(command.split()), "h" in kind or "w" in kind, "w" in kind)
        for pid, parent, command, kind in rows
    }


@pytest.mark.parametrize(
    ("rows", "first"),
    [
        ([(2, 1, "python train.py", "h"), (3, 2, "python train.py", "w")], [2]),
        ([(2, 1, "python train.py", ""), (3, 2, "python train.py", "w")], [2, 3]),
        ([(2, 1, "bash run.sh", "h"), (3, 2, "python train.py", "h")], [3]),
        ([(2, 1, "bash run.sh", "h"), (3, 2, "python train.py", "")], [2, 3]),
        ([(2, 1, "uv run train.py", "h"), (3, 2, "python train.py", "h")], [2]),
        ([(2, 1, "python -m torch.distributed.run t.py", "h"), (3, 2, "python t.py", "h"), (4, 3, "x", "h")], [3]),
        ([(2, 1, "python -u -m everspot_train.launcher", "h"), (3, 2, "python t.py", "")], [2, 3]),
        ([(2, 1, "python -m everspot_train.worker train.py", "h"), (3, 2, "wandb-core", "h")], [2]),
        ([(2, 1, "bash run.sh", ""), (3, 2, "tail -f log", ""), (4, 2, "python t.py", "h"), (9, 1, "j", "h")], [4, 9]),
        ([], []),
    ],
)
def test_the_signal_is_for_the_first_handler_on_each_way_down(
    rows: list[tuple[int, int, str, str]], first: list[int]
) -> None:
    assert Termination().due(table(*rows), NOW) == first


def test_wrappers_end_by_themselves_and_helpers_are_told_after_the_last_handler() -> None:
    bash, tail, train = (2, 1, "bash run.sh", "h"), (3, 2, "tail -f log", ""), (4, 2, "python t.py", "h")
    termination = Termination()
    assert termination.due(table(bash, tail, train), NOW) == [4]
    assert termination.due(table(bash, tail, train), NOW + 60 * SECOND) == []
    assert termination.due(table(bash, tail), NOW + 61 * SECOND) == []
    assert termination.ongoing
    assert termination.due(table(bash, tail), NOW + 61 * SECOND + SETTLE) == [2, 3]
    assert termination.ongoing
    assert termination.due(table(bash, tail), NOW + 70 * SECOND) == []  # the trap saves, which takes a while
    assert termination.ongoing
    assert termination.due(table(tail), NOW + 80 * SECOND) == []
    assert termination.ongoing
    assert termination.due(table(tail), NOW + 80 * SECOND + SETTLE) == []
    assert not termination.ongoing


def test_a_shell_that_waits_for_a_program_is_not_signalled_in_the_moment_after_its_end() -> None:
    bash, train = (2, 1, "bash run.sh", "h"), (4, 2, "python t.py", "h")
    termination = Termination()
    assert termination.due(table(bash, train), NOW) == [4]
    assert termination.due(table(bash), NOW + SECOND) == []
    assert termination.ongoing
    assert termination.due({}, NOW + 2 * SECOND) == []
    assert not termination.ongoing


def test_a_launcher_without_a_handler_has_time_to_end_by_itself() -> None:
    launcher, train = (2, 1, "python launch.py", ""), (4, 2, "python t.py", "h")
    termination = Termination()
    assert termination.due(table(launcher, train), NOW) == [4]
    assert termination.due(table(launcher), NOW + SECOND) == []
    assert termination.ongoing
    assert termination.due(table(launcher), NOW + SECOND + SETTLE) == [2]


def test_a_launcher_whose_processes_have_ended_has_time_to_end_by_itself() -> None:
    launcher = (2, 1, "python -m everspot_train.launcher --nproc-per-node=2 train.py", "h")
    termination = Termination()
    assert termination.due(table(launcher), NOW) == []
    assert termination.ongoing
    assert termination.due(table(launcher), NOW + SETTLE) == [2]


def test_near_the_deadline_those_get_it_to_whom_it_was_not_passed_on_and_no_workers() -> None:
    rows = [
        (2, 1, "parallel python t.py", "h"),
        (3, 2, "python t.py", "h"),
        (4, 3, "python t.py", "w"),
        (5, 3, "python -c from multiprocessing.spawn import spawn_main", "h"),
        (6, 2, "tail -f log", ""),
    ]
    termination = Termination()
    assert termination.due(table(*rows), NOW) == [2]
    assert termination.due(table(*rows), NOW + 60 * SECOND, final=True) == [3]
    assert termination.due(table(*rows), NOW + 61 * SECOND, final=True) == []


def test_a_copy_made_by_fork_does_not_save_in_the_place_of_a_program_that_has_ended() -> None:
    train, copy, other = (2, 1, "python t.py", "h"), (3, 2, "python t.py", "h"), (4, 2, "./server", "h")
    termination = Termination()
    assert termination.due(table(train, copy, other), NOW) == [2]
    orphans = table((3, 1, "python t.py", "h"), (4, 1, "./server", "h"))
    assert termination.due(orphans, NOW + SECOND) == [4]


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("/bin/bash -c x", "bash"),
        ("-bash", "bash"),
        ("python3 -u -W ignore -X dev train.py --launcher torchrun", "train.py"),
        ("/v/bin/python /v/bin/accelerate launch train.py", "accelerate"),
        ("python -m everspot_train.worker -m accelerate.commands.launch t.py", "accelerate.commands.launch"),
        ("python -m everspot_train.worker train.py", "train.py"),
        ("python -c pass", "-c"),
        ("python", "python"),
        ("", ""),
    ],
)
def test_the_program_of_a_command_line(line: str, program: str) -> None:
    assert program_name(line.split()) == program


@pytest.mark.torch
@pytest.mark.parametrize("before", ["faulthandler.enable()", "torch.multiprocessing._set_thread_name = str"])
def test_a_data_loader_worker_is_known_by_its_name_or_else_by_its_handlers(before: str) -> None:
    code = f"""
import faulthandler, os, signal, sys, torch
from torch.utils.data import DataLoader, Dataset
class Pids(Dataset):
    def __len__(self): return 1
    def __getitem__(self, index): return os.getpid()
signal.signal(signal.SIGTERM, lambda *_: None)
{before}
batches = iter(DataLoader(Pids(), num_workers=1, persistent_workers=True))
print("", os.getpid(), int(next(batches)), flush=True)
sys.stdin.readline()
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    main, worker = map(int, process.stdout.readline().split()[-2:])
    processes = read_processes([main, worker, 2**30])
    process.communicate("\n", timeout=60)
    assert {pid: (p.handles, p.data_worker) for pid, p in processes.items()} == {
        main: (True, False),
        worker: (True, True),
    }
