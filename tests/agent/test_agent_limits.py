"""What keeps jobs that share a machine apart: control groups as files, and processes that are killed."""

import subprocess
import sys
from pathlib import Path

import pytest
from everspot_core.jobs.records import Reason
from everspot_train.agent.containment import ControlGroups
from everspot_train.agent.endings import judge_ending
from everspot_train.agent.failures import Failure

BAKE = Path(__file__).parents[2] / "training_image" / "bake"

TWO = """
import os, subprocess, sys, time
from pathlib import Path
from everspot_train.agent.process import JobLaunch, LocalLauncher

runs = Path(sys.argv[1])
launcher = LocalLauncher(runs, adopt=True, groups=False)
program = '''
import os, subprocess, sys, time
lost = subprocess.Popen(["sleep", "1000"], env={}, start_new_session=True)
inside = subprocess.Popen(["sleep", "1000"])
print(lost.pid, inside.pid, flush=True)
time.sleep(1000)
'''
def launch(name):
    (runs / name).mkdir()
    return launcher.launch(JobLaunch([sys.executable, "-c", program], runs / name, runs / name, dict(os.environ)))
def children(name):
    while not (found := (runs / name / "output.log").read_text().split()):
        time.sleep(0.01)
    return [int(pid) for pid in found]
def alive(pids):
    def state(pid):
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return "X"
    return [state(pid) not in "ZX" for pid in pids]
a, b = launch("a"), launch("b")
of_a, of_b = children("a"), children("b")
a.kill()
print(alive(of_a), alive(of_b), b.exit_code())
b.kill()
print(alive(of_a), alive(of_b), b.exit_code())
"""


def test_a_job_that_is_killed_takes_what_it_started_along_and_nothing_of_another(tmp_path: Path) -> None:
    """Its children have left their session, and one its environment, too; where there is no group to find them by."""
    done = subprocess.run([sys.executable, "-c", TWO, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["[False, False] [True, True] None", "[False, False] [False, False] -9"], done


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The group that the image's unit delegates, with the agent in a subgroup of it."""
    (tmp_path / "unit" / "agent").mkdir(parents=True)
    return tmp_path / "unit"


def test_a_group_beside_the_agents_gets_the_limits_of_its_seat(unit: Path, tmp_path: Path) -> None:
    groups = ControlGroups(unit / "agent", tmp_path)
    group = groups.make("job-1")
    assert group is not None and group.path.parent == unit, "a group with processes of its own may limit none below it"
    assert groups.limit(group, 2, 1.5)
    limits = {name: (group.path / name).read_text() for name in ("cpu.max", "memory.max", "memory.oom.group")}
    assert limits == {"cpu.max": "200000 100000", "memory.max": str(3 * 2**29), "memory.oom.group": "1"}
    assert (unit / "cgroup.subtree_control").read_text() == "+cpu +memory"


@pytest.mark.parametrize("own", ["elsewhere", "agent"])
def test_where_the_agent_may_not_set_limits_the_job_runs_without(unit: Path, tmp_path: Path, own: str) -> None:
    (unit / own).mkdir(exist_ok=True)
    groups = ControlGroups(unit / own, tmp_path)
    group = groups.make("job-1")
    assert group is not None
    if own == "agent":
        (unit / "cgroup.subtree_control").mkdir()  # what cannot be written to
    assert not groups.limit(group, 2, 1.5)
    assert not (group.path / "memory.max").exists()


@pytest.mark.parametrize(
    ("events", "hit"), [("low 0\nmax 7\noom 1\noom_kill 3\n", 1.5), ("oom_kill 0\n", None), ("", None)]
)
def test_who_took_more_memory_than_its_part_is_told_how_much_that_was(
    unit: Path, tmp_path: Path, events: str, hit: float | None
) -> None:
    groups = ControlGroups(unit / "agent", tmp_path)
    group = groups.make("job-1")
    assert group is not None and groups.limit(group, 1, 1.5)
    (group.path / "memory.events").write_text(events)
    assert group.limit_hit() == hit
    ending = judge_ending(None, -9, None, Failure(limit_hit=group.limit_hit()))
    assert ending.reason is Reason.ERROR
    assert ("1.5 GiB: raise resources.memory_gib" in ending.message) is (hit is not None)
