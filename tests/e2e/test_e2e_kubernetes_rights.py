"""A job in a pod, with all credentials that it finds there: in the store it has its own keys alone, and at the API
server it may get a node by its name, and writes nothing."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from e2e_attack import PROGRAM, run_attack
from e2e_aws_attack import SECRET, Attacked, write
from e2e_helpers import JOB_ROLE
from e2e_kubernetes import LACKS_PROGRAMS, MISSING, KubernetesLive
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import JobState

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(LACKS_PROGRAMS, reason=MISSING),
]
GIVEN_TO_ALL = {
    "create selfsubjectaccessreviews", "create selfsubjectreviews", "create selfsubjectrulesreviews",
    "get clustertrustbundles", "list clustertrustbundles", "watch clustertrustbundles",
}  # fmt: skip
"""What Kubernetes gives to every service account: it may ask for its own rights, and read public certificates
(Kubernetes, "Using RBAC Authorization", default roles: system:basic-user, system:cluster-trust-bundle-discovery)."""


class AttackedPods(Attacked, KubernetesLive):
    """The same on Kubernetes."""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedPods]:
    with AttackedPods(tmp_path_factory.mktemp("kubernetes")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def attacked(live: AttackedPods, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of the attack on the store."""
    out = tmp_path_factory.mktemp("attack") / "result.json"
    env = {"ATTACK_UPLOAD": live.upload["UploadId"], "ATTACK_PART": live.part}
    result = run_attack(live, out, "attack.py", f"ssm:{SECRET}", partial(write, live), env)
    return {**result, "left": live.what_is_left()}


def test_a_pods_job_has_its_own_keys_of_the_store(attacked: dict[str, Any]) -> None:
    assert attacked["allowed"] == dict.fromkeys(attacked["allowed"], "allowed")
    assert attacked["identity"].startswith(f"{JOB_ROLE.replace(':iam:', ':sts:').replace(':role/', ':assumed-role/')}/")


def test_a_pods_job_is_refused_everything_else_of_the_store(attacked: dict[str, Any]) -> None:
    assert len(attacked["refused"]) > 120
    refusals = {"AccessDenied", "UnauthorizedOperation"}
    assert {name: code for name, code in attacked["refused"].items() if code not in refusals} == {}
    assert attacked["victim's head"]
    assert attacked["left"] == {"objects": {"jobs/victim/secret": b"theirs"}, "tags": [], "parts": True}
    assert not {"AWS_ACCESS_KEY_ID", "AWS_EC2_METADATA_SERVICE_ENDPOINT"} & set(attacked["variables"])


def test_a_pods_job_reads_and_writes_nothing_at_the_api_server_but_nodes(live: AttackedPods, tmp_path: Path) -> None:
    out = tmp_path / "answers.json"
    spec = JobSpec(name="curious", entrypoint=["attack_kubernetes.py"], code=str(PROGRAM), env={"ATTACK_OUT": str(out)})
    submission = JobSubmission(job_id="curious", spec=spec, submitted_at=live.clock.now())
    job = live.store.submit(submission, PROGRAM).job_id
    state = live.until(lambda: live.ended(job))
    assert state is JobState.SUCCEEDED, b"".join(chunk.data for chunk in live.store.read_logs(job)).decode()
    answers = json.loads(out.read_text())
    assert answers["forbidden"] > 300
    allowed = {answer.rpartition(":")[0] for answer in answers["allowed"]}
    assert allowed == {"get nodes"} | GIVEN_TO_ALL
