"""Translates a bucket's refusals into the store's errors, by obstore's exception and, where that is ambiguous, by the
text of the answer."""

import re

from obstore.exceptions import AlreadyExistsError, PermissionDeniedError, PreconditionError, UnauthenticatedError

from everspot_store.backend import WriteOutcome
from everspot_store.certificates import untrusted
from everspot_store.errors import StoreBusy, StoreDenied, StoreError, StoreMissing, StoreUnavailable

# obstore reports a refused listing as an error of no kind: only its text has the status.
_DENIED = (
    *("<Code>ExpiredToken", "<Code>InvalidToken", "<Code>InvalidAccessKeyId", "<Code>SignatureDoesNotMatch"),
    "403 Forbidden",
)
# S3's answers to a signature for the wrong region, and to a request at the wrong region's endpoint.
_WRONG_REGION = ("<Code>AuthorizationHeaderMalformed", "<Code>PermanentRedirect", "incorrectly configured region")
_BAD_REQUEST = ("301 Moved Permanently", "405 Method Not Allowed", "InvalidPath")
_BUSY = "429 Too Many Requests"
# obstore reports every failure of a credential provider as a refusal; its text names the provider's exception.
_NO_ANSWER = "credential provider: ConnectionError"
# What rustls and the operating system say, inside the Rust debug output.
_REFUSED_CERTIFICATE = re.compile(r"InvalidCertificate\(\s*(\w+)")
_CAUSE = re.compile(r'(?:message|error): "([^"]+)"')
_NO_RESPONSE = re.compile(r"Error performing (\w+) \S+ in (\S+?)(?:, after \d+ retries,.*)? - HTTP error: (.+)")


class Refused(StoreUnavailable):
    """A conditional write that was answered with 409 or 412."""

    def __init__(self, outcome: WriteOutcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


def translated(bucket: str, key: str, error: Exception) -> Exception:
    """Return the store's own error for one of obstore's. `bucket`: its URL."""
    text = str(error)
    where = f"{bucket}/{key}: {short(error)}"
    if "<Code>NoSuchBucket" in text:
        return StoreMissing(f"bucket {bucket} does not exist")
    if _BUSY in text:
        return StoreBusy(where)
    if "409 Conflict" in text:  # obstore reports it as AlreadyExistsError: only the text distinguishes it
        return Refused(WriteOutcome.CONFLICT, where)
    if isinstance(error, AlreadyExistsError | PreconditionError):
        return Refused(WriteOutcome.LOST, where)
    if _NO_ANSWER in text:
        return StoreUnavailable(where)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or any(code in text for code in _DENIED):
        return StoreDenied(where)
    if any(code in text for code in _WRONG_REGION):
        return StoreError(f"{bucket} lies in {_describe_region(text)}: its URL has to say so, {bucket}?region=…")
    if isinstance(error, FileNotFoundError) or any(code in text for code in _BAD_REQUEST):
        return StoreError(where)
    if certificate := _REFUSED_CERTIFICATE.search(text):
        return untrusted(bucket, certificate[1])
    return StoreUnavailable(_no_response_message(bucket, key, error) or where)


def short(error: BaseException) -> str:
    """Return the first sentence of the error, without the Rust debug output that obstore appends."""
    return str(error).split("\n\nDebug source:")[0]


def _describe_region(text: str) -> str:
    """Return the region that S3's refusal names."""
    match = re.search(r"<Region>([a-z0-9-]+)</Region>", text)
    return f"region {match[1]}" if match else "another region"


def _no_response_message(bucket: str, key: str, error: Exception) -> str:
    """Return the message for a bucket that did not answer at all; empty if it answered."""
    match = _NO_RESPONSE.search(short(error))
    if match is None:
        return ""
    method, took, failure = match.groups()
    cause = ": ".join([failure, *_CAUSE.findall(str(error))[-1:]])
    return f"{bucket} does not answer ({method} {key or 'of a listing'}: {cause}, after {_rounded(took)})"


def _rounded(took: str) -> str:
    """Return a time as Rust writes it, such as 10.005391791s, with as many digits as matter."""
    number = re.match(r"[\d.]+", took)
    return took if number is None else f"{float(number[0]):.3g} {took[number.end() :]}"
