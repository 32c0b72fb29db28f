"""The job files of the demo and of the documents are valid."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from everspot_core.capacity.catalogue import builtin
from everspot_core.experiments.sweep import SweepSpec
from everspot_core.jobs.candidates import candidates
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.schedule.provisioning.feasibility import feasibility

ROOT = Path(__file__).parents[2]
DEMO = sorted((ROOT / "localcloud/everspot_local/demo/jobs").glob("*.yaml"))


@pytest.mark.parametrize("path", DEMO, ids=[path.stem for path in DEMO])
def test_the_demonstrations_jobs_are_taken_without_a_warning(world, path):
    answer = world.run("submit", str(path))
    assert (answer.code, answer.err) == (0, "")


def test_the_demonstration_has_jobs():
    assert len(DEMO) == 4


def test_the_demonstrations_sweep_is_taken_without_a_warning(world):
    world.store.write_manifest(world.store.manifest().model_copy(update={"shared_instances": True}))
    sweep = SweepSpec.model_validate(yaml.safe_load((DEMO[0].parents[1] / "sweep" / "rates.yaml").read_text()))
    trial = DEMO[0].parents[1] / "sweep" / sweep.job
    values = [f"--set={path}={dimension.first}" for path, dimension in sweep.fields.items()]
    answer = world.run("submit", str(trial), *values)
    assert (answer.code, answer.err) == (0, "")


def test_no_job_of_the_documents_would_be_refused():
    texts = [path.read_text() for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"))]
    blocks = [b for text in texts for b in re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)]
    documents = [yaml.safe_load(b) for b in blocks if re.search(r"^name:", b, re.MULTILINE)]
    sweeps = [SweepSpec.model_validate(values) for values in documents if "job" in values]
    assert sweeps
    jobs = [JobSpec.model_validate(values) for values in documents if "job" not in values]
    dated = [job for job in jobs if isinstance(job.deadline, timedelta)]
    assert any(job.expected_duration for job in dated)
    now = datetime.now(UTC)
    for job in dated:
        submission = JobSubmission(job_id="j", spec=job, submitted_at=now, deadline_at=now + job.deadline)
        assert feasibility(submission, candidates(job.resources, builtin())).feasible is not False, job.name
