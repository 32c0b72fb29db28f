"""What the tests of refusals have in common."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from botocore.exceptions import ClientError


@contextmanager
def refused(code: str, words: str = "") -> Iterator[None]:
    """What happens within is refused, by this code and in these words."""
    with pytest.raises(ClientError) as caught:
        yield
    assert caught.value.response["Error"]["Code"] == code
    assert words in caught.value.response["Error"]["Message"]


def root(**ebs: Any) -> dict[str, Any]:
    """The root volume of a launch."""
    return {"BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": ebs}]}
