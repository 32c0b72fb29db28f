"""Runs the process of `everspot rehearse` on scripts that tests write."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import program_forks
from everspot_core.jobs.job import JobSpec, JobSubmission


def rehearsed(
    folder: Path, script: str, *places: str, gpus: int = 0, steps: int | None = None, forked: bool = False
) -> dict[str, Any]:
    """The answer about a script.

    Args:
        places: the only ones.
        forked: whether its processes start with torch imported, and so with the same hashes of texts.
    """
    code = folder / "src"
    code.mkdir()
    (code / "train.py").write_text(script)
    spec = JobSpec.model_validate(
        {
            "name": "t",
            "entrypoint": ["train.py"],
            "code": ".",
            "checkpoint": {"every": "5s"},
            "retries": {"errors": 0},
            "resources": {"gpus": gpus},
        }
    )
    job = JobSubmission(job_id="x", spec=spec, submitted_at=datetime.now(UTC)).to_json().decode()
    request = {"job": job, "code": str(code), "steps": steps, "seconds": 600, "places": list(places) or None}
    launcher = {"EVERSPOT_LAUNCHER": program_forks.launcher(max(1, gpus))} if forked else {}
    done = subprocess.run(
        [sys.executable, "-m", "everspot_train.rehearse"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=True,
        timeout=1800,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **launcher},
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(line["run"] <= line["of"] for line in lines[:-1])
    answer: dict[str, Any] = lines[-1]["answer"]
    return answer
