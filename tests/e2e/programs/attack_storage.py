"""What a job must not be able to do with the objects of Cloud Storage: uploads in parts, sessions, copies, addresses.

Each attempt is on a key of another job, or on the own key by what is another job's, or by a call that jobs lack.
"""

import base64
import os
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import quote

import requests
from attacked_documents import CONTROL, DATA, EPOCH, OWN, VICTIM

MINE = f"jobs/{OWN}/checkpoints/{EPOCH:06d}/parts"
THEIRS = f"jobs/{VICTIM}/secret"
THEIR_UPLOAD = f"jobs/{VICTIM}/checkpoints/000001/large"
AGENT = "e2e-agent@everspot-local.iam.gserviceaccount.com"
ACCOUNTS = f"iamcredentials/v1/projects/-/serviceAccounts/{AGENT}"
OBJECTS = f"storage/v1/b/{DATA}/o"
INSERT = f"upload/storage/v1/b/{DATA}/o?uploadType="
WHOLE = b"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber></Part></CompleteMultipartUpload>"
EVERYBODY = {"entity": "allUsers", "role": "READER"}
Attempts = dict[str, Callable[[], requests.Response]]


class Sender(Protocol):
    """Requests with one token: see `attack_google.Google`."""

    def send(self, verb: str, path: str, body: Any = None, **headers: str) -> requests.Response:
        """Send JSON, or bytes as they are."""
        ...

    def xml(self, verb: str, bucket: str, key: str, body: bytes = b"", **headers: str) -> requests.Response:
        """Use the XML API."""
        ...

    def json(self, verb: str, bucket: str, key: str, suffix: str = "", body: Any = None) -> requests.Response:
        """Use the JSON API on an object."""
        ...


def part_attempts(google: Sender) -> Attempts:
    """Return attempts by uploads in parts of the XML API. The other job has one in progress."""
    foreign = f"xml/{DATA}/{THEIR_UPLOAD}?uploadId={os.environ['ATTACK_UPLOAD']}"
    begun = google.send("POST", f"xml/{DATA}/{MINE}?uploads").text
    own = begun.partition("<UploadId>")[2].partition("</UploadId>")[0]
    return {
        "send": lambda: google.send("PUT", f"{foreign}&partNumber=1", b"1"),
        "complete": lambda: google.send("POST", foreign, WHOLE),
        "list": lambda: google.send("GET", foreign),
        "abort": lambda: google.send("DELETE", foreign),
        "complete one's own as another's key": lambda: google.send(
            "POST", f"xml/{DATA}/{THEIR_UPLOAD}?uploadId={own}", WHOLE
        ),
        "list uploads": lambda: google.send("GET", f"xml/{DATA}?uploads"),
        "list another's uploads": lambda: google.send("GET", f"xml/{DATA}?uploads&prefix=jobs/{VICTIM}/"),
    }


def borrowed_attempts(google: Sender) -> Attempts:
    """Return attempts to use another job's upload by one's own key: there is no such upload, Cloud Storage says."""
    borrowed = f"xml/{DATA}/{MINE}?uploadId={os.environ['ATTACK_UPLOAD']}"
    return {
        "send": lambda: google.send("PUT", f"{borrowed}&partNumber=1", b"1"),
        "complete": lambda: google.send("POST", borrowed, WHOLE),
        "abort": lambda: google.send("DELETE", borrowed),
    }


def copy_attempts(google: Sender) -> Attempts:
    """Return attempts by copies: of what the job may not read, to where it may not write."""
    google.xml("PUT", DATA, MINE, b"1")
    sources = {
        "another's checkpoint": (DATA, THEIRS),
        "another's head": (CONTROL, f"heads/{VICTIM}.json"),
        "the cluster": (CONTROL, "cluster.json"),
        "code": (DATA, os.environ["ATTACK_CODE"]),
        "a dataset": (DATA, "datasets/private/1.json"),
        "a log": (DATA, "agents/i-1/000000.log"),
    }
    place = f"b/{DATA}/o/{quote(f'{MINE}-copy', safe='')}"
    attempts: Attempts = {}
    for name, (bucket, key) in sources.items():
        for way in ("rewriteTo", "copyTo"):
            attempts[f"{way} {name}"] = lambda way=way, bucket=bucket, key=key: google.json(
                "POST", bucket, key, f"/{way}/{place}", {}
            )
        source = f"/{bucket}/{quote(key)}"
        attempts[f"by XML {name}"] = lambda source=source: google.xml(
            "PUT", DATA, f"{MINE}-copy", **{"x-goog-copy-source": source}
        )
    foreign, head = quote(THEIRS, safe=""), quote(f"heads/{VICTIM}.json", safe="")
    sources_of_both = {"sourceObjects": [{"name": MINE}, {"name": THEIRS, "generation": "1"}]}
    return {
        **attempts,
        "a version": lambda: google.json("POST", DATA, THEIRS, f"/rewriteTo/{place}?sourceGeneration=1", {}),
        "to another's checkpoint": lambda: google.json("POST", DATA, MINE, f"/rewriteTo/b/{DATA}/o/{foreign}", {}),
        "to another's head": lambda: google.json("POST", DATA, MINE, f"/rewriteTo/b/{CONTROL}/o/{head}", {}),
        "to a further bucket": lambda: google.json("POST", DATA, MINE, "/rewriteTo/b/e2e-shared/o/corpus", {}),
        "to another's checkpoint by XML": lambda: google.xml(
            "PUT", DATA, THEIRS, **{"x-goog-copy-source": f"/{DATA}/{MINE}"}
        ),
        "compose both": lambda: google.json("POST", DATA, f"{MINE}-copy", "/compose", sources_of_both),
        "compose a head of one's own": lambda: google.send(
            "POST", f"storage/v1/b/{CONTROL}/o/{head}/compose", {"sourceObjects": [{"name": f"heads/{OWN}.json"}]}
        ),
    }


