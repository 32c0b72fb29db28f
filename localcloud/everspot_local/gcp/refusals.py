"""Stands in for error messages that several Google APIs share; those of one product are beside it."""

from everspot_local.gcp.answers import ApiError


def bad(message: str) -> ApiError:
    """Return the error for an invalid request."""
    return ApiError(400, "badRequest", message)


def absent(message: str) -> ApiError:
    """Return the error for a resource that does not exist."""
    return ApiError(404, "notFound", message)


def exists_already(message: str) -> ApiError:
    """Return the error for a resource that exists already."""
    return ApiError(409, "alreadyExists", message)


def aborted(message: str) -> ApiError:
    """Return the error for a concurrent change: the caller has to read again and retry."""
    return ApiError(409, "aborted", message, code="ABORTED")


def unready(message: str) -> ApiError:
    """Return the error for a valid request to a resource in the wrong state."""
    return ApiError(400, "failedPrecondition", message, code="FAILED_PRECONDITION")


def exhausted(message: str) -> ApiError:
    """Return the error for an exhausted quota or rate."""
    return ApiError(429, "rateLimitExceeded", message)
