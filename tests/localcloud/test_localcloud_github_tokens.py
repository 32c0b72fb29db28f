"""STS accepts identity tokens of GitHub's jobs according to the trust policies that the bootstrap declares."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from botocore.exceptions import ClientError
from cryptography.hazmat.primitives.asymmetric import rsa
from everspot.aws.bootstrap_policies import trust
from everspot.repository import ISSUER, ReviewPart
from google.auth import jwt
from google.auth.crypt import RSASigner

REPOSITORY = {"name": "acme/train", "id": "11", "owner_id": "22"}
DEPLOY = {
    "aud": "sts.amazonaws.com",
    "sub": "repo:acme/train:environment:production",
    "repository_id": "11",
    "ref": "refs/heads/main",
}


class Forge:
    """GitHub as an issuer of tokens: its configuration and its keys, served over HTTP."""

    def __init__(self) -> None:
        self.private, self.other = (rsa.generate_private_key(65537, 2048) for _ in range(2))
        forge = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                document = forge.documents.get(self.path)
                self.send_response(200 if document else 404)
                self.end_headers()
                self.wfile.write(json.dumps(document).encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        self.documents: dict[str, Any] = {
            "/.well-known/openid-configuration": {"issuer": ISSUER, "jwks_uri": f"{ISSUER}/.well-known/jwks"},
            "/.well-known/jwks": {"keys": [key("one", self.private)]},
        }
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def token(self, *, signed_by: Any = None, kid: str = "one", life: int = 300, **claims: str) -> str:
        now = int(time.time())
        payload = {"iss": ISSUER, "iat": now - 60, "exp": now + life, **DEPLOY, **claims}
        return str(jwt.encode(RSASigner(signed_by or self.private, kid), payload).decode())

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def key(kid: str, private: rsa.RSAPrivateKey) -> dict[str, str]:
    numbers = private.public_key().public_numbers()
    n, e = (
        base64.urlsafe_b64encode(value.to_bytes((value.bit_length() + 7) // 8, "big")).rstrip(b"=").decode()
        for value in (numbers.n, numbers.e)
    )
    return {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": kid, "n": n, "e": e}


@pytest.fixture(scope="module")
def forge() -> Iterator[Forge]:
    forge = Forge()
    yield forge
    forge.close()


class Account:
    """An account whose roles trust a repository's jobs, as the bootstrap declares them."""

    def __init__(self, kit: Any, forge: Forge) -> None:
        self.iam, self.sts = kit.client("iam"), kit.client("sts")
        answer = self.iam.create_open_id_connect_provider(Url=ISSUER, ClientIDList=["sts.amazonaws.com"])
        self.provider = answer["OpenIDConnectProviderArn"]
        for part in (ReviewPart.DEPLOY, ReviewPart.PREVIEW):
            document = json.dumps(trust(self.provider, REPOSITORY, part, []))  # type: ignore[arg-type]
            self.iam.create_role(RoleName=part.value, AssumeRolePolicyDocument=document)
            kit.wait_for_role(part.value)
        kit.do("issuer", url=ISSUER, address=forge.address)

    def assume(self, token: str, part: ReviewPart = ReviewPart.DEPLOY) -> dict[str, Any]:
        arn = f"arn:aws:iam::123456789012:role/{part.value}"
        answer: dict[str, Any] = self.sts.assume_role_with_web_identity(
            RoleArn=arn, RoleSessionName="job", WebIdentityToken=token
        )
        return answer

    def refusal(self, token: str, part: ReviewPart = ReviewPart.DEPLOY) -> str:
        with pytest.raises(ClientError) as caught:
            self.assume(token, part)
        return str(caught.value.response["Error"]["Code"])


@pytest.fixture
def account(kit: Any, forge: Forge) -> Account:
    return Account(kit, forge)


