"""A failure of the agent itself: it ends the attempt with its traceback, and neither the agent nor the machine."""

import signal
from pathlib import Path

import pytest
from agent_helpers import Cluster, Proc, eventually
from everspot_core.jobs import lease as transitions
from everspot_core.jobs.records import InstanceState, JobRecord, JobState, Reason
from everspot_train.agent.agent import AGENT_FAILURES
from everspot_train.agent.starter import MOST_RESTARTS

PLAIN = Path(__file__).parent / "programs" / "plain"
OLD_PYTHON = """
import tarfile
def extract(self, member, path="", set_attrs=True, *, numeric_owner=False):
    raise AssertionError
tarfile.TarFile.extract = extract
"""
"""Python 3.11.0 to 3.11.3: `tarfile` knows no `filter`."""


def start(cluster: Cluster, instance_id: str, patch: str) -> Proc:
    """An agent into which `patch` is planted. The programs of its jobs are as they are."""
    folder = cluster.root / f"patch-{len(cluster.agents)}"
    folder.mkdir()
    body = "".join(f"    {line}\n" for line in patch.strip().splitlines())
    (folder / "sitecustomize.py").write_text(f'import sys\nif "everspot_train.agent.main" in sys.orig_argv:\n{body}')
    return cluster.start_agent(instance_id, PYTHONPATH=str(folder))


def replaced(place: str, name: str, body: str) -> str:
    module, _, kind = place.rpartition(".")
    return f"import {module} as m\ndef patch(*a, **k):\n    {body}\nm.{kind}.{name} = patch"


def tried(cluster: Cluster, job_id: str, instance_id: str) -> JobRecord:
    """Assign the job and wait until it is given back."""
    cluster.assign(job_id, instance_id)
    return cluster.wait_state(job_id, JobState.PENDING, JobState.FAILED)


def test_a_start_that_fails_unexpectedly_ends_the_attempt_and_after_three_the_machine_is_cordoned(
    cluster: Cluster,
) -> None:
    cluster.submit("job-1", retries={"errors": 0})
    agent = start(cluster, "i-1", OLD_PYTHON)
    for attempt in range(1, AGENT_FAILURES + 1):
        record = tried(cluster, "job-1", "i-1")
        assert (record.state, record.last_reason, record.errors) == (JobState.PENDING, Reason.AGENT, 0)
        assert record.unstarted == ["i-1"] * attempt
        assert record.detail.startswith("the agent of i-1 failed: TypeError: ")
        assert "Traceback" in record.detail
        assert "extract" in record.detail

    instance_record = cluster.wait_instance("i-1", lambda record: record.state is InstanceState.CORDONED)
    assert instance_record.detail.startswith(f"the agent failed {AGENT_FAILURES} times in a row; the last time: ")
    assert agent.popen.poll() is None


def test_a_job_that_no_agent_can_start_fails_with_a_reason_of_its_own(cluster: Cluster) -> None:
    cluster.submit("job-1", retries={"errors": 0})
    for number in range(transitions.START_INSTANCES):
        agent = start(cluster, f"i-{number}", OLD_PYTHON)
        record = tried(cluster, "job-1", f"i-{number}")
        agent.end()
    assert (record.state, record.last_reason) == (JobState.FAILED, Reason.AGENT)
    assert cluster.kinds("job-1")[-1] == "failed"
    assert cluster.events("job-1")[-1].data["reason"] == "agent"


