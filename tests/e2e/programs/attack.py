"""A job's program that tries to do more than its job, with the credentials that any program of the job finds.

It writes what each attempt was answered to ATTACK_OUT, and keeps running until a file beside that lets it end, so that
a test can take its credentials while they are served.
"""

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attack_s3
import boto3
from attacked_documents import CONTROL, DATA, EPOCH, OWN, VICTIM, WRITES
from botocore.exceptions import ClientError

OPEN = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"AWS": "123456789012"},
            "Action": "s3:*",
            "Resource": f"arn:aws:s3:::{DATA}/*",
        }
    ],
}
ROLES = "arn:aws:iam::123456789012:role/"


def code(call: Callable[[], Any]) -> str:
    """Return the answer's code; `allowed` if it is no refusal. A call that is to slow down is made again, a bounded
    number of times, as a client library does it."""
    for _ in range(10):
        if (answer := _answer(call)) != "SlowDown":
            break
        time.sleep(0.2)
    return answer


def _answer(call: Callable[[], Any]) -> str:
    try:
        answer = call()
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    except urllib.error.HTTPError as error:
        with error:
            return _named(error.read().decode()) or str(error.code)
    if isinstance(answer, str):
        return _named(answer) or "allowed"
    errors = answer.get("Errors") if isinstance(answer, dict) else None
    return errors[0]["Code"] if errors else "allowed"


def _named(text: str) -> str:
    """Return the code in an answer of S3's."""
    return text.partition("<Code>")[2].partition("</Code>")[0]


def attempts(s3: Any, sts: Any, ec2: Any, iam: Any) -> dict[str, Callable[[], Any]]:
    """Return what a job must not be able to do, by name."""
    upload = {"Bucket": DATA, "Key": f"jobs/{VICTIM}/checkpoints/000001/x"}
    instance = {"instance_id": "i-0123456789abcdef0", "instance_type": "p5.48xlarge", "state": "idle"}
    put, get, delete, listing = s3.put_object, s3.get_object, s3.delete_object, s3.list_objects_v2

    def document(name: str) -> Callable[[], Any]:
        return lambda: put(Bucket=CONTROL, Key=name, Body=b"{}")

    reads = {
        "read another job's head": f"heads/{VICTIM}.json",
        "read another job": f"jobs/{VICTIM}.json",
        "read a record": f"records/{VICTIM}.json",
        "read the cluster": "cluster.json",
    }
    return {
        **{name: document(key) for name, key in WRITES.items()},
        **{name: lambda key=key: get(Bucket=CONTROL, Key=key) for name, key in reads.items()},
        "write a phantom instance": lambda: put(
            Bucket=CONTROL, Key="instances/i-0123456789abcdef0.json", Body=json.dumps(instance).encode()
        ),
        "delete one's own head": lambda: delete(Bucket=CONTROL, Key=f"heads/{OWN}.json"),
        "list the control bucket": lambda: listing(Bucket=CONTROL),
        "list instances": lambda: listing(Bucket=CONTROL, Prefix="instances/"),
        "list all data": lambda: listing(Bucket=DATA),
        "list another job": lambda: listing(Bucket=DATA, Prefix=f"jobs/{VICTIM}/"),
        "list all jobs": lambda: listing(Bucket=DATA, Prefix="jobs/"),
        "list the files of datasets": lambda: listing(Bucket=DATA, Prefix="datasets/_files/"),
        "list code": lambda: listing(Bucket=DATA, Prefix="code/"),
        "list versions": lambda: s3.list_object_versions(Bucket=DATA, Prefix=f"jobs/{OWN}/"),
        "list uploads": lambda: s3.list_multipart_uploads(Bucket=DATA),
        "list buckets": s3.list_buckets,
        "read another job's checkpoint": lambda: get(Bucket=DATA, Key=f"jobs/{VICTIM}/secret"),
        "write another job's checkpoint": lambda: put(**upload, Body=b"1"),
        "delete another job's checkpoint": lambda: delete(Bucket=DATA, Key=f"jobs/{VICTIM}/secret"),
        "delete several": lambda: s3.delete_objects(
            Bucket=DATA, Delete={"Objects": [{"Key": f"jobs/{VICTIM}/secret"}]}
        ),
        "copy another job's checkpoint": lambda: s3.copy_object(
            Bucket=DATA, Key=f"jobs/{OWN}/checkpoints/000001/x", CopySource=f"{DATA}/jobs/{VICTIM}/secret"
        ),
        "upload in parts": lambda: s3.create_multipart_upload(**upload),
        "write checkpoints of another attempt": lambda: put(
            Bucket=DATA, Key=f"jobs/{OWN}/checkpoints/000009/x", Body=b"1"
        ),
        "write outputs": lambda: put(Bucket=DATA, Key=f"jobs/{OWN}/outputs/000001/x", Body=b"1"),
        "delete one's own log": lambda: delete(Bucket=DATA, Key=f"jobs/{OWN}/logs/000001/000000.log"),
        "read code of others": lambda: get(Bucket=DATA, Key=os.environ["ATTACK_CODE"]),
        "replace code of others": lambda: put(Bucket=DATA, Key=os.environ["ATTACK_CODE"], Body=b"1"),
        "read a dataset that it does not name": lambda: get(Bucket=DATA, Key="datasets/private/1.json"),
        "read an agent's log": lambda: get(Bucket=DATA, Key="agents/i-1/000000.log"),
        "read the bucket's policy": lambda: s3.get_bucket_policy(Bucket=DATA),
        "replace the bucket's policy": lambda: s3.put_bucket_policy(Bucket=DATA, Policy=json.dumps(OPEN)),
        "keep versions": lambda: s3.put_bucket_versioning(Bucket=DATA, VersioningConfiguration={"Status": "Enabled"}),
        "assume the agents' role": lambda: sts.assume_role(RoleArn=f"{ROLES}e2e-agent", RoleSessionName="wide"),
        "assume the jobs' role again": lambda: sts.assume_role(RoleArn=f"{ROLES}e2e-job", RoleSessionName="wide"),
        "assume the scheduler's role": lambda: sts.assume_role(RoleArn=f"{ROLES}e2e-scheduler", RoleSessionName="wide"),
        "see instances": ec2.describe_instances,
        "launch an instance": lambda: ec2.run_instances(
            ImageId="ami-12c6146b", InstanceType="p5.48xlarge", MinCount=1, MaxCount=1
        ),
        "widen the role": lambda: iam.put_role_policy(RoleName="e2e-job", PolicyName="all", PolicyDocument="{}"),
    }


