"""`everspot profile`: who is refused, what is shown, what is left behind. tests/agent has the profiles themselves."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from everspot_core.jobs.profile import DataLoading, Operation, Profile, ProfileRequest, ProfileState
from everspot_core.jobs.records import Reason

RESULT = {
    "state": ProfileState.DONE, "first_step": 121, "steps": 20, "step_seconds": 0.013,
    "median_step_seconds": 0.012, "plain_step_seconds": 0.010, "plain_steps": 10,
    "stopped_seconds": 0.4, "ranks": 2, "cpu_seconds": 0.2, "gpu_seconds": 0.1,
    "data": DataLoading(wait_seconds=0.06, loader="DataLoader", workers=3),
    "operations": (
        Operation(name="aten::mm", calls=40, cpu_seconds=0.02, gpu_seconds=0.075),
        Operation(name="aten::[red]add", calls=1200, cpu_seconds=0.18, gpu_seconds=0.025),
    ),
    "trace": "steps-121-140-0a1b2c3d.trace.json.gz", "trace_bytes": 1_234_567,
}  # fmt: skip


@pytest.fixture
def running(world: Any) -> Any:
    world.submit("a")
    world.assign("a", "i-base", 10)
    world.start("a", 20)
    return world


@contextmanager
def profiling(world: Any, *options: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "everspot_cli.main", "--store", world.url, "profile", "a", *options]
    env = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as popen:
        try:
            while world.store.profile_requests.get("a") is None and popen.poll() is None:
                time.sleep(0.05)
            yield popen
        finally:
            popen.kill()


def report(world: Any, number: int, **fields: Any) -> None:
    request = world.store.profile_requests.get("a").value
    profile = Profile(id=request.id, **fields)
    world.store.profiles.append("a", request.epoch, number, profile.to_json())


def test_a_profile_is_shown_with_what_it_cost(running: Any) -> None:
    with profiling(running) as popen:
        assert running.store.profile_requests.get("a").value.steps == 20
        assert running.store.following.is_followed("a")
        report(running, 0, state=ProfileState.RECORDING, first_step=121)
        report(running, 1, **RESULT)
        out, err = popen.communicate(timeout=300)
    assert popen.returncode == 0, err
    assert [" ".join(line.split()) for line in out.splitlines()] == [
        "recorded steps 121 to 140, rank 0 of 2",
        "step 12 ms while recorded, 10 ms in 10 steps around it: +20%",
        "profiler cost 440 ms of training: 400 ms to start and to end, 40 ms in slower steps",
        "waits for data 3 ms a step (23%); DataLoader, 3 workers",
        "",
        "OPERATION CALLS GPU CPU SHARE",
        "aten::mm 40 75 ms 20 ms 75.0%",
        "aten::[red]add 1,200 25 ms 180 ms 25.0%",
        "",
        "Trace (1.23 MB): everspot pull a profile/steps-121-140-0a1b2c3d.trace.json.gz",
        "It opens in https://ui.perfetto.dev, which reads it in the browser, or in chrome://tracing.",
    ]
    assert running.store.profile_requests.get("a") is None and not running.store.following.is_followed("a")


@pytest.mark.parametrize("as_json", [False, True])
def test_steps_that_were_slower_before_are_noise_and_no_negative_cost(running: Any, as_json: bool) -> None:
    with profiling(running, *(["--json"] if as_json else [])) as popen:
        report(running, 0, **RESULT | {"median_step_seconds": 0.128, "plain_step_seconds": 0.217})
        out, err = popen.communicate(timeout=300)
    assert popen.returncode == 0, err
    if as_json:
        assert json.loads(out)["slowdown"] == 0
    else:
        words = "step 128 ms while recorded, 217 ms in 10 steps around it: no measurable slowdown"
        assert words in " ".join(out.split())


def test_a_failure_of_the_profiler_is_no_failure_of_the_job(running: Any) -> None:
    with profiling(running, "--json") as popen:
        report(running, 0, state=ProfileState.FAILED, message="RuntimeError: CUPTI is not there")
        out, err = popen.communicate(timeout=300)
    assert popen.returncode == 1
    assert "a was not profiled, and trains on: RuntimeError: CUPTI is not there" in out + err


@pytest.mark.parametrize("reason", [Reason.NOTICE, Reason.FINISHED])
def test_an_attempt_that_ends_meanwhile_is_said_so(running: Any, reason: Reason) -> None:
    with profiling(running) as popen:
        report(running, 0, state=ProfileState.CUT_OFF)
        running.leave("a", 60, reason)
        _, err = popen.communicate(timeout=300)
    assert popen.returncode == 1
    words = "a has ended before its profile was done: SUCCEEDED"
    if reason is Reason.NOTICE:
        words = "a was interrupted while it was being profiled (notice): the job loses nothing by the profile"
    assert words in " ".join(err.split())
    assert running.store.profile_requests.get("a") is None


def test_only_a_job_with_an_instance_is_profiled(past: Any) -> None:
    past.submit("fresh", 9100)
    assert "fresh has no instance yet" in past.run("profile", "fresh").err
    ended = past.run("profile", "moved")
    assert ended.code == 1 and "moved has already ended: SUCCEEDED" in ended.err
    assert past.run("profile", "none").code == 3
    assert past.run("profile", "moved", "--steps", "0").code == past.run("profile", "moved", "--steps", "201").code == 2
    assert past.store.profile_requests.scan() == {}


def test_one_profile_at_a_time_and_a_request_that_was_left_behind_is_replaced(running: Any) -> None:
    with profiling(running) as popen:
        standing = running.store.profile_requests.get("a").value
        busy = running.run("profile", "a")
        assert busy.code == 1 and f"a is being profiled already by {standing.by}" in busy.err
        assert running.store.profile_requests.get("a").value == standing
        popen.kill()
    expired = standing.model_copy(update={"valid_until": standing.at - timedelta(seconds=1)})
    for left_behind in (expired, standing.model_copy(update={"epoch": 0})):
        running.store.profile_requests.put("a", left_behind)
        late = running.run("profile", "a", "--timeout", "1s")
        assert late.code == 1 and "no profile of a within 1s: it is at step 0" in late.err
        assert running.store.profile_requests.get("a") is None
    running.store.profile_requests.put("a", standing)
    running.store.profiles.append("a", 1, 0, Profile(id=standing.id, state=ProfileState.DONE).to_json())
    assert "no profile of a within 1s" in running.run("profile", "a", "--timeout", "1s").err


def test_a_request_has_bounds() -> None:
    with pytest.raises(ValueError, match="steps"):
        ProfileRequest.model_validate({"id": "0a1b2c3d", "epoch": 1, "steps": 0, "at": "2026-01-01T00:00:00Z",
                                       "valid_until": "2026-01-01T00:00:00Z"})  # fmt: skip


def test_the_end_of_a_command_leaves_the_request_that_replaced_its_own(running: Any) -> None:
    """A command that slept past its limit ends after another user has asked for a profile."""
    with profiling(running, "--timeout", "10m") as popen:
        expired = running.store.profile_requests.get("a")
        other = expired.value.model_copy(update={"id": "0a1b2c3d", "by": "bob"})
        running.store.profile_requests.replace("a", expired, other)
        running.store.following.renew("a", "bob")
        running.leave("a", 60, Reason.FINISHED)
        popen.communicate(timeout=300)
    assert popen.returncode == 1
    stored = running.store.profile_requests.get("a")
    assert stored is not None and stored.value == other
    assert running.store.following.is_followed("a")
