"""ECR's registry of the local cloud: what it refuses, and how Everspot's client tells refusals apart."""

import hashlib
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from everspot_clouds.aws.image_login import log_in
from everspot_clouds.base import Trouble
from everspot_clouds.image_registry import ImageMissing, ImageRegistry, PullStopped, RegistryError
from everspot_core.jobs.image_reference import RegistryImage
from everspot_local.aws import account
from everspot_store import ManualClock

from tests.registry_push import ACCOUNT, HOST, EcrClient

LAYER = b"a layer" * 1000
DIGEST = f"sha256:{hashlib.sha256(LAYER).hexdigest()}"
ABSENT = f"sha256:{'0' * 64}"
PULL = ["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]


@pytest.fixture
def owner(bare: Any, monkeypatch: pytest.MonkeyPatch) -> EcrClient:
    for name, value in {"URL": bare.cloud.endpoint, "ID": "test", "KEY": "test"}.items():
        variables = {"URL": "AWS_ENDPOINT_URL", "ID": "AWS_ACCESS_KEY_ID", "KEY": "AWS_SECRET_ACCESS_KEY"}
        monkeypatch.setenv(variables[name], value)
    client = EcrClient(bare.cloud.endpoint)
    client.api.create_repository(repositoryName="team/train")
    return client


@pytest.fixture
def pushed(owner: EcrClient, tmp_path: Path) -> RegistryImage:
    blobs = tmp_path / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    kind = "application/vnd.oci.image.manifest.v1+json"
    config = b"{}"
    for data in (LAYER, config):
        (blobs / hashlib.sha256(data).hexdigest()).write_bytes(data)
    parts = [{"digest": f"sha256:{hashlib.sha256(d).hexdigest()}", "size": len(d)} for d in (config, LAYER)]
    manifest = json.dumps({"schemaVersion": 2, "mediaType": kind, "config": parts[0], "layers": parts[1:]}).encode()
    digest = hashlib.sha256(manifest).hexdigest()
    (blobs / digest).write_bytes(manifest)
    entry = {"mediaType": kind, "digest": f"sha256:{digest}"}
    (tmp_path / "index.json").write_text(json.dumps({"manifests": [entry]}))
    return RegistryImage(HOST, "team/train", owner.push("team/train", tmp_path))


@pytest.fixture
def clock() -> Iterator[ManualClock]:
    yield ManualClock()


def test_an_image_is_pulled_by_its_digest(pushed: RegistryImage, clock: ManualClock, tmp_path: Path) -> None:
    with ImageRegistry(pushed, log_in, clock) as registry:
        manifest = registry.read_manifest(pushed.digest)
        registry.save_blob(DIGEST, tmp_path / "layer")
    assert f"sha256:{hashlib.sha256(manifest).hexdigest()}" == pushed.digest
    assert (tmp_path / "layer").read_bytes() == LAYER


@pytest.mark.parametrize(
    ("changed", "path", "error", "words"),
    [
        ({"repository": "team/none"}, "", ImageMissing, "404 NAME_UNKNOWN: The repository with name 'team/none' does"),
        ({}, "", ImageMissing, "404 MANIFEST_UNKNOWN: Requested image not found"),
        ({}, "layer", ImageMissing, "404 BLOB_UNKNOWN"),
        ({"host": HOST.replace(ACCOUNT, "210987654321")}, "", RegistryError, "403 DENIED: User: arn:aws:iam::123456"),
    ],
)
def test_ecr_refuses_what_is_not_there(
    pushed: RegistryImage, clock: ManualClock, tmp_path: Path, changed: Any, path: str, error: Any, words: str
) -> None:
    image = RegistryImage(**{"host": pushed.host, "repository": pushed.repository, "digest": ABSENT, **changed})
    with ImageRegistry(image, log_in, clock) as registry, pytest.raises(error) as caught:
        registry.save_blob(ABSENT, tmp_path / path) if path else registry.read_manifest(ABSENT)
    assert words in str(caught.value)
    assert caught.value.trouble is (Trouble.REQUEST if error is ImageMissing else Trouble.CREDENTIALS)
    assert clock.monotonic() == timedelta(), "a refusal is not tried again"


def test_a_token_that_has_ended_is_replaced_once(pushed: RegistryImage, clock: ManualClock, tmp_path: Path) -> None:
    with ImageRegistry(pushed, log_in, clock) as registry:
        registry.read_manifest(pushed.digest)
        account.current().registry.expire_tokens()
        registry.save_blob(DIGEST, tmp_path / "layer")
    assert (tmp_path / "layer").read_bytes() == LAYER


def test_ecr_refuses_a_token_that_is_not_its_own(owner: EcrClient, pushed: RegistryImage) -> None:
    path = f"team/train/manifests/{pushed.digest}"
    missing, other = owner.request("GET", path, auth=None), owner.request("GET", path, auth=("AWS", "other"))
    elsewhere = owner.request("GET", path, HOST.replace("us-east-1", "eu-west-1"))
    unknown = owner.request("DELETE", path)
    assert (missing.status_code, missing.headers["Www-Authenticate"].split()[0]) == (401, "Basic")
    for answer in (other, elsewhere):
        assert answer.status_code == 403 and "Your authorization token has expired" in answer.text
    assert unknown.status_code == 405


def test_the_store_of_layers_takes_no_token(owner: EcrClient, pushed: RegistryImage) -> None:
    place = owner.request("GET", f"team/train/blobs/{DIGEST}").headers["Location"]
    assert requests.get(place, timeout=60).content == LAYER
    assert requests.get(place, auth=("AWS", "token"), timeout=60).status_code == 400
    assert requests.get(place.partition("?")[0], timeout=60).status_code == 403


def test_a_push_of_other_bytes_than_its_digest_is_refused(owner: EcrClient) -> None:
    place = owner.request("POST", "team/train/blobs/uploads/").headers["Location"].removeprefix("/v2/")
    assert owner.request("PUT", place, params={"digest": ABSENT}, data=b"other").json()["errors"][0]["code"] == (
        "DIGEST_INVALID"
    )
    manifest = json.dumps({"config": {"digest": ABSENT}, "layers": []})
    answer = owner.request("PUT", "team/train/manifests/latest", data=manifest)
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (404, "MANIFEST_BLOB_UNKNOWN")


@pytest.mark.parametrize("allowed", [True, False])
def test_a_role_pulls_from_the_repositories_that_its_policy_names(
    bare: Any, pushed: RegistryImage, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    iam, name = bare.client("iam"), "team/train" if allowed else "team/other"
    trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    trust_policy = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    iam.create_role(RoleName="agents", AssumeRolePolicyDocument=trust_policy)
    statements = [
        {"Effect": "Allow", "Action": "ecr:GetAuthorizationToken", "Resource": "*"},
        {"Effect": "Allow", "Action": PULL, "Resource": f"arn:aws:ecr:us-east-1:{ACCOUNT}:repository/{name}"},
    ]
    policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
    iam.put_role_policy(RoleName="agents", PolicyName="pull", PolicyDocument=policy)
    bare.wait_for_role("agents")
    role = f"arn:aws:iam::{ACCOUNT}:role/agents"
    keys = bare.client("sts").assume_role(RoleArn=role, RoleSessionName="session")["Credentials"]
    names = {"AWS_ACCESS_KEY_ID": "AccessKeyId", "AWS_SECRET_ACCESS_KEY": "SecretAccessKey"}
    for variable, key in {**names, "AWS_SESSION_TOKEN": "SessionToken"}.items():
        monkeypatch.setenv(variable, keys[key])
    with ImageRegistry(pushed, log_in, clock) as registry:
        if allowed:
            assert registry.read_manifest(pushed.digest)
            return
        with pytest.raises(RegistryError) as caught:
            registry.read_manifest(pushed.digest)
    assert "is not authorized to perform: ecr:BatchGetImage" in str(caught.value)
    assert "imageRepositories" in caught.value.fix


def test_too_many_requests_are_tried_again_a_few_times(bare: Any, pushed: RegistryImage, clock: ManualClock) -> None:
    with ImageRegistry(pushed, log_in, clock) as registry:
        registry.read_manifest(pushed.digest)
        bare.do("disturbances", throttle=1.0)
        with pytest.raises(RegistryError) as caught:
            registry.read_manifest(pushed.digest)
    assert caught.value.trouble is Trouble.THROTTLED and "TOOMANYREQUESTS" in str(caught.value)
    assert clock.monotonic() == timedelta(seconds=1 + 2 + 4 + 8)


def test_a_transfer_ends_when_its_job_has_to_stop(pushed: RegistryImage, clock: ManualClock, tmp_path: Path) -> None:
    answers = iter([False, False, True])
    with ImageRegistry(pushed, log_in, clock, lambda: next(answers)) as registry, pytest.raises(PullStopped):
        registry.read_manifest(pushed.digest)
        registry.save_blob(DIGEST, tmp_path / "layer")


def test_a_registry_of_nobody_is_refused_by_name(clock: ManualClock) -> None:
    with pytest.raises(RegistryError, match=r"docker\.io is no registry of ECR"):
        log_in(RegistryImage("docker.io", "library/python", ABSENT))
