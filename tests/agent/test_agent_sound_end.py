"""A program that has ended without an error is finished, whatever ends its processes while Python shuts down."""

import subprocess
import sys
from pathlib import Path

import pytest
from agent_helpers import Cluster
from everspot_core.jobs.records import EventKind, JobState, Reason
from everspot_train.agent.program import ALONE

LONG = 300.0
ABORTS_AT_SHUTDOWN = """
import os, sys
class Library:
    def __del__(self, abort=os.abort):
        abort()
sys.library = Library()
"""
"""As a thread of a C++ library may: the object goes when the modules do, after all functions of `atexit`."""
LAST = "\nopen('checkpoints/last.txt', 'w').write('40')\n"


def write_program(folder: Path, text: str) -> Path:
    (folder / "code" / "checkpoints").mkdir(parents=True)
    (folder / "code" / "train.py").write_text(text)
    return folder / "code"


def run(cluster: Cluster, text: str, **spec: object) -> JobState:
    code = write_program(cluster.root, text)
    cluster.submit("job-1", code, name="plain", entrypoint=["train.py"], retries={"errors": 0}, **spec)
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1", EVERSPOT_LAUNCHER="")
    return cluster.wait_state("job-1", JobState.SUCCEEDED, JobState.FAILED, seconds=LONG).state


def printed(cluster: Cluster) -> str:
    return b"".join(chunk.data for chunk in cluster.store.read_logs("job-1")).decode()


@pytest.mark.parametrize("last_line", ["", "sys.exit(0)", "sys.exit()"])
def test_a_crash_while_python_shuts_down_is_no_error_and_the_last_files_are_kept(
    cluster: Cluster, last_line: str
) -> None:
    assert run(cluster, ABORTS_AT_SHUTDOWN + LAST + last_line) is JobState.SUCCEEDED, printed(cluster)

    (finished,) = cluster.events("job-1", EventKind.FINISHED)
    assert not cluster.events("job-1", EventKind.ERROR)
    (checkpointed,) = cluster.events("job-1", EventKind.CHECKPOINTED)
    assert (checkpointed.data["files"], checkpointed.data["trigger"]) == (1, "final")
    assert cluster.record("job-1").exit_code == 0
    assert "the process was killed by SIGABRT while Python shut down" in printed(cluster)
    assert finished.at >= checkpointed.at


@pytest.mark.parametrize("end", ["raise ValueError('no')", "sys.exit(1)", "os.abort()"])
def test_a_crash_after_an_error_or_before_the_end_is_an_error(cluster: Cluster, end: str) -> None:
    assert run(cluster, f"{ABORTS_AT_SHUTDOWN}{LAST}{end}") is JobState.FAILED
    (error,) = cluster.events("job-1", EventKind.ERROR)
    assert (error.data["exit_code"], error.data["signal"]) == (-6, "SIGABRT")


RANKS = """
import os, sys, time
rank = int(os.environ["RANK"])
print("rank", rank, flush=True)
"""


@pytest.mark.torch
@pytest.mark.timeout(900)
def test_all_ranks_that_crash_at_their_shutdown_are_no_error(cluster: Cluster) -> None:
    """Rank 1 ends immediately, and its crash is slow, so that torchrun finds rank 0 ended as well."""
    slowly = ABORTS_AT_SHUTDOWN.replace("(self, abort=os.abort)", "(self, abort=os.abort, sleep=time.sleep)")
    slowly = slowly.replace("        abort()", "        sleep(10)\n        abort()")
    program = f"{RANKS}if rank == 1:\n" + "".join(f"    {line}\n" for line in slowly.splitlines())
    state = run(cluster, program, processes=2, resources={"vcpus": 2})
    assert state is JobState.SUCCEEDED, printed(cluster)
    assert not cluster.events("job-1", EventKind.ERROR)


@pytest.mark.torch
@pytest.mark.timeout(900)
def test_a_rank_that_crashes_at_its_shutdown_while_another_still_works_is_an_error(cluster: Cluster) -> None:
    at_once = "".join(f"    {line}\n" for line in ABORTS_AT_SHUTDOWN.splitlines())
    program = f"{RANKS}if rank == 1:\n{at_once}else:\n    time.sleep(600)\n"
    state = run(cluster, program, processes=2, resources={"vcpus": 2})
    assert state is JobState.FAILED
    assert cluster.record("job-1").last_reason is Reason.ERROR
    (error,) = cluster.events("job-1", EventKind.ERROR)
    assert (error.data["exit_code"], error.data["signal"]) == (-6, "SIGABRT")


LEAVES_ITS_GROUP_OPEN = """
import torch
import torch.distributed as dist
from threads import note_threads
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(4))
note_threads("before")
"""
NOTES_THREADS = """
from pathlib import Path
def note_threads(name):
    tasks = Path("/proc/self/task").iterdir()
    Path(name).write_text("".join(sorted((task / "comm").read_text() for task in tasks)))
"""
WORKER = """
import atexit, sys
sys.path.insert(0, ".")
from threads import note_threads
atexit.register(note_threads, "after")  # registered before the worker's own, so it is called after it
from everspot_train.worker import main
main(["train.py"])
"""


@pytest.mark.torch
@pytest.mark.timeout(900)
def test_no_thread_of_gloo_is_left_when_python_shuts_down(tmp_path: Path) -> None:
    """One that frees a tensor meanwhile ends the process with SIGABRT."""
    code = write_program(tmp_path, LEAVES_ITS_GROUP_OPEN)
    (code / "threads.py").write_text(NOTES_THREADS)
    env = {"PATH": "/usr/bin:/bin", **ALONE}
    subprocess.run([sys.executable, "-c", WORKER], cwd=code, env=env, check=True, timeout=LONG)

    assert "pt_gloo_runloop" in (code / "before").read_text().splitlines()
    assert "pt_gloo_runloop" not in (code / "after").read_text().splitlines()


AT_EXIT = """
import atexit, dataclasses, pathlib, pickle, sys, threading

@dataclasses.dataclass
class Result:
    loss: float

def save(name):
    pathlib.Path(name).write_bytes(pickle.dumps(Result(0.5)))

ended = threading.Event()
atexit.register(save, "at-exit.pkl")
threading._register_atexit(ended.set)  # called when the last line is done
threading.Thread(target=lambda: (ended.wait(), save("thread.pkl"))).start()
"""


@pytest.mark.parametrize("last_line", ["", "sys.exit(0)"])
@pytest.mark.parametrize("program", [["train.py"], ["-m", "train"]])
def test_classes_of_a_program_can_be_pickled_until_its_process_ends(
    tmp_path: Path, program: list[str], last_line: str
) -> None:
    (tmp_path / "train.py").write_text(AT_EXIT + last_line)
    subprocess.run([sys.executable, "-m", "everspot_train.worker", *program], cwd=tmp_path, check=True)
    assert {path.name for path in tmp_path.glob("*.pkl")} == {"at-exit.pkl", "thread.pkl"}
