"""Reads the secrets of jobs from Secrets Manager and Parameter Store. Values are returned and kept nowhere."""

from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from everspot_clouds.aws.errors import error_code, trouble
from everspot_clouds.aws.rules import JOBS
from everspot_clouds.base import CloudError, Trouble
from everspot_clouds.secret_values import binary, chosen

_CONFIG = Config(connect_timeout=5, read_timeout=15, retries={"total_max_attempts": 4, "mode": "standard"})
_DENIED = "name it in the cluster's setting `secretArns`, and in that of the account's bootstrap where it has one"


class AwsSecrets:
    """Reads secrets with the instance's role. `region` empty: the region of the standard environment."""

    def __init__(self, region: str) -> None:
        self._session = boto3.session.Session(region_name=region or None)

    def __call__(self, reference: str) -> str:
        """Return the value of a secret, by a reference in one of the forms of `JOBS`.

        Raises:
            CloudError: if it cannot be read. The message contains no value.
        """
        try:
            return self._value(reference)
        except ClientError as error:
            kind = trouble(error)
            raise CloudError(error_code(error), kind, _DENIED if kind is Trouble.CREDENTIALS else "") from None
        except BotoCoreError as error:
            raise CloudError(type(error).__name__, trouble(error)) from None

    def _value(self, reference: str) -> str:
        if not JOBS.accepts(reference):
            raise CloudError(f"it has to be one of {', '.join(JOBS.secrets)}", Trouble.REQUEST)
        service, _, name = reference.partition(":")
        if service == "ssm":
            answer = self._client("ssm").get_parameter(Name=name, WithDecryption=True)
            return str(answer["Parameter"]["Value"])
        name, _, key = name.partition("#")
        answer = self._client("secretsmanager").get_secret_value(SecretId=name)
        if "SecretString" not in answer:
            raise binary()
        return chosen(str(answer["SecretString"]), key)

    def _client(self, service: str) -> Any:
        return self._session.client(service, config=_CONFIG)
