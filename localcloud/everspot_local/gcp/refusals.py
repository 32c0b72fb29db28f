"""Stands in for the words that several Google APIs have for the same refusal; those of one product lie beside it."""

from everspot_local.gcp.answers import ApiError


def bad(message: str) -> ApiError:
    """A request that is wrong in itself."""
    return ApiError(400, "badRequest", message)


def absent(message: str) -> ApiError:
    """A resource that is not there."""
    return ApiError(404, "notFound", message)


def taken(message: str) -> ApiError:
    """A resource that is there already."""
    return ApiError(409, "alreadyExists", message)


def aborted(message: str) -> ApiError:
    """Somebody else was faster: to be done again from the reading on."""
    return ApiError(409, "aborted", message, code="ABORTED")


def unready(message: str) -> ApiError:
    """A request that is right, of a resource that is not in the state for it."""
    return ApiError(400, "failedPrecondition", message, code="FAILED_PRECONDITION")


def exhausted(message: str) -> ApiError:
    """A quota, or a pace, that is over."""
    return ApiError(429, "rateLimitExceeded", message)