def test_an_agent_that_dies_again_and_again_gives_the_job_back_and_takes_no_more(cluster: Cluster) -> None:
    cluster.submit("job-1")
    cluster.assign("job-1", "i-1")
    die = replaced("everspot_train.agent.process.LocalLauncher", "launch", "import os; os.kill(os.getpid(), 9)")
    for _ in range(MOST_RESTARTS):
        assert start(cluster, "i-1", die).wait() == -signal.SIGKILL

    agent = start(cluster, "i-1", die)

    record = cluster.wait_state("job-1", JobState.PENDING)
    assert (record.last_reason, record.unstarted, record.incarnation) == (Reason.AGENT, ["i-1"], MOST_RESTARTS + 1)
    words = f"the agent of i-1 was restarted {MOST_RESTARTS} times while it had the job"
    assert record.detail.splitlines()[0] == words
    instance_record = cluster.wait_instance("i-1", lambda record: record.state is InstanceState.CORDONED)
    assert instance_record.detail == words
    assert agent.popen.poll() is None


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("everspot_train.agent.session.JobSession", "renew_if_due"),  # in a helper thread
        ("everspot_train.agent.session.JobSession", "lease_view"),  # in each look, and while concluding
        ("everspot_train.agent.session.JobSession", "failure"),
        ("everspot_train.agent.session.JobSession", "__init__"),  # before there is a session
    ],
)
def test_a_failure_anywhere_ends_the_attempt_and_the_agent_takes_the_next_job(
    cluster: Cluster, place: str, name: str
) -> None:
    """The planted error hits the first job only."""
    cluster.submit("job-1", env={"TOY_STEPS": "3"})
    cluster.submit("job-2", env={"TOY_STEPS": "3"})
    patch = f"""
import {place.rpartition(".")[0]} as m
real = m.JobSession.{name}
def patch(*a, **k):
    lease = next((x for x in a[1:] if hasattr(x, "incarnation")), None)
    job = a[0].key.job_id if hasattr(a[0], "key") else lease.job_id
    if job == "job-1":
        raise RuntimeError("planted")
    return real(*a, **k)
m.JobSession.{name} = patch
"""
    agent = start(cluster, "i-1", patch)

    record = tried(cluster, "job-1", "i-1")

    assert (record.last_reason, record.unstarted) == (Reason.AGENT, ["i-1"])
    assert "RuntimeError: planted" in record.detail
    assert "Traceback" in record.detail
    cluster.assign("job-2", "i-1")
    cluster.wait_state("job-2", JobState.SUCCEEDED)
    assert agent.popen.poll() is None


@pytest.mark.parametrize("name", ["ship", "keep_folder", "_keep_last", "_write_ending"])
def test_what_only_keeps_files_and_events_never_ends_a_job(cluster: Cluster, name: str) -> None:
    cluster.submit("job-1", env={"TOY_STEPS": "20"})
    cluster.assign("job-1", "i-1")
    agent = start(
        cluster, "i-1", replaced("everspot_train.agent.session.JobSession", name, 'raise ValueError("planted")')
    )
    record = cluster.wait_state("job-1", JobState.SUCCEEDED)
    assert record.errors == 0
    assert "ValueError: planted" in agent.output
    assert agent.popen.poll() is None


def test_a_program_that_ruins_its_run_directory_does_not_stop_the_agent(cluster: Cluster) -> None:
    """Pipes block programs that open them, and deep documents overflow parsers."""
    code = cluster.root / "code"
    code.mkdir()
    (code / "ruin.py").write_text(
        "import os, shutil, sys\n"
        "run = os.environ['EVERSPOT_RUN_DIR']\n"
        "for name in ('status.json', 'ready.json', 'output.log'):\n"
        "    if os.path.exists(f'{run}/{name}'):\n"
        "        os.remove(f'{run}/{name}')\n"
        "    os.mkfifo(f'{run}/{name}')\n"
        "os.mkdir(f'{run}/stop.json')\n"
        "open(f'{run}/error.json', 'w').write('[' * 100_000)\n"
        "sys.exit(3)\n"
    )
    cluster.submit("job-1", code, entrypoint=["ruin.py"], retries={"errors": 0})
    agent = cluster.start_agent("i-1")

    record = tried(cluster, "job-1", "i-1")

    assert (record.state, record.last_reason, record.exit_code) == (JobState.FAILED, Reason.ERROR, 3)
    cluster.submit("job-2", env={"TOY_STEPS": "3"})
    cluster.assign("job-2", "i-1")
    cluster.wait_state("job-2", JobState.SUCCEEDED)
    eventually("nothing is left", lambda: not list((agent.home / "runs").iterdir()))


def test_a_program_that_lays_pipes_where_the_agent_writes_does_not_hold_it_up(cluster: Cluster) -> None:
    """To open a pipe for writing waits until somebody reads it. The agent's process may be any below the job's own."""
    code = cluster.root / "code"
    code.mkdir()
    (code / "pipes.py").write_text(
        "import os, pathlib, time\n"
        "run, pid = os.environ['EVERSPOT_RUN_DIR'], os.getpid()\n"
        "for name in ('lease', 'stop', 'checkpoint'):\n"
        "    for other in range(max(1, pid - 3000), pid):\n"
        "        os.mkfifo(f'{run}/.{name}.json.{other}.tmp')\n"
        "os.remove(f'{run}/output.log')\n"
        "os.mkfifo(f'{run}/output.log')\n"
        "lease = pathlib.Path(run, 'lease.json')\n"
        "before = lease.stat().st_ino\n"
        "while lease.stat().st_ino == before:\n"
        "    time.sleep(0.05)\n"
    )
    cluster.submit("job-1", code, entrypoint=["pipes.py"])
    cluster.start_agent("i-1")
    cluster.assign("job-1", "i-1")
    cluster.wait_state("job-1", JobState.SUCCEEDED)
