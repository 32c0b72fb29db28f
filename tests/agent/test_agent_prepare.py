"""A job's datasets, packages, set-up, secrets and outputs, with real agent processes."""

import base64
import contextlib
import hashlib
import os
import platform
import shutil
import signal
import sys
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from agent_helpers import FAST, Cluster, eventually
from everspot_core.jobs.job import JobSpec, JobSubmission, PrecedingJob, Wheel
from everspot_core.jobs.records import EventKind, JobState, Reason
from everspot_train.prepare import packages
from everspot_train.prepare.errors import NotReady
from everspot_train.prepare.inputs import lay_inputs
from everspot_train.prepare.packages import lay_packages
from everspot_train.prepare.scrub import MASK, run_scrubbed

PROGRAM = """
import os, pathlib, sys
data = pathlib.Path(os.environ["EVERSPOT_DATA"]) if "EVERSPOT_DATA" in os.environ else None
if data:
    print("read:", (data / "flowers/rose.txt").read_text(), flush=True)
try:
    import bouquet
    print("package:", bouquet.NAME, flush=True)
except ImportError:
    pass
if "TOKEN" in os.environ:
    print("token of length", len(os.environ["TOKEN"]), "is", os.environ["TOKEN"], flush=True)
outputs = pathlib.Path(os.environ["EVERSPOT_OUTPUT_DIR"])
(outputs / "deep").mkdir(parents=True)
(outputs / "deep/result.txt").write_text("petals")
(outputs / "escape").symlink_to("/etc/passwd")
sys.exit(int(os.environ.get("EXIT", "0")))
"""


