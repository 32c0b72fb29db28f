"""Helpers for the tests of refusals."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from botocore.exceptions import ClientError

ACCOUNT = "123456789012"
BUCKET = "arn:aws:s3:::everspot-a"


def document(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


TRUST = document({"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"})
READ = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": f"{BUCKET}/*"}


@contextmanager
def refused(code: str, words: str = "", status: int | None = None) -> Iterator[None]:
    """Check that the block is refused with this code, this message, and this HTTP status if one is given."""
    with pytest.raises(ClientError) as caught:
        yield
    assert caught.value.response["Error"]["Code"] == code
    assert words in caught.value.response["Error"]["Message"]
    if status is not None:
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == status


def root(**ebs: Any) -> dict[str, Any]:
    """The root volume of a launch."""
    return {"BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": ebs}]}


def outcome(call: Callable[..., Any], **arguments: Any) -> str:
    """The code of a refusal, or `ok`."""
    try:
        call(**arguments)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "ok"