def endpoint_answers() -> dict[str, str]:
    """Return how the agent's endpoint answers without the job's secret, and with it."""
    address = os.environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
    token = Path(os.environ["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"]).read_text()

    def status(authorization: str) -> str:
        request = urllib.request.Request(address, headers={"Authorization": authorization})
        return code(lambda: urllib.request.urlopen(request))

    return {"without": status(""), "with another": status(token[:-1] + "~"), "with its own": status(token)}


def main() -> None:
    """Try everything, and wait for the end."""
    clients = [boto3.client(service, region_name="eu-west-1") for service in ("s3", "sts", "ec2", "iam")]
    s3, sts = clients[0], clients[1]
    own = f"jobs/{OWN}/checkpoints/{EPOCH:06d}/mine"
    allowed = {
        "write own checkpoint": code(lambda: s3.put_object(Bucket=DATA, Key=own, Body=b"1")),
        "read own checkpoint": code(lambda: s3.get_object(Bucket=DATA, Key=own)),
        "list own keys": code(lambda: s3.list_objects_v2(Bucket=DATA, Prefix=f"jobs/{OWN}/")),
        "read own head": code(lambda: s3.get_object(Bucket=CONTROL, Key=f"heads/{OWN}.json")),
        "delete own checkpoint": code(lambda: s3.delete_object(Bucket=DATA, Key=own)),
        "read a further bucket": code(lambda: s3.get_object(Bucket="shared-data", Key="corpus")),
    }
    keys = boto3.session.Session().get_credentials().get_frozen_credentials()
    objects = {
        "part": attack_s3.part_attempts(s3), "copy": attack_s3.copy_attempts(s3),
        "object": attack_s3.part_of_object_attempts(s3), "bucket": attack_s3.bucket_attempts(s3),
        "address": attack_s3.address_attempts(s3), "raw": attack_s3.raw_attempts(keys, s3.meta.endpoint_url),
    }  # fmt: skip
    refused = {f"{kind}: {name}": call for kind, calls in objects.items() for name, call in calls.items()}
    result = {
        "identity": sts.get_caller_identity()["Arn"],
        "allowed": allowed,
        "refused": {name: code(call) for name, call in {**attempts(*clients), **refused}.items()},
        "borrowed": {name: code(call) for name, call in attack_s3.borrowed_attempts(s3).items()},
        "endpoint": endpoint_answers(),
        "epoch": EPOCH,
        "keys": [keys.access_key, keys.secret_key, keys.token],
        "api key": os.environ.get("API_KEY"),
        "dataset": (Path(os.environ["EVERSPOT_DATA"]) / "corpus" / "words.txt").read_text(),
        "variables": sorted(name for name in os.environ if name.startswith("AWS_")),
    }
    out = Path(os.environ["ATTACK_OUT"])
    out.with_suffix(".part").write_text(json.dumps(result))
    out.with_suffix(".part").rename(out)
    while not out.with_suffix(".end").exists():
        time.sleep(0.2)


if __name__ == "__main__":
    main()
