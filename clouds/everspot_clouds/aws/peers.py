"""How an instance on AWS proves to another cloud who it is, and how peers are let into a bucket on AWS.

An instance of AWS has no token of its own that others could verify. It signs a request for its own identity
(`GetCallerIdentity`) and hands that over; who got it sends it to AWS's Security Token Service, whose answer names the
role (Google Cloud IAM documentation, "Configure Workload Identity Federation with AWS"). A peer becomes the role that
was made for it: from another cloud by its identity token (STS API Reference, "AssumeRoleWithWebIdentity"), from AWS by
its own role ("AssumeRole").
"""

import json
import urllib.parse
from collections.abc import Callable
from datetime import UTC, timedelta
from typing import Any

import boto3
import botocore.session
from botocore import UNSIGNED
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from everspot_clouds.aws.errors import error_code, trouble
from everspot_clouds.aws.rules import dns_suffix, partition
from everspot_clouds.base import CloudError, Prover, Trouble
from everspot_clouds.base.proof import AWS_REQUEST, JWT, Proof
from everspot_clouds.federation_names import region_of_url

LIFE = timedelta(hours=1)
"""How long a role is assumed: as long as a role that assumes another one may (IAM user guide, "Role chaining")."""
_SESSION = "everspot-federation"
_LIMITS = {"connect_timeout": 5, "read_timeout": 15, "retries": {"total_max_attempts": 2, "mode": "standard"}}
_WAYS = "the peer's setting `federation` has to name this cluster's scheduler, and the network has to reach AWS's STS"


def proof(region: str) -> Prover:
    """Proofs of the instance's role, for Google Cloud's Security Token Service."""
    session = botocore.session.Session()

    def signed(audience: str) -> Proof:
        try:
            session_credentials = session.get_credentials()
            if session_credentials is None:
                raise CloudError("this instance has no role to prove who it is", Trouble.CREDENTIALS)
            keys = session_credentials.get_frozen_credentials()
        except BotoCoreError as error:
            raise CloudError(f"the instance's role cannot be obtained: {error}", trouble(error)) from None
        # Google takes STS's regional endpoints and no other ones.
        host = f"sts.{region}.{dns_suffix(partition(region))}"
        url = f"https://{host}?Action=GetCallerIdentity&Version=2011-06-15"
        # Signed with the request, the header binds it to one provider: nobody can use it with another one.
        headers = {"x-goog-cloud-target-resource": audience, "host": host}
        request = AWSRequest(method="POST", url=url, headers=headers)
        SigV4Auth(keys, "sts", region).add_auth(request)
        signed_request = {
            "url": url,
            "method": "POST",
            "headers": [{"key": key.lower(), "value": value} for key, value in request.headers.items()],
        }
        return Proof(
            AWS_REQUEST, urllib.parse.quote(json.dumps(signed_request, separators=(",", ":"), sort_keys=True)), region
        )

    return signed


def credentials(url: str, identity: str, audience: str, prove: Prover) -> Callable[[], dict[str, Any]]:
    """Return credentials of a role, for the buckets of a peer on AWS. `identity`: the role's ARN, which is also to whom
    a proof is made out if `audience` is empty."""
    peer_region = region_of_url(url)
    session = boto3.session.Session()  # not boto3's own one, which several threads must not share

    def assumed() -> dict[str, Any]:
        shown = prove(audience or identity)
        parameters = {"RoleArn": identity, "RoleSessionName": _SESSION, "DurationSeconds": int(LIFE.total_seconds())}
        try:
            if shown.kind == JWT:
                region = peer_region or shown.region
                sts = session.client("sts", region_name=region, config=Config(signature_version=UNSIGNED, **_LIMITS))
                answer = sts.assume_role_with_web_identity(**parameters, WebIdentityToken=shown.text)
            else:  # from AWS to AWS, at the endpoint of the own region
                sts = session.client("sts", region_name=shown.region, config=Config(**_LIMITS))
                answer = sts.assume_role(**parameters)
        except ClientError as error:
            raise CloudError(f"{identity} cannot be assumed: {error_code(error)}", trouble(error), _WAYS) from None
        except BotoCoreError as error:
            raise CloudError(f"{identity} cannot be assumed: {error}", trouble(error), _WAYS) from None
        except ResponseParserError:  # the answer is not from AWS
            raise CloudError(f"{identity} cannot be assumed: no answer", Trouble.TRANSIENT, _WAYS) from None
        keys = answer["Credentials"]
        return {
            "access_key_id": keys["AccessKeyId"],
            "secret_access_key": keys["SecretAccessKey"],
            "token": keys["SessionToken"],
            "expires_at": keys["Expiration"].astimezone(UTC),  # obstore takes no other zone object
        }

    return assumed
