"""`everspot.job` on a whole cluster of the local cloud: the instance of a function is taken, and the function returns
what an undisturbed one does."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e_helpers import BUCKETS, LiveCluster, forking
from everspot_core.jobs.records import EventKind

pytestmark = [pytest.mark.torch, pytest.mark.timeout(1800)]

SCRIPT = Path(__file__).parent / "programs" / "functions.py"


class UserScript:
    """The script of a user, which submits one of its functions and waits for the result.

    Attributes:
        gate: the folder with which the function is held at a step.
    """

    def __init__(self, folder: Path, function: str, *, waits: bool) -> None:
        self.gate = folder
        folder.mkdir()
        if not waits:
            (folder / "go").touch()
        command = [sys.executable, "-W", "ignore", str(SCRIPT), f"s3://{BUCKETS[0]}", str(folder), function]
        self._process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.job_id = self._process.stdout.readline().strip()

    def wait(self) -> tuple[dict[str, Any], list[int]]:
        """Return the function's result, and the last step of its loss."""
        out, _ = self._process.communicate(timeout=900)
        assert self._process.returncode == 0, out
        result, last_step = map(json.loads, out.splitlines())
        return result, last_step

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path / "e2e", agent_env=forking()) as cluster:
        monkeypatch.setenv("EVERSPOT_CLOCK", cluster.cloud.market.clock.variable)
        yield cluster


def interrupt(live: LiveCluster, script: UserScript) -> None:
    """Take the instance of a function that is held at a step."""
    live.until(lambda: (script.gate / "held").exists())
    live.cloud.do("interrupt", instance=live.store.records.get(script.job_id).value.owner)
    live.until(lambda: live.list_events(script.job_id, EventKind.STOP_DEMANDED))


def test_a_function_of_a_script_resumes_and_returns_its_result(live: LiveCluster, tmp_path: Path) -> None:
    """Given a loop with a checkpoint folder, when its instance is taken, then another one goes on from the folder."""
    script = UserScript(tmp_path / "count", "count", waits=True)
    try:
        interrupt(live, script)
        counted, _ = script.wait()
    finally:
        script.end()
    assert counted == {"total": 60 * 61 // 2, "resumed": True}


@pytest.mark.nightly
def test_a_function_on_the_trainer_library_returns_what_an_undisturbed_one_does(
    live: LiveCluster, tmp_path: Path
) -> None:
    scripts = [UserScript(tmp_path / name, "fit", waits=name == "held") for name in ("held", "undisturbed")]
    try:
        interrupt(live, scripts[0])
        (scripts[0].gate / "go").touch()
        (fitted, last_step), (undisturbed, _) = (script.wait() for script in scripts)
    finally:
        for script in scripts:
            script.end()
    assert fitted == undisturbed | {"resumed": True} and undisturbed["resumed"] is False
    assert last_step == [60]
