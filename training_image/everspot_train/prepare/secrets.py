"""Reads a job's secrets by name, with the instance's role. They live in this process and its children only."""

import json
from collections.abc import Mapping
from typing import Any

from everspot_train.prepare.errors import NotReady

_DENIED = ("AccessDenied", "AccessDeniedException")
_LONGEST = 120 * 1024  # bytes: Linux takes 128 KiB for one variable


def read_secrets(references: Mapping[str, str], region: str) -> dict[str, str]:
    """The values by variable. Nothing is asked where nothing is wanted, and boto3 is not imported then.

    Raises:
        NotReady: for the first that cannot be had; its name is told, no value ever is.
    """
    if not references:
        return {}
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    config = Config(connect_timeout=5, read_timeout=15, retries={"total_max_attempts": 4, "mode": "standard"})
    session = boto3.session.Session(region_name=region or None)
    found = {}
    for variable, reference in references.items():
        try:
            found[variable] = _value(session, config, reference)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            fix = ": name it in the cluster's setting `secrets`" if code in _DENIED else ""
            raise NotReady(f"secret {reference} for {variable} cannot be read: {code}{fix}") from None
        except BotoCoreError as error:
            raise NotReady(f"secret {reference} for {variable} cannot be read: {type(error).__name__}") from None
        if "\0" in found[variable] or len(found[variable].encode()) > _LONGEST:
            raise NotReady(f"secret {reference} for {variable} is no value that a variable can hold")
    return found


def _value(session: Any, config: Any, reference: str) -> str:
    service, _, name = reference.partition(":")
    if service == "ssm":
        answer = session.client("ssm", config=config).get_parameter(Name=name, WithDecryption=True)
        return str(answer["Parameter"]["Value"])
    name, _, key = name.partition("#")
    answer = session.client("secretsmanager", config=config).get_secret_value(SecretId=name)
    if "SecretString" not in answer:
        raise NotReady(f"secret {name} is binary: only text can be a variable")
    text = str(answer["SecretString"])
    if not key:
        return text
    try:
        value = json.loads(text)[key]
    except (ValueError, KeyError, TypeError):
        raise NotReady(f"secret {name} is no JSON object with the key {key}") from None
    return value if isinstance(value, str) else json.dumps(value)
