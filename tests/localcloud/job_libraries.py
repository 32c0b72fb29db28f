"""Runs programs of users' own storage libraries as a job's program, with the variables that the agent gives it."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from everspot_clouds.base import JobCredentials
from everspot_train.agent.job_endpoint import JobEndpoint, JobGrant

LIBRARIES = Path(__file__).resolve().parents[2] / ".everspot" / "libraries" / "bin"
"""Their environment: they need other versions of packages than Everspot does."""
OWN, OTHER = "jobs/mine/checkpoints/000001", "jobs/other/checkpoints/000001"
THEIRS = f"{OTHER}/secret"
LARGE = 9 << 20
"""Bytes from which on libraries upload in chunks or parts: Google's from 8 MiB on, boto3 from 8 MiB, s3fs from 5."""
_REPORT = """
import json, sys
answers = {}
def attempt(name, call):
    try:
        value = call()
        names = isinstance(value, list) and all(isinstance(each, str) for each in value)
        answers[name] = value if names or isinstance(value, (str, int)) else "done"
    except Exception as error:
        answers[name] = f"{type(error).__name__}: {error}"
"""


FILE_SYSTEM_CALLS = f"""
def write(path):
    with files.open(path, "wb") as out:
        out.write(bytes({LARGE}))
attempt("write", lambda: files.pipe("data/{OWN}/a", b"1"))
attempt("write in parts", lambda: write("data/{OWN}/b"))
attempt("read", lambda: len(files.cat("data/{OWN}/b")))
attempt("list", lambda: files.ls("data/{OWN}"))
attempt("find", lambda: files.glob("data/jobs/mine/checkpoints/*/b"))
attempt("size", lambda: files.info("data/{OWN}/b")["size"])
attempt("delete", lambda: files.rm("data/{OWN}/a"))
attempt("write another's", lambda: files.pipe("data/{OTHER}/a", b"1"))
attempt("write another's in parts", lambda: write("data/{OTHER}/b"))
attempt("read another's", lambda: files.cat("data/{THEIRS}"))
attempt("list another's", lambda: files.ls("data/{OTHER}"))
"""
"""Calls of `files`, a file system of fsspec, with the job's own keys and with another one's."""


@dataclass(frozen=True)
class JobPrograms:
    """The variables of a job, and its folder."""

    environment: Mapping[str, str]
    folder: Path

    def run(self, program: str) -> dict[str, Any]:
        """Run a Python program; return what each of its calls of `attempt` was answered."""
        words = [str(LIBRARIES / "python"), "-c", f"{_REPORT}{program}\nprint(json.dumps(answers))"]
        answer = self.call(*words)
        assert answer.returncode == 0, answer.stdout + answer.stderr
        return dict(json.loads(answer.stdout.splitlines()[-1]))

    def call(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command. `more`: further variables."""
        return subprocess.run(
            words, env={**self.environment, **more}, cwd=self.folder, capture_output=True, text=True, timeout=120
        )


def require_libraries() -> None:
    """Skip where users' libraries are not installed."""
    if not (LIBRARIES / "python").exists():
        pytest.skip("users' storage libraries are not installed: make setup WITH=libraries")


@contextmanager
def job_programs(credentials: JobCredentials, folder: Path, variables: Mapping[str, str]) -> Iterator[JobPrograms]:
    """Serve a job its credentials by the agent's endpoint; `variables`: of the instance."""
    endpoint = JobEndpoint()
    try:
        grant = JobGrant(credentials, {}, lambda _: "")
        endpoint.serve(grant)
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "GOOGLE_", "GCE_"))}
        inherited = {**clean, **variables, "HOME": str(folder)}
        yield JobPrograms(grant.environment(inherited, endpoint.address, folder), folder)
    finally:
        endpoint.close()
