"""Commands and job files in the documents work: each `everspot` command and job file runs on a cluster in a folder."""

import gzip
import io
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import pytest
import yaml
from everspot_cli.main import main
from everspot_core.cluster.manifest import FleetOffer, Manifest
from everspot_core.experiments.sweep import SweepSpec
from everspot_core.jobs import lease
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import EventKind, Market, Progress, Reason
from everspot_core.jobs.utilization import Utilization
from everspot_store import Store

from .test_architecture_docs import blocks

JOB = "fashion-3f9a1c07"  # as the quickstart calls it
USE = Utilization(seconds=1800, vcpus=2, cpu_seconds=900)
TYPES = ["c6i.large", "m6i.xlarge", "m7i.4xlarge", "g4dn.xlarge", "g5.12xlarge"]
# Not run here: commands that run until Ctrl-C (live tables and the web UI) or change the user's shell; the simulator
# and commands that need a cloud's price list, finished trials or several jobs (tests/cli runs them); commands that need
# a stack to destroy or a project to review (tests/engine runs them), or a job that trains (tests/agent runs them). The
# exercises are scripts of several commands (tests/e2e/test_e2e_examples.py runs them).
ENDLESS, ELSEWHERE = (
    "--watch",
    ("simulate", "--install-completion", "everspot cluster down", "everspot review", "everspot sweep", "everspot ab",
     "everspot cost compare --a", "everspot ui", "everspot preflight", "everspot cost prices refresh --region",
     "everspot profile"),
)  # fmt: skip
EXERCISES = "docs/guide/exercise-"
COMMAND = re.compile(r"(?:^|[|&(]\s*)(everspot [^|&)#>]*)")


def commands() -> list[tuple[str, str]]:
    lines = [
        (name, match.strip())
        for name, block in [*blocks(""), *blocks("sh")]
        if not name.startswith(EXERCISES)
        for line in block.splitlines()
        for match in COMMAND.findall(line)
    ]
    return [(name, line) for name, line in dict.fromkeys(lines) if not any(marker in line for marker in ELSEWHERE)]


def jobs() -> list[tuple[str, str]]:
    return [(name, block) for name, block in blocks("yaml") if re.search(r"^name:", block, re.M) and not sweep(block)]


def sweep(block: str) -> bool:
    return re.search(r"^trials:", block, re.M) is not None


def write_job(folder: Path, text: str) -> Path:
    """A job file as a document shows it, with the files that it names beside it."""
    title = re.match(r"#\s*(\S+\.yaml)", text)
    path = folder / (title[1] if title else "my-job.yaml")
    path.write_text(text)
    spec = yaml.safe_load(text)
    if "code" in spec:
        script = folder / spec["code"] / spec["entrypoint"][0]
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text("print('hello')\n")
    if "requirements" in spec:
        (folder / spec["requirements"]).write_text("")
    return path


def write_bill(path: Path) -> None:
    """A part of a cloud's bill for October, which has nothing of the cluster."""
    row = {
        "ResourceId": f"i-{path.stem[-5]}", "ChargePeriodStart": "2026-10-01T00:00:00Z", "BillingCurrency": "USD",
        "ChargePeriodEnd": "2026-10-01T01:00:00Z", "BilledCost": "1.5", "ChargeCategory": "Usage",
    }  # fmt: skip
    path.write_bytes(gzip.compress(f"{','.join(row)}\n{','.join(row.values())}\n".encode()))


