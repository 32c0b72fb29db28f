"""A job's program on Google Cloud that tries to do more than its job, with the token that any program of the job finds.

It writes what each attempt was answered to ATTACK_OUT, and keeps running until a file beside that lets it end, so that
a test can take its token while it is served.
"""

import base64
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import google.auth
import requests
from attack_storage import (
    address_attempts,
    borrowed_attempts,
    bucket_attempts,
    copy_attempts,
    name_attempts,
    object_attempts,
    part_attempts,
    session_attempts,
    unserved_objects,
)
from attacked_documents import CONTROL, DATA, EPOCH, OWN, VICTIM, WRITES
from google.auth.transport.requests import Request

CLOUD = os.environ["EVERSPOT_GCP_ENDPOINT"]
PROJECT = "projects/everspot-local"
MINE = f"jobs/{OWN}/checkpoints/{EPOCH:06d}/mine"
THEIRS = f"jobs/{VICTIM}/secret"
AGENT = "e2e-agent@everspot-local.iam.gserviceaccount.com"
RESUMABLE = f"upload/storage/v1/b/{DATA}/o?uploadType=resumable"
Call = Callable[[], requests.Response]


class Google:
    """Requests with one token."""

    def __init__(self, token: str) -> None:
        self._headers = {"Authorization": f"Bearer {token}"}

    def send(self, verb: str, path: str, body: Any = None, **headers: str) -> requests.Response:
        """Send JSON, or bytes as they are."""
        content = {"data": body} if isinstance(body, bytes) else {"json": body}
        return requests.request(verb, f"{CLOUD}/{path}", headers={**self._headers, **headers}, timeout=60, **content)

    def xml(self, verb: str, bucket: str, key: str, body: bytes = b"", **headers: str) -> requests.Response:
        """Use Cloud Storage's XML API, which the store's client uses."""
        return self.send(verb, f"xml/{bucket}/{quote(key)}", body, **headers)

    def json(self, verb: str, bucket: str, key: str, suffix: str = "", body: Any = None) -> requests.Response:
        """Use Cloud Storage's JSON API on an object."""
        return self.send(verb, f"storage/v1/b/{bucket}/o/{quote(key, safe='')}{suffix}", body)

    def list(self, bucket: str, **query: str) -> requests.Response:
        """List objects by the JSON API."""
        words = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        return self.send("GET", f"storage/v1/b/{bucket}/o?{words}")


