"""S3's refusals, by their error codes."""

import re
import urllib.error
import urllib.request
from functools import cache
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.handlers import set_list_objects_encoding_type_url
from everspot_local.aws.s3 import listing
from everspot_local.aws.s3.rules import TAKEN
from localcloud_refusals import ACCOUNT, BUCKET, READ, document, outcome
from moto.s3.responses import S3Response


@cache
def unchecked(endpoint: str) -> Any:
    """A client without botocore's own check of names: the service is asked all the same."""
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    client = boto3.client("s3", endpoint_url=endpoint, region_name="eu-west-1", **keys)
    client.meta.events.unregister("before-parameter-build.s3", unique_id=None)
    return client


@pytest.mark.parametrize(
    ("name", "code"),
    [
        *[(name, "InvalidBucketName") for name in ("Upper-case", "under_score", "a..b", "-begins", "ends-", "10.0.0.1",
                                                   "xn--name", "sthree-x", "name-s3alias", "name--ol-s3", "n" * 64)],
        (sorted(TAKEN)[0], "BucketAlreadyExists"),
        ("everspot-a", "BucketAlreadyOwnedByYou"),
        ("n" * 63, "ok"),
    ],
)  # fmt: skip
def test_s3_names(kit: Any, name: str, code: str) -> None:
    s3 = unchecked(kit.cloud.endpoint)
    where = {"CreateBucketConfiguration": {"LocationConstraint": "eu-west-1"}}
    s3.create_bucket(Bucket="everspot-a", **where)
    assert outcome(s3.create_bucket, Bucket=name, **where) == code


@pytest.fixture
def s3(kit: Any) -> Any:
    client = kit.client("s3")
    client.create_bucket(Bucket="everspot-a")
    return client


IN_ORGANIZATION = {"StringEquals": {"aws:PrincipalOrgID": "o-1"}}
PUBLIC = {"StringLike": {"aws:PrincipalArn": "*"}}


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        (READ, "AccessDenied"),
        ({**READ, "Principal": {"AWS": ["*"]}}, "AccessDenied"),
        ({**READ, "Condition": PUBLIC}, "AccessDenied"),
        ({**READ, "Condition": {"StringNotEquals": {"aws:PrincipalOrgID": "o-1"}}}, "AccessDenied"),
        ({**READ, "Condition": IN_ORGANIZATION}, "ok"),
        ({**READ, "Effect": "Deny"}, "ok"),
        ({**READ, "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}}, "ok"),
        ({**READ, "Resource": "arn:aws:s3:::everspot-b/*"}, "MalformedPolicy"),
        ({"Effect": "Deny", "Action": "s3:*", "Resource": BUCKET}, "MalformedPolicy"),
    ],
)
def test_s3_refuses_public_policies_and_those_of_other_buckets(s3: Any, statement: dict[str, Any], code: str) -> None:
    assert outcome(s3.put_bucket_policy, Bucket="everspot-a", Policy=document(statement)) == code


def test_s3_blocks_what_is_public_by_default_and_until_told_otherwise(s3: Any) -> None:
    blocked = s3.get_public_access_block(Bucket="everspot-a")["PublicAccessBlockConfiguration"]
    assert set(blocked.values()) == {True}
    rules = s3.get_bucket_ownership_controls(Bucket="everspot-a")["OwnershipControls"]["Rules"]
    assert rules == [{"ObjectOwnership": "BucketOwnerEnforced"}]
    put = {"Bucket": "everspot-a", "Key": "k"}
    assert outcome(s3.put_object, ACL="public-read", **put) == "AccessControlListNotSupported"
    assert outcome(s3.put_object, ACL="bucket-owner-full-control", **put) == "ok"
    s3.delete_public_access_block(Bucket="everspot-a")
    assert outcome(s3.put_bucket_policy, Bucket="everspot-a", Policy=document(READ)) == "ok"


def test_s3_looks_for_a_kms_key_when_it_needs_it(kit: Any, s3: Any) -> None:
    kms = kit.client("kms")
    key = kms.create_key()["KeyMetadata"]["Arn"]
    kms.create_alias(AliasName="alias/mine", TargetKeyId=key)
    missing_key = f"arn:aws:kms:us-east-1:{ACCOUNT}:key/00000000-0000-0000-0000-000000000000"

    def encrypt(by: str) -> str:
        rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": by}}
        return outcome(
            s3.put_bucket_encryption, Bucket="everspot-a", ServerSideEncryptionConfiguration={"Rules": [rule]}
        )

    def write(**more: Any) -> str:
        return outcome(s3.put_object, Bucket="everspot-a", Key="k", Body=b"1", **more)

    assert (encrypt(missing_key), write()) == ("ok", "KMS.NotFoundException")
    assert outcome(s3.create_multipart_upload, Bucket="everspot-a", Key="k") == "KMS.NotFoundException"
    assert write(ServerSideEncryption="AES256") == "ok"
    for by in (key, key.rpartition("/")[2], "alias/mine", f"arn:aws:kms:us-east-1:{ACCOUNT}:alias/mine"):
        assert (encrypt(by), write()) == ("ok", "ok"), by
    elsewhere = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": key.replace("us-east-1", "eu-west-1")}
    assert write(**elsewhere) == "KMS.NotFoundException"
    kms.disable_key(KeyId=key.rpartition("/")[2])
    assert write() == "KMS.DisabledException"


