"""A job's program has its own keys and nothing of others, whatever it tries with the credentials that it finds."""

from functools import partial
from typing import Any

import pytest
from e2e_attack import run_attack
from e2e_aws_attack import SECRET, Attacked, write
from e2e_helpers import JOB_ROLE, PLAIN

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of the attack. Answers are codes of errors."""
    out = tmp_path_factory.mktemp("attack") / "result.json"
    with Attacked(tmp_path_factory.mktemp("e2e"), agent_env=PLAIN) as live:
        env = {"ATTACK_UPLOAD": live.upload["UploadId"], "ATTACK_PART": live.part}
        result = run_attack(live, out, "attack.py", f"ssm:{SECRET}", partial(write, live), env)
        return {**result, "left": live.what_is_left()}


def test_the_job_has_what_it_needs(attacked: dict[str, Any]) -> None:
    assert attacked["allowed"] == dict.fromkeys(attacked["allowed"], "allowed")
    assert attacked["identity"].startswith(f"{JOB_ROLE.replace(':iam:', ':sts:').replace(':role/', ':assumed-role/')}/")


def test_everything_else_is_refused(attacked: dict[str, Any]) -> None:
    refusals = {"AccessDenied", "UnauthorizedOperation"}
    assert len(attacked["refused"]) > 120
    assert {name: code for name, code in attacked["refused"].items() if code not in refusals} == {}


def test_an_upload_in_parts_is_of_one_key(attacked: dict[str, Any]) -> None:
    """S3 keeps uploads by their keys (API reference, "NoSuchUpload")."""
    assert attacked["borrowed"] == dict.fromkeys(attacked["borrowed"], "NoSuchUpload")


def test_another_job_and_the_fleet_are_as_they_were(attacked: dict[str, Any]) -> None:
    assert attacked["victim's head"]
    assert "i-0123456789abcdef0" not in attacked["instances"]
    assert attacked["left"] == {"objects": {"jobs/victim/secret": b"theirs"}, "tags": [], "parts": True}


def test_the_endpoint_serves_who_knows_the_jobs_secret(attacked: dict[str, Any]) -> None:
    assert attacked["endpoint"] == {"without": "403", "with another": "403", "with its own": "allowed"}


def test_the_job_gets_its_secrets_and_datasets_and_no_way_to_wider_credentials(attacked: dict[str, Any]) -> None:
    assert attacked["api key"] == "s3cret" and attacked["dataset"] == "words"
    assert not {"AWS_ACCESS_KEY_ID", "AWS_EC2_METADATA_SERVICE_ENDPOINT"} & set(attacked["variables"])


def test_keys_that_outlive_the_job_reach_no_later_attempt(attacked: dict[str, Any]) -> None:
    assert attacked["after"] == dict.fromkeys(attacked["after"], "AccessDenied")


def test_keys_that_outlive_the_attempt_still_change_the_jobs_own_head(attacked: dict[str, Any]) -> None:
    """The head is one object for all attempts of a job, whose owner alone is harmed: docs/reference/security.md."""
    assert attacked["own head after"] == "allowed"
