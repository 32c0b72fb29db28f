"""Both local clouds at once: a scheduler of one is let into a bucket of the other, and nobody else is.

What asks is the product's own code, with the credentials that an instance has; what answers are both local clouds, each
asking the other as the real ones do.
"""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import boto3
import pytest
from everspot_clouds.base import CloudError
from everspot_clouds.base.proof import AWS_REQUEST, Proof
from everspot_clouds.peers import peer_credentials
from everspot_clouds.registry import provider
from everspot_core.manifest import Manifest
from everspot_core.peers import Peer
from everspot_local.cloud import LocalCloud
from everspot_local.options import Options
from everspot_scheduler.federation.liaison import open_peer
from everspot_store import StoreDenied, StoreUnavailable, SystemClock
from everspot_store.cloud import open_cloud

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


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Options:
    """Callers are held to their permissions, and what is granted holds at once."""
    folder = Path(tmp_path_factory.mktemp("federation"))
    return Options(folder, cloud="gcp", scale=120.0, boot_command=None, iam_enforce=True, lenient=True)


@pytest.fixture(scope="module")
def aws_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    folder = Path(tmp_path_factory.mktemp("aws"))
    with LocalCloud(Options(folder, region="eu-west-1", scale=120.0, boot_command=None, iam_enforce=True)) as cloud:
        yield cloud


class Clouds:
    """Both, introduced to each other, each with a control bucket, and the product on instances of either."""

    def __init__(self, kit: Any, aws: LocalCloud, patch: pytest.MonkeyPatch) -> None:
        self.kit, self.aws, self.patch = kit, aws, patch
        kit.cloud.meet("aws", aws.endpoint)
        aws.meet("gcp", kit.cloud.endpoint)
        owner = {"region_name": "eu-west-1", "aws_access_key_id": "test", "aws_secret_access_key": "test"}
        made = boto3.Session(**owner)
        self.iam = made.client("iam", endpoint_url=aws.endpoint)
        self.sts = made.client("sts", endpoint_url=aws.endpoint)
        place = {"LocationConstraint": "eu-west-1"}
        made.client("s3", endpoint_url=aws.endpoint).create_bucket(
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
        found = self.kit.call(verb, path, body)
        assert found.status == 200, found.body
        return found.body

    def role(self, arn: str, trust: dict[str, Any], may: list[dict[str, Any]]) -> None:
        name = arn.rpartition("/")[2]
        statement = {"Effect": "Allow", **trust}
        document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        self.iam.create_role(RoleName=name, AssumeRolePolicyDocument=document)
        policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **each} for each in may]}
        if may:
            self.iam.put_role_policy(RoleName=name, PolicyName="may", PolicyDocument=json.dumps(policy))

    def on_aws(self, role: str = SCHEDULER, session: str = "i-0123456789abcdef0") -> None:
        """What follows runs on an instance of AWS with a role."""
        keys = self.sts.assume_role(RoleArn=role, RoleSessionName=session)["Credentials"]
        self.patch.setenv("AWS_ACCESS_KEY_ID", keys["AccessKeyId"])
        self.patch.setenv("AWS_SECRET_ACCESS_KEY", keys["SecretAccessKey"])
        self.patch.setenv("AWS_SESSION_TOKEN", keys["SessionToken"])

    def on_google(self, email: str) -> None:
        """What follows runs on an instance of Google Cloud with a service account."""
        self.kit.network()
        scopes = ["https://www.googleapis.com/auth/cloud-platform"]
        found = self.kit.run("home", serviceAccounts=[{"email": email, "scopes": scopes}])
        self.patch.setenv("GCE_METADATA_HOST", self.kit.cloud.project.metadata.address(found["id"]))

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
        """Let a principal become the visitor, and the visitor use the bucket."""
        user = {"role": "roles/iam.workloadIdentityUser", "members": [principal]}
        path = f"/iam/v1/{ROOT}/serviceAccounts/{VISITOR}:setIamPolicy"
        self.ok("POST", path, {"policy": {"bindings": [user]}})
        binding: dict[str, Any] = {"role": "roles/storage.objectUser", "members": [f"serviceAccount:{VISITOR}"]}
        if bucket_condition:
            binding["condition"] = {"title": "below", "expression": bucket_condition}
        self.ok("PUT", "/storage/v1/b/gcp-control/iam", {"version": 3, "bindings": [binding]})