def everspot(*arguments: str) -> tuple[int, str]:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    code = 0
    # A command may choose a profile for its own process: the tests' is not meant.
    with mock.patch.dict(os.environ), redirect_stdout(out), redirect_stderr(out):
        try:
            main(list(arguments))
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, out.buffer.getvalue().decode()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A fresh cluster, in use, and a folder to type in with the documents' own job files. A stand-in for Pulumi says
    that every stack declares this cluster."""
    for name in ("control", "data", "home", "bin"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "home")
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("EVERSPOT_CLUSTER", raising=False)
    urls = [(tmp_path / name).as_uri() for name in ("control", "data")]
    monkeypatch.setenv("EVERSPOT_STORE", urls[0])
    (tmp_path / "bin/pulumi").write_text(f"#!/bin/sh\necho {urls[0]}\n")
    (tmp_path / "bin/pulumi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    store = Store.open(*urls)
    store.write_manifest(
        Manifest(cluster="docs", cloud="aws", region="us-east-1", control_url=urls[0], data_url=urls[1],
                 fleet=FleetOffer(types=TYPES, markets=[Market.SPOT]))
    )  # fmt: skip
    data = tmp_path / "home/.everspot/data/fashion-mnist"
    data.mkdir(parents=True)
    (data / "images").write_bytes(b"as if")
    for dataset in ("fashion-mnist", "flowers"):
        store.datasets.put(dataset, data)
    layout = tmp_path / "home/layout"  # of an image
    layout.mkdir()
    (layout / "index.json").write_text("{}")
    store.datasets.put("mine", layout)
    for part in ("october-1.csv.gz", "october-2.csv.gz"):
        write_bill(tmp_path / "home" / part)
    for name, text in jobs():
        if name in ("README.md", "docs/guide/quickstart.md"):
            write_job(tmp_path / "home", text)
    yield store


def submit(store: Store, state: str) -> None:
    """The documents' job: running, failed or done."""
    at, spec = datetime.now(UTC) - timedelta(hours=1), JobSpec(name="fashion", recipe="image-classification")
    store.submit(JobSubmission(job_id=JOB, spec=spec, submitted_at=at))
    emit = store.event_writer(JOB, 1, "i-1", "i-1").emit
    emit(EventKind.ASSIGNED, at, instance_type="c6i.large", zone="us-east-1a", market="spot")
    record = lease.start(lease.assign(None, JOB, "i-1", at), 1, "i-1", at)
    assert record is not None
    record = lease.renew(record, Progress(step=100, total_steps=200, attempt_use=USE), at)
    if state != "running":
        emit(EventKind.FINISHED if state == "done" else EventKind.ERROR, step=100)
        reason = Reason.FINISHED if state == "done" else Reason.CANCEL
        record = lease.release(record, reason, datetime.now(UTC), spec)
    store.records.put(JOB, record)


@pytest.mark.parametrize(("name", "line"), commands(), ids=[line for _, line in commands()])
def test_every_command_of_the_documents_does_what_it_says(name: str, line: str, store: Store) -> None:
    arguments = [JOB if token in ("JOB", "$id") else token for token in shlex.split(line)[1:]]
    arguments = [store.control.url if token.startswith("s3://") else token for token in arguments if token != ENDLESS]
    submit(store, "running" if "interrupt" in arguments else "failed" if "retry" in arguments else "done")
    if "--forget" in arguments:
        assert everspot("use", arguments[arguments.index("--forget") - 1], "--store", store.control.url)[0] == 0
    if "--cluster" in arguments:
        assert everspot("use", arguments[arguments.index("--cluster") + 1], "--store", store.control.url)[0] == 0
    code, output = everspot(*arguments)
    assert code == 0, f"{name}: {line}\n{output}"


@pytest.mark.parametrize(("name", "text"), jobs(), ids=[f"{n}-{i}" for i, (n, _) in enumerate(jobs())])
def test_every_job_file_of_the_documents_is_taken(name: str, text: str, store: Store, tmp_path: Path) -> None:
    for before in ("prepare", "fetch", "train"):  # the jobs that the documents' chains depend on
        spec = JobSpec(name=before, recipe="image-classification")
        store.submit(JobSubmission(job_id=f"{before}-0123abcd", spec=spec, submitted_at=datetime.now(UTC)))
    code, output = everspot("submit", str(write_job(tmp_path, text)), "--dry-run")
    assert code == 0, f"{name}:\n{text}\n{output}"
    assert "Nothing was submitted" in output


def test_every_sweep_of_the_documents_is_one() -> None:
    sweeps = [yaml.safe_load(block) for _, block in blocks("yaml") if sweep(block)]
    assert [SweepSpec.model_validate(data).name for data in sweeps] == ["rates"]


def test_the_documents_have_commands_and_job_files() -> None:
    assert len(commands()) > 15 and len(jobs()) >= 4
