"""What a job must not be able to do with the objects of S3: uploads in parts, copies, addresses, versions, lists.

Each attempt is on a key of another job, or on the own key by what is another job's, or by a call that jobs lack.
"""

import os
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape

from attacked_documents import CONTROL, DATA, EPOCH, OWN, VICTIM
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest

MINE = f"jobs/{OWN}/checkpoints/{EPOCH:06d}/parts"
THEIRS = f"jobs/{VICTIM}/secret"
THEIR_UPLOAD = f"jobs/{VICTIM}/checkpoints/000001/large"
PUBLIC = "http://acs.amazonaws.com/groups/global/AllUsers"
TAGS = {"TagSet": [{"Key": "team", "Value": "mine"}]}
Attempts = dict[str, Callable[[], Any]]


def part_attempts(s3: Any) -> Attempts:
    """Return attempts by uploads in parts. The other job has one in progress."""
    foreign = {"Bucket": DATA, "Key": THEIR_UPLOAD, "UploadId": os.environ["ATTACK_UPLOAD"]}
    own = {"Bucket": DATA, "Key": MINE}
    begun = s3.create_multipart_upload(**own)["UploadId"]
    part = s3.upload_part(**own, UploadId=begun, PartNumber=1, Body=b"1")
    whole = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    s3.put_object(**own, Body=b"1")
    return {
        "send a part": lambda: s3.upload_part(**foreign, PartNumber=1, Body=b"1"),
        "copy one's own object into a part": lambda: s3.upload_part_copy(
            **foreign, PartNumber=1, CopySource=f"{DATA}/{MINE}"
        ),
        "complete an upload": lambda: s3.complete_multipart_upload(**foreign, MultipartUpload=whole),
        "list parts": lambda: s3.list_parts(**foreign),
        "list parts of one's own": lambda: s3.list_parts(**own, UploadId=begun),
        "abort an upload": lambda: s3.abort_multipart_upload(**foreign),
        "complete one's own upload as another's key": lambda: s3.complete_multipart_upload(
            **{**foreign, "UploadId": begun}, MultipartUpload=whole
        ),
        "copy another's object into one's own part": lambda: s3.upload_part_copy(
            **own, UploadId=begun, PartNumber=1, CopySource=f"{DATA}/{THEIRS}"
        ),
        "copy a range of it": lambda: s3.upload_part_copy(
            **own, UploadId=begun, PartNumber=1, CopySource=f"{DATA}/{THEIRS}", CopySourceRange="bytes=0-0"
        ),
        "begin with tags": lambda: s3.create_multipart_upload(**own, Tagging="team=mine"),
    }


def borrowed_attempts(s3: Any) -> Attempts:
    """Return attempts to use another job's upload by one's own key: there is no such upload, S3 says."""
    borrowed = {"Bucket": DATA, "Key": MINE, "UploadId": os.environ["ATTACK_UPLOAD"]}
    whole = {"Parts": [{"PartNumber": 1, "ETag": os.environ["ATTACK_PART"]}]}
    return {
        "send a part": lambda: s3.upload_part(**borrowed, PartNumber=1, Body=b"1"),
        "complete": lambda: s3.complete_multipart_upload(**borrowed, MultipartUpload=whole),
        "abort": lambda: s3.abort_multipart_upload(**borrowed),
    }


def copy_attempts(s3: Any) -> Attempts:
    """Return attempts by copies: of what the job may not read, to where it may not write."""
    own = {"Bucket": DATA, "Key": MINE}
    sources = {
        "another's head": f"{CONTROL}/heads/{VICTIM}.json",
        "the cluster": f"{CONTROL}/cluster.json",
        "code": f"{DATA}/{os.environ['ATTACK_CODE']}",
        "a dataset": f"{DATA}/datasets/private/1.json",
        "a log": f"{DATA}/agents/i-1/000000.log",
        "by a slash": f"/{DATA}/{THEIRS}",
        "by a coded name": f"{DATA}/{quote(THEIRS, safe='')}",
        "by a version": f"{DATA}/{THEIRS}?versionId=null",
    }
    return {
        **{
            f"copy {name}": lambda source=source: s3.copy_object(**own, CopySource=source)
            for name, source in sources.items()
        },
        "copy to another's key": lambda: s3.copy_object(Bucket=DATA, Key=THEIRS, CopySource=f"{DATA}/{MINE}"),
        "copy to another's head": lambda: s3.copy_object(
            Bucket=CONTROL, Key=f"heads/{VICTIM}.json", CopySource=f"{DATA}/{MINE}"
        ),
        "copy with an access list": lambda: s3.copy_object(**own, CopySource=f"{DATA}/{MINE}", ACL="private"),
    }