READER = """
import os, pathlib
inputs = pathlib.Path(os.environ["EVERSPOT_INPUTS"])
found = {str(p.relative_to(inputs)): p.read_text() for p in sorted(inputs.rglob("*")) if p.is_file()}
print("found:", found, sorted(p.name for p in inputs.iterdir()), flush=True)
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "main.py").write_text(PROGRAM)
    return folder


def wheel(folder: Path, name: str = "bouquet", requires: str = "") -> Path:
    """A package of one module, as a wheel."""
    files = {
        f"{name}.py": f"NAME = {name!r}\n",
        f"{name}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{requires}",
        f"{name}-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(text.encode())}")
    record = f"{name}-1.0.dist-info/RECORD"
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in files.items():
            archive.writestr(inside, text)
        archive.writestr(record, "\n".join([*lines, f"{record},,"]) + "\n")
    return path


def stored(cluster: Cluster, path: Path) -> Wheel:
    uploaded_wheel = Wheel(name=path.name, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    cluster.store.data.upload(uploaded_wheel.key, path)
    return uploaded_wheel


def submit(cluster: Cluster, code: Path, job_id: str = "job-1", **brought: Any) -> None:
    outer = {key: brought.pop(key) for key in ("datasets", "wheels", "after") if key in brought}
    spec = JobSpec(name="toy", entrypoint=["main.py"], code=str(code), **brought)
    submission = JobSubmission(job_id=job_id, spec=spec, submitted_at=cluster.clock.now(), **outer)
    cluster.store.submit(submission, code)
    cluster.assign(job_id, "i-1")


def read_log(cluster: Cluster, job_id: str = "job-1") -> str:
    return b"".join(chunk.data for chunk in cluster.store.read_logs(job_id)).decode()


def test_a_program_finds_its_datasets_its_packages_and_what_its_set_up_made(cluster, code, tmp_path):
    (tmp_path / "flowers").mkdir()
    (tmp_path / "flowers/rose.txt").write_text("red")
    flowers = cluster.store.datasets.put("flowers", tmp_path / "flowers")
    bouquet = stored(cluster, wheel(tmp_path, requires="Requires-Dist: not-there-at-all\n"))
    setup = ["printf made > here.txt", "grep -q made here.txt && echo ready"]
    submit(cluster, code, datasets=[flowers.id], wheels=[bouquet], setup=setup)
    agent = cluster.start_agent("i-1")
    cluster.wait_state("job-1", JobState.SUCCEEDED)
    log = read_log(cluster)
    for line in ("everspot: dataset flowers, 3 B in 1 file\n", "everspot: installing 1 package\n", "read: red"):
        assert line in log
    assert "everspot: setup: printf made > here.txt" in log
    assert "\nready\n" in log
    assert "package: bouquet" in log
    assert [p.name for p in (agent.home / "cache/datasets").iterdir() if p.is_dir()] == [flowers.digest]
    # The next job of the same machine has both already.
    submit(cluster, code, "job-2", datasets=[flowers.id], wheels=[bouquet])
    cluster.wait_state("job-2", JobState.SUCCEEDED)
    assert "package: bouquet" in read_log(cluster, "job-2")
    assert "installing" not in read_log(cluster, "job-2")


def test_a_program_finds_what_the_jobs_before_it_have_left(cluster, code):
    """Of the newest attempt; one that has left nothing has an empty folder."""
    (code / "main.py").write_text(READER)
    for epoch, text in ((1, "old"), (2, "red")):
        cluster.store.data.put(f"jobs/flowers-1/outputs/{epoch:06d}/deep/rose.txt", text.encode())
    cluster.store.data.put("jobs/flowers-1/outputs/000001/leaf.txt", b"green")
    after = [PrecedingJob(name="flowers", job_id="flowers-1"), PrecedingJob(name="weeds", job_id="weeds-1")]
    submit(cluster, code, after=after)
    cluster.start_agent("i-1")
    cluster.wait_state("job-1", JobState.SUCCEEDED)
    log = read_log(cluster)
    assert "everspot: outputs of flowers (flowers-1), 8 B in 2 files\n" in log
    assert "found: {'flowers/deep/rose.txt': 'red', 'flowers/leaf.txt': 'green'} ['flowers', 'weeds']" in log


def test_a_run_that_continues_from_no_outputs_says_that_checkpoints_are_not_given_on(cluster, tmp_path, capsys):
    spec = JobSpec(name="weekly", recipe="r", every="7d", continue_from="last")
    after = [PrecedingJob(name="weekly", job_id="weekly-1")]
    submission = JobSubmission(job_id="weekly-2", spec=spec, submitted_at=cluster.clock.now(), after=after)
    lay_inputs(cluster.store, submission, tmp_path / "inputs")
    warning = "warning: continue_from gives outputs, not checkpoints, and that run left nothing in outputs/"
    assert warning in capsys.readouterr().out
    cluster.store.data.put("jobs/weekly-1/outputs/000001/model.pt", b"weights")
    lay_inputs(cluster.store, submission, tmp_path / "inputs")
    assert "warning" not in capsys.readouterr().out


def test_outputs_that_find_no_room_are_the_machine_s_fault_and_not_the_job_s(cluster, tmp_path, monkeypatch):
    cluster.store.data.put("jobs/big-1/outputs/000001/a", b"12345")
    spec = JobSpec(name="toy", recipe="r")
    after = [PrecedingJob(name="big", job_id="big-1")]
    submission = JobSubmission(job_id="job-1", spec=spec, submitted_at=cluster.clock.now(), after=after)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=(1 << 30) + 4))
    with pytest.raises(NotReady, match="outputs of big: 5 B in 1 file: No space left on device"):
        lay_inputs(cluster.store, submission, tmp_path / "inputs")


@pytest.mark.parametrize(
    ("brought", "message"),
    [
        ({"datasets": ["tulips@" + "0" * 64]}, "dataset tulips: "),
        ({"wheels": [Wheel(name="gone-1.0-py3-none-any.whl", sha256="0" * 64)]}, "FileNotFoundError"),
        ({"setup": ["exit 7"]}, "setup: `exit 7` exited with 7"),
    ],
)
def test_what_cannot_be_made_ready_is_the_job_s_error_in_one_sentence(cluster, code, brought, message):
    submit(cluster, code, retries={"errors": 0}, **brought)
    cluster.start_agent("i-1")
    record = cluster.wait_state("job-1", JobState.FAILED)
    assert record.last_reason is Reason.ERROR
    assert message in record.detail
    assert message in cluster.events("job-1", EventKind.ERROR)[0].data["message"]
    assert "read:" not in read_log(cluster)
    assert "training" not in cluster.kinds("job-1"), "what was never ready has not trained"


def test_a_job_that_is_being_made_ready_is_not_told_as_training_before_it_is(cluster, code):
    gate = code.parent / "gate"
    submit(cluster, code, setup=[f"until [ -e {gate} ]; do sleep 0.05; done"])
    cluster.start_agent("i-1")
    eventually("its record says so", lambda: cluster.record("job-1").progress.preparing)
    opened = cluster.clock.now()
    gate.touch()
    cluster.wait_state("job-1", JobState.SUCCEEDED)
    (training,) = cluster.events("job-1", EventKind.TRAINING)
    assert (training.at >= opened, training.data["by"]) == (True, "agent")


def test_a_wheel_for_another_python_is_told_by_its_name(cluster, code, tmp_path):
    fits = wheel(tmp_path)
    other = stored(cluster, fits.rename(tmp_path / "bouquet-1.0-cp27-cp27m-win32.whl"))
    submit(cluster, code, wheels=[other], retries={"errors": 0})
    cluster.start_agent("i-1")
    record = cluster.wait_state("job-1", JobState.FAILED)
    assert "cannot be installed on Python 3." in record.detail
    assert "bouquet-1.0-cp27-cp27m-win32.whl" in record.detail


def test_a_secret_reaches_the_program_and_nothing_else(cluster, code, aws):
    secret = "correct horse battery staple"
    boto3.client("secretsmanager", region_name="us-east-1").create_secret(
        Name="wandb", SecretString=f'{{"key": "{secret}"}}'
    )
    submit(cluster, code, secrets={"TOKEN": "secretsmanager:wandb#key"}, setup=["echo the token is $TOKEN"])
    env = {"AWS_ENDPOINT_URL": aws, "AWS_DEFAULT_REGION": "us-east-1", "AWS_REGION": "us-east-1"}
    cluster.start_agent("i-1", AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b", **env)
    cluster.wait_state("job-1", JobState.SUCCEEDED)
    assert "token of length 28 is [secret]" in read_log(cluster)
    assert "the token is [secret]" in read_log(cluster)
    for folder, _, names in os.walk(cluster.root):  # which bears that the agent is still tidying up
        for path in (Path(folder, name) for name in names):
            with contextlib.suppress(FileNotFoundError):
                assert not path.is_file() or secret.encode() not in path.read_bytes(), path


ENDS = {
    "an exception": "raise RuntimeError(f'the server refused {token}')",
    "a sentence": "sys.exit(f'the server refused {token}')",
    "its own error file": """
