"""`everspot ab` on a whole cluster: real agents train a recipe in several formats, and one run is interrupted."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from e2e_helpers import BUCKETS, PLAIN, LiveCluster, everspot, everspot_output
from everspot_core.jobs.records import EventKind

# Seven starts of torch. tests/cli/test_cli_ab.py shows the command, and tests/trainer that an interruption changes
# no bit.
pytestmark = [pytest.mark.torch, pytest.mark.nightly, pytest.mark.timeout(1800)]

PARAMETERS = {"data": "synthetic", "limit_train": 512, "epochs": 25, "batch_size": 16, "width": 4, "learning_rate": 0.1}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path_factory.mktemp("e2e"), agent_env=PLAIN) as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVERSPOT_CLOCK", cluster.cloud.market.clock.variable)  # the command reckons in the market's time
        yield cluster


@contextmanager
def suspended(job: str) -> Iterator[None]:
    """Stop the processes of a job meanwhile, so that it is not over before an order comes."""
    pids = list[int]()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if f"/runs/{job}-".encode() in (entry / "environ").read_bytes():
                pids.append(int(entry.name))
    try:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def test_formats_that_compute_the_same_are_equivalent_also_after_an_interruption(
    live: LiveCluster, tmp_path: Path
) -> None:
    """On a processor tf32 computes what fp32 does. So all differences are 0, unless an interruption changes a run."""
    job = {"name": "bars", "recipe": "image-classification", "parameters": PARAMETERS}
    (tmp_path / "bars.yaml").write_text(json.dumps(job))
    words = ["ab", str(tmp_path / "bars.yaml"), "--precision", "fp32,tf32", "--seeds", "3"]
    words += ["--metric", "test_accuracy", "--tolerance", "0.5%", "--json"]
    line = [sys.executable, "-m", "everspot_cli.main", "--store", f"s3://{BUCKETS[0]}", *words]

    def interrupt(job: str) -> str | None:
        """Interrupt a job that trains; None if it does not, or was over before the order came."""
        if not live.trains(job):
            return None
        with suspended(job):
            if not live.trains(job):
                return None
            everspot_output("cluster", "interrupt", job)
            live.until(lambda: f"job {job}: stop" in live.consoles() or live.ended(job))
        live.until(lambda: live.list_events(job, EventKind.INTERRUPTED) or live.ended(job))
        return job if live.list_events(job, EventKind.INTERRUPTED) else None

    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as command:
        interrupted = live.until(lambda: next(filter(None, map(interrupt, live.store.jobs.names())), None))
        out, _ = command.communicate(timeout=1500)
    answer = json.loads(out)
    assert command.returncode == 0, answer
    first, second = answer["arms"]
    assert (second["verdict"], answer["passed"], answer["winner"]) == ("equivalent", True, "tf32")
    assert second["difference"] == {"mean": 0.0, "low": 0.0, "high": 0.0, "seeds": 3}
    assert first["metric"]["seeds"] == 3 and first["metric"]["mean"] > 0.3
    assert live.list_events(interrupted, EventKind.INTERRUPTED)
    for arm in (first, second):
        assert arm["peak_memory_gib"] > 0.1 and arm["seconds_per_epoch"] > 0 and arm["usd_per_epoch"] > 0
        assert all(run["epochs"] == 25 for run in arm["runs"])
    shown = json.loads(everspot(*words, "--show"))
    assert shown["arms"][1]["verdict"] == "equivalent"
