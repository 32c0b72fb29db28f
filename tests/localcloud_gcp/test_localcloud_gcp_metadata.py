"""The metadata server over HTTP, with waits for a change, and google-auth's credentials from it."""

import http.client
import json
import threading
from typing import Any

import google.auth.compute_engine
import google.auth.transport.requests
import pytest
import requests
from gcp_worker import PROJECT, policy

FLAVOR = {"Metadata-Flavor": "Google"}
ZONE = "europe-west4-a"
ACCOUNT = "100000000001-compute@developer.gserviceaccount.com"


class Metadata:
    """One instance's server."""

    def __init__(self, kit: Any, instance_id: str) -> None:
        self.address = kit.cloud.project.metadata.address(instance_id)

    def send(self, path: str, headers: dict[str, str] = FLAVOR, method: str = "GET") -> tuple[int, str, Any]:
        connection = http.client.HTTPConnection(self.address, timeout=300)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.headers
        finally:
            connection.close()

    def get(self, path: str) -> str:
        status, body, headers = self.send(f"/computeMetadata/v1/{path}")
        assert status == 200, (path, status, body)
        assert headers["Metadata-Flavor"] == "Google" and headers["ETag"]
        return body


@pytest.fixture
def metadata_rig(kit: Any) -> tuple[Any, Any, Metadata]:
    kit.network()
    items = [{"key": "everspot-manifest", "value": '{"hello":1}'}, {"key": "plain", "value": "two\nlines"}]
    instance = kit.run(
        "one", metadata={"items": items}, tags={"items": ["door"]}, description="everspot: g2",
        serviceAccounts=[{"email": "default", "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}],
    )  # fmt: skip
    return kit, instance, Metadata(kit, instance["id"])


def test_what_an_instance_knows_of_itself(metadata_rig: Any) -> None:
    _, instance, here = metadata_rig
    for path, expected in {
        "instance/id": instance["id"],
        "instance/name": "one",
        "instance/zone": f"projects/100000000001/zones/{ZONE}",
        "instance/machine-type": "projects/100000000001/machineTypes/g2-standard-4",
        "instance/scheduling/preemptible": "TRUE",
        "instance/scheduling/automatic-restart": "FALSE",
        "instance/preempted": "FALSE",
        "instance/description": "everspot: g2",
        "instance/attributes/everspot-manifest": '{"hello":1}',
        "instance/attributes/": "everspot-manifest\nplain\n",
        "instance/network-interfaces/0/ip": instance["networkInterfaces"][0]["networkIP"],
        "instance/service-accounts/default/email": ACCOUNT,
        "instance/service-accounts/": f"{ACCOUNT}/\ndefault/\n",
        "project/project-id": "everspot-local",
        "project/numeric-project-id": "100000000001",
        "universe/universe-domain": "everspot-local.example",
    }.items():
        assert here.get(path) == expected, path
    whole = json.loads(here.get("instance/?recursive=true"))
    assert whole["id"] == int(instance["id"]) and whole["tags"] == ["door"]
    assert whole["attributes"]["everspot-manifest"] == '{"hello":1}'
    assert whole["machineType"].endswith("g2-standard-4")
    assert whole["networkInterfaces"][0]["ip"] == "10.0.0.2"
    assert whole["serviceAccounts"]["default"]["aliases"] == ["default"]
    assert "token" not in whole["serviceAccounts"]["default"]
    assert json.loads(here.get("instance/name?alt=json")) == "one"


@pytest.mark.parametrize(
    ("path", "headers", "method", "status"),
    [
        ("/computeMetadata/v1/instance/id", {}, "GET", 403),
        ("/computeMetadata/v1/instance/id", {"Metadata-Flavor": "Other"}, "GET", 403),
        ("/computeMetadata/v1/instance/id", {**FLAVOR, "X-Forwarded-For": "10.0.0.9"}, "GET", 403),
        ("/computeMetadata/v1/instance/id", FLAVOR, "POST", 405),
        ("/computeMetadata/v1/instance/attributes/none", FLAVOR, "GET", 404),
        ("/computeMetadata/v1/instance/id/more", FLAVOR, "GET", 404),
        ("/computeMetadata/v1beta1/instance/id", FLAVOR, "GET", 404),
        ("/computeMetadata/v1/instance", FLAVOR, "GET", 301),
        ("/", {}, "GET", 200),
    ],
)
def test_what_is_asked_wrongly_is_refused(metadata_rig: Any, path: str, headers: Any, method: str, status: int) -> None:
    assert metadata_rig[2].send(path, headers, method)[0] == status


def test_an_instance_without_an_account_has_no_token(kit: Any) -> None:
    kit.network()
    here = Metadata(kit, kit.run("two")["id"])
    assert here.send("/computeMetadata/v1/instance/service-accounts/default/token", FLAVOR)[0] == 404


def test_a_preemption_wakes_who_waits_for_it(metadata_rig: Any) -> None:
    kit, instance, here = metadata_rig
    etag = here.send("/computeMetadata/v1/instance/preempted")[2]["ETag"]
    answers: list[tuple[int, str, Any]] = []
    path = f"/computeMetadata/v1/instance/preempted?wait_for_change=true&last_etag={etag}"
    waiting = threading.Thread(target=lambda: answers.append(here.send(path)))
    waiting.start()
    kit.market("interrupt", instance=instance["id"])
    waiting.join(60)
    ((status, body, headers),) = answers
    assert (status, body) == (200, "TRUE") and headers["ETag"] != etag


def test_a_change_that_came_before_is_told_at_once_with_the_last_etag(metadata_rig: Any) -> None:
    kit, instance, here = metadata_rig
    etag = here.send("/computeMetadata/v1/instance/attributes/plain")[2]["ETag"]
    body = {"items": [{"key": "plain", "value": "new"}], "fingerprint": instance["metadata"]["fingerprint"]}
    kit.do("POST", f"zones/{ZONE}/instances/one/setMetadata", body)
    assert here.get(f"instance/attributes/plain?wait_for_change=true&last_etag={etag}") == "new"
    new = here.send("/computeMetadata/v1/instance/attributes/plain")[2]["ETag"]
    assert here.get(f"instance/attributes/plain?wait_for_change=true&last_etag={new}&timeout_sec=0") == "new"


def test_a_deleted_instance_ends_the_wait(metadata_rig: Any) -> None:
    """The waiting request is answered, or refused if it comes too late."""
    kit, _, here = metadata_rig
    outcomes: list[object] = []

    def wait() -> None:
        try:
            outcomes.append(here.send("/computeMetadata/v1/instance/name?wait_for_change=true")[0])
        except OSError:
            outcomes.append("nobody")

    waiting = threading.Thread(target=wait)
    waiting.start()
    kit.do("DELETE", f"zones/{ZONE}/instances/one")
    waiting.join(60)
    assert outcomes in ([404], ["nobody"])


def view_project(kit: Any) -> None:
    """Allow the instances' account to read the project."""
    viewer = {"role": "roles/viewer", "members": [f"serviceAccount:{ACCOUNT}"]}
    assert kit.call("POST", f"{PROJECT}:setIamPolicy", policy(viewer)).status == 200


def test_google_auth_gets_a_token_that_calls_are_made_with(metadata_rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kit, _, here = metadata_rig
    monkeypatch.setenv("GCE_METADATA_HOST", here.address)
    monkeypatch.setattr("google.auth.compute_engine._metadata._GCE_METADATA_HOST", here.address)
    credentials = google.auth.compute_engine.Credentials()
    credentials.refresh(google.auth.transport.requests.Request())
    assert credentials.service_account_email == ACCOUNT
    assert kit.call("GET", "global/networks", token=credentials.token).status == 403  # no access without a binding
    view_project(kit)
    assert kit.until(lambda: kit.call("GET", "global/networks", token=credentials.token).status == 200)
    line = kit.cloud.calls.read()[-1]
    assert line["principal"] == f"serviceAccount:{ACCOUNT}"
    again = json.loads(here.get("instance/service-accounts/default/token"))
    assert again["access_token"] == credentials.token and 3000 < again["expires_in"] <= 3600


def test_google_auth_asks_nobody_beyond_the_local_cloud(metadata_rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kit, _, here = metadata_rig
    monkeypatch.setenv("GCE_METADATA_HOST", here.address)
    monkeypatch.setattr("google.auth.compute_engine._metadata._GCE_METADATA_HOST", here.address)
    urls: list[str] = []
    send = requests.Session.request

    def spy(session: requests.Session, method: str, url: str, **more: Any) -> Any:
        urls.append(url)
        return send(session, method, url, **more)

    monkeypatch.setattr(requests.Session, "request", spy)
    with google.auth.transport.requests.AuthorizedSession(google.auth.compute_engine.Credentials()) as session:
        # As a call in the way of its own: what would be looked up beside a call is looked up before it.
        session.credentials._set_blocking_regional_access_boundary_lookup()
        view_project(kit)
        networks = f"{kit.cloud.endpoint}/compute/v1/projects/everspot-local/global/networks"
        assert kit.until(lambda: session.get(networks).ok)
    assert len(urls) > 2
    assert {url.split("/")[2] for url in urls} == {here.address, kit.cloud.endpoint.removeprefix("http://")}