pathlib.Path(os.environ["TORCHELASTIC_ERROR_FILE"]).write_text(json.dumps({"message": {"message": f"refused {token}"}}))
os._exit(1)
""",
    "its status, before it and what started it are killed": """
from everspot_train.rundir import RunDir, Status, TrainingPhase
del os.environ["TOKEN"], os.environ["EVERSPOT_SECRET_NAMES"]
RunDir.from_environment().write(Status(phase=TrainingPhase.FAILED, message=f"the server refused {token}"))
os.kill(os.getppid(), signal.SIGKILL)
os._exit(1)
""",
}


@pytest.mark.parametrize("end", ENDS)
def test_a_secret_in_what_ended_a_program_is_in_no_record_and_no_event(cluster, code, aws, end):
    secret = "it's \\ correct\thorse"
    name = end.replace(" ", "-").replace(",", "")
    boto3.client("secretsmanager", region_name="us-east-1").create_secret(Name=name, SecretString=secret)
    head = "import json, os, pathlib, signal, sys\ntoken = os.environ['TOKEN']\n"
    (code / "main.py").write_text(head + ENDS[end])
    submit(cluster, code, secrets={"TOKEN": f"secretsmanager:{name}"}, retries={"errors": 0})
    env = {"AWS_ENDPOINT_URL": aws, "AWS_DEFAULT_REGION": "us-east-1", "AWS_REGION": "us-east-1"}
    cluster.start_agent("i-1", AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b", **env)
    record = cluster.wait_state("job-1", JobState.FAILED)
    assert "refused [secret]" in record.detail
    assert "refused [secret]" in cluster.events("job-1", EventKind.ERROR)[0].data["message"]
    for path in (path for name in ("control", "data") for path in (cluster.root / name).rglob("*") if path.is_file()):
        assert b"correct" not in path.read_bytes(), path


def test_a_program_is_over_when_it_is_over_whoever_holds_its_output(capfd):
    program = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid, 'hunter22' * 9000, flush=True)"
    assert run_scrubbed([sys.executable, "-c", program], dict(os.environ), ["hunter22"]) == 0
    printed, notice = capfd.readouterr().out.split("\neverspot: ")
    assert notice == "the program is over, and a child of it is not: what it prints from here on is not kept\n"
    pid, output = printed.split()
    assert Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep"), "its child was waited for"
    os.kill(int(pid), signal.SIGKILL)
    assert output.encode() == MASK * 9000
    assert run_scrubbed(["/bin/sh", "-c", "kill -9 $$"], dict(os.environ), ["hunter22"]) == 128 + signal.SIGKILL
    assert capfd.readouterr().out == ""  # nobody outlives it


def test_a_secret_that_is_not_there_is_told_without_any_value(cluster, code, aws):
    submit(cluster, code, secrets={"TOKEN": "ssm:/no/such"}, retries={"errors": 0})
    env = {"AWS_ENDPOINT_URL": aws, "AWS_DEFAULT_REGION": "us-east-1", "AWS_REGION": "us-east-1"}
    cluster.start_agent("i-1", AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b", **env)
    record = cluster.wait_state("job-1", JobState.FAILED)
    assert "secret ssm:/no/such for TOKEN cannot be read: ParameterNotFound" in record.detail


@pytest.mark.parametrize("code_of_exit", [0, 3])
def test_outputs_are_kept_however_the_program_ended_and_links_are_not(cluster, code, tmp_path, code_of_exit):
    submit(cluster, code, env={"EXIT": str(code_of_exit)}, retries={"errors": 0})
    cluster.start_agent("i-1")
    record = cluster.wait_state("job-1", JobState.SUCCEEDED, JobState.FAILED)
    assert record.exit_code == code_of_exit
    outputs = cluster.store.outputs("job-1")
    (output_file,) = outputs.list()
    assert (output_file.path, output_file.epoch, output_file.size) == ("deep/result.txt", 1, 6)
    assert outputs.fetch(output_file, tmp_path / "there").read_text() == "petals"
    assert outputs.list("deep") == [output_file]
    assert outputs.list("dee") == []
    (skipped,) = cluster.events("job-1", EventKind.SKIPPED)
    assert (skipped.data["folder"], skipped.data["paths"], skipped.data["count"]) == ("outputs", ["escape"], 1)


def test_outputs_that_the_store_does_not_take_are_told_in_the_job_s_history(tmp_path, code, request):
    cluster = Cluster(tmp_path / "cluster", FAST.model_copy(update={"orphan_limit": timedelta(seconds=30)}))
    request.addfinalizer(cluster.close)
    submit(cluster, code)
    (cluster.root / "data" / "jobs" / "job-1").mkdir(parents=True)
    (cluster.root / "data" / "jobs" / "job-1" / "outputs").touch()  # where the folder of the outputs would be
    cluster.start_agent("i-1")
    eventually("it is to be tried again", lambda: cluster.record("job-1").last_reason is Reason.MACHINE, seconds=600)
    record = cluster.record("job-1")
    assert (record.state, record.unstarted) == (JobState.PENDING, ["i-1"]), "another machine tries it again"
    assert "deep/result.txt (the store did not answer)" in record.detail
    reasons = {e.data["reason"]: e.data["paths"] for e in cluster.events("job-1", EventKind.SKIPPED)}
    assert reasons["the store did not answer"] == ["deep/result.txt"]


def test_a_package_for_two_architectures_is_installed(cluster: Cluster, code: Path, tmp_path: Path) -> None:
    other = {"x86_64": "aarch64"}.get(platform.machine(), "x86_64")
    wheels = [stored(cluster, wheel(tmp_path))]
    for arch in (platform.machine(), other):
        path = wheel(tmp_path, "vase")
        wheels.append(stored(cluster, path.rename(path.with_name(f"vase-1.0-py3-none-linux_{arch}.whl"))))
    submission = JobSubmission(
        job_id="j", spec=JobSpec(name="toy", recipe="r"), submitted_at=cluster.clock.now(), wheels=wheels
    )
    layer = Path(lay_packages(cluster.store, submission, tmp_path / "cache", {})["PYTHONPATH"])
    assert {path.name for path in layer.glob("*.py")} == {"bouquet.py", "vase.py"}


def end_user(layer: Path) -> None:
    """Release a layer, as the end of the process that uses it does."""
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of this loop
            if descriptor.readlink() == layer.with_name(f"{layer.name}.lock"):
                os.close(int(descriptor.name))


def test_the_packages_of_a_running_job_stay_however_many_other_jobs_bring_theirs(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "MOST_LAYERS", 1)

    def lay(name: str) -> Path:
        submission = JobSubmission(
            job_id="j", spec=JobSpec(name="toy", recipe="r"), submitted_at=cluster.clock.now(),
            wheels=[stored(cluster, wheel(tmp_path, name))],
        )  # fmt: skip
        return Path(lay_packages(cluster.store, submission, tmp_path / "cache", {})["PYTHONPATH"])

    running, ended = lay("bouquet"), lay("vase")
    end_user(ended)
    newest = lay("tulip")
    assert (running / "bouquet.py").is_file() and not ended.exists() and (newest / "tulip.py").is_file()
    for layer in (running, newest):
        end_user(layer)
