"""EC2's and SQS's error codes, sorted by what can be done about them. Codes are compared here and nowhere else."""

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)

from everspot_clouds.base import Trouble

THROTTLING = frozenset(
    {
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequestsException",
        "RequestThrottled",
        "SlowDown",
        "EC2ThrottledException",
        "BandwidthLimitExceeded",
    }
)
CAPACITY = frozenset(
    {
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientCapacity",
        "InsufficientFreeAddressesInSubnet",
        "UnfulfillableCapacity",
        "Unsupported",
        "InvalidFleetConfiguration",  # CreateFleet's word for a type that a zone lacks
        "ReservationCapacityExceeded",
        "SpotMaxPriceTooLow",
    }
)
QUOTA = frozenset(
    {
        "VcpuLimitExceeded",
        "InstanceLimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "MaxSpotFleetRequestCountExceeded",
        "SpotInstanceCountLimitExceeded",
        "MaxIOPSLimitExceeded",
        "VolumeLimitExceeded",
    }
)
CREDENTIALS = frozenset(
    {
        "AuthFailure",
        "AccessDenied",
        "AccessDeniedException",
        "UnauthorizedOperation",
        "UnrecognizedClientException",
        "InvalidClientTokenId",
        "InvalidAccessKeyId",
        "ExpiredToken",
        "ExpiredTokenException",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "OptInRequired",
        "AuthorizationError",
        "AWS.SimpleQueueService.NonExistentQueue.AccessDenied",
    }
)
TRANSIENT = frozenset(
    {"InternalError", "InternalFailure", "InternalServerError", "ServiceUnavailable", "Unavailable", "RequestTimeout"}
)
_NO_CREDENTIALS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)


def code_of(error: Exception) -> str:
    """The service's error code; empty if it is no answer of a service."""
    if not isinstance(error, ClientError):
        return ""
    return str(error.response.get("Error", {}).get("Code", ""))


def trouble(error: Exception) -> Trouble:
    """What can be done about an error. What no set names is a mistake of the request if AWS calls it one (4xx)."""
    if isinstance(error, _NO_CREDENTIALS):
        return Trouble.CREDENTIALS
    code = code_of(error)
    for codes, kind in (
        (THROTTLING, Trouble.THROTTLED),
        (CAPACITY, Trouble.CAPACITY),
        (QUOTA, Trouble.QUOTA),
        (CREDENTIALS, Trouble.CREDENTIALS),
        (TRANSIENT, Trouble.TRANSIENT),
    ):
        if code in codes:
            return kind
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return Trouble.REQUEST if 400 <= status < 500 else Trouble.TRANSIENT
    return Trouble.TRANSIENT if isinstance(error, BotoCoreError | OSError) else Trouble.REQUEST