def session_attempts(google: Sender) -> Attempts:
    """Return attempts to begin sessions of uploads on keys of others, by each way to name one."""
    foreign = quote(THEIRS, safe="")
    related = (
        f'--b\r\nContent-Type: application/json\r\n\r\n{{"name": "{THEIRS}"}}\r\n'
        "--b\r\nContent-Type: text/plain\r\n\r\n1\r\n--b--"
    )
    kind = {"Content-Type": "multipart/related; boundary=b"}
    return {
        "by a parameter": lambda: google.send("POST", f"{INSERT}resumable&name={foreign}", {}),
        "by its metadata": lambda: google.send("POST", f"{INSERT}resumable", {"name": THEIRS}),
        "by a parameter against its metadata": lambda: google.send(
            "POST", f"{INSERT}resumable&name={foreign}", {"name": MINE}
        ),
        "of the control bucket": lambda: google.send(
            "POST", f"upload/storage/v1/b/{CONTROL}/o?uploadType=resumable", {"name": f"heads/{VICTIM}.json"}
        ),
        "by XML": lambda: google.send("POST", f"xml/{DATA}/{THEIRS}", b"", **{"x-goog-resumable": "start"}),
        "in parts of one body": lambda: google.send("POST", f"{INSERT}multipart", related.encode(), **kind),
        "at once": lambda: google.send("POST", f"{INSERT}media&name={foreign}", b"1"),
    }


def object_attempts(google: Sender) -> Attempts:
    """Return attempts on versions, metadata and holds of another's object."""
    return {
        "read a version": lambda: google.json("GET", DATA, THEIRS, "?alt=media&generation=1"),
        "read a version by XML": lambda: google.send("GET", f"xml/{DATA}/{THEIRS}?generation=1"),
        "delete a version": lambda: google.json("DELETE", DATA, THEIRS, "?generation=1"),
        "restore": lambda: google.json("POST", DATA, THEIRS, "/restore?generation=1"),
        "hold": lambda: google.json("PATCH", DATA, THEIRS, body={"eventBasedHold": True}),
        "keep for ever": lambda: google.json(
            "PATCH", DATA, THEIRS, body={"retention": {"mode": "Locked", "retainUntilTime": "2099-01-01T00:00:00Z"}}
        ),
        "open to everybody": lambda: google.json("PATCH", DATA, THEIRS, body={"acl": [EVERYBODY]}),
        "write with an access list": lambda: google.xml("PUT", DATA, THEIRS, b"1", **{"x-goog-acl": "public-read"}),
        "read its access list by XML": lambda: google.send("GET", f"xml/{DATA}/{THEIRS}?acl"),
        "write its access list by XML": lambda: google.send("PUT", f"xml/{DATA}/{THEIRS}?acl", b"<AccessControlList/>"),
    }


def bucket_attempts(google: Sender) -> Attempts:
    """Return attempts on settings of whole buckets."""
    bucket = f"storage/v1/b/{DATA}"
    rule = {"action": {"type": "Delete"}, "condition": {"age": 0}}
    return {
        "expire everything": lambda: google.send("PATCH", bucket, {"lifecycle": {"rule": [rule]}}),
        "turn access lists on": lambda: google.send(
            "PATCH", bucket, {"iamConfiguration": {"uniformBucketLevelAccess": {"enabled": False}}}
        ),
        "lock": lambda: google.send("POST", f"{bucket}/lockRetentionPolicy?ifMetagenerationMatch=1"),
        "make": lambda: google.send("POST", "storage/v1/b?project=everspot-local", {"name": "everspot-loot"}),
    }