@pytest.mark.parametrize(
    ("tags", "code"),
    [
        ({"Team": "a & b"}, "InvalidTag"),
        ({"k" * 129: ""}, "InvalidTag"),
        ({"k": "v" * 257}, "InvalidTag"),
        ({f"k{n}": "v" for n in range(51)}, "BadRequest"),
        ({"Team": "München", "Path": "a/b_c:d=e+f-g@h.i"}, "ok"),
    ],
)
def test_s3_tags(kit: Any, s3: Any, tags: dict[str, str], code: str) -> None:
    tag_set = [{"Key": key, "Value": value} for key, value in tags.items()]
    assert outcome(s3.put_bucket_tagging, Bucket="everspot-a", Tagging={"TagSet": tag_set}) == code
    bucket_options = {"CreateBucketConfiguration": {"Tags": tag_set}}
    assert outcome(s3.create_bucket, Bucket="everspot-tagged", **bucket_options) == code


def test_a_bucket_answers_only_signatures_for_its_region(kit: Any, s3: Any) -> None:
    s3.put_object(Bucket="everspot-a", Key="k", Body=b"1")
    stranger = boto3.client(
        "s3", endpoint_url=kit.cloud.endpoint, region_name="eu-west-1", config=Config(signature_version="s3v4"),
        aws_access_key_id="test", aws_secret_access_key="test",
    )  # fmt: skip
    url = stranger.generate_presigned_url("get_object", {"Bucket": "everspot-a", "Key": "k"})
    refusals = []
    for target in (url, f"{kit.cloud.endpoint}/everspot-a/k", f"{kit.cloud.endpoint}/everspot-a"):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(target)
        with caught.value as answer:
            refusals.append((answer.code, answer.headers["x-amz-bucket-region"], answer.read().decode()))
    assert [(code, region) for code, region, _ in refusals] == [
        (400, "us-east-1"),
        (403, "us-east-1"),
        (403, "us-east-1"),
    ]
    assert "<Code>AuthorizationQueryParametersError</Code>" in refusals[0][2]
    assert "<Region>us-east-1</Region>" in refusals[0][2]
    # boto3 reads the region from the refusal and asks once more, as it does on AWS.
    assert kit.client("s3", region="eu-west-1").get_object(Bucket="everspot-a", Key="k")["Body"].read() == b"1"


@pytest.mark.parametrize("plain", [False, True], ids=["quoted", "plain"])
@pytest.mark.parametrize(
    "listing_options",
    [{}, {"Delimiter": "/"}, {"MaxKeys": 2}, {"Prefix": "none"}, {"FetchOwner": True, "StartAfter": "big"}],
    ids=str,
)
def test_objects_are_listed_as_moto_lists_them(
    kit: Any, monkeypatch: pytest.MonkeyPatch, listing_options: dict[str, Any], plain: bool
) -> None:
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    s3 = boto3.client("s3", endpoint_url=kit.cloud.endpoint, region_name="us-east-1", **keys)
    if plain:  # as clients ask that are not botocore
        s3.meta.events.unregister("before-parameter-build.s3.ListObjectsV2", set_list_objects_encoding_type_url)
    bodies: list[bytes] = []
    s3.meta.events.register(
        "before-parse.s3.ListObjectsV2", lambda response_dict, **_: bodies.append(response_dict["body"])
    )
    s3.create_bucket(Bucket="everspot-a")
    for key, more in (("a&b <c>", {}), ("big/1", {"ChecksumAlgorithm": "SHA256"}), ("big/\u00e42", {}), ("z'\"", {})):
        s3.put_object(Bucket="everspot-a", Key=key, Body=key.encode(), **more)
    s3.list_objects_v2(Bucket="everspot-a", **listing_options)
    monkeypatch.setattr(S3Response, "serialized", listing._serialized)
    s3.list_objects_v2(Bucket="everspot-a", **listing_options)
    local_body, motos = bodies
    assert (b"<Contents>" in local_body) is (listing_options != {"Prefix": "none"})
    assert token_gone(local_body) == token_gone(motos)
    s3.close()


def token_gone(body: bytes) -> str:
    """A page without the token of the next one, which is another each time."""
    return re.sub(r"(<NextContinuationToken>)\w+", r"\1", body.decode())