def part_of_object_attempts(s3: Any) -> Attempts:
    """Return attempts on versions, tags and access lists, of another's object and of the own one: jobs have none."""
    attempts: Attempts = {}
    for owner, key in (("another's", THEIRS), ("one's own", MINE)):
        place = {"Bucket": DATA, "Key": key}
        calls: dict[str, tuple[Any, dict[str, Any]]] = {
            "read a version of": (s3.get_object, {"VersionId": "null"}),
            "delete a version of": (s3.delete_object, {"VersionId": "null"}),
            "read the tags of": (s3.get_object_tagging, {}),
            "tag": (s3.put_object_tagging, {"Tagging": TAGS}),
            "take the tags of": (s3.delete_object_tagging, {}),
            "read the access list of": (s3.get_object_acl, {}),
            "open to everybody": (s3.put_object_acl, {"ACL": "public-read"}),
            "grant to everybody": (s3.put_object_acl, {"GrantRead": f"uri={PUBLIC}"}),
            "read the attributes of": (s3.get_object_attributes, {"ObjectAttributes": ["ETag"]}),
            "keep for ever": (
                s3.put_object_retention,
                {"Retention": {"Mode": "COMPLIANCE", "RetainUntilDate": "2099-01-01T00:00:00Z"}},
            ),
            "hold": (s3.put_object_legal_hold, {"LegalHold": {"Status": "ON"}}),
            "write with tags": (s3.put_object, {"Body": b"1", "Tagging": "team=mine"}),
            "write with an access list": (s3.put_object, {"Body": b"1", "ACL": "bucket-owner-full-control"}),
        }
        for name, (call, more) in calls.items():
            attempts[f"{name} {owner}"] = lambda call=call, more=more, place=place: call(**place, **more)
    return attempts


def bucket_attempts(s3: Any) -> Attempts:
    """Return attempts on names and on settings of whole buckets."""
    rule = {"ID": "all", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 1}}
    deletion = {"Objects": [{"Key": THEIRS, "VersionId": "null"}]}
    data = {"Bucket": DATA}
    return {
        "list by the older call": lambda: s3.list_objects(**data, Prefix=f"jobs/{VICTIM}/"),
        "list folders": lambda: s3.list_objects_v2(**data, Delimiter="/"),
        "list from a key on": lambda: s3.list_objects_v2(**data, StartAfter=f"jobs/{OWN}/"),
        "list names that begin as one's own": lambda: s3.list_objects_v2(**data, Prefix=f"jobs/{OWN}"),
        "list a pattern": lambda: s3.list_objects_v2(**data, Prefix="jobs/*/"),
        "list another's checkpoints": lambda: s3.list_objects_v2(**data, Prefix=f"jobs/{VICTIM}/checkpoints/"),
        "list heads": lambda: s3.list_objects_v2(Bucket=CONTROL, Prefix="heads/"),
        "list versions of another": lambda: s3.list_object_versions(**data, Prefix=f"jobs/{VICTIM}/"),
        "list one's own uploads": lambda: s3.list_multipart_uploads(**data, Prefix=f"jobs/{OWN}/"),
        "delete versions": lambda: s3.delete_objects(**data, Delete=deletion),
        "expire everything": lambda: s3.put_bucket_lifecycle_configuration(
            **data, LifecycleConfiguration={"Rules": [rule]}
        ),
        "open the bucket": lambda: s3.delete_public_access_block(**data),
        "write its access list": lambda: s3.put_bucket_acl(**data, ACL="private"),
        "read its access list": lambda: s3.get_bucket_acl(**data),
        "turn access lists on": lambda: s3.put_bucket_ownership_controls(
            **data, OwnershipControls={"Rules": [{"ObjectOwnership": "ObjectWriter"}]}
        ),
        "tag the bucket": lambda: s3.put_bucket_tagging(**data, Tagging=TAGS),
        "delete the bucket": lambda: s3.delete_bucket(**data),
    }


