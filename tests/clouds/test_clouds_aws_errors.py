"""One table of AWS's error codes: for the scheduler, who has exceptions, and for doctor, who has a fleet's history."""

import pytest
from botocore.exceptions import ClientError
from everspot_clouds.aws.errors import FIX, told, trouble, trouble_of
from everspot_clouds.base import Trouble


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("InsufficientInstanceCapacity", Trouble.CAPACITY),
        ("UnfulfillableCapacity", Trouble.CAPACITY),
        ("allLaunchSpecsTemporarilyBlacklisted", Trouble.CAPACITY),
        ("MaxSpotInstanceCountExceeded", Trouble.QUOTA),
        ("VcpuLimitExceeded", Trouble.QUOTA),
        ("spotInstanceCountLimitExceeded", Trouble.QUOTA),
        ("RequestLimitExceeded", Trouble.THROTTLED),
        ("UnauthorizedOperation", Trouble.CREDENTIALS),
        ("Client.AuthFailure", Trouble.CREDENTIALS),
        ("ExpiredToken", Trouble.CREDENTIALS),
        ("InternalError", Trouble.TRANSIENT),
        ("InvalidParameterValue", None),
    ],
)
def test_a_code_means_the_same_in_an_exception_and_in_a_history(code: str, kind: Trouble | None) -> None:
    assert trouble_of(code) is kind
    error = ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": 400}}, "Anything")
    assert trouble(error) is (kind or Trouble.REQUEST)


def test_a_person_is_told_the_code_and_what_to_do() -> None:
    error = told(ClientError({"Error": {"Code": "ExpiredToken", "Message": "too old"}}, "GetProducts"))
    assert str(error) == "AWS refused: ExpiredToken: too old"
    assert error.fix == FIX[Trouble.CREDENTIALS]
    assert set(FIX) == set(Trouble)