@pytest.fixture
def clouds(kit: Any, aws_cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> Clouds:
    aws_cloud.reset()
    for name in ("AWS_PROFILE", "GOOGLE_OAUTH_ACCESS_TOKEN", "GCE_METADATA_HOST"):
        monkeypatch.delenv(name, raising=False)
    return Clouds(kit, aws_cloud, monkeypatch)


@pytest.fixture
def from_aws(clouds: Any) -> Any:
    """A scheduler on AWS whose peer on Google Cloud let it in: to `visits/` and no further."""
    clouds.role(SCHEDULER, {"Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}, [])
    clouds.account(VISITOR)
    clouds.pool("assertion.arn.startsWith('arn:aws:sts::123456789012:assumed-role/home-scheduler/')")
    clouds.admit(
        f"principalSet://iam.googleapis.com/{POOL}/attribute.aws_role/home-scheduler",
        'resource.name.startsWith("projects/_/buckets/gcp-control/objects/visits/")',
    )
    clouds.on_aws()
    return clouds


@pytest.fixture
def from_google(clouds: Any) -> Any:
    """A scheduler on Google Cloud whose peer on AWS let it in: to `visits/` and no further."""
    unique = clouds.account(HOME)
    trust = google_trust(unique)
    may = [{"Action": ["s3:PutObject", "s3:GetObject"], "Resource": "arn:aws:s3:::aws-control/visits/*"}]
    clouds.role(GUEST, trust, may)
    clouds.on_google(HOME)
    clouds.unique = unique
    return clouds


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


def test_a_scheduler_on_aws_writes_where_its_peer_on_google_lets_it(from_aws: Any) -> None:
    bucket = open_cloud(GCS, to_google())
    assert bucket.create("visits/train-v1.json", b"{}").version is not None
    assert bucket.get("visits/train-v1.json").value == b"{}"
    with pytest.raises(StoreDenied, match=r"storage\.objects\.create"):
        bucket.put("jobs/train.json", b"{}")


def test_a_scheduler_on_google_writes_where_its_peer_on_aws_lets_it(from_google: Any) -> None:
    bucket = open_cloud("s3://aws-control", to_aws(), "eu-west-1")
    assert bucket.create("visits/train-v1.json", b"{}").version is not None
    assert bucket.get("visits/train-v1.json").value == b"{}"
    with pytest.raises(StoreDenied):
        bucket.put("jobs/train.json", b"{}")


def test_a_scheduler_on_aws_becomes_its_peers_role_there_too(clouds: Any) -> None:
    may = [{"Action": "sts:AssumeRole", "Resource": GUEST}]
    clouds.role(SCHEDULER, {"Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}, may)
    objects = [{"Action": ["s3:PutObject"], "Resource": "arn:aws:s3:::aws-control/visits/*"}]
    clouds.role(GUEST, {"Principal": {"AWS": SCHEDULER}, "Action": "sts:AssumeRole"}, objects)
    clouds.on_aws()
    bucket = open_cloud("s3://aws-control", peer_credentials("aws", "eu-west-1", S3, GUEST, ""), "eu-west-1")
    assert bucket.create("visits/train-v1.json", b"{}").version is not None
    clouds.iam.update_assume_role_policy(
        RoleName="everspot-guest",
        PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [
            {"Effect": "Allow", "Principal": {"AWS": f"{SCHEDULER}-other"}, "Action": "sts:AssumeRole"}]}),
    )  # fmt: skip
    with pytest.raises(CloudError, match="everspot-guest cannot be assumed: AccessDenied"):
        peer_credentials("aws", "eu-west-1", S3, GUEST, "")()


def test_who_stays_who_it_is_needs_no_other_credentials() -> None:
    assert peer_credentials("gcp", "europe-west4", GCS, "", "") is None
    assert peer_credentials("folder", "", "file:///peer", "", "") is None
    with pytest.raises(CloudError, match="a folder gives its agents no identity"):
        peer_credentials("folder", "", GCS, VISITOR, PROVIDER)


def test_a_store_says_what_is_wrong_with_the_way_in(from_aws: Any) -> None:
    bucket = open_cloud(GCS, to_google(audience=f"{POOL}/providers/none"))
    with pytest.raises(StoreDenied, match="doesn't exist"):
        bucket.get("visits/train-v1.json")
    from_aws.patch.setenv("EVERSPOT_GCP_ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    for credentials in (to_google(), to_google(audience=f"{POOL}/providers/none")):
        with pytest.raises(StoreUnavailable, match="does not take this cluster's proof: ConnectionError"):
            open_cloud(GCS, credentials).get("visits/train-v1.json")


def test_credentials_are_kept_until_shortly_before_their_end(from_aws: Any) -> None:
    credentials = to_google()
    first = credentials()
    assert first["expires_at"] - datetime.now(UTC) > timedelta(minutes=50)
    assert credentials() == first
    credentials._now = lambda: first["expires_at"] - timedelta(minutes=9)
    asked: list[str] = []
    got = credentials._get
    credentials._get = lambda: asked.append("again") or got()
    credentials()
    assert asked == ["again"]


def altered(change: Callable[[dict[str, Any]], None]) -> Callable[[str], Proof]:
    """The proof of the instance, changed after it was signed."""

    def prove(audience: str) -> Proof:
        whole = provider("aws").proof("eu-west-1")(audience)
        told = json.loads(unquote(whole.text))
        change(told)
        return Proof(whole.kind, quote(json.dumps(told)), whole.region)

    return prove


def header(name: str, value: str) -> Callable[[dict[str, Any]], None]:
    def change(told: dict[str, Any]) -> None:
        told["headers"] = [h if h["key"] != name else {"key": name, "value": value} for h in told["headers"]]

    return change


@pytest.mark.parametrize(
    ("prove", "words"),
    [
        (altered(lambda told: told.update(url=told["url"].replace("amazonaws.com", "amazonaws.com.evil.org"))),
         "no request for the caller's identity"),
        (altered(lambda told: told.update(url=told["url"].replace("GetCallerIdentity", "AssumeRole"))),
         "no request for the caller's identity"),
        (altered(lambda told: told.update(method="GET")), "no request for the caller's identity"),
        (altered(header("x-goog-cloud-target-resource", "//iam.googleapis.com/another")), "is not the audience"),
        (lambda _: provider("aws").proof("eu-west-1")("//iam.googleapis.com/another"), "is not the audience"),
        (altered(header("x-amz-date", "20200101T000000Z")), "SignatureDoesNotMatch"),
        (altered(header("host", "sts.us-east-1.amazonaws.com")), None),
        (lambda audience: Proof("urn:ietf:params:oauth:token-type:jwt", "a.b.c", ""), "Invalid subjectTokenType"),
        (lambda audience: Proof(AWS_REQUEST, "%7B", ""), "is not a serialized AWS request"),
    ],
)  # fmt: skip
def test_google_takes_no_other_proof_than_one_signed_for_it(from_aws: Any, prove: Any, words: str | None) -> None:
    if words is None:  # what is sent is sent to the host of the URL, whatever the header says
        assert to_google(prove)()["token"]
        return
    with pytest.raises(CloudError, match=words):
        to_google(prove)()


def test_a_header_that_was_not_signed_binds_nothing(from_aws: Any) -> None:
    def prove(audience: str) -> Proof:
        plain = json.loads(unquote(provider("aws").proof("eu-west-1")("x").text))
        for each in plain["headers"]:
            each["value"] = each["value"].replace(";x-goog-cloud-target-resource", "")
        header("x-goog-cloud-target-resource", audience)(plain)
        return Proof(AWS_REQUEST, quote(json.dumps(plain)), "")

    with pytest.raises(CloudError, match="is not signed"):
        to_google(prove)()


def test_google_takes_only_the_role_that_the_provider_names(from_aws: Any) -> None:
    another = f"{SCHEDULER}-other"
    from_aws.role(another, {"Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}, [])
    from_aws.on_aws(another)
    with pytest.raises(CloudError, match="rejected by the attribute condition"):
        to_google()()


def test_a_principals_name_has_an_end(from_aws: Any) -> None:
    longest = f"{SCHEDULER}-{'x' * 49}"
    from_aws.role(longest, {"Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}, [])
    body = {"attributeCondition": ""}
    from_aws.done(
        from_aws.ok("PATCH", f"{POOLS}/everspot-peers/providers/aws-prod?updateMask=attributeCondition", body)
    )
    from_aws.on_aws(longest, "i" * 64)
    with pytest.raises(CloudError, match="has to be 1 to 127 bytes"):
        to_google()()


def test_google_takes_nobody_of_another_account(clouds: Any) -> None:
    clouds.role(SCHEDULER, {"Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}, [])
    clouds.account(VISITOR)
    clouds.pool(account="999999999999")
    clouds.on_aws()
    with pytest.raises(CloudError, match="is not the provider's"):
        to_google()()


def test_a_federated_token_becomes_nobody_that_it_may_not(from_aws: Any) -> None:
    from_aws.admit(f"principalSet://iam.googleapis.com/{POOL}/attribute.aws_role/another")
    with pytest.raises(CloudError, match=r"cannot be used: Permission 'iam.serviceAccounts.getAccessToken' denied"):
        to_google()()


def test_a_disabled_or_deleted_pool_takes_no_proof_and_keeps_its_name(from_aws: Any) -> None:
    kit = from_aws.kit
    from_aws.done(from_aws.ok("PATCH", f"{POOLS}/everspot-peers?updateMask=disabled", {"disabled": True}))
    with pytest.raises(CloudError, match="disabled or deleted"):
        to_google()()
    from_aws.done(from_aws.ok("PATCH", f"{POOLS}/everspot-peers?updateMask=disabled", {"disabled": False}))
    assert to_google()()["token"]
    from_aws.ok("DELETE", f"{POOLS}/everspot-peers")
    with pytest.raises(CloudError, match="disabled or deleted"):
        to_google()()
    assert kit.get(f"{POOLS}/everspot-peers")["state"] == "DELETED"
    assert kit.call("POST", f"{POOLS}?workloadIdentityPoolId=everspot-peers", {}).status == 409


@pytest.mark.parametrize(
    "body",
    [
        {"aws": {"accountId": "12"}},
        {"oidc": {"issuerUri": "https://example.org"}},
        {"aws": {"accountId": "123456789012"}, "attributeMapping": {"attribute.role": "assertion.arn"}},
        {"aws": {"accountId": "123456789012"}, "attributeMapping": {**MAPPING, "role": "assertion.arn"}},
        {"aws": {"accountId": "123456789012"}, "attributeMapping": {"google.subject": "assertion.sub"}},
        {"aws": {"accountId": "123456789012"}, "attributeCondition": "assertion.arn.matches('x')"},
        {"aws": {"accountId": "123456789012"}, "attributeCondition": "x" * 4097},
        {"aws": {"accountId": "123456789012"}, "displayName": "x" * 33},
    ],
)
def test_a_provider_that_iam_does_not_take_is_refused(kit: Any, body: Any) -> None:
    assert kit.call("POST", f"{POOLS}?workloadIdentityPoolId=everspot-peers", {}).status == 200
    path = f"{POOLS}/everspot-peers/providers?workloadIdentityPoolProviderId="
    assert kit.call("POST", f"{path}aws-prod", body).status == 400
    sound = {"aws": {"accountId": "123456789012"}}
    assert [kit.call("POST", f"{path}{name}", sound).status for name in ("gcp-x", "abc", "Abcd", "good")] == [
        400, 400, 400, 200,
    ]  # fmt: skip


@pytest.mark.parametrize("key", ["aud", "sub", "oaud"])
def test_aws_takes_only_the_account_and_audience_that_the_role_trusts(from_google: Any, key: str) -> None:
    trust = {"Effect": "Allow", **google_trust(from_google.unique, **{key: "another"})}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    from_google.iam.update_assume_role_policy(RoleName="everspot-guest", PolicyDocument=document)
    with pytest.raises(CloudError, match="everspot-guest cannot be assumed: AccessDenied"):
        to_aws()()


def test_aws_says_no_more_of_a_role_that_is_not_there(from_google: Any) -> None:
    with pytest.raises(CloudError, match="none cannot be assumed: AccessDenied"):
        peer_credentials("gcp", "europe-west4", S3, f"{GUEST}-none", "")()


def test_aws_takes_no_token_that_google_did_not_sign(from_google: Any) -> None:
    token = provider("gcp").proof("europe-west4")(GUEST).text
    signer = from_google.kit.cloud.project.signer
    ended = signer.token(GUEST, from_google.unique, HOME, datetime.now(UTC) - timedelta(hours=2), {})
    other = type(signer)().token(GUEST, from_google.unique, HOME, datetime.now(UTC), {})
    head, body, signature = token.split(".")
    for shown, code in (
        (token, None),
        (ended, "ExpiredTokenException"),
        (other, "InvalidIdentityToken"),
        (f"{head}.{body}.{signature[::-1]}", "InvalidIdentityToken"),
        ("ya29.an-access-token", "InvalidIdentityToken"),
    ):

        def assume(shown: str = shown) -> Any:
            prove = lambda _: Proof("urn:ietf:params:oauth:token-type:jwt", shown, "")  # noqa: E731
            return provider("aws").peer_credentials(S3, GUEST, "", prove)()

        if code is None:
            assert assume()["token"]
        else:
            with pytest.raises(CloudError, match=f"cannot be assumed: {code}"):
                assume()


def test_the_metadata_server_signs_for_an_audience_that_is_named(from_google: Any) -> None:
    import http.client
    import os

    def ask(query: str) -> int:
        connection = http.client.HTTPConnection(os.environ["GCE_METADATA_HOST"], timeout=10)
        path = "/computeMetadata/v1/instance/service-accounts/default/identity"
        connection.request("GET", f"{path}{query}", headers={"Metadata-Flavor": "Google"})
        return connection.getresponse().status

    assert (ask(""), ask("?audience="), ask("?audience=x")) == (400, 400, 200)


def test_two_clouds_that_were_not_introduced_believe_nothing(from_google: Any) -> None:
    from_google.aws.machines.neighbour.endpoint = ""
    with pytest.raises(CloudError, match="IDPCommunicationError"):
        to_aws()()
    with pytest.raises(ValueError, match="is not the endpoint of a local cloud"):
        from_google.aws.meet("gcp", "https://example.org")
    with pytest.raises(ValueError, match="there is no cloud 'mars' here"):
        from_google.aws.meet("mars", "http://127.0.0.1:1")


def test_a_scheduler_opens_its_peers_store_as_who_the_manifest_says(from_aws: Any) -> None:
    own = Manifest(
        cluster="home", cloud="aws", region="eu-west-1", control_url=S3, data_url="s3://aws-data?region=eu-west-1"
    )
    peer = Peer(name="there", cloud="gcp", control_url=GCS, data_url=GCS, identity=VISITOR, audience=PROVIDER)
    there = open_peer(peer, own, SystemClock())
    assert there.control.create("visits/train-v2.json", b"{}") is not None
    with pytest.raises(StoreDenied):
        there.control.create("jobs/train.json", b"{}")