def test_a_job_of_the_merged_branch_takes_the_role_that_deploys(kit: Any, account: Account, forge: Forge) -> None:
    answer = account.assume(forge.token())
    assert answer["Provider"] == account.provider
    assert (answer["Audience"], answer["SubjectFromWebIdentityToken"]) == (DEPLOY["aud"], DEPLOY["sub"])
    keys = answer["Credentials"]
    sts = kit.client(
        "sts",
        aws_access_key_id=keys["AccessKeyId"],
        aws_secret_access_key=keys["SecretAccessKey"],
        aws_session_token=keys["SessionToken"],
    )
    assert sts.get_caller_identity()["Arn"] == "arn:aws:sts::123456789012:assumed-role/deploy/job"
    pull_request = {"sub": "repo:acme@22/train@11:pull_request", "ref": "refs/pull/7/merge"}
    account.assume(forge.token(**pull_request), ReviewPart.PREVIEW)
    assert account.refusal(forge.token(**pull_request)) == "AccessDenied"


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ({"sub": "repo:acme/other:environment:production"}, "AccessDenied"),
        ({"sub": "repo:acme/train:pull_request"}, "AccessDenied"),
        ({"ref": "refs/heads/feature"}, "AccessDenied"),
        ({"repository_id": "12"}, "AccessDenied"),  # another repository of the same name
        ({"aud": "https://github.com/acme"}, "InvalidIdentityToken"),  # GitHub's own default
        ({"iss": "https://token.example.com"}, "InvalidIdentityToken"),
        ({"iss": "https://accounts.google.com"}, "IDPCommunicationError"),  # no local Google was introduced
    ],
)
def test_a_token_of_another_job_is_refused(account: Account, forge: Forge, claims: dict[str, str], code: str) -> None:
    assert account.refusal(forge.token(**claims)) == code


def test_a_token_has_to_be_signed_by_the_issuers_key_and_in_date(account: Account, forge: Forge) -> None:
    assert account.refusal(forge.token(signed_by=forge.other)) == "InvalidIdentityToken"
    assert account.refusal(forge.token(kid="two")) == "InvalidIdentityToken"
    assert account.refusal(forge.token(life=-30)) == "ExpiredTokenException"
    head, _, tail = forge.token().rpartition(".")
    assert account.refusal(f"{head}.{tail[::-1]}") == "InvalidIdentityToken"
    assert account.refusal("no.token.atall") == "InvalidIdentityToken"
    unsigned = base64.urlsafe_b64encode(b'{"alg":"none","kid":"one"}').rstrip(b"=").decode()
    assert account.refusal(f"{unsigned}.{head.split('.')[1]}.") == "InvalidIdentityToken"


def test_a_key_that_the_issuer_has_changed_is_known_at_once(account: Account, forge: Forge) -> None:
    keys = forge.documents["/.well-known/jwks"]["keys"]
    keys.append(key("two", forge.other))
    account.assume(forge.token(signed_by=forge.other, kid="two"))
    keys.pop()
    assert account.refusal(forge.token(signed_by=forge.other, kid="two")) == "InvalidIdentityToken"


def test_an_issuer_that_does_not_answer_or_is_another(kit: Any, account: Account, forge: Forge) -> None:
    kit.do("issuer", url=ISSUER, address="http://127.0.0.1:9")  # no server listens there
    assert account.refusal(forge.token()) == "IDPCommunicationError"
    kit.do("issuer", url=ISSUER, address=forge.address)
    configuration = forge.documents["/.well-known/openid-configuration"]
    forge.documents["/.well-known/openid-configuration"] = {**configuration, "issuer": "https://other.example.com"}
    assert account.refusal(forge.token()) == "IDPCommunicationError"
    forge.documents["/.well-known/openid-configuration"] = configuration
    account.assume(forge.token())
    account.iam.delete_open_id_connect_provider(OpenIDConnectProviderArn=account.provider)
    assert account.refusal(forge.token()) == "InvalidIdentityToken"


def test_an_issuer_answers_on_this_machine_alone(kit: Any) -> None:
    for url, address in (("http://a.example", "http://127.0.0.1:1"), (ISSUER, "https://example.org")):
        with pytest.raises(ValueError, match="is not"):
            kit.do("issuer", url=url, address=address)
