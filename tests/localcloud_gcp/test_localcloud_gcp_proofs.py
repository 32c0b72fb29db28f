"""Proofs of identity for the other cloud, and invalid proofs that each cloud refuses."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from everspot_clouds.base import CloudError
from everspot_clouds.base.proof import AWS_REQUEST, Proof
from everspot_clouds.peers import peer_credentials
from everspot_clouds.registry import provider
from everspot_local.options import Options
from peer_clouds import (
    GUEST,
    HOME,
    MAPPING,
    POOL,
    POOLS,
    S3,
    SCHEDULER,
    VISITOR,
    enforcing_options,
    google_trust,
    to_aws,
    to_google,
)


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Options:
    return enforcing_options(Path(tmp_path_factory.mktemp("federation")))


def altered(change: Callable[[dict[str, Any]], None]) -> Callable[[str], Proof]:
    """The proof of the instance, changed after it was signed."""

    def prove(audience: str) -> Proof:
        whole = provider("aws").proof("eu-west-1")(audience)
        signed_request = json.loads(unquote(whole.text))
        change(signed_request)
        return Proof(whole.kind, quote(json.dumps(signed_request)), whole.region)

    return prove


def header(name: str, value: str) -> Callable[[dict[str, Any]], None]:
    def change(signed_request: dict[str, Any]) -> None:
        signed_request["headers"] = [
            h if h["key"] != name else {"key": name, "value": value} for h in signed_request["headers"]
        ]

    return change


@pytest.mark.parametrize(
    ("prove", "words"),
    [
        (altered(lambda proof: proof.update(url=proof["url"].replace("amazonaws.com", "amazonaws.com.evil.org"))),
         "no request for the caller's identity"),
        (altered(lambda proof: proof.update(url=proof["url"].replace("GetCallerIdentity", "AssumeRole"))),
         "no request for the caller's identity"),
        (altered(lambda proof: proof.update(method="GET")), "no request for the caller's identity"),
        (altered(header("x-goog-cloud-target-resource", "//iam.googleapis.com/another")), "is not the audience"),
        (lambda _: provider("aws").proof("eu-west-1")("//iam.googleapis.com/another"), "is not the audience"),
        (altered(header("x-amz-date", "20200101T000000Z")), "SignatureDoesNotMatch"),
        (altered(header("host", "sts.us-east-1.amazonaws.com")), None),
        (lambda audience: Proof("urn:ietf:params:oauth:token-type:jwt", "a.b.c", ""), "Invalid subjectTokenType"),
        (lambda audience: Proof(AWS_REQUEST, "%7B", ""), "is not a serialized AWS request"),
    ],
)  # fmt: skip
def test_google_takes_no_other_proof_than_one_signed_for_it(from_aws: Any, prove: Any, words: str | None) -> None:
    if words is None:  # the request goes to the host of the URL, whatever the header names
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


OIDC: dict[str, Any] = {
    "oidc": {"issuerUri": "https://token.actions.githubusercontent.com"},
    "attributeMapping": {"google.subject": "assertion.sub"},
    "attributeCondition": 'assertion.repository_id == "11"',
}


@pytest.mark.parametrize(
    "body",
    [
        {"aws": {"accountId": "12"}},
        {},
        {"oidc": {"issuerUri": "https://example.org"}},  # which says nothing of the subject
        {**OIDC, "aws": {"accountId": "123456789012"}},
        {**OIDC, "oidc": {"issuerUri": "http://example.org"}},
        {**OIDC, "attributeCondition": ""},  # all of GitHub has this issuer
        {**OIDC, "attributeCondition": "assertion.repositories == '1'"},
        {**OIDC, "oidc": {**OIDC["oidc"], "allowedAudiences": ["a"] * 11}},
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
    assert kit.call("POST", f"{path}github", OIDC).status == 200
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

    def request_status(query: str) -> int:
        connection = http.client.HTTPConnection(os.environ["GCE_METADATA_HOST"], timeout=10)
        path = "/computeMetadata/v1/instance/service-accounts/default/identity"
        connection.request("GET", f"{path}{query}", headers={"Metadata-Flavor": "Google"})
        return connection.getresponse().status

    assert (request_status(""), request_status("?audience="), request_status("?audience=x")) == (400, 400, 200)