def name_attempts(google: Sender) -> Attempts:
    """Return attempts to list or reach others' keys by names that are written otherwise."""
    own, foreign = quote(f"jobs/{OWN}/", safe=""), quote(f"jobs/{VICTIM}/", safe="")
    return {
        "list folders": lambda: google.send("GET", f"{OBJECTS}?delimiter=/"),
        "list by two prefixes": lambda: google.send("GET", f"{OBJECTS}?prefix={own}&prefix={foreign}"),
        "list a pattern": lambda: google.send("GET", f"{OBJECTS}?matchGlob=jobs/{VICTIM}/**"),
        "list from a name on": lambda: google.send("GET", f"{OBJECTS}?startOffset={foreign}"),
        "list names that begin as one's own": lambda: google.send("GET", f"{OBJECTS}?prefix=jobs/{OWN}"),
        "list heads": lambda: google.send("GET", f"storage/v1/b/{CONTROL}/o?prefix=heads/"),
        "list another by XML": lambda: google.send("GET", f"xml/{DATA}?prefix=jobs/{VICTIM}/"),
        "upload by two names": lambda: google.send("POST", f"{INSERT}media&name={own}&name={foreign}x", b"1"),
        "write by a climbing name": lambda: google.send(
            "PUT", f"xml/{DATA}/jobs/{OWN}/checkpoints/%2E%2E/%2E%2E/{VICTIM}/secret", b"1"
        ),
    }


def address_attempts(endpoint: str) -> Attempts:
    """Return attempts by addresses with a signature that nobody made, and without any."""
    signed = f"X-Goog-Algorithm=GOOG4-RSA-SHA256&X-Goog-Credential={quote(AGENT)}%2F20260101%2Fauto%2Fstorage%2F"
    signed += "goog4_request&X-Goog-Date=20260101T000000Z&X-Goog-Expires=604800&X-Goog-SignedHeaders=host"
    signed += f"&X-Goog-Signature={'00' * 256}"
    place = f"{endpoint}/xml/{DATA}/{THEIRS}"

    def send(verb: str, url: str, **more: Any) -> Callable[[], requests.Response]:
        return lambda: requests.request(verb, url, timeout=60, **more)

    return {
        "read by a made-up signature": send("GET", f"{place}?{signed}"),
        "write by a made-up signature": send("PUT", f"{place}?{signed}", data=b"1"),
        "read without a token": send("GET", place),
        "read by JSON without a token": send("GET", f"{endpoint}/{OBJECTS}/{quote(THEIRS, safe='')}?alt=media"),
    }


def unserved_objects(google: Sender) -> Attempts:
    """Return what the local cloud does not have, and refuses for that."""
    foreign, own = quote(THEIRS, safe=""), quote(MINE, safe="")
    inner = f"GET /{OBJECTS}/{foreign}?alt=media HTTP/1.1\r\n\r\n"
    batch = f"--b\r\nContent-Type: application/http\r\nContent-ID: <1>\r\n\r\n{inner}\r\n--b--"
    blob = {"payload": base64.b64encode(b"GOOG4-RSA-SHA256").decode()}
    topic = {"topic": "//pubsub.googleapis.com/projects/everspot-local/topics/e2e", "payload_format": "NONE"}
    return {
        "a batch": lambda: google.send(
            "POST", "batch/storage/v1", batch.encode(), **{"Content-Type": "multipart/mixed; boundary=b"}
        ),
        "move another's checkpoint": lambda: google.json("POST", DATA, THEIRS, f"/moveTo/o/{own}"),
        "move to another's checkpoint": lambda: google.json("POST", DATA, MINE, f"/moveTo/o/{foreign}"),
        "read an access list": lambda: google.json("GET", DATA, THEIRS, "/acl"),
        "open another's checkpoint": lambda: google.json("POST", DATA, THEIRS, "/acl", EVERYBODY),
        "open one's own": lambda: google.json("POST", DATA, MINE, "/acl", EVERYBODY),
        "open the bucket": lambda: google.send("POST", f"storage/v1/b/{DATA}/acl", EVERYBODY),
        "open what comes": lambda: google.send("POST", f"storage/v1/b/{DATA}/defaultObjectAcl", EVERYBODY),
        "grant a folder": lambda: google.send("POST", f"storage/v1/b/{DATA}/managedFolders", {"name": "jobs/"}),
        "hear of objects": lambda: google.send("POST", f"storage/v1/b/{DATA}/notificationConfigs", topic),
        "make keys that last": lambda: google.send(
            "POST", f"storage/v1/projects/everspot-local/hmacKeys?serviceAccountEmail={AGENT}"
        ),
        "sign bytes": lambda: google.send("POST", f"{ACCOUNTS}:signBlob", blob),
        "sign a token": lambda: google.send("POST", f"{ACCOUNTS}:signJwt", {"payload": "{}"}),
        "get an identity": lambda: google.send("POST", f"{ACCOUNTS}:generateIdToken", {"audience": "x"}),
        "restore everything": lambda: google.send("POST", f"{OBJECTS}/bulkRestore", {}),
    }
