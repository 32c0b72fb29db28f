"""A job's token at the local Google Cloud: how libraries find it, how long it is served, what happens without one."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from everspot.gcp import policies
from everspot_clouds.base import CloudError, Trouble
from everspot_clouds.gcp.job_credentials import GcpJobCredentials
from everspot_core.cluster.manifest import Manifest
from everspot_core.jobs.access import job_access
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_local.gcp.environment import endpoints
from everspot_store import ManualClock
from everspot_train.agent.job_endpoint import JobEndpoint, JobGrant
from gcp_worker import AGENT, PROJECT, ROLES, ROOT, Worker, policy

ROLE = f"{ROOT}/roles/jobs"
SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
OWN = "jobs/mine/checkpoints/000001/x"
PROGRAM = f"""
import json, google.auth, obstore
from google.auth.transport.requests import Request
from obstore.exceptions import PermissionDeniedError
from obstore.store import GCSStore
credentials, project = google.auth.default()
credentials.refresh(Request())
store = GCSStore("data", client_options={{"allow_http": True}})
obstore.put(store, "{OWN}", b"1")
try:
    obstore.put(store, "jobs/other/checkpoints/000001/x", b"1")
    other = "allowed"
except PermissionDeniedError:
    other = "denied"
print(json.dumps([type(credentials).__name__, credentials.service_account_email, project, credentials.token, other]))
"""


@pytest.fixture
def instance(kit: Any) -> Iterator[Any]:
    """The kit, and an instance's id: its service account may do everything in the bucket."""
    body = {"name": "data", "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}}}
    assert kit.call("POST", "/storage/v1/b?project=everspot-local", body).status == 200
    with kit.still() as later:
        Worker(kit)
        later(10)
        role = {"roleId": "jobs", "role": {"includedPermissions": list(policies.JOB_DELETES)}}
        assert kit.call("POST", ROLES, role).status == 200
        admin = {"role": "roles/storage.admin", "members": [f"serviceAccount:{AGENT}"]}
        assert kit.call("POST", f"{PROJECT}:setIamPolicy", policy(admin)).status == 200
        later(300)
    kit.network()
    yield kit, kit.run("one", serviceAccounts=[{"email": AGENT, "scopes": SCOPES}])["id"]


def credentials(instance: Any, clock: ManualClock, role: str = ROLE) -> GcpJobCredentials:
    kit, instance_id = instance
    spec = JobSpec.model_validate({"name": "mine", "entrypoint": ["fit.py"], "code": "."})
    access = job_access(JobSubmission(job_id="mine", spec=spec, submitted_at=datetime(2026, 3, 1, tzinfo=UTC)), 1)
    manifest = Manifest(
        cluster="fleet", cloud="gcp", control_url="gs://data/control", data_url="gs://data", job_role=role
    )
    metadata = {"GCE_METADATA_HOST": kit.cloud.project.metadata.address(instance_id)}
    return GcpJobCredentials(manifest, clock, access, {**endpoints(kit.cloud.endpoint), **metadata}.get)


def token(served: GcpJobCredentials) -> tuple[str, int]:
    answer = served.answer("/computeMetadata/v1/instance/service-accounts/default/token")
    assert answer is not None
    fields = json.loads(answer.body)
    assert fields["token_type"] == "Bearer"
    return fields["access_token"], fields["expires_in"]


def test_googles_libraries_find_the_jobs_token(instance: Any, tmp_path: Path) -> None:
    kit, _ = instance
    served, endpoint = credentials(instance, ManualClock()), JobEndpoint()
    try:
        grant = JobGrant(served, {}, lambda _: "")
        endpoint.serve(grant)
        inherited = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("GOOGLE_", "GCE_"))},
            **endpoints(kit.cloud.endpoint),
            "GOOGLE_OAUTH_ACCESS_TOKEN": "wider", "GOOGLE_BEARER_TOKEN": "wider", "HOME": str(tmp_path),
        }  # fmt: skip
        environment = grant.environment(inherited, endpoint.address, tmp_path)
        command = [sys.executable, "-c", PROGRAM]
        answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert answer.returncode == 0, answer.stderr
    finally:
        endpoint.close()
    kind, email, project, shown, other = json.loads(answer.stdout)
    assert (kind, email, project, other) == ("Credentials", AGENT, "everspot-local", "denied")
    assert shown == token(served)[0]
    assert kit.call("GET", "/storage/v1/b/data/o/jobs%2Fmine%2Fcheckpoints%2F000001%2Fx").status == 200


def test_the_emulation_tells_the_instances_names_and_no_more(instance: Any) -> None:
    served = credentials(instance, ManualClock())

    def body(path: str) -> str | None:
        answer = served.answer(f"/computeMetadata/v1/{path}")
        assert answer is None or answer.headers == {"Metadata-Flavor": "Google"}
        return answer.body if answer is not None else None

    assert body("project/project-id") == "everspot-local"
    assert body("instance/zone") == "projects/100000000001/zones/europe-west4-a"
    assert body("instance/service-accounts/") == f"default/\n{AGENT}/\n"
    assert body(f"instance/service-accounts/{AGENT}/email") == AGENT
    assert json.loads(body("instance/service-accounts/default/") or "")["email"] == AGENT
    for path in (
        "instance/", "instance/attributes/", "instance/attributes/everspot-manifest", "project/attributes/ssh-keys",
        "instance/service-accounts/default/identity", "instance/service-accounts/other@example.com/token",
        "instance/guest-attributes/", "instance/service-accountsdefault/token",
    ):  # fmt: skip
        assert body(path) is None, path


def test_a_token_is_replaced_when_the_agents_one_is(instance: Any) -> None:
    kit, _ = instance
    clock = ManualClock()
    served = credentials(instance, clock)
    first, seconds = token(served)
    assert 3500 < seconds <= 3600
    clock.advance(timedelta(minutes=45))
    assert token(served)[0] == first
    clock.advance(timedelta(minutes=6))  # the agent's own is still the same
    same, seconds = token(served)
    assert same == first and 400 < seconds <= 540
    kit.cloud.project.sessions.forget()
    second, seconds = token(served)
    assert second != first and 3500 < seconds <= 3600


def test_a_token_is_served_to_its_end_while_google_does_not_answer(instance: Any) -> None:
    kit, instance_id = instance
    clock = ManualClock()
    served = credentials(instance, clock)
    first, _ = token(served)
    assert served.answer("/computeMetadata/v1/instance/service-accounts/default/email") is not None
    kit.cloud.project.metadata.close(instance_id)
    clock.advance(timedelta(minutes=55))
    assert token(served)[0] == first
    clock.advance(timedelta(minutes=6))
    with pytest.raises(CloudError, match="does not answer") as caught:
        served.renew()
    assert caught.value.trouble is Trouble.TRANSIENT


def test_a_refused_exchange_names_the_remedy_and_no_token(instance: Any) -> None:
    with pytest.raises(CloudError, match="cannot be limited to the job: invalid_request") as caught:
        credentials(instance, ManualClock(), f"{ROOT}/roles/none").renew()
    assert caught.value.trouble is Trouble.CREDENTIALS
    assert "gcloud services enable sts.googleapis.com" in caught.value.fix and "ya29" not in str(caught.value)
