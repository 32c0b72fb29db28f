"""Nothing stands on Google Cloud: the scheduler's own process launches what jobs need, and lets it go again."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_google import GoogleLive
from everspot_clouds.gcp.rules import PREEMPTED
from everspot_core.records import JobState, Market

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoogleLive]:
    with GoogleLive(tmp_path_factory.mktemp("google")) as made:
        yield made


def test_a_job_is_launched_for_taken_away_and_finished_and_then_nothing_runs(live: GoogleLive, tmp_path: Path) -> None:
    job = live.program("one", tmp_path, steps=60)
    first = live.until(lambda: live.owner(job))
    assert first.isdecimal() and first in live.agents()
    live.cloud.do("interrupt", instance=first)
    second = live.until(lambda: (found := live.owner(job)) != first and found)
    assert live.until(lambda: live.ended(job)) is JobState.SUCCEEDED
    live.until(lambda: not live.agents())
    live.until(lambda: {first, second} <= set(live.store.ends.scan()) or None)
    ends = {name: end.value for name, end in live.store.ends.scan().items()}
    assert (ends[first].interrupted, ends[second].interrupted) == (True, False)
    told = live.waiting("-watch")
    assert (PREEMPTED, first) in told and ("v1.compute.instances.delete", second) in told
    for words in (["report"], ["fleet"], ["jobs"], ["instances"]):
        command = [sys.executable, "-m", "everspot_cli.main", "--store", "gs://e2e-control", *words]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        assert said.returncode == 0, (words, said.stdout, said.stderr)
    launches = {name: launch.value for name, launch in live.store.launches.scan().items()}
    assert launches[first].market is Market.SPOT and launches[first].launched_at < ends[first].ended_at