def storage_attempts(google: Google) -> dict[str, Call]:
    """Return what a job must not be able to do with objects, by name."""
    instance = {"instance_id": "i-0123456789abcdef0", "instance_type": "a3-highgpu-8g", "state": "idle"}
    phantom = json.dumps(instance).encode()
    reads = {
        "read another job's head": (CONTROL, f"heads/{VICTIM}.json"),
        "read another job": (CONTROL, f"jobs/{VICTIM}.json"),
        "read a record": (CONTROL, f"records/{VICTIM}.json"),
        "read the cluster": (CONTROL, "cluster.json"),
        "read another job's checkpoint": (DATA, THEIRS),
        "read code of others": (DATA, os.environ["ATTACK_CODE"]),
        "read a dataset that it does not name": (DATA, "datasets/private/1.json"),
        "read an agent's log": (DATA, "agents/i-1/000000.log"),
    }
    sources = {"sourceObjects": [{"name": THEIRS}], "destination": {"contentType": "text/plain"}}
    own_sources = {"sourceObjects": [{"name": MINE}]}
    return {
        **{name: lambda key=key: google.xml("PUT", CONTROL, key, b"{}") for name, key in WRITES.items()},
        **{name: lambda place=place: google.xml("GET", *place) for name, place in reads.items()},
        "write a phantom instance": lambda: google.xml("PUT", CONTROL, f"instances/{instance['instance_id']}", phantom),
        "write a phantom instance by JSON": lambda: google.send(
            "POST", f"upload/storage/v1/b/{CONTROL}/o?uploadType=media&name=instances%2Fphantom.json", phantom
        ),
        "read another job's checkpoint by JSON": lambda: google.json("GET", DATA, THEIRS, "?alt=media"),
        "read what is known of another job's checkpoint": lambda: google.json("GET", DATA, THEIRS),
        "change another job's checkpoint": lambda: google.json("PATCH", DATA, THEIRS, body={"metadata": {"a": "b"}}),
        "write another job's checkpoint": lambda: google.xml("PUT", DATA, f"jobs/{VICTIM}/checkpoints/000001/x", b"1"),
        "delete another job's checkpoint": lambda: google.xml("DELETE", DATA, THEIRS),
        "delete another job's checkpoint by JSON": lambda: google.json("DELETE", DATA, THEIRS),
        "delete another job's head": lambda: google.xml("DELETE", CONTROL, f"heads/{VICTIM}.json"),
        "begin a resumable upload": lambda: google.send("POST", f"{RESUMABLE}&name={quote(THEIRS, safe='')}", {}),
        "name another job's checkpoint in an upload": lambda: google.send("POST", RESUMABLE, {"name": f"{THEIRS}-too"}),
        "upload in parts": lambda: google.send("POST", f"xml/{DATA}/jobs/{VICTIM}/checkpoints/000001/x?uploads"),
        "compose another job's checkpoint into one's own": lambda: google.json("POST", DATA, MINE, "/compose", sources),
        "compose into another job's checkpoint": lambda: google.json("POST", DATA, THEIRS, "/compose", own_sources),
        "list the control bucket": lambda: google.list(CONTROL),
        "list instances": lambda: google.list(CONTROL, prefix="instances/"),
        "list all data": lambda: google.list(DATA),
        "list another job": lambda: google.list(DATA, prefix=f"jobs/{VICTIM}/"),
        "list all jobs": lambda: google.list(DATA, prefix="jobs/"),
        "list the files of datasets": lambda: google.list(DATA, prefix="datasets/_files/"),
        "list code": lambda: google.list(DATA, prefix="code/"),
        "list deleted objects": lambda: google.list(DATA, softDeleted="true"),
        "list versions of another job": lambda: google.list(DATA, versions="true", prefix=f"jobs/{VICTIM}/"),
        "list by XML": lambda: google.send("GET", f"xml/{DATA}?list-type=2&prefix=jobs/"),
        "write checkpoints of another attempt": lambda: google.xml(
            "PUT", DATA, f"jobs/{OWN}/checkpoints/000009/x", b"1"
        ),
        "write outputs": lambda: google.xml("PUT", DATA, f"jobs/{OWN}/outputs/000001/x", b"1"),
        "delete one's own log": lambda: google.xml("DELETE", DATA, f"jobs/{OWN}/logs/000001/000000.log"),
        "replace code of others": lambda: google.xml("PUT", DATA, os.environ["ATTACK_CODE"], b"1"),
        "write to a further bucket": lambda: google.xml("PUT", "e2e-shared", "corpus", b"1"),
        "list buckets": lambda: google.send("GET", "storage/v1/b?project=everspot-local"),
        "read a bucket's settings": lambda: google.send("GET", f"storage/v1/b/{DATA}"),
        "read a bucket's policy": lambda: google.send("GET", f"storage/v1/b/{DATA}/iam"),
        "replace a bucket's policy": lambda: google.send(
            "PUT",
            f"storage/v1/b/{DATA}/iam",
            {"bindings": [{"role": "roles/storage.admin", "members": ["allUsers"]}]},
        ),
        "delete a bucket": lambda: google.send("DELETE", f"storage/v1/b/{DATA}"),
    }


def other_attempts(google: Google) -> dict[str, Call]:
    """Return what a job must not be able to do with other services, by name."""
    signed = {"scope": ["https://www.googleapis.com/auth/cloud-platform"]}
    account = f"iamcredentials/v1/projects/-/serviceAccounts/{AGENT}"
    zone = f"compute/v1/{PROJECT}/zones/europe-west4-a"
    message = {"messages": [{"data": base64.b64encode(b"{}").decode()}]}
    return {
        "see instances": lambda: google.send("GET", f"compute/v1/{PROJECT}/aggregated/instances"),
        "launch an instance": lambda: google.send("POST", f"{zone}/instances", {"name": "e2e-agent-9"}),
        "delete an instance": lambda: google.send("DELETE", f"{zone}/instances/scheduler"),
        "read a secret": lambda: google.send(
            "GET", f"secretmanager/v1/{PROJECT}/secrets/api-key/versions/latest:access"
        ),
        "list secrets": lambda: google.send("GET", f"secretmanager/v1/{PROJECT}/secrets"),
        "become the agents' account": lambda: google.send("POST", f"{account}:generateAccessToken", signed),
        "widen the role": lambda: google.send(
            "PATCH", f"iam/v1/{PROJECT}/roles/jobs", {"includedPermissions": ["storage.objects.create"]}
        ),
        "replace the project's policy": lambda: google.send(
            "POST", f"resourcemanager/v1/{PROJECT}:setIamPolicy", {"policy": {"bindings": []}}
        ),
        "take the scheduler's messages": lambda: google.send(
            "POST", f"pubsub/v1/{PROJECT}/subscriptions/e2e:pull", {"maxMessages": 1}
        ),
        "send the scheduler a message": lambda: google.send("POST", f"pubsub/v1/{PROJECT}/topics/e2e:publish", message),
        "read the log's sinks": lambda: google.send("GET", f"logging/v2/{PROJECT}/sinks"),
    }


def unserved_attempts(google: Google) -> dict[str, Call]:
    """Return what the local cloud does not have, and refuses for that."""
    return {
        "change the project's metadata": lambda: google.send(
            "POST", f"compute/v1/{PROJECT}/setCommonInstanceMetadata", {"items": []}
        ),
        "make a key": lambda: google.send("POST", f"iam/v1/{PROJECT}/serviceAccounts/{AGENT}/keys", {}),
    }