def address_attempts(s3: Any) -> Attempts:
    """Return attempts by addresses that the job signs, for itself or for others outside."""
    upload = os.environ["ATTACK_UPLOAD"]
    calls: dict[str, tuple[str, str, dict[str, Any]]] = {
        "read": ("GET", "get_object", {"Bucket": DATA, "Key": THEIRS}),
        "read a head": ("GET", "get_object", {"Bucket": CONTROL, "Key": f"heads/{VICTIM}.json"}),
        "write": ("PUT", "put_object", {"Bucket": DATA, "Key": THEIRS}),
        "write a head": ("PUT", "put_object", {"Bucket": CONTROL, "Key": f"heads/{VICTIM}.json"}),
        "delete": ("DELETE", "delete_object", {"Bucket": DATA, "Key": THEIRS}),
        "send a part": (
            "PUT", "upload_part", {"Bucket": DATA, "Key": THEIR_UPLOAD, "UploadId": upload, "PartNumber": 1},
        ),
        "list": ("GET", "list_objects_v2", {"Bucket": DATA, "Prefix": f"jobs/{VICTIM}/"}),
    }  # fmt: skip
    return {
        **{
            f"{name} by a presigned address": lambda verb=verb, call=call, params=params: _send(
                verb, s3.generate_presigned_url(call, Params=params)
            )
            for name, (verb, call, params) in calls.items()
        },
        "write by a presigned form": lambda: _post(s3.generate_presigned_post(DATA, THEIRS)),
        "change the key of a presigned address": lambda: _send(
            "GET",
            s3.generate_presigned_url("get_object", Params={"Bucket": DATA, "Key": MINE}).replace(MINE, THEIRS),
        ),
    }


def raw_attempts(credentials: Any, endpoint: str) -> Attempts:
    """Return attempts by requests that no client library sends: names in another case, twice, or in other words."""

    def send(verb: str, path: str, body: bytes = b"") -> Callable[[], Any]:
        request = AWSRequest(verb, f"{endpoint}/{path}", data=body, headers={"Content-Type": "binary/octet-stream"})
        S3SigV4Auth(credentials, "s3", os.environ.get("AWS_REGION", "eu-west-1")).add_auth(request)
        return lambda: _send(verb, request.url, body, dict(request.headers))

    own, foreign = quote(f"jobs/{OWN}/", safe=""), quote(f"jobs/{VICTIM}/", safe="")
    key = f"<![CDATA[{THEIRS}]]>"
    return {
        "list by a parameter in another case": send("GET", f"{DATA}?list-type=2&Prefix={own}"),
        "list by two prefixes": send("GET", f"{DATA}?list-type=2&prefix={foreign}&prefix={own}"),
        "delete by a key with an attribute": send(
            "POST", f"{DATA}?delete", f'<Delete><Object><Key a="b">{escape(THEIRS)}</Key></Object></Delete>'.encode()
        ),
        "delete by a key in other words": send(
            "POST", f"{DATA}?delete", f"<Delete><Object><Key>{key}</Key></Object></Delete>".encode()
        ),
        "read by a climbing name": send("GET", f"{DATA}/jobs/{OWN}/../{VICTIM}/secret"),
        "write by a climbing name": send("PUT", f"{DATA}/jobs/{OWN}/checkpoints/../../{VICTIM}/secret", b"1"),
    }


def _send(verb: str, url: str, body: bytes = b"", headers: dict[str, str] | None = None) -> str:
    data = body if verb in ("PUT", "POST") else None
    request = urllib.request.Request(url, data=data, method=verb, headers=headers or {})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode())


def _post(form: dict[str, Any]) -> str:
    fields = {**form["fields"], "file": "1"}
    parts = (f'--b\r\nContent-Disposition: form-data; name="{n}"\r\n\r\n{v}\r\n' for n, v in fields.items())
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    return _send("POST", form["url"], ("".join(parts) + "--b--\r\n").encode(), headers)
