"""The loop in docs/guide/training.md, as a user copies it: it runs by hand and under an agent, and it resumes."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from everspot_core.jobs.records import Reason
from everspot_train.rundir import StopRequest
from trainer_post import Post, wait_for

pytestmark = pytest.mark.torch

GUIDE = Path(__file__).parents[2] / "docs/guide/training.md"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    code = re.search(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    path = tmp_path / "train.py"
    path.write_text(code.group(1))
    return path


def test_the_loop_of_the_guide_is_about_ten_lines_longer_than_plain_torch(script: Path) -> None:
    lines = [line for line in script.read_text().splitlines() if "run" in line or "Run" in line]
    assert len(lines) <= 12


def test_the_loop_of_the_guide_runs_by_hand_without_an_agent(script: Path) -> None:
    done = subprocess.run(
        [sys.executable, script],
        env={"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"},
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()


def test_the_loop_of_the_guide_stops_and_resumes_under_an_agent(
    script: Path, post: Callable[..., Post], tmp_path: Path
) -> None:
    script.write_text(script.read_text().replace("run.step(loss)", "run.step(loss); __import__('time').sleep(0.1)"))
    first, second = post(1), post(2)

    process = first.start(tmp_path / "unused", script)
    wait_for(lambda: first.status.step >= 5, first)
    first.rundir.write(StopRequest(reason=Reason.NOTICE))
    assert process.wait(timeout=120) == 0
    stopped = first.status
    assert stopped.phase == "stopped"
    assert 5 <= stopped.step == stopped.durable_step < 50
    assert second.start(tmp_path / "unused", script).wait(timeout=120) == 0
    assert (second.status.phase, second.status.resumed_from) == ("finished", stopped.step)
    assert second.status.metrics.keys() >= {"final_loss"}
