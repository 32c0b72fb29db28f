"""Both local clouds with trust in each other, and the product on instances of either."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from everspot_clouds.base.proof import Proof
from everspot_clouds.peers import peer_credentials
from everspot_clouds.registry import provider
from everspot_local.cloud import LocalCloud
from everspot_local.options import Options

ROOT = "projects/everspot-local"
POOLS = f"/iam/v1/{ROOT}/locations/global/workloadIdentityPools"
POOL = "projects/100000000001/locations/global/workloadIdentityPools/everspot-peers"
PROVIDER = f"{POOL}/providers/aws-prod"
VISITOR = "everspot-visitor@everspot-local.iam.gserviceaccount.com"
HOME = "everspot-home@everspot-local.iam.gserviceaccount.com"
SCHEDULER = "arn:aws:iam::123456789012:role/home-scheduler"
GUEST = "arn:aws:iam::123456789012:role/everspot-guest"
MAPPING = {"google.subject": "assertion.arn", "attribute.aws_role": 'assertion.arn.extract("assumed-role/{role}/")'}
S3 = "s3://aws-control?region=eu-west-1"
GCS = "gs://gcp-control"


class Clouds:
    """Both, introduced to each other, each with a control bucket, and the product on instances of either."""

    def __init__(self, kit: Any, aws: LocalCloud, patch: pytest.MonkeyPatch) -> None:
        self.kit, self.aws, self.patch = kit, aws, patch
        kit.cloud.meet("aws", aws.endpoint)
        aws.meet("gcp", kit.cloud.endpoint)
        owner = {"region_name": "eu-west-1", "aws_access_key_id": "test", "aws_secret_access_key": "test"}
        session = boto3.Session(**owner)
        self.iam = session.client("iam", endpoint_url=aws.endpoint)
        self.sts = session.client("sts", endpoint_url=aws.endpoint)
        place = {"LocationConstraint": "eu-west-1"}
        session.client("s3", endpoint_url=aws.endpoint).create_bucket(
            Bucket="aws-control", CreateBucketConfiguration=place
        )
        self.ok("POST", f"/storage/v1/b?project={ROOT.partition('/')[2]}", {
            "name": "gcp-control", "location": "EUROPE-WEST4",
            "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}},
        })  # fmt: skip
        patch.setenv("GOOGLE_BASE_URL", f"{kit.cloud.endpoint}/xml")
        patch.setenv("EVERSPOT_GCP_ENDPOINT", kit.cloud.endpoint)
        patch.setenv("AWS_ENDPOINT_URL", aws.endpoint)

    def ok(self, verb: str, path: str, body: Any = None) -> Any:
        answer = self.kit.call(verb, path, body)
        assert answer.status == 200, answer.body
        return answer.body

    def role(self, arn: str, trust: dict[str, Any], may: list[dict[str, Any]]) -> None:
        name = arn.rpartition("/")[2]
        statement = {"Effect": "Allow", **trust}
        document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        self.iam.create_role(RoleName=name, AssumeRolePolicyDocument=document)
        policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **each} for each in may]}
        if may:
            self.iam.put_role_policy(RoleName=name, PolicyName="may", PolicyDocument=json.dumps(policy))

    def on_aws(self, role: str = SCHEDULER, session: str = "i-0123456789abcdef0") -> None:
        """Run the following code as an AWS instance with a role."""
        keys = self.sts.assume_role(RoleArn=role, RoleSessionName=session)["Credentials"]
        self.patch.setenv("AWS_ACCESS_KEY_ID", keys["AccessKeyId"])
        self.patch.setenv("AWS_SECRET_ACCESS_KEY", keys["SecretAccessKey"])
        self.patch.setenv("AWS_SESSION_TOKEN", keys["SessionToken"])

    def on_google(self, email: str) -> None:
        """Run the following code as a Google Cloud instance with a service account."""
        self.kit.network()
        scopes = ["https://www.googleapis.com/auth/cloud-platform"]
        instance = self.kit.run("home", serviceAccounts=[{"email": email, "scopes": scopes}])
        self.patch.setenv("GCE_METADATA_HOST", self.kit.cloud.project.metadata.address(instance["id"]))

    def account(self, email: str) -> str:
        body = {"accountId": email.partition("@")[0]}
        return str(self.ok("POST", f"/iam/v1/{ROOT}/serviceAccounts", body)["uniqueId"])

    def pool(self, condition: str = "", mapping: dict[str, str] = MAPPING, account: str = "123456789012") -> None:
        self.done(self.ok("POST", f"{POOLS}?workloadIdentityPoolId=everspot-peers", {"displayName": "peers"}))
        body = {"aws": {"accountId": account}, "attributeMapping": mapping, "attributeCondition": condition}
        body = {key: value for key, value in body.items() if value}
        path = f"{POOLS}/everspot-peers/providers?workloadIdentityPoolProviderId=aws-prod"
        self.done(self.ok("POST", path, body))

    def done(self, operation: Any) -> None:
        assert "done" not in operation
        assert self.kit.get(f"/iam/v1/{operation['name']}")["done"] is True

    def admit(self, principal: str, bucket_condition: str = "") -> None:
        """Allow a principal to impersonate the visitor, and the visitor to use the bucket."""
        user = {"role": "roles/iam.workloadIdentityUser", "members": [principal]}
        path = f"/iam/v1/{ROOT}/serviceAccounts/{VISITOR}:setIamPolicy"
        self.ok("POST", path, {"policy": {"bindings": [user]}})
        binding: dict[str, Any] = {"role": "roles/storage.objectUser", "members": [f"serviceAccount:{VISITOR}"]}
        if bucket_condition:
            binding["condition"] = {"title": "below", "expression": bucket_condition}
        self.ok("PUT", "/storage/v1/b/gcp-control/iam", {"version": 3, "bindings": [binding]})


def google_trust(unique: str, **more: str) -> dict[str, Any]:
    keys = {"aud": unique, "sub": unique, "oaud": GUEST, **more}
    return {
        "Principal": {"Federated": "accounts.google.com"}, "Action": "sts:AssumeRoleWithWebIdentity",
        "Condition": {"StringEquals": {f"accounts.google.com:{name}": value for name, value in keys.items()}},
    }  # fmt: skip


def to_google(prove: Callable[[str], Proof] | None = None, audience: str = PROVIDER, identity: str = VISITOR) -> Any:
    if prove is None:
        return peer_credentials("aws", "eu-west-1", GCS, identity, audience)
    return provider("gcp").peer_credentials(GCS, identity, audience, prove)


def to_aws() -> Any:
    return peer_credentials("gcp", "europe-west4", S3, GUEST, "")


def enforcing_options(folder: Path) -> Options:
    """Return the options of a Google Cloud that enforces permissions, where grants take effect immediately."""
    return Options(folder, cloud="gcp", scale=120.0, boot_command=None, lenient=True)
