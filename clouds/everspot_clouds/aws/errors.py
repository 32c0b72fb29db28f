"""AWS's error codes, sorted by what can be done about them. Codes are compared here and nowhere else.

One service writes a code in more than one way: `SpotInstanceCountLimitExceeded` of RunInstances is
`spotInstanceCountLimitExceeded` in a fleet's history, and `Client.AuthFailure` is `AuthFailure`.
"""

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConfigNotFound,
    ConfigParseError,
    CredentialRetrievalError,
    InfiniteLoopConfigError,
    InvalidConfigError,
    NoAuthTokenError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    RefreshWithMFAUnsupportedError,
    SSOError,
    TokenRetrievalError,
)
from everspot_core.capacity.launching import LaunchTrouble

from everspot_clouds.base import CloudError, Codes, Trouble, fixes

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
        "AllLaunchSpecsTemporarilyBlacklisted",  # a fleet's history: none of its pools gave anything of late
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
        "MaxFleetCountExceeded",
    }
)
PRICE = frozenset({"SpotMaxPriceTooLow"})
"""Codes of missing capacity that mean: there is capacity, but above the maximum price."""
REQUEST = frozenset(
    {
        "EncryptedVolumesNotSupported",
        "OperationNotPermitted",
        "UnknownParameter",
        "UnsupportedOperation",
        "VPCIdNotSpecified",
    }
)
"""Mistakes of a request whose codes do not begin like the others; from CreateFleet's answers and RunInstances."""
CREDENTIALS = frozenset(
    {
        "AuthFailure",
        "AuthFailure.ServiceLinkedRoleCreationNotPermitted",  # the account lacks the role of Spot
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
        "IncompleteSignature",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "Blocked",  # the account, by AWS
        "PendingVerification",  # of a new account
        "OptInRequired",
        "AuthorizationError",
        "AWS.SimpleQueueService.NonExistentQueue.AccessDenied",
    }
)
_UNRESOLVED = ("notfound", "notfoundexception")
"""Ends of the codes for a resource that EC2 does not know: a template or its version, an image, a subnet, a key."""
_UNRESOLVED_PROFILE = ("invalid iam instance profile", "has no associated iam roles")
"""In the message of an InvalidParameterValue about a new instance profile, or one whose role is new. EC2 knows a
profile about ten seconds after IAM has created it (the Terraform provider retries both messages,
`internal/service/ec2/ec2_instance.go`)."""
TRANSIENT = frozenset(
    {"InternalError", "InternalFailure", "InternalServerError", "ServiceUnavailable", "Unavailable", "RequestTimeout"}
)
_NO_CREDENTIALS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    TokenRetrievalError,
    SSOError,  # its token is not there, or no good any more
    NoAuthTokenError,
    RefreshWithMFAUnsupportedError,
    ProfileNotFound,
    NoRegionError,
    ConfigNotFound,
    ConfigParseError,
    InfiniteLoopConfigError,
    InvalidConfigError,
)
"""botocore's own errors about credentials: its settings or its log-in on this machine are missing or wrong."""

FIX = fixes(
    "AWS",
    more="https://console.aws.amazon.com/servicequotas/home/services/ec2/quotas",
    log_in="aws configure",
)
"""The fix for each kind of failure, as a sentence."""

_CODES = Codes(
    {
        Trouble.THROTTLED: THROTTLING,
        Trouble.CAPACITY: CAPACITY,
        Trouble.QUOTA: QUOTA,
        Trouble.CREDENTIALS: CREDENTIALS,
        Trouble.TRANSIENT: TRANSIENT,
    },
    prefixes=("client.", "server."),
)


def error_code(error: Exception) -> str:
    """Return the service's error code; empty if the error did not come from a service."""
    if not isinstance(error, ClientError):
        return ""
    return str(error.response.get("Error", {}).get("Code", ""))


def classify_code(code: str) -> Trouble | None:
    """Return the kind of failure of an error code, in any of its spellings; None if no table has it."""
    return _CODES.kind(code)


def trouble(error: Exception) -> Trouble:
    """Return the kind of failure of an error. A code that no table has is a mistake in the request if its HTTP status
    is 4xx."""
    if isinstance(error, _NO_CREDENTIALS):
        return Trouble.CREDENTIALS
    listed = classify_code(error_code(error))
    if listed is not None:
        return listed
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return Trouble.REQUEST if 400 <= status < 500 else Trouble.TRANSIENT
    if isinstance(error, ParamValidationError):
        return Trouble.REQUEST
    return Trouble.TRANSIENT if isinstance(error, BotoCoreError | OSError) else Trouble.REQUEST


def launch_trouble(code: str) -> LaunchTrouble:
    """Return the kind of failure of an error in a CreateFleet answer, which has a code and no status. Codes that no
    table has are mistakes of the request if they begin with `Invalid`, `Missing` or `Malformed`, as everywhere in EC2
    (EC2 Developer Guide, "Error codes for the Amazon EC2 API"). The rest is transient."""
    if _CODES.among(code, PRICE):
        return LaunchTrouble.PRICE
    listed = classify_code(code)
    if listed is not None:
        return LaunchTrouble(listed.value)
    wrong = _CODES.among(code, REQUEST) or _CODES.plain(code).startswith(("invalid", "missing", "malformed"))
    return LaunchTrouble.REQUEST if wrong else LaunchTrouble.TRANSIENT


def is_unresolved(code: str, message: str) -> bool:
    """Return whether a request names a resource that EC2 does not know. It may only not know it yet (EC2 Developer
    Guide, "Eventual consistency in the Amazon EC2 API")."""
    if _CODES.plain(code) == "invalidparametervalue":
        return any(words in message.lower() for words in _UNRESOLVED_PROFILE)
    return _CODES.plain(code).endswith(_UNRESOLVED)


def to_cloud_error(error: Exception) -> CloudError:
    """Return the error in words for people, with a fix."""
    kind = trouble(error)
    if not isinstance(error, ClientError):
        return CloudError(str(error), kind, FIX[kind])
    return CloudError(f"AWS refused: {format_error(error)}", kind, FIX[kind])


def format_error(error: ClientError) -> str:
    """Return the error's code and message in the service's words."""
    return f"{error_code(error)}: {error.response.get('Error', {}).get('Message', '')}"
