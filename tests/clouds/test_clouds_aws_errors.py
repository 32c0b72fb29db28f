"""One table of AWS's error codes: for the scheduler's exceptions, and for the fleet history that doctor reads."""

import botocore.exceptions
import pytest
from botocore.exceptions import ClientError
from everspot_clouds.aws.errors import FIX, classify_code, to_cloud_error, trouble
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
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", Trouble.CREDENTIALS),
        ("ExpiredToken", Trouble.CREDENTIALS),
        ("MissingAuthenticationToken", Trouble.CREDENTIALS),
        ("IncompleteSignature", Trouble.CREDENTIALS),
        ("InvalidSignatureException", Trouble.CREDENTIALS),
        ("Blocked", Trouble.CREDENTIALS),
        ("PendingVerification", Trouble.CREDENTIALS),
        ("InternalError", Trouble.TRANSIENT),
        ("InvalidParameterValue", None),
    ],
)
def test_a_code_means_the_same_in_an_exception_and_in_a_history(code: str, kind: Trouble | None) -> None:
    assert classify_code(code) is kind
    error = ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": 400}}, "Anything")
    assert trouble(error) is (kind or Trouble.REQUEST)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (botocore.exceptions.SSOTokenLoadError(error_msg="gone"), Trouble.CREDENTIALS),
        (botocore.exceptions.UnauthorizedSSOTokenError(), Trouble.CREDENTIALS),
        (botocore.exceptions.NoAuthTokenError(), Trouble.CREDENTIALS),
        (botocore.exceptions.ProfileNotFound(profile="work"), Trouble.CREDENTIALS),
        (botocore.exceptions.NoRegionError(), Trouble.CREDENTIALS),
        (botocore.exceptions.ConfigParseError(path="config"), Trouble.CREDENTIALS),
        (botocore.exceptions.ConfigNotFound(path="config"), Trouble.CREDENTIALS),
        (botocore.exceptions.InvalidConfigError(error_msg="a profile of no kind"), Trouble.CREDENTIALS),
        (botocore.exceptions.ParamValidationError(report="Filters"), Trouble.REQUEST),
        (botocore.exceptions.EndpointConnectionError(endpoint_url="here"), Trouble.TRANSIENT),
        (botocore.exceptions.ReadTimeoutError(endpoint_url="here"), Trouble.TRANSIENT),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_botocore_finds_on_this_machine_is_not_a_matter_of_trying_again(error: Exception, kind: Trouble) -> None:
    assert trouble(error) is kind
    assert to_cloud_error(error).fix == FIX[kind]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, Trouble.REQUEST), (499, Trouble.REQUEST), (500, Trouble.TRANSIENT), (503, Trouble.TRANSIENT)],
)
def test_a_code_that_no_table_has_is_a_mistake_in_the_request_if_its_status_says_so(status: int, kind: Trouble) -> None:
    error = ClientError({"Error": {"Code": "Unheard"}, "ResponseMetadata": {"HTTPStatusCode": status}}, "Anything")
    assert trouble(error) is kind


def test_a_person_is_told_the_code_and_what_to_do() -> None:
    error = to_cloud_error(ClientError({"Error": {"Code": "ExpiredToken", "Message": "too old"}}, "GetProducts"))
    assert str(error) == "AWS refused: ExpiredToken: too old"
    assert error.fix == FIX[Trouble.CREDENTIALS]
    assert set(FIX) == set(Trouble)