def status(call: Call) -> str:
    """Return the answer to a call; one that is told to slow down is made again, a bounded number of times."""
    for _ in range(20):
        if (answer := call()).status_code != 429:
            break
        time.sleep(0.5)
    return str(answer.status_code)


def served(path: str, place: str) -> str:
    """Return how the agent's endpoint answers for a path of the metadata server, below a place."""
    url = f"http://{place}/computeMetadata/v1/{path}"
    return str(requests.get(url, headers={"Metadata-Flavor": "Google"}, timeout=30).status_code)


def exchange(token: str) -> str:
    """Return how the Security Token Service answers who wants a wider token for this one."""
    bucket = f"//storage.googleapis.com/projects/_/buckets/{DATA}"
    rules = [{"availableResource": bucket, "availablePermissions": ["inRole:roles/storage.objectAdmin"]}]
    kind = "urn:ietf:params:oauth:token-type:access_token"
    form = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange", "subject_token": token,
        "subject_token_type": kind, "requested_token_type": kind,
        "options": quote(json.dumps({"accessBoundary": {"accessBoundaryRules": rules}})),
    }  # fmt: skip
    return str(requests.post(f"{CLOUD}/sts/v1/token", data=form, timeout=30).status_code)


def main() -> None:
    """Try everything, and wait for the end."""
    credentials, project = google.auth.default()
    credentials.refresh(Request())
    job = Google(credentials.token)
    calls: dict[str, Call] = {
        "write own checkpoint": lambda: job.xml("PUT", DATA, MINE, b"1"),
        "write it again": lambda: job.xml("PUT", DATA, MINE, b"2"),
        "read own checkpoint": lambda: job.xml("GET", DATA, MINE),
        "list own keys": lambda: job.list(DATA, prefix=f"jobs/{OWN}/"),
        "read own head": lambda: job.xml("GET", CONTROL, f"heads/{OWN}.json"),
        "upload by JSON": lambda: job.send(
            "POST", f"upload/storage/v1/b/{DATA}/o?uploadType=media&name={quote(MINE + '2', safe='')}", b"3"
        ),
        "begin a resumable upload": lambda: job.send("POST", f"{RESUMABLE}&name={quote(MINE + '3', safe='')}", {}),
        "read a further bucket": lambda: job.xml("GET", "e2e-shared", "corpus"),
    }
    allowed = {name: status(call) for name, call in calls.items()}
    objects = {
        "part": part_attempts(job), "copy": copy_attempts(job), "session": session_attempts(job),
        "object": object_attempts(job), "bucket": bucket_attempts(job), "name": name_attempts(job),
    }  # fmt: skip
    attempts = {**storage_attempts(job), **other_attempts(job)}
    attempts |= {f"{kind}: {name}": call for kind, calls in objects.items() for name, call in calls.items()}
    refused = {name: status(call) for name, call in attempts.items()}
    borrowed = {name: status(call) for name, call in borrowed_attempts(job).items()}
    addresses = {name: status(call) for name, call in address_attempts(CLOUD).items()}
    unserved = {name: status(call) for name, call in {**unserved_attempts(job), **unserved_objects(job)}.items()}
    allowed["delete own checkpoint"] = status(lambda: job.xml("DELETE", DATA, MINE))
    address, _, secret = os.environ["GCE_METADATA_HOST"].partition("/")
    token, own = "instance/service-accounts/default/token", os.environ["GCE_METADATA_HOST"]
    result = {
        "identity": credentials.service_account_email,  # type: ignore[attr-defined]
        "project": project,
        "allowed": allowed,
        "refused": refused,
        "unserved": unserved,
        "borrowed": borrowed,
        "addresses": addresses,
        "endpoint": {
            "without": served(token, address),
            "with another": served(token, f"{address}/{secret[:-1]}~"),
            "with its own": served(token, own),
            "the agents' identity": served("instance/service-accounts/default/identity?audience=x", own),
            "the user data": served("instance/attributes/everspot-manifest", own),
            "another account": served("instance/service-accounts/other@example.com/token", own),
        },
        "exchange": exchange(credentials.token),
        "epoch": EPOCH,
        "token": credentials.token,
        "api key": os.environ.get("API_KEY"),
        "dataset": (Path(os.environ["EVERSPOT_DATA"]) / "corpus" / "words.txt").read_text(),
        "variables": sorted(name for name in os.environ if name.startswith(("GOOGLE_", "CLOUDSDK_"))),
    }
    out = Path(os.environ["ATTACK_OUT"])
    out.with_suffix(".part").write_text(json.dumps(result))
    out.with_suffix(".part").rename(out)
    while not out.with_suffix(".end").exists():
        time.sleep(0.2)


if __name__ == "__main__":
    main()
