"""Users' own programs with a job's token: Google's library, gcsfs and gcloud have its own keys, and no others."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from everspot_local.gcp.environment import endpoints
from everspot_store import ManualClock
from gcp_worker import AGENT
from job_libraries import FILE_SYSTEM_CALLS, LARGE, OTHER, OWN, THEIRS, JobPrograms, job_programs, require_libraries
from test_localcloud_gcp_job_credentials import credentials, instance

__all__ = ["instance"]
REFUSED = f"{AGENT} does not have storage.objects.{{}} access to the Google Cloud Storage"


@pytest.fixture
def job(instance: Any, tmp_path: Path) -> Iterator[JobPrograms]:
    """A job, beside which another one has a checkpoint."""
    require_libraries()
    kit, _ = instance
    path = f"/upload/storage/v1/b/data/o?uploadType=media&name={THEIRS.replace('/', '%2F')}"
    assert kit.call("POST", path, {"theirs": 1}).status == 200
    # gcsfs asks by gRPC, with TLS alone, whether a bucket has folders.
    variables = {**endpoints(kit.cloud.endpoint), "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}
    with job_programs(credentials(instance, ManualClock()), tmp_path, variables) as programs:
        yield programs


def test_googles_own_library_reads_writes_and_lists_the_jobs_keys_alone(job: JobPrograms) -> None:
    answers = job.run(f"""
from google.cloud import storage
client = storage.Client(client_options={{"api_endpoint": "{job.environment["EVERSPOT_GCP_ENDPOINT"]}"}})
bucket = client.bucket("data")
attempt("project", lambda: client.project)
attempt("write", lambda: bucket.blob("{OWN}/a").upload_from_string(b"1"))
attempt("write in chunks", lambda: bucket.blob("{OWN}/b").upload_from_string(bytes({LARGE})))
attempt("read", lambda: len(bucket.blob("{OWN}/b").download_as_bytes()))
attempt("list", lambda: [blob.name for blob in client.list_blobs("data", prefix="jobs/mine/")])
attempt("exists", lambda: str(bucket.blob("{OWN}/c").exists()))
attempt("delete", lambda: bucket.blob("{OWN}/a").delete())
attempt("write another's", lambda: bucket.blob("{OTHER}/a").upload_from_string(b"1"))
attempt("write another's in chunks", lambda: bucket.blob("{OTHER}/b").upload_from_string(bytes({LARGE})))
attempt("read another's", lambda: bucket.blob("{THEIRS}").download_as_bytes())
attempt("list another's", lambda: list(client.list_blobs("data", prefix="jobs/other/")))
attempt("list all", lambda: list(client.list_blobs("data")))
attempt("delete another's", lambda: bucket.blob("{THEIRS}").delete())
""")
    refused = {name: answers.pop(name) for name in list(answers) if "another's" in name or name == "list all"}
    assert answers == {
        "project": "everspot-local", "write": "done", "write in chunks": "done", "read": LARGE,
        "list": [f"{OWN}/a", f"{OWN}/b"], "exists": "False", "delete": "done",
    }  # fmt: skip
    actions = {"write": "create", "read": "get", "list": "list", "delete": "delete"}
    for name, error in refused.items():
        assert error.startswith("Forbidden: 403") and REFUSED.format(actions[name.split()[0]]) in error, (name, error)


def test_gcsfs_reads_writes_and_lists_the_jobs_keys_alone(job: JobPrograms) -> None:
    answers = job.run(f"""
import gcsfs
files = gcsfs.GCSFileSystem(endpoint_url="{job.environment["EVERSPOT_GCP_ENDPOINT"]}")
{FILE_SYSTEM_CALLS}attempt("list all", lambda: files.ls("data"))
""")
    refused = {name: answers.pop(name) for name in list(answers) if "another's" in name or name == "list all"}
    assert answers == {
        "write": "done", "write in parts": "done", "read": LARGE, "list": [f"data/{OWN}/a", f"data/{OWN}/b"],
        "find": [f"data/{OWN}/b"], "size": LARGE, "delete": "done",
    }  # fmt: skip
    actions = {"write": "create", "read": "get", "list": "list"}
    for name, error in refused.items():
        assert error.startswith("OSError: Forbidden: ") and REFUSED.format(actions[name.split()[0]]) in error, error


@pytest.mark.nightly  # each of its commands takes seconds to start, and many under load
def test_gcloud_reads_writes_and_lists_the_jobs_keys_alone(job: JobPrograms) -> None:
    if shutil.which("gcloud") is None:
        pytest.skip("gcloud is not on this machine")
    variables = {
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": f"{job.environment['EVERSPOT_GCP_ENDPOINT']}/storage/v1/",
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1", "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
    }  # fmt: skip

    def gcloud(*words: str) -> tuple[int, str]:
        answer = job.call("gcloud", "storage", *words, **variables)
        return answer.returncode, answer.stdout if answer.returncode == 0 else answer.stderr

    (job.folder / "large").write_bytes(bytes(LARGE))
    assert gcloud("cp", "large", f"gs://data/{OWN}/large")[0] == 0
    assert gcloud("ls", f"gs://data/{OWN}/") == (0, f"gs://data/{OWN}/large\n")
    assert gcloud("cp", f"gs://data/{OWN}/large", "back")[0] == 0
    assert (job.folder / "back").read_bytes() == bytes(LARGE)
    status, error = gcloud("cat", f"gs://data/{THEIRS}")
    assert status == 1 and REFUSED.format("get") in error
