"""A job's program on Google Cloud has its own keys and nothing of others, whatever it tries with the token it finds."""

import base64
import re
from typing import Any

import pytest
import requests
from e2e_attack import DATA, run_attack
from e2e_google import PROJECT, REGION, GoogleLive
from e2e_google_roles import account
from everspot_core.cluster.manifest import Manifest
from everspot_core.jobs.records import Role

pytestmark = pytest.mark.timeout(1800)

SHARED = "e2e-shared"
LARGE = "/jobs/victim/checkpoints/000001/large"


class Attacked(GoogleLive):
    """A cluster with something to take: another job's head and checkpoint, a dataset, code, a shared bucket, a
    secret."""

    def _create(self) -> None:
        agent = f"serviceAccount:{account(Role.AGENT)}"
        super()._create()
        uniform = {"uniformBucketLevelAccess": {"enabled": True}}
        body = {"name": SHARED, "location": REGION, "iamConfiguration": uniform}
        self.api.call("POST", "storage", "b", body=body, query={"project": "everspot-local"})
        viewer = {"role": "roles/storage.objectViewer", "members": [agent]}
        self.api.call("PUT", "storage", f"b/{SHARED}/iam", body={"bindings": [viewer]})
        secrets = f"{PROJECT}/secrets"
        body = {"replication": {"automatic": {}}}
        self.api.call("POST", "secretmanager", secrets, body=body, query={"secretId": "api-key"})
        payload = {"payload": {"data": base64.b64encode(b"s3cret").decode()}}
        self.api.post("secretmanager", f"{secrets}/api-key:addVersion", payload)
        accessor = {"role": "roles/secretmanager.secretAccessor", "members": [agent]}
        self.api.post("secretmanager", f"{secrets}/api-key:setIamPolicy", {"policy": {"bindings": [accessor]}})
        keys = ("jobs/victim/secret", "code/0123.tar.gz", "datasets/private/1.json", "agents/i-1/000000.log")
        for bucket, key in ((SHARED, "corpus"), *((DATA, key) for key in keys)):
            assert self.put(bucket, key).status_code == 200
        begun = self.send("POST", f"{LARGE}?uploads").text
        self.upload = begun.partition("<UploadId>")[2].partition("</UploadId>")[0]
        assert self.send("PUT", f"{LARGE}?uploadId={self.upload}&partNumber=1", b"theirs").status_code == 200

    def send(self, verb: str, path: str, body: bytes = b"") -> requests.Response:
        """Use the XML API on the data bucket, as the project's owner."""
        headers = {"Authorization": "Bearer everspot-local"}
        return requests.request(verb, f"{self.cloud.endpoint}/xml/{DATA}{path}", data=body, headers=headers, timeout=60)

    def what_is_left(self) -> dict[str, str]:
        """Return what the other job has, after its upload has been completed."""
        parts = b"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber></Part></CompleteMultipartUpload>"
        self.send("POST", f"{LARGE}?uploadId={self.upload}", parts)
        listed = self.send("GET", "?list-type=2&prefix=jobs/victim/").text
        return {key: self.send("GET", f"/{key}").text for key in re.findall(r"<Key>([^<]*)</Key>", listed)}

    def put(self, bucket: str, key: str, token: str = "everspot-local") -> requests.Response:
        """Write an object, as the project's owner or with another token."""
        headers = {"Authorization": f"Bearer {token}"}
        return requests.put(f"{self.cloud.endpoint}/xml/{bucket}/{key}", b"theirs", headers=headers, timeout=60)

    def manifest(self, role: Role, *more: Any) -> Manifest:
        return super().manifest(role, *more).model_copy(update={"read_buckets": [SHARED]})


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of the attack. Answers are status codes."""
    out = tmp_path_factory.mktemp("attack") / "result.json"
    with Attacked(tmp_path_factory.mktemp("google")) as live:

        def write(result: dict[str, Any], bucket: str, key: str) -> int:
            return live.put(bucket, key, result["token"]).status_code

        env = {"ATTACK_UPLOAD": live.upload}
        result = run_attack(live, out, "attack_google.py", "secretmanager:api-key", write, env)
        return {**result, "left": live.what_is_left()}


def test_the_job_has_what_it_needs(attacked: dict[str, Any]) -> None:
    assert {name: code for name, code in attacked["allowed"].items() if code not in ("200", "204")} == {}
    assert (attacked["identity"], attacked["project"]) == (account(Role.AGENT), "everspot-local")


def test_everything_else_is_refused(attacked: dict[str, Any]) -> None:
    assert len(attacked["refused"]) > 110
    assert {name: code for name, code in attacked["refused"].items() if code != "403"} == {}


def test_what_the_local_cloud_does_not_have_succeeds_no_more(attacked: dict[str, Any]) -> None:
    assert attacked["unserved"] == {**dict.fromkeys(attacked["unserved"], "501"), "a batch": "404"}


def test_an_upload_in_parts_is_of_one_key(attacked: dict[str, Any]) -> None:
    """Cloud Storage keeps uploads by their keys ("XML API multipart uploads", NoSuchUpload)."""
    assert attacked["borrowed"] == dict.fromkeys(attacked["borrowed"], "404")


def test_an_address_that_nobody_signed_opens_nothing(attacked: dict[str, Any]) -> None:
    assert attacked["addresses"] == dict.fromkeys(attacked["addresses"], "401")


def test_another_job_and_the_fleet_are_as_they_were(attacked: dict[str, Any]) -> None:
    assert attacked["victim's head"]
    assert "i-0123456789abcdef0" not in attacked["instances"]
    assert attacked["left"] == {"jobs/victim/checkpoints/000001/large": "theirs", "jobs/victim/secret": "theirs"}


def test_the_endpoint_serves_who_knows_the_jobs_secret_the_jobs_token_alone(attacked: dict[str, Any]) -> None:
    assert attacked["endpoint"] == {
        "without": "403", "with another": "403", "with its own": "200", "the agents' identity": "404",
        "the user data": "404", "another account": "404",
    }  # fmt: skip
    assert attacked["exchange"] == "400"


def test_the_job_gets_its_secrets_and_datasets_and_no_way_to_wider_credentials(attacked: dict[str, Any]) -> None:
    assert attacked["api key"] == "s3cret" and attacked["dataset"] == "words"
    assert attacked["variables"] == ["GOOGLE_BASE_URL"]


def test_a_token_that_outlives_the_job_reaches_no_later_attempt(attacked: dict[str, Any]) -> None:
    assert attacked["after"] == dict.fromkeys(attacked["after"], 403)


def test_a_token_that_outlives_the_attempt_still_changes_the_jobs_own_head(attacked: dict[str, Any]) -> None:
    """The head is one object for all attempts of a job, whose owner alone is harmed: docs/reference/security.md."""
    assert attacked["own head after"] == 200
